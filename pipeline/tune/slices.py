"""The history of slices of one width, spill after spill: blocks, compactions, and stored entries.

Pure. Spills fill a slice, each with a run of blocks; at the index's limit of runs, small ones become one (by
the index's rule, `choose_runs`), when there is time: between two spills, the most crowded slice first, and
during consecutive spills as much as the index's own pace gives (`CompactionPace`). After its end a slice is
dropped. Slices share only time: some of them, with their share of it, stand for all.
"""

from __future__ import annotations

import heapq
import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.index import CompactionPace, IndexOptions, choose_runs

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]


class History(NamedTuple):
    """The filling of slices: an element for each slice and spill, ascending by slice, then spill."""

    slice_number: Int64
    spill: Int64
    entries: Int64


class Changes(NamedTuple):
    """The changes of each spill, one element a spill and one more for those after the last.

    slices, blocks, entries: the change of the stored number; a compaction after a spill counts with the next.
    blocks_written, entries_written: compactions included.
    """

    slices: Float64
    blocks: Float64
    entries: Float64
    blocks_written: Float64
    entries_written: Float64

    @classmethod
    def none(cls, spills: int) -> Changes:
        """Nothing yet."""
        return cls(*(np.zeros(spills + 1) for _ in cls._fields))

    def plus(self, other: Changes, times: float = 1.0) -> Changes:
        """Both together."""
        return Changes(*(mine + its * times for mine, its in zip(self, other, strict=True)))


class Fullest(NamedTuple):
    """The maximum over slices at their beginning: entries, and runs that begin with it."""

    entries: int
    runs: int

    def or_more(self, other: Fullest) -> Fullest:
        """The larger of both, field by field."""
        return Fullest(max(self.entries, other.entries), max(self.runs, other.runs))


class Time(NamedTuple):
    """The costs of spills and compactions, in seconds, and the share of all slices that is followed."""

    write_block_s: float
    write_entry_s: float
    share: float = 1.0


class Filled(NamedTuple):
    """The work of slices of one width.

    spilled: entries. pairs: of a slice and a spill that fills it. left: the entries of each run, by slice,
    after the last spill; empty where only sums are known.
    """

    spilled: float
    pairs: float
    changes: Changes
    fullest: Fullest
    left: dict[int, list[int]]


def history(deliver_at_ms: Int64, spill: Int64, width_ms: int) -> History:
    """The history of slices from their entries."""
    number = deliver_at_ms // width_ms
    order = np.lexsort((spill, number))
    number, spill = number[order], spill[order]
    if not len(number):
        return History(number, spill, number)
    first = np.flatnonzero(np.concatenate(([True], (number[1:] != number[:-1]) | (spill[1:] != spill[:-1]))))
    return History(number[first], spill[first], np.diff(first, append=len(number)))


def follow(
    found: History, width_ms: int, spills_at_ms: Float64, options: IndexOptions, time: Time | None = None
) -> Filled:
    """The work of the slices of a history; without ``time`` it is unlimited. O(history log history)."""
    spills = len(spills_at_ms)
    if not len(found.slice_number):
        return Filled(0, 0, Changes.none(spills), Fullest(0, 0), {})
    followed = _Followed(spills, options)
    order = np.lexsort((found.slice_number, found.spill))
    numbers, entries = found.slice_number[order].tolist(), found.entries[order].tolist()
    begin = np.searchsorted(found.spill[order], np.arange(spills + 1)).tolist()
    dropped = _dropped(found, width_ms, spills_at_ms)
    room = _Room(spills_at_ms, options, time)
    for spill in range(spills):
        before_s = room.cost_s(followed.changes, spill)
        for place in range(begin[spill], begin[spill + 1]):
            followed.fill(numbers[place], entries[place], spill)
        took_s = room.cost_s(followed.changes, spill) - before_s
        for number in dropped.get(spill, ()):
            followed.drop(number, spill)
        left_s = room.after(spill, took_s, followed.most_runs)
        spent_s = 0.0
        while spent_s < left_s and (merged := followed.compact(spill + 1)):
            spent_s += room.merge_s(*merged)
        room.spent(spent_s)
    for place in range(begin[spills], len(numbers)):
        followed.fill(numbers[place], entries[place], spills)
    left = followed.runs()
    for number in dropped.get(spills, ()):
        followed.drop(number, spills)
    return Filled(int(found.entries.sum()), len(numbers), followed.changes, followed.fullest, left)


def _dropped(found: History, width_ms: int, spills_at_ms: Float64) -> dict[int, list[int]]:
    """The slices dropped with each spill: the first one after their end that does not fill them."""
    last = np.flatnonzero(np.append(found.slice_number[1:] != found.slice_number[:-1], True))
    numbers = found.slice_number[last]
    first_after = np.searchsorted(spills_at_ms, (numbers + 1) * width_ms, side="left")
    gone: dict[int, list[int]] = {}
    for number, spill in zip(
        numbers.tolist(), np.maximum(first_after, found.spill[last]).tolist(), strict=True
    ):
        gone.setdefault(spill, []).append(number)
    return gone


