"""Where index logs are kept: in BookKeeper through the broker, or in a store of objects."""
