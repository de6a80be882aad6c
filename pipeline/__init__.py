"""Bulk work on topics and traces, on Spark: rebuild, tune, audit, verify, and the data source under them.

Invariants: importing this package, or anything that the command line needs to say what is missing, imports
neither Spark nor Arrow; the broker's path (`index/`, `plugin/`) imports nothing of it.
"""
