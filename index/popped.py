"""Entries handed out and perhaps not yet acknowledged, kept so that a rewind can produce them again.

Invariants: every held entry that was appended is still there; dead ones go when the log is pruned, which
costs an amortised constant an entry.
"""

from __future__ import annotations

from tidegate.index.entry import Entries
from tidegate.index.positions import PositionSet

_PRUNE_MIN = 4_096


class PoppedLog:
    """Arrays of handed-out entries, `len` counts them with the dead ones."""

    __slots__ = ("_count", "_parts", "_prune_at")

    def __init__(self) -> None:
        self._parts: list[Entries] = []
        self._count = 0
        self._prune_at = _PRUNE_MIN

    def __len__(self) -> int:
        return self._count

    def parts(self) -> list[Entries]:
        """All entries, in no order."""
        return list(self._parts)

    def append(self, entries: Entries, held: PositionSet) -> None:
        """Keep `entries`; now and then those no longer in `held` are let go."""
        if len(entries):
            self._parts.append(entries)
            self._count += len(entries)
            if self._count >= self._prune_at:
                self.prune(held)

    def prune(self, held: PositionSet) -> int:
        """Let go of entries not in `held`; how many are left. O(n log n) in the entries kept."""
        if self._parts:
            together = Entries.concat(self._parts)
            # `take` copies, which lets go of the larger arrays that the parts are views of.
            kept = together.take(held.contains(together))
            self._parts = [kept] if len(kept) else []
            self._count = len(kept)
            self._prune_at = max(_PRUNE_MIN, 2 * self._count)
        return self._count

    def take(self) -> list[Entries]:
        """All entries; the log is empty afterwards."""
        parts, self._parts = self._parts, []
        self._count = 0
        self._prune_at = _PRUNE_MIN
        return parts