class _Followed:
    """The slices at one spill: the entries of each of their runs."""

    def __init__(self, spills: int, options: IndexOptions) -> None:
        self.changes = Changes.none(spills)
        self.fullest = Fullest(0, 0)
        self._options = options
        self._runs: dict[int, list[int]] = {}
        self._crowded: list[tuple[int, int]] = []
        """(-runs, slice), a heap; stale items are passed over."""

    def fill(self, number: int, entries: int, spill: int) -> None:
        """Put a run into a slice, by spill number ``spill``."""
        self.changes.slices[spill] += number not in self._runs
        runs = self._runs.setdefault(number, [])
        runs.append(entries)
        self._write(spill, [], entries)
        self.changes.entries[spill] += entries
        self._rank(number)

    def drop(self, number: int, spill: int) -> None:
        """Note that a slice is over, which shows with spill number ``spill``."""
        runs = self._runs.pop(number)
        self.changes.slices[spill] -= 1
        self.changes.blocks[spill] -= sum(map(self._blocks, runs))
        self.changes.entries[spill] -= sum(runs)
        self.fullest = self.fullest.or_more(Fullest(sum(runs), len(runs)))

    def runs(self) -> dict[int, list[int]]:
        """The entries of each run, by slice."""
        return {number: list(runs) for number, runs in self._runs.items()}

    @property
    def most_runs(self) -> int:
        """The number of runs of the most crowded slice, 0 if none is crowded."""
        while self._crowded and not self._is_true(self._crowded[0]):
            heapq.heappop(self._crowded)
        return -self._crowded[0][0] if self._crowded else 0

    def compact(self, spill: int) -> tuple[int, int] | None:
        """Merge runs of the most crowded slice, for spill number ``spill``; (blocks, entries) written."""
        if not self.most_runs:
            return None
        _, number = heapq.heappop(self._crowded)
        runs = self._runs[number]
        chosen = choose_runs(dict(enumerate(runs)), self._options.merge_runs)
        merged = [size for at, size in enumerate(runs) if at in chosen]
        self._runs[number] = [size for at, size in enumerate(runs) if at not in chosen] + [sum(merged)]
        self._rank(number)
        return self._write(spill, merged, sum(merged)), sum(merged)

    def _write(self, spill: int, instead: list[int], entries: int) -> int:
        blocks = self._blocks(entries)
        self.changes.blocks[spill] += blocks - sum(map(self._blocks, instead))
        self.changes.blocks_written[spill] += blocks
        self.changes.entries_written[spill] += entries
        return blocks

    def _rank(self, number: int) -> None:
        count = len(self._runs[number])
        if count >= self._options.merge_runs:
            heapq.heappush(self._crowded, (-count, number))

    def _is_true(self, ranked: tuple[int, int]) -> bool:
        return len(self._runs.get(ranked[1], ())) == -ranked[0]

    def _blocks(self, entries: int) -> int:
        return -(-entries // self._options.block_entries)


class _Room:
    """The seconds for compactions after each spill.

    The overrun of a spill beyond the next one's start is taken from the time after that; meanwhile the
    index's pace gives compactions their share, and the overrun of one is taken from those after it.
    """

    def __init__(self, spills_at_ms: Float64, options: IndexOptions, time: Time | None) -> None:
        self._time = time
        self._pace = CompactionPace(options.merge_runs, options.runs_max)
        share = 1.0 if time is None else time.share
        self._gaps_s = np.append(np.diff(spills_at_ms) / 1_000 * share, math.inf)
        self._behind_s = self._idle_s = self._allowance_s = 0.0

    def cost_s(self, changes: Changes, spill: int) -> float:
        """The cost of the writes so far that show with spill number ``spill``."""
        return self.merge_s(float(changes.blocks_written[spill]), float(changes.entries_written[spill]))

    def merge_s(self, blocks: float, entries: float) -> float:
        """The cost of writing so many."""
        if self._time is None:
            return 0.0
        return blocks * self._time.write_block_s + entries * self._time.write_entry_s

    def after(self, spill: int, took_s: float, runs: int) -> float:
        """The room after spill number ``spill``, which took ``took_s``."""
        left_s = float(self._gaps_s[spill]) - took_s - self._behind_s
        self._behind_s, self._idle_s = max(-left_s, 0.0), max(left_s, 0.0)
        if self._time is None:
            return math.inf
        if left_s > 0:
            self._allowance_s = 0.0
            return left_s
        share = self._pace.share(runs)
        self._allowance_s = min(self._allowance_s, 0.0) + took_s * share / (1 - share)
        return self._allowance_s

    def spent(self, took_s: float) -> None:
        """Compactions took ``took_s``."""
        over_s = max(took_s - self._idle_s, 0.0)
        self._allowance_s -= over_s
        self._behind_s += over_s
