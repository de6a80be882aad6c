"""Bulk work on topics and traces, on Spark: rebuild, tune, audit, verify, and the data source under them.

Invariants: this package, and the parts of it that the command line needs to report missing requirements,
import without Spark and Arrow; the broker's path (`index/`, `plugin/`) imports nothing from here.
"""
