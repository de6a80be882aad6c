"""What things cost on this machine, and how well the model predicts: from short runs of the real index.

Two made traces tell what a block and what an entry costs; a part of the trace itself tells how its entries
pack. Three further runs of that part, at widths that the model has not seen, tell the error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tidegate.index import ENTRY_BYTES, WIDTHS_MS, IndexOptions, Int64Array
from tidegate.pipeline.tune.model import (
    BLOCK_MEMORY_BYTES,
    Activity,
    Costs,
    Prediction,
    predict,
    recommend,
)
from tidegate.pipeline.tune.slices import Time, follow, history
from tidegate.pipeline.tune.spills import arrivals_of, find_spills, step_ms
from tidegate.pipeline.tune.trial import Measured, Setting, run_trial

SAMPLE_MAX = 40_000
"""Entries of the trace that a trial plays."""

COMPARED = ("memory_bytes", "bytes", "blocks", "spills", "boundary_ms", "recovery_ms")
_SPILLS = 8
_HOUR_MS = 3_600_000
_START_MS = 1_700_000_000_000
_APART = 16
Trial = Callable[[Path, Setting, Int64Array, Int64Array], Measured]


class Trace(NamedTuple):
    """Entries by arrival."""

    arrival_ms: Int64Array
    deliver_at_ms: Int64Array

    def __len__(self) -> int:
        return len(self.arrival_ms)


class Compared(NamedTuple):
    """A run of the real index beside what was predicted for it."""

    measured: Measured
    predicted: Prediction

    def errors_percent(self) -> dict[str, float]:
        """How far the prediction is off, of what was measured."""
        found = {}
        for name in COMPARED:
            measured, predicted = getattr(self.measured, name), getattr(self.predicted, name)
            if measured:
                found[name] = round(100 * (predicted - measured) / measured, 1)
        return found


class Calibration(NamedTuple):
    """Costs, and runs at three widths that they were not taken from."""

    costs: Costs
    compared: list[Compared]
    sample_entries: int


class Played:
    """A trace that fits into memory, with its spills. ``trace`` is not empty."""

    def __init__(self, trace: Trace, options: IndexOptions) -> None:
        first_ms = int(trace.arrival_ms[0])
        step = step_ms(first_ms, int(trace.arrival_ms[-1]), options)
        self._options = options
        self.spills = find_spills(first_ms, step, arrivals_of(*trace, first_ms, step, options), options)
        number = self.spills.number_of(*trace)
        at_ms = np.append(self.spills.at_ms, np.inf)
        reached = trace.deliver_at_ms > at_ms[number] + options.carry_ms
        self._deliver_at_ms, self._number = trace.deliver_at_ms[reached], number[reached]

    def activity(self, width_ms: int, costs: Costs | None = None) -> Activity:
        """What an index does with it at one width; without ``costs``, one that has time for everything."""
        found = history(self._deliver_at_ms, self._number, width_ms)
        time = None if costs is None else Time(costs.write_block_s, costs.write_entry_s)
        filled = follow(found, width_ms, self.spills.at_ms, self._options, time)
        return Activity.of(width_ms, self.spills, filled)


def calibrate(
    folder: Path, sample: Trace, note: Callable[[str], None], trial: Trial = run_trial
) -> Calibration:
    """Run the real index. ``sample`` is not empty. Raises ``PipelineError``."""
    note("running the real index: two made traces, then a part of yours at four widths")
    costs = measure_costs(folder, trial)
    staging_bytes = sample_budget(sample)
    options = Setting(width_ms=_HOUR_MS, staging_bytes=staging_bytes).options()
    played = Played(sample, options)
    predictions = [predict(played.activity(one), costs, options) for one in WIDTHS_MS]
    between, *widths = _widths_around(recommend(predictions, options).width_ms)

    def measured(width_ms: int) -> Measured:
        setting = Setting(width_ms=width_ms, staging_bytes=staging_bytes)
        return trial(folder / str(width_ms), setting, *sample)

    costs = _packed(costs, played.activity(between), measured(between))
    compared = [
        Compared(measured(width_ms), predict(played.activity(width_ms), costs, options))
        for width_ms in widths
    ]
    return Calibration(costs, compared, len(sample))


def measure_costs(folder: Path, trial: Trial = run_trial) -> Costs:
    """What blocks and entries cost on this machine, from made traces. Raises ``PipelineError``."""
    few = Setting(width_ms=_HOUR_MS, staging_bytes=1 << 30)
    large, small = _made(30_000, slices=12), _made(15_000, slices=1_500)
    staged = _with_staged(large, 30_000)
    runs = [
        (made, few, trial(folder / name, few, *made))
        for name, made in (("large", large), ("small", small), ("staged", staged))
    ]
    return _costs(runs)


def sample_budget(sample: Trace) -> int:
    """Staging for a trial: such that the sample comes in several spills, as a whole trace does."""
    return max(len(sample) * ENTRY_BYTES // _SPILLS, 65_536)


def _costs(runs: Sequence[tuple[Trace, Setting, Measured]]) -> Costs:
    """From runs that differ in blocks, entries and what is staged."""
    done = [Played(made, setting.options()).activity(setting.width_ms) for made, setting, _ in runs]
    seen = [measured for _, _, measured in runs]
    write = _fitted([[one.blocks_written, one.entries_written] for one in done], [one.work_s for one in seen])
    opened = _fitted(
        [[max(one.fullest.runs, 1), one.fullest.entries] for one in done],
        [(one.boundary_ms or 0.0) / 1000 for one in seen],
    )
    boundary_s = [opened[0] * max(one.fullest.runs, 1) + opened[1] * one.fullest.entries for one in done]
    recover = _fitted(
        [[1, one.blocks_max, measured.staged] for one, measured in zip(done, seen, strict=True)],
        [one.recovery_ms / 1000 - boundary for one, boundary in zip(seen, boundary_s, strict=True)],
    )
    packed = _fitted([[one.blocks_max, one.stored_max] for one in done], [one.bytes for one in seen])
    return Costs._make([*write, *opened, *recover, *packed, 0.0])


def _packed(costs: Costs, done: Activity, measured: Measured) -> Costs:
    """With what entries of the trace itself take: in slices, and in the sets of what is held."""
    entry_bytes = (measured.bytes - done.blocks_max * costs.block_bytes) / max(done.stored_max, 1)
    opened = min(done.fullest.entries, max(done.fullest.runs, 1) * IndexOptions().block_entries)
    counted = (done.staged_max + opened) * ENTRY_BYTES + done.blocks_max * BLOCK_MEMORY_BYTES
    held_bytes = (measured.memory_bytes - counted) / max(done.stored_max + done.staged_max, 1)
    return costs._replace(entry_bytes=max(entry_bytes, 0.0), held_memory_bytes=held_bytes)


def _fitted(features: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """Least squares; what comes out negative counts nothing, and the others are fitted without it."""
    matrix, wanted = np.array(features, np.float64), np.array(values, np.float64)
    kept = list(range(matrix.shape[1]))
    while kept:
        found = np.linalg.lstsq(matrix[:, kept], wanted, rcond=None)[0]
        if (found >= 0).all():
            break
        kept.pop(int(np.argmin(found)))
    result = [0.0] * matrix.shape[1]
    for place, value in zip(kept, found if kept else [], strict=True):
        result[place] = float(value)
    return result


def _widths_around(width_ms: int) -> list[int]:
    """One width to learn from, then three to be compared: the best one and two well apart from it."""
    at = WIDTHS_MS.index(width_ms)
    below = [one for one in WIDTHS_MS[:at] if one * _APART <= width_ms][::-1]
    above = [one for one in WIDTHS_MS[at + 1 :] if one >= width_ms * _APART]
    others = [*below[:1], *above[:1], *below[2:3], *above[2:3]][:2]
    between = WIDTHS_MS[at - 1] if at else WIDTHS_MS[1]
    return [between, *sorted([*others, width_ms])]


def _made(entries: int, slices: int) -> Trace:
    """Entries that arrive together and are due evenly over so many hours; one more makes the index spill."""
    place = np.arange(entries, dtype=np.int64)
    deliver_at_ms = _START_MS + _HOUR_MS + place * slices * _HOUR_MS // entries
    # In no order, as delays are.
    deliver_at_ms = np.random.default_rng(1).permutation(deliver_at_ms)
    arrival_ms = np.full(entries, _START_MS, np.int64)
    arrival_ms[-1] += IndexOptions().persist_age_ms + 1_000
    return Trace(arrival_ms, deliver_at_ms)


def _with_staged(trace: Trace, entries: int) -> Trace:
    """And so many that come after the spill, and stay in staging."""
    after = np.full(entries, trace.arrival_ms[-1] + 2_000, np.int64)
    deliver_at_ms = after + 2 * _HOUR_MS + np.arange(entries, dtype=np.int64) * 100
    return Trace(
        np.concatenate([trace.arrival_ms, after]), np.concatenate([trace.deliver_at_ms, deliver_at_ms])
    )
