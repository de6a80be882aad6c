"""One subscription's index: its changes, its upkeep, and the whole of it."""
