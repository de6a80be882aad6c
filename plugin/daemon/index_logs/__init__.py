"""Index logs: how they are written, and read by the next owner."""
