"""``tidegate serve``: the process beside a broker that keeps the index and hands out due entries."""
