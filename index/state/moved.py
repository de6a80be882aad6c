"""Changed due times: they hold in place of the messages' own.

A position is *moved* from then on until its acknowledgement. Its message may still be unknown. Its entries in
slices, with the message's own or rounded times, do not count.

Invariants: a moved position has one due time, the last one given; `positions` are the moved ones; a ledger's
arrays are replaced and never changed, so that snapshots share them. Called by the core's thread only; other
threads get snapshots.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tidegate.index.entries.entry import FEW, BoolArray, Entries, Int64Array
from tidegate.index.state.positions import PositionSet

_RECENT_MIN = 1_024
_RECENT_SHARE = 16
_NONE = np.empty(0, dtype=np.int64)
_ROW_BYTES = 16
_RECENT_BYTES = 150


class Rows(NamedTuple):
    """Entry ids of one ledger, ascending, and their due times; perhaps also of positions no longer moved. The
    arrays never change.
    """

    entry_ids: Int64Array
    due_ms: Int64Array


class _Ledger:
    """One ledger's due times; the latest changes are apart."""

    __slots__ = ("_recent", "_rows", "live")

    def __init__(self) -> None:
        self._rows = Rows(_NONE, _NONE)
        self._recent: dict[int, int] = {}
        self.live = 0
        """Its moved positions."""

    def __len__(self) -> int:
        """Rows, also of positions no longer moved."""
        return len(self._rows.entry_ids) + len(self._recent)

    @property
    def memory_bytes(self) -> int:
        return _ROW_BYTES * len(self._rows.entry_ids) + _RECENT_BYTES * len(self._recent)

    def put(self, entry_ids: list[int], due_ms: list[int]) -> None:
        self._recent.update(zip(entry_ids, due_ms, strict=True))
        if len(self._recent) > max(_RECENT_MIN, len(self._rows.entry_ids) // _RECENT_SHARE):
            self.rows()

    def get(self, entry_id: int) -> int:
        """The due time of a moved position."""
        due_ms = self._recent.get(entry_id)
        if due_ms is None:
            return int(self._rows.due_ms[self._rows.entry_ids.searchsorted(entry_id)])
        return due_ms

    def get_all(self, entry_ids: Int64Array) -> Int64Array:
        """The due times of moved positions."""
        if self._recent and len(entry_ids) >= len(self._recent):
            self.rows()
        if not self._recent:
            return self._rows.due_ms[self._rows.entry_ids.searchsorted(entry_ids)]
        return np.array([self.get(entry_id) for entry_id in entry_ids.tolist()], dtype=np.int64)

    def rows(self) -> Rows:
        """Everything, in arrays."""
        if self._recent:
            entry_ids = np.fromiter(self._recent.keys(), np.int64, len(self._recent))
            due_ms = np.fromiter(self._recent.values(), np.int64, len(self._recent))
            order = entry_ids.argsort()
            self._rows = _merged(self._rows, Rows(entry_ids[order], due_ms[order]))
            self._recent = {}
        return self._rows

    def keep(self, moved: PositionSet, ledger_id: int) -> None:
        """Drop the rows of positions that are not moved."""
        rows = self.rows()
        kept = moved.contains(_entries(ledger_id, rows))
        self._rows = Rows(rows.entry_ids[kept], rows.due_ms[kept])


class MovedSnapshot:
    """Moved positions at one moment, for any thread."""

    def __init__(self, positions: PositionSet, ledgers: dict[int, Rows]) -> None:
        self.positions = positions
        self._ledgers = ledgers

    def __bool__(self) -> bool:
        return bool(self._ledgers)

    def of_ledger(self, ledger_id: int) -> Entries:
        """A ledger's moved positions with the times that hold, in the order of their positions."""
        rows = self._ledgers.get(ledger_id)
        if rows is None:
            return Entries.empty()
        entries = _entries(ledger_id, rows)
        return entries.take(self.positions.contains(entries))

    def entries(self) -> Entries:
        """All moved positions, in no order."""
        return Entries.concat(map(self.of_ledger, self._ledgers))

    def without(self, entries: Entries) -> Entries:
        """`entries` without those of moved positions."""
        return entries.take(~self.positions.contains(entries)) if self._ledgers else entries


NOTHING_MOVED = MovedSnapshot(PositionSet(), {})


class Moved:
    """One subscription's moved positions, and the times that hold for them."""

    def __init__(self, entries: Iterable[Entries] = ()) -> None:
        """entries: of the stored values."""
        self.positions = PositionSet(tracked=True)
        self._ledgers: dict[int, _Ledger] = {}
        for part in entries:
            self.put(part)
        self.positions.take_dirty()

    def __len__(self) -> int:
        return len(self.positions)

    def __bool__(self) -> bool:
        return bool(self._ledgers)

    def put(self, entries: Entries) -> None:
        """Let these times hold from now on; of several for a position the last."""
        self.positions.mark_dirty(set(entries.ledger_id.tolist()))
        for ledger_id, part in _by_ledger(entries):
            ledger = self._ledgers.get(ledger_id)
            if ledger is None:
                ledger = self._ledgers[ledger_id] = _Ledger()
            ledger.live += int(self.positions.add_new(part, NOTHING_MOVED.positions).sum())
            ledger.put(part.entry_id.tolist(), part.deliver_at_ms.tolist())

    def times_of(self, entries: Entries) -> tuple[BoolArray, Int64Array]:
        """For each entry: True if it is moved; the time that holds, its own if it is not moved."""
        moved = self.positions.contains(entries)
        times_ms = entries.deliver_at_ms.copy()
        which = np.flatnonzero(moved)
        if len(which) <= FEW:
            for at in which.tolist():
                times_ms[at] = self._ledgers[int(entries.ledger_id[at])].get(int(entries.entry_id[at]))
        else:
            order = entries.ledger_id[which].argsort(kind="stable")
            for ledger_id, part in _cut(entries.ledger_id[which][order]):
                places = which[order[part]]
                times_ms[places] = self._ledgers[ledger_id].get_all(entries.entry_id[places])
        return moved, times_ms

    def retimed(self, entries: Entries) -> Entries:
        """The entries with the times that hold."""
        return Entries(self.times_of(entries)[1], entries.ledger_id, entries.entry_id)

    def holds(self, entries: Entries) -> BoolArray:
        """For each entry, True if its position is moved to its time."""
        moved, times_ms = self.times_of(entries)
        right: BoolArray = moved & (times_ms == entries.deliver_at_ms)
        return right

    def discard(self, positions: PositionSet) -> None:
        """Forget these positions, if moved."""
        if not self._ledgers or positions.isdisjoint(self.positions):
            return
        gone = positions.intersection(self.positions)
        self.positions.difference_update(gone)
        for ledger_id, bitmap in gone.items():
            self._shrink(ledger_id, len(bitmap))

    def discard_up_to(self, ledger_id: int, entry_id: int) -> None:
        """Forget everything up to the position."""
        first = self.positions.first_ledger()
        if first is None or first > ledger_id:
            return
        above = self.positions.snapshot()
        above.discard_up_to(ledger_id, entry_id)
        self.discard(self.positions.difference(above))

    def clear(self) -> None:
        """Forget all."""
        self.positions.clear()
        self._ledgers.clear()

    def _shrink(self, ledger_id: int, by: int) -> None:
        ledger = self._ledgers[ledger_id]
        ledger.live -= by
        if not ledger.live:
            del self._ledgers[ledger_id]
        elif len(ledger) > 2 * ledger.live + _RECENT_MIN:
            ledger.keep(self.positions, ledger_id)

    def snapshot(self, ledgers: Collection[int] | None = None) -> MovedSnapshot:
        """All moved positions, or those of these ledgers. O(ledgers), and amortised the recent changes."""
        if not self._ledgers:
            return NOTHING_MOVED
        chosen = self._ledgers.keys() if ledgers is None else self._ledgers.keys() & set(ledgers)
        return MovedSnapshot(
            self.positions.snapshot(), {each: self._ledgers[each].rows() for each in sorted(chosen)}
        )

    def memory_bytes(self) -> int:
        """Estimated memory. O(ledgers)."""
        return sum(each.memory_bytes for each in self._ledgers.values()) + self.positions.memory_bytes()


def _merged(old: Rows, new: Rows) -> Rows:
    """Both; an entry id in both has the time of `new`."""
    if not len(old.entry_ids):
        return new
    at = old.entry_ids.searchsorted(new.entry_ids)
    there = old.entry_ids[np.minimum(at, len(old.entry_ids) - 1)] == new.entry_ids
    due_ms = old.due_ms.copy()
    due_ms[at[there]] = new.due_ms[there]
    return Rows(
        np.insert(old.entry_ids, at[~there], new.entry_ids[~there]),
        np.insert(due_ms, at[~there], new.due_ms[~there]),
    )


def _entries(ledger_id: int, rows: Rows) -> Entries:
    return Entries(rows.due_ms, np.full(len(rows.entry_ids), ledger_id, dtype=np.int64), rows.entry_ids)


def _cut(ledger_ids: Int64Array) -> Iterator[tuple[int, slice]]:
    """The ranges of equal ids in a sorted array."""
    borders = [0, *(np.flatnonzero(np.diff(ledger_ids)) + 1).tolist(), len(ledger_ids)]
    for start, stop in pairwise(borders):
        if stop > start:
            yield int(ledger_ids[start]), slice(start, stop)


def _by_ledger(entries: Entries) -> Iterator[tuple[int, Entries]]:
    order = entries.ledger_id.argsort(kind="stable")
    for ledger_id, part in _cut(entries.ledger_id[order]):
        yield ledger_id, entries.take(order[part])
