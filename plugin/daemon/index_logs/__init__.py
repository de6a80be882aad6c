"""Index logs: their writing, and their reading by the next owner."""
