"""The journal in RocksDB beside an append-only file of our own."""
