"""Bulk work on topics and traces, on Spark: rebuild, tune, audit, verify, and the data source under them.

Invariants: this package, and all that reports missing requirements, imports without Spark and Arrow; the
broker's path (`index/`, `plugin/`) imports nothing from here.
"""
