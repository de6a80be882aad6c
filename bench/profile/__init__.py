"""The bench ``profile``: the distribution of the nanoseconds."""
