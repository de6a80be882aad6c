"""The heap of runs: pops entries in exact order from runs, unsorted chunks, packed blocks and whole slices.

Everything is keyed by its first entry, or by a lower bound of it. What is not a run is opened only when its
key comes to the top: a slice becomes its blocks, a block is loaded, a chunk is sorted. A pop works on
windows of several runs at once, because taking prefixes in turn degenerates to single entries where runs
interleave.

Invariants: an item is in the heap under a key that is not after its first entry; a run in the heap is not
consumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from heapdict import heapdict

from tidegate.index.entry import Entries, EntryKey, sort_entries
from tidegate.index.errors import TidegateIndexError
from tidegate.index.run import Run

_WINDOW_MIN = 64


class Sealed(Protocol):
    """Something that must be opened before its entries can be popped."""

    def open(self) -> Iterable[tuple[EntryKey, Item]]:
        """The (key, item) pairs to put in its place."""
        ...


Item = Run | Sealed
Accept = Callable[[Run, Entries], Entries]


class RunHeap:
    """A heapdict of runs and of what becomes runs."""

    def __init__(self) -> None:
        self._heap: heapdict = heapdict()

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, key: EntryKey, item: Item) -> None:
        """Put an item in, or move it to another key."""
        self._heap[item] = key

    def push_run(self, run: Run) -> None:
        """Put a run in, unless it is consumed."""
        if len(run):
            self._heap[run] = run.key()

    def discard(self, item: Item) -> None:
        """Take an item out, if it is in."""
        if item in self._heap:
            del self._heap[item]

    def items(self) -> list[tuple[Item, EntryKey]]:
        """All (item, key) pairs, in no order."""
        return [(item, self._heap[item]) for item in self._heap]

    def first_key(self) -> EntryKey | None:
        """A lower bound of the key of the first entry."""
        if not self._heap:
            return None
        key: EntryKey = self._heap.peekitem()[1]
        return key

    def open_first(self) -> bool:
        """Open the first item; False if the heap is empty or the first item is a run already."""
        if not self._heap:
            return False
        item, _ = self._heap.peekitem()
        if isinstance(item, Run):
            return False
        self._open(item)
        return True

    def pop(self, now_ms: int, limit: int, scan_limit: int, accept: Accept) -> Entries:
        """Entries with deliver_at_ms <= now_ms in order, at most `limit` of those that `accept` lets through.

        accept(run, part): called once for every consumed part of a run; returns the entries of it to hand
        out. Stops when about `scan_limit` entries were looked at, so that a long stretch of dead ones
        cannot stall. Complexity: O(n log n) in the entries looked at, plus a heap operation for each run in
        the window.
        """
        popped: list[Entries] = []
        need = limit
        scanned = 0
        while need > 0 and scanned < scan_limit:
            try:
                runs, fence = self._gather(now_ms, need)
            except TidegateIndexError:
                # What was popped before a failing load must reach the caller; the next call meets the error.
                if popped:
                    break
                raise
            if not runs:
                break
            accepted = []
            try:
                for run, stop in _cut(runs, fence, now_ms, need):
                    if stop > run.at:
                        part = run.entries.part(run.at, stop)
                        run.at = stop
                        scanned += len(part)
                        accepted.append(accept(run, part))
            finally:
                for run in runs:
                    self.push_run(run)
            batch = Entries.concat(accepted)
            if len(accepted) > 1:
                batch = sort_entries(batch)
            need -= len(batch)
            popped.append(batch)
        return Entries.concat(popped)

    def _gather(self, now_ms: int, need: int) -> tuple[list[Run], EntryKey | None]:
        """Take out the runs that can hold the next `need` due entries; the key that they must stay below."""
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
            self._heap.popitem()
            runs.append(item)
            if len(item) >= need:
                last = item.entries.key(item.at + need - 1)
                cut = last if cut is None else min(cut, last)
        return runs, None

    def _open(self, item: Sealed) -> None:
        opened = item.open()
        self.discard(item)
        for key, inner in opened:
            self._heap[inner] = key


def _cut(runs: list[Run], fence: EntryKey | None, now_ms: int, need: int) -> list[tuple[Run, int]]:
    """How far to consume each run so that the parts together are the next entries, `need` or fewer."""
    stops = [run.due_stop(now_ms) for run in runs]
    if fence is not None:
        stops = [min(stop, run.stop(fence, inclusive=False)) for run, stop in zip(runs, stops, strict=True)]
    if len(runs) == 1:
        return [(runs[0], min(stops[0], runs[0].at + need))]
    window = max(_WINDOW_MIN, 2 * need // len(runs))
    bound: EntryKey | None = None
    for at, run in enumerate(runs):
        if stops[at] > run.at + window:
            stops[at] = run.at + window
            last = run.entries.key(stops[at] - 1)
            bound = last if bound is None else min(bound, last)
    if bound is not None:
        stops = [min(stop, run.stop(bound, inclusive=True)) for run, stop in zip(runs, stops, strict=True)]
    if sum(max(0, stop - run.at) for run, stop in zip(runs, stops, strict=True)) > need:
        together = sort_entries(
            Entries.concat(
                run.entries.part(run.at, max(run.at, stop)) for run, stop in zip(runs, stops, strict=True)
            )
        )
        last = together.key(need - 1)
        stops = [min(stop, run.stop(last, inclusive=True)) for run, stop in zip(runs, stops, strict=True)]
    return list(zip(runs, stops, strict=True))
