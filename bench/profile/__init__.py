"""The bench ``profile``: where the nanoseconds go."""
