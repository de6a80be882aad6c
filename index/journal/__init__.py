"""The journal, and the recovery of all state from it and the store."""
