"""The costs on this machine, and the model's accuracy, from short runs of the real index.

Generated traces show the cost of blocks, slices, entries and journal records; a part of the user's trace
shows how its entries pack. Three more runs of it, at widths unknown to the model, give the error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tidegate.index import ENTRY_BYTES, WIDTHS_MS, IndexOptions, Int64Array
from tidegate.pipeline.tune.model import (
    Activity,
    Costs,
    Opening,
    Prediction,
    Restart,
    begins,
    memory_bytes,
    passes,
    predict,
    recommend,
)
from tidegate.pipeline.tune.slices import Filled, Time, follow, history
from tidegate.pipeline.tune.spills import arrivals_of, choose_step_ms, find_spills
from tidegate.pipeline.tune.trial import STEP_MS, Measured, Setting, Trial, run_trials

SAMPLE_MAX = 40_000
"""Entries of the trace that a trial plays."""

COMPARED = ("memory_bytes", "bytes", "blocks", "spills", "boundary_ms", "recovery_ms")
_SPILLS = 8
_HOUR_MS = 3_600_000
_START_MS = 472_222 * _HOUR_MS
_DUE_MS = _START_MS + 2 * _HOUR_MS
_APART = 16
_BOUNDARY_AFTER_MS = 60_000
_A_SECOND = 6
"""Entries of a second in a made trace that has seconds."""
_OWN_WEIGHT = 4
"""The weight of a run of the user's trace: it tells more of it than generated ones."""
RunTrials = Callable[[Path, Sequence[Trial]], list[Measured]]
NO_COSTS = Costs._make([0.0] * len(Costs._fields))


class Trace(NamedTuple):
    """Entries by arrival."""

    arrival_ms: Int64Array
    deliver_at_ms: Int64Array

    def __len__(self) -> int:
        return len(self.arrival_ms)


class Compared(NamedTuple):
    """A run of the real index and its prediction."""

    measured: Measured
    predicted: Prediction

    def errors_percent(self) -> dict[str, float]:
        """The prediction's error, relative to the measurement."""
        found = {}
        for name in COMPARED:
            measured, predicted = getattr(self.measured, name), getattr(self.predicted, name)
            if measured:
                found[name] = round(100 * (predicted - measured) / measured, 1)
        return found


class Calibration(NamedTuple):
    """Costs, and runs at three widths that did not enter them."""

    costs: Costs
    compared: list[Compared]
    sample_entries: int


