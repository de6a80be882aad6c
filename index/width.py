"""Choosing a slice width from what a persist sees. Pure: no store, no clock, nothing remembered in here.

Two costs pull in opposite directions, and both are told as a share of the work that the entries make anyway:

- too narrow: a spill writes one block into each slice that it touches, and popping reads each one again. A
  block costs as much as `BLOCK_COST_ENTRIES` entries, whatever is in it;
- too wide: a slice is the unit of merging, of dropping and of what is read again after a restart. One that
  holds as much as the staging budget costs as much as a whole spill.

Invariants: a width that is chosen is one of `WIDTHS_MS`; the same evidence and memory give the same decision;
a width changes only for one that costs less than half, and, once one was chosen, only if two spills in a row
ask for the same direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tidegate.index.entry import ENTRY_BYTES, Int64Array
from tidegate.index.keys import SliceId
from tidegate.index.options import IndexOptions

_SECOND_MS = 1_000
_MINUTE_MS = 60 * _SECOND_MS
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS

WIDTHS_MS: tuple[int, ...] = (
    *(count * _SECOND_MS for count in (1, 2, 5, 10, 30)),
    *(count * _MINUTE_MS for count in (1, 2, 5, 10, 30)),
    *(count * _HOUR_MS for count in (1, 2, 6, 12)),
    *(count * _DAY_MS for count in (1, 2, 5, 10, 30)),
)
"""Widths that `choose` knows, in milliseconds, ascending."""

BLOCK_COST_ENTRIES = 1_000
"""Entries that cost as much as one block, to write and to read again (docs/decisions/slice-width.md)."""

SWITCH_RATIO = 2.0
"""The present width must cost this many times as much as the best one to be left."""

ENTRIES_MIN = 100
"""A spill of fewer entries that are still to come says nothing."""

_SAMPLE = 4_096
_REPRESENTATIVE = 4
"""A spill of less than a fourth of the usual size says nothing of the usual fill of a block."""


class WidthMemory(NamedTuple):
    """What is carried from one look to the next.

    usual_entries: size of a spill, weighted so that large ones count for more.
    direction: -1 or 1 if the last look wished for a narrower or wider one, 0 if it was content.
    settled: whether the present width has been chosen, so that one look alone does not change it.
    """

    usual_entries: int = 0
    direction: int = 0
    settled: bool = False


@dataclass(frozen=True)
class WidthEvidence:
    """What one persist sees.

    width_ms: the present width.
    now_ms: time of the persist; what is due before it is of no interest.
    spilled: how many entries it moves into slices.
    deliver_at_ms: when these are due, or a fair sample of that, in any order.
    slices: the slices that are stored and not finished, with the entries of each.
    since_ms: milliseconds since the last persist of this subscription, None if there was none.
    """

    width_ms: int
    now_ms: int
    spilled: int
    deliver_at_ms: Int64Array
    slices: Sequence[tuple[SliceId, int]]
    since_ms: int | None


class WidthLook(NamedTuple):
    """What a look at the evidence has found, for people.

    block_entries: entries that a spill puts into a slice on average, at the width that was chosen.
    fullest_entries: entries that the fullest slice has or comes to, at that width.
    best_width_ms: what would cost least, changed or not.
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
    """Which width to use from now on; `look` is None if the evidence was too thin to look at."""

    width_ms: int
    memory: WidthMemory
    look: WidthLook | None = None


