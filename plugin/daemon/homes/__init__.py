"""The homes of index logs: BookKeeper through the broker, or a store of objects."""
