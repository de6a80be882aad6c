"""The store in RocksDB: its directory, its families, and the signs of a loss."""
