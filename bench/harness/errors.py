"""Errors of a bench; every message says what to do."""

from __future__ import annotations


class BenchError(Exception):
    """A bench could not run; the message names the missing part or the log to look at."""


class DeadlineError(BenchError):
    """An event did not happen in time."""
