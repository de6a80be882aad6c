"""A run: an immutable sorted array of entries, consumed from its front.

Invariants: the entries are sorted and without repeats; `at` only grows; entries before `at` went to the
owner.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Protocol

from tidegate.index.entries.checks import require, require_run
from tidegate.index.entries.entry import Entries, EntryKey
from tidegate.index.timeline.in_flight import InFlightEntries


class Owner(Protocol):
    """The owner of a run, which must produce its entries again after a rewind."""

    in_flight: InFlightEntries
    """Keeps the consumed entries that are still held."""

    def consumed(self, run: Run, count: int) -> None:
        """Note that `count` entries of the front of `run` were consumed."""
        ...


class Run:
    """Sorted entries, and how far they are consumed.

    Searched with `bisect`, not with NumPy, which releases the interpreter lock each time: a single look-up
    would wait for the lock a thousand times as long as it takes.
    """

    __slots__ = ("at", "entries", "owner")

    def __init__(self, entries: Entries, owner: Owner) -> None:
        self.entries = entries
        self.at = 0
        self.owner = owner

    def __len__(self) -> int:
        return len(self.entries) - self.at

    def left(self) -> Entries:
        """The entries not consumed; a view."""
        return self.entries.part(self.at, len(self.entries))

    def key(self) -> EntryKey:
        """Key of the first entry not consumed. There must be one."""
        return self.entries.key(self.at)

    def due_stop(self, now_ms: int) -> int:
        """Index after the last entry with deliver_at_ms <= now_ms."""
        return bisect_right(self.entries.deliver_at_ms, now_ms, self.at)

    def check(self, key: EntryKey | None) -> None:
        """Raise CheckError if an invariant does not hold; `key` is the run's key in the heap."""
        require(self.at < len(self.entries), "a consumed run is in use")
        require(key == self.key(), f"a run that starts at {self.key()} is in the heap at {key}")
        require_run(self.entries, "a run")

    def stop(self, key: EntryKey, *, inclusive: bool) -> int:
        """Index after the last entry before `key`, or equal to it if `inclusive`; at least `at`."""
        low, high = 0, len(self.entries)
        for column, value in zip(
            (self.entries.deliver_at_ms, self.entries.ledger_id, self.entries.entry_id), key, strict=True
        ):
            low, high = bisect_left(column, value, low, high), bisect_right(column, value, low, high)
            if low == high:
                break
        return max(self.at, high if inclusive else low)
