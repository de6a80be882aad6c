"""The bench ``scale``: the index at 100 million entries."""
