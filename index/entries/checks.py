"""Helpers for the `check()` of each part, which walks every invariant and reports the first broken one.

For tests and for a doubtful data directory: slow, because it reads everything, every block included.
"""

from __future__ import annotations

from tidegate.index.entries.entry import Entries
from tidegate.index.errors import CheckError


def require(holds: bool, message: str) -> None:
    """Raise CheckError with `message` unless `holds`."""
    if not holds:
        raise CheckError(message)


def require_run(entries: Entries, what: str) -> None:
    """Require a run to be sorted and without repeats."""
    require(entries.is_sorted(), f"{what} is not sorted")
    require(len(entries.unique()) == len(entries), f"{what} has repeats")
