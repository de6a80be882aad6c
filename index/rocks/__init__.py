"""The store in RocksDB: its directory, its families, and what shows that it has lost something."""
