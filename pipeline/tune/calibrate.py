"""What things cost on this machine, and how well the model predicts: from short runs of the real index.

Made traces tell what blocks, slices, entries and journal records cost; a part of the trace itself tells how
its entries pack. Three further runs of that part, at widths that the model has not seen, tell the error: of
each time where and when the trial has looked, while what is predicted for users is the worst.
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
"""So many times a run of the user's trace counts: it tells more of it than made ones."""
RunTrials = Callable[[Path, Sequence[Trial]], list[Measured]]
NO_COSTS = Costs._make([0.0] * len(Costs._fields))


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
        """What an index does with it at one width; without ``costs``, one that has time for everything."""
        return Activity.of(width_ms, self.spills, self._filled(width_ms, costs))

    def restart(self, width_ms: int, costs: Costs) -> Restart:
        """What an index has that is killed when the last entry has arrived, all that is due popped."""
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
        """Of the journal of a trial: one for what comes between two seconds in which something is due."""
        since_ms = self.spills.at_ms[-1] if len(self.spills.at_ms) else self._trace.arrival_ms[0]
        seconds = [
            len(np.unique(times[(times > since_ms) & (times <= self._end_ms)] // STEP_MS))
            for times in self._trace
        ]
        return 2 * min(seconds) + 1

    def left(self, width_ms: int) -> dict[int, list[int]]:
        """The runs of each slice that is there then."""
        return self._filled(width_ms, None).left

    def _filled(self, width_ms: int, costs: Costs | None) -> Filled:
        found = history(self._deliver_at_ms, self._number, width_ms)
        time = None if costs is None else Time(costs.write_block_s, costs.write_entry_s)
        return follow(found, width_ms, self.spills.at_ms, self.options, time)


class Plan(NamedTuple):
    """A trial to be run."""

    trace: Trace
    setting: Setting


class Run(NamedTuple):
    """A trial, and what the model knows of it."""

    played: Played
    width_ms: int
    measured: Measured

    @property
    def activity(self) -> Activity:
        """What the index has done in it."""
        return self.played.activity(self.width_ms)

    @property
    def boundaries(self) -> list[tuple[Opening, float]]:
        """Of slices that began and were spilled: what it took, and how many ms."""
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
    """The width that the index's own measure prefers: it does not depend on what things cost here."""
    predictions = [predict(played.activity(one), NO_COSTS, played.options) for one in WIDTHS_MS]
    return recommend(predictions, played.options).width_ms


def predicted_for(run: Run, costs: Costs, options: IndexOptions) -> Prediction:
    """What is predicted for a trial: not at its worst, but where and when the trial has looked."""
    done, restart = run.activity, run.played.restart(run.width_ms, costs)
    begun = [costs.first_pop_s(opening) for opening, _ in run.boundaries]
    return predict(done, costs, options)._replace(
        memory_bytes=memory_bytes(done, restart.first.entries, costs),
        boundary_ms=1000 * sum(begun) / max(len(begun), 1),
        recovery_ms=1000 * costs.recovery_s(restart),
    )


def measure_costs(folder: Path, run_trials: RunTrials = run_trials) -> Costs:
    """What blocks and entries cost on this machine, from made traces. Raises ``PipelineError``."""
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
    """Moved in time, so that a slice of this width begins soon after the end: every width has a boundary."""
    later_ms = -(int(trace.arrival_ms[-1]) + _BOUNDARY_AFTER_MS) % width_ms
    return Trace(trace.arrival_ms + later_ms, trace.deliver_at_ms + later_ms)


def sample_budget(sample: Trace) -> int:
    """Staging for a trial: such that the sample comes in several spills, as a whole trace does."""
    return max(len(sample) * ENTRY_BYTES // _SPILLS, 65_536)


def _costs(made: Sequence[Run], own: tuple[Run, ...] = ()) -> Costs:
    """From runs that differ in blocks, slices, entries, runs, records, what is staged and what is passed.

    own: of the user's trace.
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
    # The first pop of a process takes longer for other reasons, which are no slice's.
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
    """With what entries of the trace itself take: in slices, in the log, and in the sets of what is held."""
    done, measured = run.activity, run.measured
    entry_bytes = (measured.bytes - done.blocks_max * costs.block_bytes) / max(done.stored_max, 1)
    counted = memory_bytes(done, run.played.restart(run.width_ms, costs).first.entries, costs)
    held_bytes = (measured.memory_bytes - counted) / max(done.stored_max + done.staged_max, 1)
    # The smaller the groups are in which they come, the more of the log is keys and headers.
    of_entries = measured.logged_bytes - done.blocks_written * costs.logged_block_bytes
    logged_bytes = max(of_entries / max(len(run.played), 1), costs.logged_entry_bytes)
    return costs._replace(
        entry_bytes=max(entry_bytes, 0.0),
        logged_entry_bytes=logged_bytes,
        held_memory_bytes=max(held_bytes, 0.0),
    )


def _fitted(features: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """Least squares of relative errors; what comes out negative counts nothing, and is left out."""
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
    """One width to learn from, then three to be compared: the best one and two well apart from it."""
    at = WIDTHS_MS.index(width_ms)
    below = [one for one in WIDTHS_MS[:at] if one * _APART <= width_ms][::-1]
    above = [one for one in WIDTHS_MS[at + 1 :] if one >= width_ms * _APART]
    others = [*below[:1], *above[:1], *below[2:3], *above[2:3]][:2]
    between = WIDTHS_MS[at - 1] if at else WIDTHS_MS[1]
    return [between, *sorted([*others, width_ms])]


class Shape(NamedTuple):
    """A made trace: entries that arrive in so many bulks, each of which is spilled, and are due in no order,
    evenly over so many hours that begin when all are there.

    half: then time goes on until the first hour is half over. seconds: then so many seconds bring some more
    each, one of which is due before the next second. staged: then so many arrive that no spill takes.
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
        # After each bulk comes an entry, with which the index finds the bulk old enough.
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
