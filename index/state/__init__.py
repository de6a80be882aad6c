"""The state of one subscription: sets of positions, moved times, the owner's claim."""
