"""Entries in flight: handed out and perhaps not yet acknowledged, kept for a rewind.

Invariants: every held entry that was appended is still there; a prune drops dead ones, at an amortised
constant cost an entry.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.index.entries.entry import Entries
from tidegate.index.state.positions import Position, PositionSet

_PRUNE_MIN = 4_096
_PART_MIN = 1_024
"""Fewer entries are not worth a set of positions of their own."""
_LOOSE_MAX = 64


class _Part(NamedTuple):
    """Entries and their positions, for look-ups in bulk."""

    entries: Entries
    positions: PositionSet


class InFlightEntries:
    """Arrays of entries in flight; `len` counts dead ones, too."""

    __slots__ = ("_count", "_loose", "_parts", "_prune_at")

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._loose: list[Entries] = []
        self._count = 0
        self._prune_at = _PRUNE_MIN

    def __len__(self) -> int:
        return self._count

    def parts(self) -> list[Entries]:
        """All entries, in no order."""
        return [part.entries for part in self._parts] + self._loose

    def append(self, entries: Entries, held: PositionSet, positions: PositionSet | None = None) -> None:
        """Keep `entries`; now and then drop those no longer in `held`.

        positions: those of `entries`, if known; unchanged from then on.
        """
        if not len(entries):
            return
        self._count += len(entries)
        if positions is None or len(entries) < _PART_MIN:
            self._loose.append(entries)
            if len(self._loose) > _LOOSE_MAX:
                self._gather()
        else:
            self._parts.append(_Part(entries, positions))
        if self._count >= self._prune_at:
            self.prune(held)

    def prune(self, held: PositionSet) -> int:
        """Drop entries not in `held`, if they are many; returns how many are in `held`."""
        loose, self._loose = Entries.concat(self._loose), []
        kept = loose.take(held.contains(loose))
        live = len(kept)
        parts, self._parts = self._parts, []
        for part in parts:
            count = part.positions.count_in(held)
            live += count
            if 2 * count > len(part.entries):
                self._parts.append(part)
            elif count:
                # `take` copies, which frees the larger arrays behind the views.
                self._keep(part.entries.take(held.contains(part.entries)))
        if len(kept):
            self._loose.append(kept)
        self._gather()
        self._count = sum(map(len, self.parts()))
        self._prune_at = max(_PRUNE_MIN, 2 * self._count)
        return live

    def last_in(self, held: PositionSet) -> Position:
        """The position of the last appended entry that is in `held`. There must be one."""
        for entries in reversed(self.parts()):
            there = np.flatnonzero(held.contains(entries))
            if len(there):
                at = int(there[-1])
                return int(entries.ledger_id[at]), int(entries.entry_id[at])
        raise ValueError("nothing in flight is held")

    def pop_all(self) -> list[Entries]:
        """Take all entries out."""
        parts = self.parts()
        self._parts, self._loose = [], []
        self._count = 0
        self._prune_at = _PRUNE_MIN
        return parts

    def _gather(self) -> None:
        if self._loose:
            together = Entries.concat(self._loose)
            self._loose = []
            self._keep(together)

    def _keep(self, entries: Entries) -> None:
        if len(entries) < _PART_MIN:
            self._loose.append(entries)
        else:
            self._parts.append(_Part(entries, PositionSet.of_entries(entries)))
