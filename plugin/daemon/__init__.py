"""``tidegate serve``: the process beside a broker that keeps the index and says what is due."""
