"""The heap of runs: pops entries in exact order from runs, unsorted chunks, packed blocks and whole slices.

Every item has the key of its first entry, or a lower bound. Items other than runs are opened only when their
key comes to the top: a slice becomes its blocks, a block is loaded, a chunk is sorted. A pop takes windows of
several runs at once: where runs interleave, prefixes in turn would be single entries.

Invariants: an item's key in the heap is not after its first entry; a run in the heap is not consumed; the
heap knows its runs apart from its unopened items.

Example, with due times for keys, at now = 50 and for 4 entries:

    run A    10 20 30 60
    run B    15 25 35
    block C  40 45           not loaded

Keys in the heap are 10, 15 and 40. `_gather` takes A and B, and meets C at 40: that becomes the fence. `_cut`
stops A and B before 40: 10 20 30 and 15 25 35, six entries. `_shortened` keeps the first four: A gives 10 20,
B gives 15 25. Both return to the heap, under 30 and 35. C was never loaded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np
from heapdict import heapdict

from tidegate.index.entries.entry import Entries, EntryKey
from tidegate.index.entries.sort import MERGE, merge_runs
from tidegate.index.timeline.run import Run

_WINDOW_MIN = 64
_WINDOW_GROWTH = 8
_MANY = 1_024
_LEFT_SHARE = 16
"""A pop of so many may leave a sixteenth to the next one."""

_OPENING_ENTRIES = 1_024
"""Opening an item takes as long as examining so many entries."""


class Unopened(Protocol):
    """An item that must be opened before its entries can be popped."""

    @property
    def stored(self) -> bool:
        """True if its entries are in the store; entries in memory need not be opened before they are due."""
        ...

    def open_item(self) -> Iterable[tuple[EntryKey, Item]]:
        """The (key, item) pairs that replace it."""
        ...


Item = Run | Unopened
Taken = list[tuple[Run, Entries]]
Accept = Callable[[Taken], Entries]


class RunHeap:
    """A heapdict of runs and of items that become runs; a second one of those in the store."""

    def __init__(self) -> None:
        self._heap: heapdict = heapdict()
        self._stored: heapdict = heapdict()
        self._runs: set[Run] = set()
        self._opened = 0

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, key: EntryKey, item: Item) -> None:
        """Put an item in, or move it to another key."""
        self._heap[item] = key
        if isinstance(item, Run):
            self._runs.add(item)
        elif item.stored:
            self._stored[item] = key

    def push_run(self, run: Run) -> None:
        """Put a run in, unless it is consumed."""
        if len(run):
            self.push(run.key(), run)

    def discard(self, item: Item) -> None:
        """Take an item out, if it is in."""
        if item in self._heap:
            del self._heap[item]
        if item in self._stored:
            del self._stored[item]
        if isinstance(item, Run):
            self._runs.discard(item)

    @property
    def entries_in_runs(self) -> int:
        """Entries that can be popped without opening an item. O(runs)."""
        return sum(map(len, self._runs))

    def items(self) -> list[tuple[Item, EntryKey]]:
        """All (item, key) pairs, in no order."""
        return [(item, self._heap[item]) for item in self._heap]

    def first_key(self) -> EntryKey | None:
        """A lower bound of the key of the first entry."""
        if not self._heap:
            return None
        key: EntryKey = self._heap.peekitem()[1]
        return key

    def first_stored_key(self) -> EntryKey | None:
        """A lower bound of the key of the first entry that is not in memory."""
        if not self._stored:
            return None
        key: EntryKey = self._stored.peekitem()[1]
        return key

    def open_next(self, before_ms: int) -> bool:
        """Open the first stored item, if due before `before_ms`; True if there was one."""
        if not self._stored:
            return False
        item, key = self._stored.peekitem()
        if key[0] >= before_ms:
            return False
        self._open(item)
        return True

    def pop_entries(self, now_ms: int, limit: int, scan_limit: int, accept: Accept) -> Entries:
        """Entries with deliver_at_ms <= now_ms in order, at most `limit` of those that `accept` lets through.

        accept(taken): called with the consumed parts of runs, together the next entries; returns the entries
        to hand out, in order.

        Stops after about `scan_limit` entries, or a 1,024th as many opened items, so that neither a long
        stretch of dead entries nor many small blocks stall it. Complexity: O(n log n) in the examined
        entries, plus a heap operation for each run in the window.
        """
        opened_before = self._opened
        popped: list[Entries] = []
        need = limit
        scanned = 0
        # The last few of many go to the next call: they are not worth another look at all runs.
        left_max = limit // _LEFT_SHARE if limit >= _MANY else 0
        while need > left_max and scanned + _OPENING_ENTRIES * (self._opened - opened_before) < scan_limit:
            try:
                runs, fence = self._gather(now_ms, need)
            except Exception:
                # Entries popped before a failing load count as handed out and must reach the caller; the next
                # call meets the error.
                if popped:
                    break
                raise
            if not runs:
                break
            taken: Taken = []
            try:
                for run, stop in _cut(runs, fence, now_ms, need):
                    if stop > run.at:
                        part = run.entries.part(run.at, stop)
                        run.at = stop
                        scanned += len(part)
                        taken.append((run, part))
                batch = accept(taken)
            finally:
                for run in runs:
                    self.push_run(run)
            need -= len(batch)
            popped.append(batch)
        return Entries.concat(popped)

    def _gather(self, now_ms: int, need: int) -> tuple[list[Run], EntryKey | None]:
        """Take out the runs that can hold the next `need` due entries; also the upper bound of their keys."""
        runs: list[Run] = []
        cut: EntryKey | None = None
        while self._heap:
            item, key = self._heap.peekitem()
            if key[0] > now_ms or (cut is not None and key > cut):
                break
            if not isinstance(item, Run):
                if runs and key > runs[0].key():
                    return runs, key
                try:
                    self._open(item)
                except BaseException:
                    for run in runs:
                        self.push_run(run)
                    raise
                continue
            self.discard(item)
            runs.append(item)
            if len(item) >= need:
                last = item.entries.key(item.at + need - 1)
                cut = last if cut is None else min(cut, last)
        return runs, None

    def _open(self, item: Unopened) -> None:
        opened = item.open_item()
        self._opened += 1
        self.discard(item)
        for key, inner in opened:
            self.push(key, inner)


def _cut(runs: list[Run], fence: EntryKey | None, now_ms: int, need: int) -> list[tuple[Run, int]]:
    """The stop of each run at which the parts together are the next entries, `need` or fewer."""
    stops = [run.due_stop(now_ms) for run in runs]
    if fence is not None:
        # Without the entry at the fence: the item there may have a copy of it, and both belong to one part.
        stops = _bounded(runs, stops, fence, inclusive=False)
    if len(runs) == 1:
        return [(runs[0], min(stops[0], runs[0].at + need))]
    # Where runs differ in density, the densest ends a small window early: then try a larger one.
    window = max(_WINDOW_MIN, 2 * need // len(runs))
    while True:
        inside, count = _windowed(runs, stops, window)
        if count >= need or inside == stops or window >= need:
            break
        window *= _WINDOW_GROWTH
    if count > need:
        inside = _shortened(runs, inside, need)
    return list(zip(runs, inside, strict=True))


def _shortened(runs: list[Run], stops: list[int], need: int) -> list[int]:
    """Lower the stops to exactly `need` entries, or nearly if that is many."""
    parts = [run.entries.part(run.at, max(run.at, stop)) for run, stop in zip(runs, stops, strict=True)]
    if need >= _MANY:
        # A merge of the runs: faster than `np.partition`, which does not use their order.
        at_ms = np.sort(np.concatenate([part.deliver_at_ms for part in parts]), kind=MERGE)[need - 1]
        before = [
            bisect_left(run.entries.deliver_at_ms, at_ms, run.at, max(run.at, stop))
            for run, stop in zip(runs, stops, strict=True)
        ]
        if sum(stop - run.at for run, stop in zip(runs, before, strict=True)) >= need - need // _LEFT_SHARE:
            return before
    # Few entries, or many in one millisecond: only the whole key tells them apart.
    return _bounded(runs, stops, merge_runs(Entries.concat(parts)).key(need - 1))


def _windowed(runs: list[Run], stops: list[int], window: int) -> tuple[list[int], int]:
    """Stops before which all entries certainly come first, at most `window` a run; their count."""
    ends = [min(stop, run.at + window) for run, stop in zip(runs, stops, strict=True)]
    bound = min(
        (
            run.entries.key(end - 1)
            for run, end, stop in zip(runs, ends, stops, strict=True)
            if run.at < end < stop
        ),
        default=None,
    )
    if bound is not None:
        ends = _bounded(runs, ends, bound)
    return ends, sum(max(0, end - run.at) for run, end in zip(runs, ends, strict=True))


def _bounded(runs: list[Run], stops: list[int], key: EntryKey, *, inclusive: bool = True) -> list[int]:
    """Stops that leave out the entries after `key`."""
    return [
        min(stop, run.stop(key, inclusive=inclusive)) if stop > run.at else stop
        for run, stop in zip(runs, stops, strict=True)
    ]
