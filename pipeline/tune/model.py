"""What a slice width costs: predictions from what its slices do, in the figures that people ask for.

Pure. The choice is by the index's own measure of cost (`width.py`): what blocks cost against what slices do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tidegate.index import BLOCK_COST_ENTRIES, ENTRY_BYTES, IndexOptions, slice_entries_max
from tidegate.pipeline.tune.slices import Filled, Fullest
from tidegate.pipeline.tune.spills import Spills
from tidegate.plugin.durations import duration

BLOCK_MEMORY_BYTES = 600
"""Of a block's descriptor, as the index counts it."""


class Activity(NamedTuple):
    """What an index does with a trace at one width.

    blocks_max, stored_max: most blocks and entries in slices at any time. pairs: blocks that spills write,
    one at least for each slice and spill. spilled: entries that reach slices.
    """

    width_ms: int
    spills: int
    staged_max: int
    spilled: int
    pairs: int
    blocks_max: int
    stored_max: int
    blocks_written: int
    entries_written: int
    fullest: Fullest

    @classmethod
    def of(cls, width_ms: int, spills: Spills, filled: Filled) -> Activity:
        """From what changes with each spill."""
        changes = filled.changes
        return cls(
            width_ms,
            len(spills.at_ms),
            spills.staged_max,
            round(filled.spilled),
            round(filled.pairs),
            round(np.cumsum(changes.blocks).max(initial=0)),
            round(np.cumsum(changes.entries).max(initial=0)),
            round(changes.blocks_written.sum()),
            round(changes.entries_written.sum()),
            filled.fullest,
        )


class Costs(NamedTuple):
    """What things cost on this machine, from runs of the real index: seconds and bytes.

    write_*: of the spills, merges included. open_*: of a block that a pop needs, with its entries. recover_*:
    from the start of a killed index to its first due entry.
    """

    write_block_s: float
    write_entry_s: float
    open_block_s: float
    open_entry_s: float
    recover_s: float
    recover_block_s: float
    recover_staged_s: float
    block_bytes: float
    entry_bytes: float
    held_memory_bytes: float


class Prediction(NamedTuple):
    """What a width would be like.

    memory_bytes: most at any time, of entries, descriptors and sets. bytes: most in slices at any time.
    work_s: of all spills and merges together. boundary_ms: to open what a slice begins with, if nothing was
    read ahead. recovery_ms: from the start after a kill -9 to the first due entry. cost: the index's measure.
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
        """Under the names of the JSON result."""
        told = {name: _rounded(value) for name, value in self._asdict().items()}
        return {"width": duration(self.width_ms), **told}


def predict(done: Activity, costs: Costs, options: IndexOptions) -> Prediction:
    """What this activity comes to."""
    fill = done.spilled / max(done.pairs, 1)
    runs, block = max(done.fullest.runs, 1), options.block_entries
    opened = min(done.fullest.entries, runs * block)
    boundary_s = runs * costs.open_block_s + opened * costs.open_entry_s
    recovery_s = (
        costs.recover_s
        + done.blocks_max * costs.recover_block_s
        + done.staged_max * costs.recover_staged_s
        + boundary_s
    )
    memory = (
        (done.staged_max + opened) * ENTRY_BYTES
        + done.blocks_max * BLOCK_MEMORY_BYTES
        + (done.stored_max + done.staged_max) * costs.held_memory_bytes
    )
    return Prediction(
        done.width_ms,
        memory,
        done.stored_max * costs.entry_bytes + done.blocks_max * costs.block_bytes,
        done.blocks_max,
        done.spills,
        done.blocks_written * costs.write_block_s + done.entries_written * costs.write_entry_s,
        boundary_s * 1000,
        recovery_s * 1000,
        BLOCK_COST_ENTRIES / max(fill, 1) + done.fullest.entries / slice_entries_max(options),
        fill,
        done.fullest.entries,
    )


class Recommendation(NamedTuple):
    """A width, and why."""

    width_ms: int
    reason: str


def recommend(predictions: Sequence[Prediction], options: IndexOptions) -> Recommendation:
    """The width that costs least. ``predictions`` is not empty."""
    if not any(one.spills for one in predictions):
        return Recommendation(
            options.slice_width_ms,
            "nothing of this trace is ever spilled, for it is short or little: every width costs the same, "
            "and this is the default; take a longer trace, or ask what if with --scale",
        )
    best = min(predictions, key=lambda one: (one.cost, -one.width_ms))
    near = [one for one in predictions if one.cost <= 2 * best.cost]
    low, high = min(one.width_ms for one in near), max(one.width_ms for one in near)
    valley = f"; from {duration(low)} to {duration(high)} costs at most twice that" if low < high else ""
    return Recommendation(
        best.width_ms,
        f"a spill puts about {best.block_entries:,.0f} entries into a slice, the fullest slice comes to "
        f"{best.fullest_entries:,} (at most {slice_entries_max(options):,} wanted){valley}",
    )


def _rounded(value: float) -> float | int:
    return value if isinstance(value, int) else float(f"{value:.5g}")
