"""One subscription's delay index."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tidegate.index.entry import Entries
from tidegate.index.names import SubscriptionName
from tidegate.index.positions import PositionSet
from tidegate.index.stats import IndexStats


class DelayIndex:
    """All entries of one subscription. Obtained from Catalog only."""

    def __init__(
        self,
        name: SubscriptionName,
        incarnation: bytes,
        slice_width_ms: int,
        changed: Callable[[DelayIndex], int],
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        self._held = PositionSet()
        self._acknowledged = PositionSet()
        self._popped = PositionSet()
        self._entries = Entries.empty()
        self._mark = (-1, -1)
        self._width_ms = slice_width_ms
        self._changed = changed

    def add(self, entries: Entries) -> int:
        """Stage new entries."""
        known = self._held.contains(entries) | self._acknowledged.contains(entries)
        known |= (entries.ledger_id < self._mark[0]) | (
            (entries.ledger_id == self._mark[0]) & (entries.entry_id <= self._mark[1])
        )
        new = entries.take(~known)
        self._held.add(new)
        self._entries = Entries.concat([self._entries, new]).sorted()
        return self._changed(self)

    def pop_due(self, now_ms: int, limit: int) -> Entries:
        """Hand out what is due."""
        due = self._entries.part(0, int(np.searchsorted(self._entries.deliver_at_ms, now_ms, side="right")))
        due = due.take(self._held.contains(due) & ~self._popped.contains(due)).part(0, limit)
        self._popped.add(due)
        self._changed(self)
        return due

    def next_due_ms(self) -> int | None:
        """Earliest entry not yet popped."""
        live = self._entries.take(self._held.contains(self._entries) & ~self._popped.contains(self._entries))
        return int(live.deliver_at_ms[0]) if len(live) else None

    def held(self) -> PositionSet:
        """Positions the index answers for."""
        return self._held.snapshot()

    def acknowledged(self) -> PositionSet:
        """Positions known acknowledged above the mark-delete position."""
        return self._acknowledged.snapshot()

    def acknowledge(self, positions: PositionSet) -> int:
        """Move positions to acknowledged."""
        self._held.difference_update(positions)
        self._popped.difference_update(positions)
        self._acknowledged.update(positions)
        self._acknowledged.discard_up_to(*self._mark)
        return self._changed(self)

    def unacknowledge(self, positions: PositionSet) -> int:
        """Forget acknowledgements."""
        self._acknowledged.difference_update(positions)
        return self._changed(self)

    def mark_delete(self, ledger_id: int, entry_id: int) -> int:
        """Set the persisted mark-delete position."""
        self._mark = (ledger_id, entry_id)
        for positions in (self._held, self._acknowledged, self._popped):
            positions.discard_up_to(ledger_id, entry_id)
        return self._changed(self)

    def mark_popped(self, positions: PositionSet) -> None:
        """The broker has these already."""
        self._popped.update(positions.intersection(self._held))
        self._changed(self)

    def rewind(self, in_flight: PositionSet) -> None:
        """Everything held but not in flight will be popped again."""
        self._popped = in_flight.intersection(self._held)
        self._changed(self)

    def clear(self) -> int:
        """Forget everything but the mark-delete position."""
        for positions in (self._held, self._acknowledged, self._popped):
            positions.clear()
        self._entries = Entries.empty()
        return self._changed(self)

    def set_slice_width(self, width_ms: int) -> int:
        """Slice width of entries spilled from now on."""
        self._width_ms = width_ms
        return self._changed(self)

    def take_unheld(self) -> PositionSet:
        """Positions lost since the last call."""
        return PositionSet()

    def stats(self) -> IndexStats:
        """Numbers for metrics."""
        return IndexStats(
            self.name, len(self._held), len(self._popped), len(self._acknowledged), len(self._held),
            0, 0, 0, 0, 0, 0, 0, self.next_due_ms(), self._width_ms, [],
        )  # fmt: skip

    def check(self) -> None:
        """Walk the invariants."""
