"""`tidegate rebuild` and `tidegate verify`: an index from its topic, and an index compared with its topic."""
