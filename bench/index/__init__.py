"""The bench ``index``: the index in one process, as the daemon uses it."""
