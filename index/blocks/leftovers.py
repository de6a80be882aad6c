"""Leftovers of failed and overtaken jobs in the store of a subscription, for its next persist to repair.

orphans: keys that do not count. uncertain: slices whose record may or may not be written, because a failed
write may have happened. cleared: slices of before a CLEAR.

Invariants: only a persist writes the record of an uncertain slice, and it writes all of them; nothing that
counts is an orphan or cleared (walked by `check`), because the next persist deletes those.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from tidegate.index.entries.checks import require
from tidegate.index.format.keys import SliceId


class Remains(NamedTuple):
    """The leftovers for a beginning persist to repair."""

    orphans: tuple[bytes, ...]
    uncertain: frozenset[SliceId]
    cleared: frozenset[SliceId]


class Leftovers:
    """Collects the leftovers."""

    def __init__(self) -> None:
        self._orphans: list[bytes] = []
        self._uncertain: set[SliceId] = set()
        self._cleared: set[SliceId] = set()

    @property
    def certain(self) -> bool:
        """True if the store's record of each slice is certain."""
        return not self._uncertain

    def __bool__(self) -> bool:
        return bool(self._orphans or self._uncertain or self._cleared)

    def orphan(self, keys: Iterable[bytes]) -> None:
        """Add keys that may be in the store, and do not count."""
        self._orphans.extend(keys)

    def doubt(self, slices: Iterable[SliceId]) -> None:
        """Add slices whose records may or may not be written."""
        self._uncertain.update(slices)

    def clear(self, slices: Iterable[SliceId]) -> None:
        """Add slices of before a CLEAR."""
        self._cleared.update(slices)

    def remains(self) -> Remains:
        """All leftovers, for a persist."""
        return Remains(tuple(self._orphans), frozenset(self._uncertain), frozenset(self._cleared))

    def done(self, remains: Remains) -> None:
        """Forget the leftovers that a persist has repaired."""
        self._orphans = self._orphans[len(remains.orphans) :]
        self._uncertain -= remains.uncertain
        self._cleared -= remains.cleared

    def check(self, slices: Collection[SliceId], keys: Collection[bytes]) -> None:
        """Raise CheckError if one of these slices or keys, which count, would be deleted."""
        again = self._cleared.intersection(slices)
        require(not again, f"slices from before a CLEAR are back: {again}")
        counting = {key.hex() for key in set(self._orphans).intersection(keys)}
        require(not counting, f"orphans that count: {counting}")
