"""Loads blocks that are due soon, the most urgent subscription first.

Invariant: between two calls the heap has exactly the subscriptions of the catalog that are not parked and
have a block to load, each at the due time of that block.
"""

from __future__ import annotations

from collections.abc import Callable

from heapdict import heapdict

from tidegate.index.clock import Clock
from tidegate.index.subscription.delay_index import DelayIndex

LOAD_AHEAD_NS = 5_000_000
"""Loading ahead stops after this: others wait."""


class LoadingAhead:
    """Loads ahead. is_here: False for an index that the catalog does not have."""

    def __init__(self, clock: Clock, prefetch_ms: int, is_here: Callable[[DelayIndex], bool]) -> None:
        self._clock = clock
        self._prefetch_ms = prefetch_ms
        self._is_here = is_here
        self._to_load: heapdict = heapdict()
        """Unparked subscriptions, by the due time of the next block to load."""
        self._parked: set[DelayIndex] = set()

    def park(self, index: DelayIndex) -> None:
        """Load nothing ahead for a subscription until `unpark`: due entries have no taker (no credit)."""
        if index not in self._parked and self._is_here(index):
            self._parked.add(index)
            self.next_load_changed(index)

    def unpark(self, index: DelayIndex) -> None:
        """Load ahead for a subscription again."""
        if index in self._parked:
            self._parked.discard(index)
            self.next_load_changed(index)

    def next_load_changed(self, index: DelayIndex) -> None:
        """Note that another block of an index is the next to load."""
        left_out = index in self._parked or not self._is_here(index)
        at_ms = None if left_out else index.timeline.next_load_ms()
        if at_ms is None:
            if index in self._to_load:
                del self._to_load[index]
        elif self._to_load.get(index) != at_ms:
            self._to_load[index] = at_ms

    def forget(self, index: DelayIndex) -> None:
        """Forget a subscription that the catalog removes."""
        self._to_load.pop(index, None)
        self._parked.discard(index)

    def load(self, now_ms: int) -> None:
        """Load a block for each subscription with one due soon, for a few ms. Raises StorageError."""
        before_ms = now_ms + self._prefetch_ms
        begin_ns = self._clock.monotonic_ns()
        looked: list[DelayIndex] = []
        try:
            while self._to_load and self._to_load.peekitem()[1] <= before_ms:
                index, _ = self._to_load.popitem()
                looked.append(index)
                index.timeline.load_next(now_ms)
                self._to_load.pop(index, None)  # its next block waits until the others had a turn
                if self._clock.monotonic_ns() - begin_ns > LOAD_AHEAD_NS:
                    break
        finally:
            for index in looked:
                self.next_load_changed(index)
