"""Chooses a slice width from the evidence of a persist. Pure: no store, no clock, no memory.

Two costs pull in opposite directions, both as a share of the entries' unavoidable work:
- too narrow: a spill writes one block into each slice that it touches, and popping reads each again. A block
  costs as much as `BLOCK_COST_ENTRIES` entries;
- too wide: a slice is the unit of merging, of dropping and of reading again after a restart. A slice with as
  many entries as the staging budget costs as much as a whole spill.

Invariants: a chosen width is one of `WIDTHS_MS`; the same evidence and memory give the same decision; a width
changes only to one that costs less than half, and, after the first choice, only if two spills in a row ask
for the same direction, or one spill would scatter over far too many slices. Figures:
docs/decisions/slice-width.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tidegate.index.entries.entry import ENTRY_BYTES, Int64Array
from tidegate.index.format.keys import SliceId
from tidegate.index.options import IndexOptions

_SECOND_MS = 1_000
_MINUTE_MS = 60 * _SECOND_MS
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS

WIDTHS_MS: tuple[int, ...] = (
    *(count * _SECOND_MS for count in (1, 2, 10, 30)),
    *(count * _MINUTE_MS for count in (1, 2, 10, 30)),
    *(count * _HOUR_MS for count in (1, 2, 6, 12)),
    *(count * _DAY_MS for count in (1, 2, 10, 30)),
)
"""Widths that `choose` knows, in milliseconds. Each is a multiple of the one before, so that a slice is a sum
of narrower ones and little more than one pass counts all widths.
"""

BLOCK_COST_ENTRIES = 1_000
"""Entries that cost as much as one block to write and read again (docs/decisions/slice-width.md)."""

SWITCH_RATIO = 2.0
"""The present width goes only if it costs this many times as much as the best."""

ENTRIES_MIN = 100
"""A spill with fewer entries still to come is no evidence."""

SCATTERED_ENTRIES = 10
"""A spill that puts fewer entries into a slice is scattered: too narrow for any flow."""

URGENT_RATIO = 16.0
URGENT_SLICES = 256
"""A spill that touches so many slices, at `URGENT_RATIO` times the cost of the best width, needs no second
one to agree: slices once made stay until their time comes.
"""

_SKIPPED_LOOKS = 3
_REPRESENTATIVE = 4
"""A spill of less than a fourth of the usual size is no evidence of a block's usual fill, unless scattered.
"""


class WidthMemory(NamedTuple):
    """Kept from one look to the next.

    usual_entries: size of a spill; large ones weigh more.
    direction: -1 or 1 if the last look asked for a narrower or wider width, else 0.
    chosen: True if the present width was chosen, so that one look alone does not change it.
    skip: spills to skip because the last look asked for no change, unless they may scatter.
    """

    usual_entries: int = 0
    direction: int = 0
    chosen: bool = False
    skip: int = 0

    def skipped(self) -> WidthMemory | None:
        """The memory after a skipped spill; None if it is time for a look."""
        return self._replace(skip=self.skip - 1) if self.skip else None


@dataclass(frozen=True)
class WidthEvidence:
    """The evidence of one persist.

    width_ms: the present width.
    now_ms: time of the persist; earlier due times do not matter.
    seconds, counts: the seconds since the epoch in which spilled entries are due, ascending, and the entries
        in each (see `by_second`).
    slices: the stored, unfinished slices, with the entries of each.
    since_ms: milliseconds since this subscription's last persist, None if there was none.
    """

    width_ms: int
    now_ms: int
    seconds: Int64Array
    counts: Int64Array
    slices: Sequence[tuple[SliceId, int]]
    since_ms: int | None


class WidthLook(NamedTuple):
    """A look at the evidence, for people.

    block_entries: entries that a spill puts into a slice on average, at the chosen width.
    fullest_entries: entries that the fullest slice has or will have, at that width.
    best_width_ms: the cheapest width, changed or not.
    """

    block_entries: int
    fullest_entries: int
    entries_max: int
    best_width_ms: int

    def reason(self) -> str:
        """The look as a sentence."""
        return (
            f"a spill puts about {self.block_entries:,} entries into a slice, the fullest slice comes to "
            f"{self.fullest_entries:,} (at most {self.entries_max:,} wanted)"
        )


class WidthDecision(NamedTuple):
    """The width from now on; `look` is None if the evidence was too thin."""

    width_ms: int
    memory: WidthMemory
    look: WidthLook | None = None


def by_second(pieces: Iterable[Int64Array]) -> tuple[Int64Array, Int64Array]:
    """(seconds since the epoch, entries due in each) of ascending times in ms, given in pieces.

    Seconds are enough to choose among widths of seconds, and pieces need little memory.
    """
    seconds, counts = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for deliver_at_ms in pieces:
        found = deliver_at_ms // _SECOND_MS
        first = np.concatenate([np.zeros(1, dtype=np.int64), np.flatnonzero(found[1:] != found[:-1]) + 1])
        seconds.append(found[first])
        counts.append(np.diff(first, append=len(found)))
    together = np.concatenate(seconds), np.concatenate(counts)
    return _grouped(*together, 1) if len(together[0]) else together


def slice_entries_max(options: IndexOptions) -> int:
    """Most entries a slice should have: the staging budget's, at least a block's."""
    return max(options.staging_budget_bytes // ENTRY_BYTES, options.block_entries)


def may_scatter(width_ms: int, over_ms: int, entries: int) -> bool:
    """True if so many entries, due within `over_ms`, may scatter over slices of this width. O(1)."""
    return over_ms // width_ms * SCATTERED_ENTRIES > entries


def choose(evidence: WidthEvidence, memory: WidthMemory, options: IndexOptions) -> WidthDecision:
    """The width that costs least, if it is worth a change. O(seconds + slices)."""
    begin = int(np.searchsorted(evidence.seconds, evidence.now_ms // _SECOND_MS, side="left"))
    ahead = _Ahead(evidence.seconds[begin:], evidence.counts[begin:])
    spilled = int(ahead.counts.sum())
    usual = _usual(memory.usual_entries, spilled)
    thin = WidthDecision(evidence.width_ms, (memory.skipped() or memory)._replace(usual_entries=usual))
    if spilled < ENTRIES_MIN:
        return thin
    costs = _costs(evidence, ahead, slice_entries_max(options))
    present = costs[evidence.width_ms]
    if spilled * _REPRESENTATIVE < memory.usual_entries and present.fill >= SCATTERED_ENTRIES:
        return thin
    # Of equal costs, the width nearest to the present one.
    best_ms = min(
        WIDTHS_MS,
        key=lambda width_ms: (costs[width_ms].total, abs(math.log(width_ms / evidence.width_ms))),
    )
    direction = 0
    if present.total > SWITCH_RATIO * costs[best_ms].total:
        direction = 1 if best_ms > evidence.width_ms else -1
    urgent = (
        direction > 0
        and spilled / present.fill > URGENT_SLICES
        and present.total > URGENT_RATIO * costs[best_ms].total
    )
    change = urgent or (direction != 0 and (not memory.chosen or direction == memory.direction))
    chosen_ms = best_ms if change else evidence.width_ms
    chosen = costs[chosen_ms]
    return WidthDecision(
        chosen_ms,
        WidthMemory(usual, 0 if change else direction, chosen=True, skip=0 if direction else _SKIPPED_LOOKS),
        WidthLook(round(chosen.fill), round(chosen.fullest), slice_entries_max(options), best_ms),
    )


def _usual(usual: int, spilled: int) -> int:
    """Each spill counts by its size: a small one after a large one hardly moves the usual."""
    return (usual * usual + spilled * spilled) // (usual + spilled) if usual + spilled else 0


class _Cost(NamedTuple):
    total: float
    fill: float
    fullest: float


class _Ahead(NamedTuple):
    """The spilled entries that are not overdue."""

    seconds: Int64Array
    counts: Int64Array


def _costs(evidence: WidthEvidence, ahead: _Ahead, entries_max: int) -> dict[int, _Cost]:
    stored = _Stored.of(evidence)
    rate = _entries_per_ms(evidence, ahead, stored)
    spilled = int(ahead.counts.sum())

    def cost(width_ms: int, numbers: Int64Array, counts: Int64Array) -> _Cost:
        fill = spilled / len(numbers)
        fullest = max(stored.fullest(width_ms, numbers, counts), rate * width_ms)
        return _Cost(BLOCK_COST_ENTRIES / fill + fullest / entries_max, fill, fullest)

    # A width that is no multiple of a second counts as the nearest multiple.
    present = max(round(evidence.width_ms / _SECOND_MS), 1)
    costs = {evidence.width_ms: cost(evidence.width_ms, *_grouped(*ahead, present))}
    numbers, counts, before_ms = *ahead, _SECOND_MS
    for width_ms in WIDTHS_MS:
        numbers, counts = _grouped(numbers, counts, width_ms // before_ms)
        costs[width_ms] = cost(width_ms, numbers, counts)
        before_ms = width_ms
    return costs


def _grouped(numbers: Int64Array, counts: Int64Array, by: int) -> tuple[Int64Array, Int64Array]:
    """Join each `by` slices, numbers ascending, into one."""
    wide = numbers // by
    first = np.concatenate([np.zeros(1, dtype=np.int64), np.flatnonzero(wide[1:] != wide[:-1]) + 1])
    return wide[first], np.add.reduceat(counts, first)


def _entries_per_ms(evidence: WidthEvidence, ahead: _Ahead, stored: _Stored) -> float:
    """Entries a millisecond in the long run: the lower of two measures, as either alone can be far too high.

    Held entries divided by the mean delay (Little's law) are right for a steady flow, and modest for a bulk
    load; the rate since the last persist is right once delays are shorter than the stored entries'.
    """
    spilled = float(ahead.counts.sum())
    delays_s = ahead.seconds - evidence.now_ms // _SECOND_MS
    # An entry is due in the middle of its second, on average.
    mean_delay_ms = _SECOND_MS * (float(np.average(delays_s, weights=ahead.counts)) + 0.5)
    rate = (float(stored.entries.sum()) + spilled) / mean_delay_ms
    if evidence.since_ms is not None:
        rate = min(rate, spilled / max(evidence.since_ms, 1))
    return rate


class _Stored(NamedTuple):
    """The stored slices that are not over, by start."""

    start_ms: Int64Array
    width_ms: Int64Array
    entries: Int64Array

    @classmethod
    def of(cls, evidence: WidthEvidence) -> _Stored:
        rows = sorted(
            (slice_id.start_ms, slice_id.width_ms, entries)
            for slice_id, entries in evidence.slices
            if slice_id.start_ms + slice_id.width_ms > evidence.now_ms
        )
        columns = np.array(rows, dtype=np.int64).reshape(-1, 3)
        return cls(columns[:, 0], columns[:, 1], columns[:, 2])

    def fullest(self, width_ms: int, numbers: Int64Array, counts: Int64Array) -> float:
        """Most entries of one slice of this width, with `counts` more in the slices `numbers`."""
        most = float(counts.max())
        if len(self.entries):
            at = self.start_ms // width_ms
            first = np.concatenate([np.zeros(1, dtype=np.int64), np.flatnonzero(at[1:] != at[:-1]) + 1])
            # A wider slice counts with its part in one slice of this width.
            part = self.entries * np.minimum(width_ms / self.width_ms, 1.0)
            sums = np.add.reduceat(part, first)
            where = np.minimum(np.searchsorted(numbers, at[first]), len(numbers) - 1)
            sums += np.where(numbers[where] == at[first], counts[where], 0)
            most = max(most, float(sums.max()))
        return most