def sample(deliver_at_ms: Int64Array) -> Int64Array:
    """Some thousand of the times, evenly taken, so that a look costs the same whatever the spill."""
    return deliver_at_ms[:: max(1, len(deliver_at_ms) // _SAMPLE)]


def slice_entries_max(options: IndexOptions) -> int:
    """Most entries that a slice should have: as many as the staging budget holds, at least a block's."""
    return max(options.staging_budget_bytes // ENTRY_BYTES, options.block_entries)


def choose(evidence: WidthEvidence, memory: WidthMemory, options: IndexOptions) -> WidthDecision:
    """The width that costs least, if it is worth a change. O(slices + sample)."""
    ahead = np.sort(evidence.deliver_at_ms[evidence.deliver_at_ms > evidence.now_ms])
    if not len(ahead):
        return WidthDecision(evidence.width_ms, memory)
    spilled = round(evidence.spilled * len(ahead) / len(evidence.deliver_at_ms))
    if spilled < ENTRIES_MIN or spilled * _REPRESENTATIVE < memory.usual_entries:
        usual = _usual(memory.usual_entries, spilled)
        return WidthDecision(evidence.width_ms, memory._replace(usual_entries=usual))
    costs = _Costs(evidence, ahead, spilled, options)
    present = costs.of(evidence.width_ms)
    # Of widths that cost the same, the one that is nearest to the present one.
    best_ms = min(
        WIDTHS_MS, key=lambda width_ms: (costs.of(width_ms), abs(np.log(width_ms / evidence.width_ms)))
    )
    direction = 0
    if present > SWITCH_RATIO * costs.of(best_ms):
        direction = 1 if best_ms > evidence.width_ms else -1
    change = direction != 0 and (not memory.settled or direction == memory.direction)
    chosen_ms = best_ms if change else evidence.width_ms
    return WidthDecision(
        chosen_ms,
        WidthMemory(_usual(memory.usual_entries, spilled), 0 if change else direction, settled=True),
        WidthLook(costs.fill(chosen_ms), costs.fullest(chosen_ms), costs.entries_max, best_ms),
    )


def _usual(usual: int, spilled: int) -> int:
    """Each spill counts by its size: a small one after a large one hardly moves it."""
    return (usual * usual + spilled * spilled) // (usual + spilled) if usual + spilled else 0


class _Costs:
    """The costs of any width, given one persist's evidence."""

    def __init__(
        self, evidence: WidthEvidence, ahead: Int64Array, spilled: int, options: IndexOptions
    ) -> None:
        self.entries_max = slice_entries_max(options)
        self._ahead = ahead
        self._spilled = spilled
        stored = sorted(
            (slice_id.start_ms, slice_id.width_ms, entries)
            for slice_id, entries in evidence.slices
            if slice_id.start_ms + slice_id.width_ms > evidence.now_ms
        )
        columns = np.array(stored, dtype=np.float64).reshape(-1, 3)
        self._start_ms = np.concatenate([columns[:, 0], ahead.astype(np.float64)])
        self._width_ms = np.concatenate([columns[:, 1], np.ones(len(ahead))])
        self._entries = np.concatenate([columns[:, 2], np.full(len(ahead), spilled / len(ahead))])
        order = np.argsort(self._start_ms, kind="stable")
        self._start_ms, self._width_ms, self._entries = (
            column[order] for column in (self._start_ms, self._width_ms, self._entries)
        )
        self._rate = self._entries_per_ms(evidence)
        self._known: dict[int, tuple[float, int, int]] = {}

    def _entries_per_ms(self, evidence: WidthEvidence) -> float:
        """How many entries come in a millisecond, in the long run.

        What is stored divided by the mean delay (Little's law) is right for a steady flow and modest for a
        bulk load; the rate since the last persist is right when the delays have become shorter than those
        of what is stored. Either alone can be far too high, so the lower counts.
        """
        mean_delay_ms = max(float(np.mean(self._ahead - evidence.now_ms)), 1.0)
        rate = float(self._entries.sum()) / mean_delay_ms
        if evidence.since_ms is not None:
            rate = min(rate, self._spilled / max(evidence.since_ms, 1))
        return rate

    def of(self, width_ms: int) -> float:
        """The cost of a width."""
        return self._look(width_ms)[0]

    def fill(self, width_ms: int) -> int:
        """Entries that a spill puts into a slice on average."""
        return self._look(width_ms)[1]

    def fullest(self, width_ms: int) -> int:
        """Entries that the fullest slice comes to."""
        return self._look(width_ms)[2]

    def _look(self, width_ms: int) -> tuple[float, int, int]:
        known = self._known.get(width_ms)
        if known is None:
            fill = self._spilled / (1 + np.count_nonzero(np.diff(self._ahead // width_ms)))
            numbers = np.floor_divide(self._start_ms, width_ms)
            first = np.concatenate([[0], np.flatnonzero(numbers[1:] != numbers[:-1]) + 1])
            # Of a wider slice, only the part that falls into one of this width.
            part = self._entries * np.minimum(width_ms / self._width_ms, 1.0)
            fullest = max(float(np.add.reduceat(part, first).max()), self._rate * width_ms)
            cost = BLOCK_COST_ENTRIES / fill + fullest / self.entries_max
            known = self._known[width_ms] = (float(cost), round(fill), round(fullest))
        return known
