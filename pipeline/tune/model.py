"""The costs of a slice width: predictions from the work of its slices, in figures for users.

Pure. The index's own measure decides (`width.py`): the cost of blocks against that of slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tidegate.index import BLOCK_COST_ENTRIES, ENTRY_BYTES, IndexOptions, slice_entries_max
from tidegate.pipeline.tune.slices import Filled, Fullest
from tidegate.pipeline.tune.spills import Spills
from tidegate.plugin.shared.durations import duration

BLOCK_MEMORY_BYTES = 600
"""Of a block's descriptor, as the index counts it."""

TIDY_BYTES = 4 << 20
"""Bytes written before the store moves its log into tables."""


class Activity(NamedTuple):
    """An index's work on a trace at one width.

    slices_max, blocks_max, stored_max: the peak of slices, and of blocks and entries in them. records_max:
    the approximate peak of journal records. pairs: blocks written by spills, at least one a slice and spill.
    spilled: entries that reach slices.
    """

    width_ms: int
    spills: int
    staged_max: int
    records_max: int
    spilled: int
    pairs: int
    slices_max: int
    blocks_max: int
    stored_max: int
    blocks_written: int
    entries_written: int
    fullest: Fullest

    @classmethod
    def of(cls, width_ms: int, spills: Spills, filled: Filled) -> Activity:
        """From the changes of each spill."""
        changes = filled.changes
        return cls(
            width_ms,
            len(spills.at_ms),
            spills.staged_max,
            spills.records_max,
            round(filled.spilled),
            round(filled.pairs),
            round(np.cumsum(changes.slices).max(initial=0)),
            round(np.cumsum(changes.blocks).max(initial=0)),
            round(np.cumsum(changes.entries).max(initial=0)),
            round(changes.blocks_written.sum()),
            round(changes.entries_written.sum()),
            filled.fullest,
        )


class Opening(NamedTuple):
    """The work of a pop before its first entry.

    queued: blocks of slices that begin, items of the heap from then on. loaded: those read, because they may
    have a due entry, and their ``entries``. passed: due entries no longer held.
    """

    queued: float
    loaded: float
    entries: float
    passed: float = 0.0

    def plus(self, other: Opening) -> Opening:
        """The sum of both."""
        return Opening(*(mine + its for mine, its in zip(self, other, strict=True)))


class Restart(NamedTuple):
    """The state of a killed index, and the work of its first pop.

    blocks, slices: stored. records, journaled: records in its journal, and the entries in these.
    logged_bytes: in its store's WAL and in no table yet.
    """

    blocks: float
    slices: float
    records: float
    journaled: float
    logged_bytes: float
    first: Opening


class Costs(NamedTuple):
    """Costs on this machine, from runs of the real index: seconds and bytes.

    write_*: for spills, merges included. pop_s: for a pop, then for each block queued, each block loaded,
    each entry in these, each entry passed. open_*: for opening a killed index, as in `Restart`. logged_*:
    growth of the store's WAL in bytes, for each entry that arrives and each block written.
    """

    write_block_s: float
    write_entry_s: float
    pop_s: float
    queue_block_s: float
    load_block_s: float
    load_entry_s: float
    pass_entry_s: float
    open_s: float
    open_block_s: float
    open_slice_s: float
    open_record_s: float
    open_entry_s: float
    open_logged_s: float
    block_bytes: float
    entry_bytes: float
    logged_entry_bytes: float
    logged_block_bytes: float
    held_memory_bytes: float

    def first_pop_s(self, first: Opening) -> float:
        """The time until a pop has its first entry."""
        return (
            self.pop_s
            + first.queued * self.queue_block_s
            + first.loaded * self.load_block_s
            + first.entries * self.load_entry_s
            + first.passed * self.pass_entry_s
        )

    def opened_s(self, restart: Restart) -> float:
        """The time to open a killed index."""
        return (
            self.open_s
            + restart.blocks * self.open_block_s
            + restart.slices * self.open_slice_s
            + restart.records * self.open_record_s
            + restart.journaled * self.open_entry_s
            + restart.logged_bytes * self.open_logged_s
        )

    def recovery_s(self, restart: Restart) -> float:
        """From the start of a killed index to its first due entry."""
        return self.opened_s(restart) + self.first_pop_s(restart.first)

    def logged_bytes(self, entries: float, blocks_written: float) -> float:
        """The average length of the log after so much work: the store empties it at a fixed length."""
        grown = entries * self.logged_entry_bytes + blocks_written * self.logged_block_bytes
        return grown if grown < TIDY_BYTES else TIDY_BYTES / 2


