"""A topic changes its owner, on a real cluster."""
