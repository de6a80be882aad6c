"""The ledgers of a topic that waiting messages keep from deletion."""