def begins(runs: Sequence[float], width_ms: int, block_entries: int) -> Opening:
    """A slice with these runs begins: most runs' first block is not due with the very first entry.

    Entries count as due evenly over the slice. A run shares a millisecond with another's entry with the
    probability that it has an entry in any millisecond.
    """
    sizes = np.asarray(runs, np.float64)
    chance = -np.expm1(-sizes / width_ms)
    some = -np.expm1(np.log1p(-np.minimum(chance, 1 - 1e-12)).sum())
    loaded = chance / max(some, 1e-12)
    return Opening(
        float(np.ceil(sizes / block_entries).sum()),
        float(loaded.sum()),
        float((loaded * np.minimum(sizes, block_entries)).sum()),
    )


def passes(runs: Sequence[float], share: float, block_entries: int) -> Opening:
    """A slice with these runs is popped from its beginning, and ``share`` of it is no longer held."""
    sizes = np.asarray(runs, np.float64)
    blocks = np.ceil(sizes / block_entries)
    loaded = np.ceil(np.maximum(blocks * share, 1))
    return Opening(
        float(blocks.sum()),
        float(loaded.sum()),
        float(np.minimum(loaded * block_entries, sizes).sum()),
        float(sizes.sum()) * share,
    )


class Prediction(NamedTuple):
    """The predicted figures of a width.

    memory_bytes: the peak for entries, descriptors and sets. bytes: the peak in slices. work_s: all spills
    and merges. boundary_ms: the pop with which a slice begins, without read-ahead. recovery_ms: from the
    start after a kill -9 to the first due entry. cost: the index's measure.
    """

    width_ms: int
    memory_bytes: float
    bytes: float
    blocks: int
    spills: int
    work_s: float
    boundary_ms: float
    recovery_ms: float
    cost: float
    block_entries: float
    fullest_entries: int

    def as_json(self) -> dict[str, Any]:
        """By the names of the JSON result."""
        told = {name: _rounded(value) for name, value in self._asdict().items()}
        return {"width": duration(self.width_ms), **told}


def memory_bytes(done: Activity, opened: float, costs: Costs) -> float:
    """The peak, with ``opened`` entries of slices loaded."""
    return (
        (done.staged_max + opened) * ENTRY_BYTES
        + done.blocks_max * BLOCK_MEMORY_BYTES
        + (done.stored_max + done.staged_max) * costs.held_memory_bytes
    )


def predict(done: Activity, costs: Costs, options: IndexOptions) -> Prediction:
    """The figures for this work at their worst: for the fullest slice, and a kill at the peak.

    Beginning a slice costs most when it is full, passing one when nearly all of it is done.
    """
    fill = done.spilled / max(done.pairs, 1)
    runs, block = max(done.fullest.runs, 1), options.block_entries
    fullest = [done.fullest.entries / runs] * runs
    first = begins(fullest, done.width_ms, block)
    # At the kill the log may be just before its emptying.
    restart = Restart(
        done.blocks_max,
        done.slices_max,
        done.records_max,
        done.staged_max,
        TIDY_BYTES + done.staged_max * costs.logged_entry_bytes,
        passes(fullest, 1.0, block),
    )
    memory = memory_bytes(done, min(done.fullest.entries, runs * block), costs)
    return Prediction(
        done.width_ms,
        memory,
        done.stored_max * costs.entry_bytes + done.blocks_max * costs.block_bytes,
        done.blocks_max,
        done.spills,
        done.blocks_written * costs.write_block_s + done.entries_written * costs.write_entry_s,
        costs.first_pop_s(first) * 1000,
        costs.recovery_s(restart) * 1000,
        BLOCK_COST_ENTRIES / max(fill, 1) + done.fullest.entries / slice_entries_max(options),
        fill,
        done.fullest.entries,
    )


class Recommendation(NamedTuple):
    """A width, and the reason for it."""

    width_ms: int
    reason: str


_AS_GOOD = 2.0
"""The index's own choice changes no width for less (`SWITCH_RATIO`): where slices begin decides as much."""


def recommend(predictions: Sequence[Prediction], options: IndexOptions) -> Recommendation:
    """The narrowest width that costs as little as any, which opens and restarts fastest.

    ``predictions``: ascending by width, at least one.
    """
    if not any(one.spills for one in predictions):
        return Recommendation(
            options.slice_width_ms,
            "nothing of this trace is ever spilled, for it is short or little: every width costs the same, "
            "and this is the default; take a longer trace, or ask what if with --scale",
        )
    least = min(one.cost for one in predictions)
    will_do = [one.cost <= _AS_GOOD * least for one in predictions]
    at = end = will_do.index(True)
    while end + 1 < len(predictions) and will_do[end + 1]:
        end += 1
    chosen, widest = predictions[at], predictions[end]
    others = ""
    if end > at:
        others = f"; any width from {duration(chosen.width_ms)} to {duration(widest.width_ms)} will do"
    return Recommendation(
        chosen.width_ms,
        f"a spill puts about {chosen.block_entries:,.0f} entries into a slice, the fullest slice comes to "
        f"{chosen.fullest_entries:,} (at most {slice_entries_max(options):,} wanted){others}",
    )


def _rounded(value: float) -> float | int:
    return value if isinstance(value, int) else float(f"{value:.5g}")
