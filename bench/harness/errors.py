"""What can go wrong in a bench; every message says what to do."""

from __future__ import annotations


class BenchError(Exception):
    """A bench could not run; the message names the missing part or the log to look at."""


class DeadlineError(BenchError):
    """Something that the bench waits for did not happen in time."""
