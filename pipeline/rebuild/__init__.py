"""`tidegate rebuild` and `tidegate verify`: an index from its topic, and an index against its topic."""
