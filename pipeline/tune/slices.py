"""What becomes of slices of one width, spill after spill: blocks, merges, and what is stored at any time.

Pure. A slice is filled by spills, each of which adds a run of blocks; when it has as many runs as the index
merges at, small ones become one (the rule is the index's, `compaction.choose_runs`); after its end it is
dropped. Slices have nothing to do with each other, so that they can be looked at anywhere, or some of them
stand for all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.index import IndexOptions

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]


class History(NamedTuple):
    """How slices were filled: an element for each slice and spill, ascending by slice, then spill."""

    slice_number: Int64
    spill: Int64
    entries: Int64


class Changes(NamedTuple):
    """What changes with each spill, one element a spill and one more for what comes after the last.

    blocks, entries: how many are stored more, or fewer. blocks_written, entries_written: merges included.
    """

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
    """The most that any one slice has when its time comes: entries, and runs that begin with it."""

    entries: int
    runs: int

    def or_more(self, other: Fullest) -> Fullest:
        """The larger of both, each by itself."""
        return Fullest(max(self.entries, other.entries), max(self.runs, other.runs))


class Filled(NamedTuple):
    """What slices of one width do. spilled: entries. pairs: of a slice and a spill that fills it."""

    spilled: float
    pairs: float
    changes: Changes
    fullest: Fullest


def history(deliver_at_ms: Int64, spill: Int64, width_ms: int) -> History:
    """The history of slices from the entries that reach them."""
    number = deliver_at_ms // width_ms
    order = np.lexsort((spill, number))
    number, spill = number[order], spill[order]
    if not len(number):
        return History(number, spill, number)
    first = np.flatnonzero(np.concatenate(([True], (number[1:] != number[:-1]) | (spill[1:] != spill[:-1]))))
    return History(number[first], spill[first], np.diff(first, append=len(number)))


def follow(found: History, width_ms: int, spills_at_ms: Float64, options: IndexOptions) -> Filled:
    """What the slices of a history do. O(history)."""
    changes = Changes.none(len(spills_at_ms))
    fullest = Fullest(0, 0)
    if not len(found.slice_number):
        return Filled(0, 0, changes, fullest)
    begin = np.flatnonzero(
        np.concatenate(([True], found.slice_number[1:] != found.slice_number[:-1], [True]))
    )
    # A slice is dropped with the first spill after its end.
    ends_ms = (found.slice_number[begin[:-1]] + 1) * width_ms
    dropped = np.searchsorted(spills_at_ms, ends_ms, side="left")
    spills, entries = found.spill.tolist(), found.entries.tolist()
    for at, first_after in enumerate(dropped.tolist()):
        runs: list[int] = []
        for place in range(int(begin[at]), int(begin[at + 1])):
            spill, count = spills[place], entries[place]
            blocks = _blocks(count, options)
            changes.blocks[spill] += blocks
            changes.blocks_written[spill] += blocks
            changes.entries_written[spill] += count
            changes.entries[spill] += count
            runs.append(count)
            if len(runs) >= options.merge_runs:
                runs = _merged(runs, spill, changes, options)
        stored = sum(_blocks(one, options) for one in runs)
        whole = sum(runs)
        gone = max(first_after, spills[int(begin[at + 1]) - 1])
        changes.blocks[gone] -= stored
        changes.entries[gone] -= whole
        fullest = fullest.or_more(Fullest(whole, len(runs)))
    return Filled(sum(entries), len(entries), changes, fullest)


def _merged(runs: list[int], spill: int, changes: Changes, options: IndexOptions) -> list[int]:
    """The runs after a merge: small ones of similar size become one."""
    ascending = sorted(runs)
    total = count = 0
    for count, size in enumerate(ascending):
        if count >= 2 and size > 2 * total:
            break
        total += size
    else:
        count = len(ascending)
    made = _blocks(total, options)
    changes.blocks[spill] += made - sum(_blocks(one, options) for one in ascending[:count])
    changes.blocks_written[spill] += made
    changes.entries_written[spill] += total
    return [*ascending[count:], total]


def _blocks(entries: int, options: IndexOptions) -> int:
    return -(-entries // options.block_entries)