class Played:
    """A trace that fits into memory, with its spills. ``trace`` is not empty."""

    def __init__(self, trace: Trace, options: IndexOptions) -> None:
        first_ms = int(trace.arrival_ms[0])
        step_ms = choose_step_ms(first_ms, int(trace.arrival_ms[-1]), options)
        self.options = options
        self._trace = trace
        self._end_ms = int(trace.arrival_ms[-1])
        self.spills = find_spills(first_ms, step_ms, arrivals_of(*trace, first_ms, step_ms, options), options)
        number = self.spills.number_of(*trace)
        at_ms = np.append(self.spills.at_ms, np.inf)
        self._journaled = int(np.count_nonzero(number == len(self.spills.at_ms)))
        reached = trace.deliver_at_ms > at_ms[number] + options.carry_ms
        self._deliver_at_ms, self._number = trace.deliver_at_ms[reached], number[reached]

    def __len__(self) -> int:
        return len(self._trace)

    def activity(self, width_ms: int, costs: Costs | None = None) -> Activity:
        """An index's work on it at one width; without ``costs``, for an index with unlimited time."""
        return Activity.of(width_ms, self.spills, self._filled(width_ms, costs))

    def restart(self, width_ms: int, costs: Costs) -> Restart:
        """The state of an index killed after the last arrival, with everything due popped."""
        block, filled = self.options.block_entries, self._filled(width_ms, None)
        left = filled.left
        begun = [number for number in left if number * width_ms <= self._end_ms]
        first = begins(left[min(left)], width_ms, block) if left and not begun else Opening(0, 0, 0)
        for number in begun:
            mine = self._deliver_at_ms[self._deliver_at_ms // width_ms == number]
            first = first.plus(passes(left[number], float((mine <= self._end_ms).mean()), block))
        return Restart(
            sum(-(-entries // block) for runs in left.values() for entries in runs),
            len(left),
            self._records(),
            self._journaled,
            costs.logged_bytes(len(self._trace), float(filled.changes.blocks_written.sum())),
            first,
        )

    def _records(self) -> int:
        """Journal records of a trial: one for the arrivals between two seconds in which an entry is due."""
        since_ms = self.spills.at_ms[-1] if len(self.spills.at_ms) else self._trace.arrival_ms[0]
        seconds = [
            len(np.unique(times[(times > since_ms) & (times <= self._end_ms)] // STEP_MS))
            for times in self._trace
        ]
        return 2 * min(seconds) + 1

    def left(self, width_ms: int) -> dict[int, list[int]]:
        """The runs of each slice present then."""
        return self._filled(width_ms, None).left

    def _filled(self, width_ms: int, costs: Costs | None) -> Filled:
        found = history(self._deliver_at_ms, self._number, width_ms)
        time = None if costs is None else Time(costs.write_block_s, costs.write_entry_s)
        return follow(found, width_ms, self.spills.at_ms, self.options, time)


class Plan(NamedTuple):
    """A trial to run."""

    trace: Trace
    setting: Setting


class Run(NamedTuple):
    """A trial, and the model's knowledge of it."""

    played: Played
    width_ms: int
    measured: Measured

    @property
    def activity(self) -> Activity:
        """The index's work in it."""
        return self.played.activity(self.width_ms)

    @property
    def boundaries(self) -> list[tuple[Opening, float]]:
        """(opening, ms) for each slice that began and had been spilled."""
        left = self.played.left(self.width_ms)
        block = self.played.options.block_entries
        return [
            (begins(left[start_ms // self.width_ms], self.width_ms, block), took_ms)
            for start_ms, took_ms in self.measured.boundaries
            if start_ms // self.width_ms in left
        ]


def calibrate(
    folder: Path, sample: Trace, note: Callable[[str], None], run_trials: RunTrials = run_trials
) -> Calibration:
    """Run the real index. ``sample`` is not empty. Raises ``PipelineError``."""
    note(f"running the real index: {len(MADE)} made traces, then a part of yours at four widths")
    staging_bytes = sample_budget(sample)
    options = Setting(width_ms=_HOUR_MS, staging_bytes=staging_bytes).options()
    widths = _widths_around(_recommended(Played(sample, options)))
    own = [
        Plan(_before_a_boundary(sample, width_ms), Setting(width_ms=width_ms, staging_bytes=staging_bytes))
        for width_ms in widths
    ]
    runs = _run(folder, [*_made_plans(), *own], run_trials)
    made, between, others = runs[: len(MADE)], runs[len(MADE)], runs[len(MADE) + 1 :]
    costs = _packed(_costs(made, (between,)), between)
    compared = [Compared(one.measured, predicted_for(one, costs, options)) for one in others]
    return Calibration(costs, compared, len(sample))


def _recommended(played: Played) -> int:
    """The width that the index's own measure prefers, independent of the costs here."""
    predictions = [predict(played.activity(one), NO_COSTS, played.options) for one in WIDTHS_MS]
    return recommend(predictions, played.options).width_ms


def predicted_for(run: Run, costs: Costs, options: IndexOptions) -> Prediction:
    """The prediction for a trial, not at its worst but at the places and times of the measurements."""
    done, restart = run.activity, run.played.restart(run.width_ms, costs)
    begun = [costs.first_pop_s(opening) for opening, _ in run.boundaries]
    return predict(done, costs, options)._replace(
        memory_bytes=memory_bytes(done, restart.first.entries, costs),
        boundary_ms=1000 * sum(begun) / max(len(begun), 1),
        recovery_ms=1000 * costs.recovery_s(restart),
    )


def measure_costs(folder: Path, run_trials: RunTrials = run_trials) -> Costs:
    """The costs of blocks and entries on this machine, from generated traces. Raises ``PipelineError``."""
    return _costs(_run(folder, _made_plans(), run_trials))


def _made_plans() -> list[Plan]:
    setting = Setting(width_ms=_HOUR_MS, staging_bytes=1 << 30)
    return [Plan(shape.trace(), setting) for shape in MADE]


def _run(folder: Path, plans: Sequence[Plan], run_trials: RunTrials) -> list[Run]:
    trials = [Trial(str(number), one.setting, *one.trace) for number, one in enumerate(plans)]
    return [
        Run(Played(one.trace, one.setting.options()), one.setting.width_ms, measured)
        for one, measured in zip(plans, run_trials(folder, trials), strict=True)
    ]


def _before_a_boundary(trace: Trace, width_ms: int) -> Trace:
    """The trace moved in time: a slice of this width begins soon after its end, so each has a boundary."""
    later_ms = -(int(trace.arrival_ms[-1]) + _BOUNDARY_AFTER_MS) % width_ms
    return Trace(trace.arrival_ms + later_ms, trace.deliver_at_ms + later_ms)


def sample_budget(sample: Trace) -> int:
    """A staging budget for a trial that splits the sample into several spills, as a whole trace is."""
    return max(len(sample) * ENTRY_BYTES // _SPILLS, 65_536)


def _costs(made: Sequence[Run], own: tuple[Run, ...] = ()) -> Costs:
    """From runs that differ in blocks, slices, entries, runs, records, staged and passed entries.

    own: runs of the user's trace.
    """
    runs = [*made, *own * _OWN_WEIGHT]
    done, seen = [one.activity for one in runs], [one.measured for one in runs]
    write = _fitted([[one.blocks_written, one.entries_written] for one in done], [one.work_s for one in seen])
    packed = _fitted(
        [[one.activity.blocks_max, one.activity.stored_max] for one in made],
        [one.measured.bytes for one in made],
    )
    logged = _fitted(
        [[len(one.played), one.activity.blocks_written] for one in made],
        [one.measured.logged_bytes for one in made],
    )
    costs = Costs._make([*write, *[0.0] * 11, *packed, *logged, 0.0])
    restarts = [
        one.played.restart(one.width_ms, costs)._replace(logged_bytes=one.measured.logged_bytes)
        for one in runs
    ]
    # A process's first pop takes longer for reasons unrelated to slices.
    pops = [[1, 1, *one.first] for one in restarts]
    took_ms = [one.first_pop_ms for one in seen]
    for one in runs:
        if one.boundaries:
            pops.append([1, 0, *np.mean([opening for opening, _ in one.boundaries], axis=0)])
            took_ms.append(float(np.mean([one_ms for _, one_ms in one.boundaries])))
    pop_s, _, *pop = _fitted(pops, [one_ms / 1000 for one_ms in took_ms])
    costs = Costs._make([*write, pop_s, *pop, *[0.0] * 6, *packed, *logged, 0.0])
    opened = _fitted(
        [[1, *one[:-1]] for one in restarts],
        [
            one.recovery_ms / 1000 - costs.first_pop_s(of.first)
            for one, of in zip(seen, restarts, strict=True)
        ],
    )
    return Costs._make([*write, pop_s, *pop, *opened, *packed, *logged, 0.0])


def _packed(costs: Costs, run: Run) -> Costs:
    """Add the costs of the trace's own entries: in slices, in the log, and in the sets of held positions."""
    done, measured = run.activity, run.measured
    entry_bytes = (measured.bytes - done.blocks_max * costs.block_bytes) / max(done.stored_max, 1)
    counted = memory_bytes(done, run.played.restart(run.width_ms, costs).first.entries, costs)
    held_bytes = (measured.memory_bytes - counted) / max(done.stored_max + done.staged_max, 1)
    # The smaller the groups of arriving entries, the larger the share of keys and headers in the log.
    of_entries = measured.logged_bytes - done.blocks_written * costs.logged_block_bytes
    logged_bytes = max(of_entries / max(len(run.played), 1), costs.logged_entry_bytes)
    return costs._replace(
        entry_bytes=max(entry_bytes, 0.0),
        logged_entry_bytes=logged_bytes,
        held_memory_bytes=max(held_bytes, 0.0),
    )


def _fitted(features: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """Least squares of relative errors; negative results are set to zero and left out."""
    wanted = np.maximum(np.array(values, np.float64), 1e-12)
    matrix = np.array(features, np.float64) / wanted[:, None]
    kept = list(range(matrix.shape[1]))
    while kept:
        found = np.linalg.lstsq(matrix[:, kept], np.ones(len(wanted)), rcond=None)[0]
        if (found >= 0).all():
            break
        kept.pop(int(np.argmin(found * matrix[:, kept].mean(axis=0))))
    result = [0.0] * matrix.shape[1]
    for place, value in zip(kept, found if kept else [], strict=True):
        result[place] = float(value)
    return result


def _widths_around(width_ms: int) -> list[int]:
    """One width to learn from, then three to compare: the best one and two well apart from it."""
    at = WIDTHS_MS.index(width_ms)
    below = [one for one in WIDTHS_MS[:at] if one * _APART <= width_ms][::-1]
    above = [one for one in WIDTHS_MS[at + 1 :] if one >= width_ms * _APART]
    others = [*below[:1], *above[:1], *below[2:3], *above[2:3]][:2]
    between = WIDTHS_MS[at - 1] if at else WIDTHS_MS[1]
    return [between, *sorted([*others, width_ms])]


class Shape(NamedTuple):
    """A generated trace: entries arrive in ``bulks``, each spilled, and are due evenly in random order.

    hours: the span of due times, after the last arrival. half: time then passes until the first hour is half
    over. seconds: each of so many then brings some more, one of them due before the next second. staged: then
    so many arrive that no spill takes.
    """

    entries: int
    hours: int
    bulks: int = 1
    half: bool = False
    seconds: int = 0
    staged: int = 0

    def trace(self) -> Trace:
        """The entries, by arrival."""
        apart_ms = IndexOptions().persist_age_ms + 1_000
        end_ms = _DUE_MS + self.hours * _HOUR_MS
        place = np.arange(self.entries, dtype=np.int64)
        bulk_ms = _START_MS + np.arange(self.bulks, dtype=np.int64) * 2 * apart_ms
        due_ms = np.random.default_rng(1).permutation(place * self.hours * _HOUR_MS // self.entries)
        parts = [(bulk_ms[place * self.bulks // self.entries], _DUE_MS + due_ms)]
        # An entry follows each bulk and shows the index that the bulk is old enough.
        after_ms = bulk_ms + apart_ms
        if self.half:
            after_ms = np.append(after_ms, _DUE_MS + _HOUR_MS // 2)
        parts.append((after_ms, np.full(len(after_ms), end_ms, np.int64)))
        each_ms = np.repeat(after_ms[-1] + 1_000 * np.arange(1, self.seconds + 1, dtype=np.int64), _A_SECOND)
        soon = np.arange(len(each_ms)) % _A_SECOND == 0
        parts.append((each_ms, np.where(soon, each_ms + 500, end_ms)))
        staged_ms = np.full(self.staged, after_ms[-1] + 1_000 * (self.seconds + 2), np.int64)
        parts.append((staged_ms, end_ms + 10 * _HOUR_MS + np.arange(self.staged, dtype=np.int64) * 100))
        arrival_ms, deliver_at_ms = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = np.argsort(arrival_ms, kind="stable")
        return Trace(arrival_ms[order], deliver_at_ms[order])


MADE = (
    Shape(30_000, hours=12),
    Shape(15_000, hours=1_500),
    Shape(24_000, hours=500, bulks=6),
    Shape(30_000, hours=12, seconds=250),
    Shape(200_000, hours=4, bulks=3, half=True, staged=30_000),
)
"""Large blocks, small ones, many of one slice, many journal records; and what is passed, staged, logged."""
