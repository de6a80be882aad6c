"""The finished slices of a timeline: their entries, which a persist drops, and the time since they wait.

Invariant: a slice counts from its end until a persist begins, or again if that fails.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.index.clock import Clock
from tidegate.index.timeline.slices import Slice


class FinishedSlices:
    """Counts them. drop_entries: so many are worth a persist for their own sake."""

    def __init__(self, clock: Clock, drop_entries: int) -> None:
        self._clock = clock
        self._drop_entries = drop_entries
        self.entries = 0
        """Of those that no persist drops yet."""
        self._since_ms: int | None = None

    def add(self, each: Slice) -> None:
        """Note that a slice was finished."""
        self.entries += each.entries
        if self._since_ms is None:
            self._since_ms = self._clock.now_ms()

    def count(self, slices: Iterable[Slice]) -> None:
        """Count those among all slices anew."""
        finished = [each.entries for each in slices if each.finished]
        self.entries = sum(finished)
        if not finished:
            self._since_ms = None

    def drop(self) -> None:
        """Note that a persist begins, which drops all of them."""
        self.entries = 0

    def worth_dropping(self, *, all_dead: bool) -> bool:
        """True if they have many entries, or any where no entry is held."""
        return self.entries >= self._drop_entries or (self.entries > 0 and all_dead)

    @property
    def since_ms(self) -> int | None:
        """Since when some have waited for a persist; None without one."""
        return self._since_ms
