"""Entries generated from their number alone, and a check of their return.

The ``n``-th entry has the ``n``-th position and a hash of ``n`` as deliver_at, so checking needs no memory.
Pure, except for the tally.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidegate.index import Entries

ENTRIES_PER_LEDGER = 50_000
START_MS = 1_800_000_000_000


def hashed(number: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Evenly spread 64-bit values, one for each number (the finaliser of SplitMix64)."""
    value = number.astype(np.uint64)
    value *= np.uint64(0x9E3779B97F4A7C15)
    value ^= value >> np.uint64(30)
    value *= np.uint64(0xBF58476D1CE4E5B9)
    value ^= value >> np.uint64(27)
    value *= np.uint64(0x94D049BB133111EB)
    value ^= value >> np.uint64(31)
    return value


@dataclass(frozen=True)
class Source:
    """Entries 0 … due evenly over ``span_ms`` from ``first_ms`` on, plus ``step_ns`` an entry.

    With a step they arrive in turn, ``delay_ms`` or more before they are due; with ``span_ms`` 1 exactly
    that.
    """

    span_ms: int
    first_ms: int = START_MS
    step_ns: int = 0
    delay_ms: int = 0

    def arrival_ms(self, number: int) -> int:
        """An entry's arrival, if the source has steps: before it is due or when it is."""
        return self.first_ms - self.delay_ms + number * self.step_ns // 1_000_000

    def deliver_at_ms(self, number: NDArray[np.int64]) -> NDArray[np.int64]:
        """The due time of each of these entries."""
        due = np.full(len(number), self.first_ms, np.int64)
        if self.span_ms > 1:
            spread = (hashed(number) >> np.uint64(11)).astype(np.float64) * (self.span_ms / (1 << 53))
            due += spread.astype(np.int64)
        if self.step_ns:
            due += number * self.step_ns // 1_000_000
        return due

    def entries(self, start: int, count: int) -> Entries:
        """The entries from number ``start`` on."""
        return self.numbered(np.arange(start, start + count, dtype=np.int64))

    def numbered(self, number: NDArray[np.int64]) -> Entries:
        """The entries of these numbers."""
        return Entries(
            self.deliver_at_ms(number), 1 + number // ENTRIES_PER_LEDGER, number % ENTRIES_PER_LEDGER
        )


@dataclass
class Tally:
    """Entries out of an index beside the source: missing, wrong, early, out of order.

    ``wrong`` counts entries with another deliver_at than the source's, plus one if the sum of positions
    differs (one repeated instead of another).
    """

    source: Source
    first: int = 0
    popped: int = 0
    early: int = 0
    out_of_order: int = 0
    wrong: int = 0
    number_sum: int = 0
    _last: tuple[int, int, int] = (-1, -1, -1)

    def examine(self, entries: Entries, now_ms: int, *, follows: bool = True) -> None:
        """Examine a pop's result at ``now_ms``.

        ``follows``: nothing was added since the pop before, so the order continues.
        """
        if not len(entries):
            return
        due, ledger, entry = entries.deliver_at_ms, entries.ledger_id, entries.entry_id
        number = (ledger - 1) * ENTRIES_PER_LEDGER + entry
        first = (int(due[0]), int(ledger[0]), int(entry[0]))
        step = np.diff(due)
        self.out_of_order += int(((step < 0) | ((step == 0) & (np.diff(number) <= 0))).sum())
        self.out_of_order += int(follows and first <= self._last)
        self._last = (int(due[-1]), int(ledger[-1]), int(entry[-1]))
        self.early += int((due > now_ms).sum())
        self.wrong += int((due != self.source.deliver_at_ms(number)).sum())
        self.popped += len(entries)
        self.number_sum += int(number.sum())

    def check(self, count: int, held: int = 0) -> dict[str, float]:
        """The verdict on ``count`` entries from ``first`` on, of which ``held`` are still in the index."""
        repeated = self.popped == count and self.number_sum != count * (2 * self.first + count - 1) // 2
        return {
            "missing": count - self.popped - held,
            "wrong": self.wrong + int(repeated),
            "early": self.early,
            "out_of_order": self.out_of_order,
        }
