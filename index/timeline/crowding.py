"""The crowded slices of a timeline, those most in need of compaction first, and the runs to merge in each.

Invariant: a slice is here, with the number of its runs, while that is `merge_runs` or more and the slice is
not finished.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

from heapdict import heapdict

from tidegate.index.entries.checks import require
from tidegate.index.format.block import BlockDescriptor
from tidegate.index.format.keys import SliceId
from tidegate.index.timeline.slices import Slice


class Crowding(NamedTuple):
    """A slice's need for compaction; the lowest value is the most urgent."""

    minus_runs: int
    start_ms: int

    @property
    def runs(self) -> int:
        """Number of the slice's runs."""
        return -self.minus_runs


class CrowdedSlices:
    """Slices with too many runs, the most runs first, then the earliest; `len` counts them."""

    def __init__(self, merge_runs: int) -> None:
        self._merge_runs = merge_runs
        self._heap: heapdict = heapdict()

    def __len__(self) -> int:
        return len(self._heap)

    def rank(self, each: Slice) -> None:
        """Take a slice in or out, after a change of its runs or its end."""
        if self._is_crowded(each):
            self._heap[each] = _crowding(each)
        else:
            self._heap.pop(each, None)

    def clear(self) -> None:
        """Forget all slices."""
        self._heap.clear()

    def first(self) -> Crowding | None:
        """The need of the slice most in need of compaction; None if no slice needs any. O(1)."""
        if not self._heap:
            return None
        crowding: Crowding = self._heap.peekitem()[1]
        return crowding

    def to_compact(
        self, entries_max: int, without: Container[SliceId]
    ) -> dict[SliceId, list[BlockDescriptor]]:
        """The blocks to merge, slice by slice, the most crowded one first.

        Takes slices until they have `entries_max` entries to merge, or one alone has.
        """
        tasks = {}
        entries = 0
        taken = []
        while self._heap and entries < entries_max:
            each, crowding = self._heap.popitem()
            taken.append((each, crowding))
            if each.id in without:
                continue
            runs = choose_runs(each.run_entries, self._merge_runs)
            blocks = [block for block in each.descriptors if block.run_id in runs]
            tasks[each.id] = blocks
            entries += sum(block.entries for block in blocks)
        for each, crowding in taken:
            self._heap[each] = crowding
        return tasks

    def check(self, slices: Iterable[Slice]) -> None:
        """Raise CheckError if the invariant does not hold; `slices` are all of the timeline."""
        crowded = {each: _crowding(each) for each in slices if self._is_crowded(each)}
        require(
            crowded == dict(self._heap.items()),
            f"{len(crowded)} slices are crowded, {len(self._heap)} are known, or the counts of runs differ",
        )

    def _is_crowded(self, each: Slice) -> bool:
        return len(each.run_entries) >= self._merge_runs and not each.finished


def _crowding(each: Slice) -> Crowding:
    return Crowding(-len(each.run_entries), each.id.start_ms)


def choose_runs(sizes: Mapping[int, int], runs_max: int) -> frozenset[int]:
    """Choose the runs of a slice to merge: none below `runs_max`, else two or more of similar small size.

    sizes: entries of each run. Merging similar sizes keeps the work logarithmic: a large run is not rewritten
    for each small one.
    """
    if len(sizes) < runs_max:
        return frozenset()
    ascending = sorted(sizes, key=lambda run_id: (sizes[run_id], run_id))
    total = 0
    for count, run_id in enumerate(ascending):
        if count >= 2 and sizes[run_id] > 2 * total:
            return frozenset(ascending[:count])
        total += sizes[run_id]
    return frozenset(ascending)
