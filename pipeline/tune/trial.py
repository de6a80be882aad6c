"""The real index with one slice width: plays a trace to it, kills it, and opens it again.

``python -m tidegate.pipeline.tune.trial PHASE FOLDER…`` with ``trial.json`` (a `Setting`) and ``trace.npy``
(arrival_ms and deliver_at_ms, two rows, by arrival) in each FOLDER does one phase for all of them and prints
their figures as JSON:

- ``play`` passes the entries to the index as they arrive, by a clock set to their times; it pops and
  acknowledges due entries, and the index spills when it wants to. Then it ends without closing anything;
- ``recover`` opens the folder and pops the first due entry, then continues from slice to slice. It does so
  several times, each with a copy of the folder, and with all folders in turn, against disturbances of the
  machine.

Everything is as in the daemon, except that a spill's work happens on the spot.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel, Field

from tidegate.index import (
    ENTRY_BYTES,
    Catalog,
    DelayIndex,
    Entries,
    IndexOptions,
    Int64Array,
    ManualClock,
    PositionSet,
    RocksStore,
    SubscriptionName,
    TidegateIndexError,
)
from tidegate.pipeline.errors import PipelineError

_NAME = SubscriptionName("persistent://tune/trial/trace", "trial")
_INCARNATION = bytes(16)
_BATCH = 5_000
_COMMIT = 50_000
STEP_MS = 1_000
_POP = 10_000
_BOUNDARIES = 40
_WORTH_A_LOOK = 100
"""The beginning of a slice with a hundredth of the fullest one's entries says nothing."""
_STARTS = 7
_LEDGER_ENTRIES = 50_000
_TIMEOUT_S = 300.0
INDEX, NOW = "index", "now"


class Setting(BaseModel):
    """The index settings of a trial."""

    width_ms: int
    staging_bytes: int

    def options(self) -> IndexOptions:
        """As the daemon's, but with the shortest possible look-ahead, so that boundaries show."""
        return IndexOptions(
            slice_width_ms=self.width_ms, staging_budget_bytes=self.staging_bytes, prefetch_ms=0
        )


class Measured(BaseModel):
    """The figures of a trial; most names are those of a prediction.

    boundary_ms: the first pop of a slice, on average; None if no slice began. boundaries: each of them, (the
    slice's beginning, ms). recovery_ms: opened_ms, then first_pop_ms. Each of these is the least of several.
    logged_bytes: the store's WAL at the kill.
    """

    memory_bytes: int
    bytes: int
    blocks: int
    spills: int
    work_s: float
    boundary_ms: float | None
    boundaries: list[tuple[int, float]] = Field(exclude=True)
    opened_ms: float
    first_pop_ms: float
    recovery_ms: float
    held: int
    staged: int
    logged_bytes: int

    @property
    def starts_ms(self) -> list[int]:
        """The beginnings of the measured slices."""
        return [start_ms for start_ms, _ in self.boundaries]


class Trial(NamedTuple):
    """A trace and the index to play it to. ``name`` is a file name."""

    name: str
    setting: Setting
    arrival_ms: Int64Array
    deliver_at_ms: Int64Array


def run_trials(folder: Path, trials: Sequence[Trial]) -> list[Measured]:
    """Both phases, each in a process of its own. Raises ``PipelineError``."""
    folders = [folder / one.name for one in trials]
    try:
        for path, one in zip(folders, trials, strict=True):
            path.mkdir(parents=True)
            np.save(path / "trace.npy", np.stack([one.arrival_ms, one.deliver_at_ms]))
            (path / "trial.json").write_text(one.setting.model_dump_json())
    except OSError as error:
        raise _failed("begin", folder, error.strerror or str(error)) from error
    played, recovered = (_phase(phase, folders) for phase in ("play", "recover"))
    return [Measured.model_validate({**one, **other}) for one, other in zip(played, recovered, strict=True)]


def _phase(phase: str, folders: Sequence[Path]) -> list[dict[str, Any]]:
    try:
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-m", "tidegate.pipeline.tune.trial", phase, *map(str, folders)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise PipelineError(f"a trial of the index took longer than {_TIMEOUT_S:.0f} s") from error
    try:
        told = json.loads(done.stdout)
    except ValueError as error:
        raise PipelineError(f"a trial of the index failed ({phase}, exit code {done.returncode})") from error
    if isinstance(told, str):
        raise _failed(phase, folders[0].parent, told)
    figures: list[dict[str, Any]] = told
    return figures


def _failed(phase: str, folder: Path, why: str) -> PipelineError:
    return PipelineError(
        f"a trial of the index in {folder} failed ({phase}): {why}; free some space there, or choose another "
        "place with TMPDIR=DIR"
    )


class Inline(Executor):
    """Runs submitted work on the spot, and times it."""

    def __init__(self) -> None:
        self.jobs = 0
        self.work_s = 0.0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run it now."""
        future: Future[Any] = Future()
        began_s = time.perf_counter()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        self.work_s += time.perf_counter() - began_s
        self.jobs += 1
        return future


class Opened(NamedTuple):
    """An index with its driver, whose time passes on command."""

    catalog: Catalog
    delays: DelayIndex
    clock: ManualClock
    executor: Inline

    @classmethod
    def open(cls, folder: Path, setting: Setting, now_ms: int) -> Opened:
        """Open the folder's index, or a new one."""
        clock, executor = ManualClock(now_ms), Inline()
        catalog = Catalog.open(RocksStore.open(folder), clock, setting.options(), executor)
        return cls(catalog, catalog.subscription(_NAME, _INCARNATION), clock, executor)

    def pass_until(self, now_ms: int) -> None:
        """Let time pass: due entries are popped and acknowledged."""
        self._set(now_ms)
        while (due_ms := self.delays.timeline.next_due_ms()) is not None and due_ms <= self.clock.now_ms():
            self._pop()

    def pop_first(self) -> None:
        """Let time pass until an entry is due, and pop it."""
        while (due_ms := self.delays.timeline.next_due_ms()) is not None:
            self._set(due_ms)
            if self._pop():
                return

    def boundaries_s(self, starts_ms: Int64Array) -> dict[int, float]:
        """Let time pass; returns the duration of the first pop of each slice that begins, in seconds."""
        found = {}
        for start_ms in starts_ms.tolist():
            self.pass_until(start_ms - 1)
            due_ms = self.delays.timeline.next_due_ms()
            if due_ms is None:
                break
            self._set(max(start_ms, due_ms))
            began_s = time.perf_counter()
            popped = self.delays.timeline.pop_due(self.clock.now_ms(), _POP)
            took_s = time.perf_counter() - began_s
            if len(popped):
                found[start_ms] = took_s
                self.delays.acknowledge(PositionSet.of_entries(popped))
        return found

    def _set(self, now_ms: int) -> None:
        if now_ms > self.clock.now_ms():
            self.clock.set_ms(now_ms)

    def _pop(self) -> int:
        popped = self.delays.timeline.pop_due(self.clock.now_ms(), _POP)
        if len(popped):
            self.delays.acknowledge(PositionSet.of_entries(popped))
        return len(popped)


_KEPT: list[Opened] = []


class Player:
    """Plays a trace to an index, and records figures."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._catalog, self._index, self._clock, self._executor = opened
        self._memory = self._blocks = self._bytes = 0
        self._spills = 0

    def play(self, arrival_ms: Int64Array, deliver_at_ms: Int64Array) -> dict[str, Any]:
        """Play all of it; returns the figures."""
        place = np.arange(len(arrival_ms), dtype=np.int64)
        ledger, entry = 1 + place // _LEDGER_ENTRIES, place % _LEDGER_ENTRIES
        begin = uncommitted = 0
        while begin < len(arrival_ms):
            until_ms = max(int(arrival_ms[begin]) + STEP_MS, self._clock.now_ms())
            end = min(int(np.searchsorted(arrival_ms, until_ms, side="right")), begin + _BATCH)
            now_ms = int(arrival_ms[end - 1])
            self._opened.pass_until(now_ms)
            batch = slice(begin, end)
            self._index.add(Entries(deliver_at_ms[batch], ledger[batch], entry[batch]))
            # The journal's sync interval is irrelevant to slices.
            uncommitted += end - begin
            if begin == 0 or uncommitted >= _COMMIT:
                self._catalog.commit()
                uncommitted = 0
            self._maintain(now_ms)
            begin = end
        self._catalog.commit()
        return {
            "memory_bytes": self._memory,
            "bytes": self._bytes,
            "blocks": self._blocks,
            "spills": self._spills,
            "work_s": self._executor.work_s,
            "staged": self._index.upkeep.staged_entries,
        }

    def _maintain(self, now_ms: int) -> None:
        staged, jobs = self._index.upkeep.staged_entries, self._executor.jobs
        self._catalog.maintain(now_ms)
        if self._executor.jobs == jobs:
            return
        self._spills += self._index.upkeep.staged_entries < staged
        self._catalog.maintain(now_ms)  # takes finished work over
        stats = self._index.stats()
        # Memory peaks when a spill begins.
        self._memory = max(self._memory, stats.memory_bytes + staged * ENTRY_BYTES)
        self._blocks = max(self._blocks, stats.blocks)
        self._bytes = max(self._bytes, stats.disk_bytes - stats.journal_bytes)


class Start(NamedTuple):
    """The reopening of a killed index. Seconds; boundaries_s: of the first pop of each slice."""

    opened_s: float
    first_pop_s: float
    boundaries_s: dict[int, float]
    held: int


def _start(folder: Path, setting: Setting, now_ms: int, boundaries: Int64Array) -> Start:
    began_s = time.perf_counter()
    opened = Opened.open(folder, setting, now_ms)
    opened_s = time.perf_counter() - began_s
    opened.pop_first()
    first_pop_s = time.perf_counter() - began_s - opened_s
    held = len(opened.delays.state.held)
    found = opened.boundaries_s(boundaries)
    opened.catalog.close()
    return Start(opened_s, first_pop_s, found, held)


def _some(boundaries: Int64Array) -> Int64Array:
    """All of them, or a number of them spread over all."""
    step = -(-len(boundaries) // _BOUNDARIES)
    return boundaries[:: max(step, 1)]


def play(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Run the phase; returns its figures."""
    told = []
    for folder in folders:
        arrival_ms, deliver_at_ms = np.load(folder / "trace.npy")
        opened = Opened.open(folder / INDEX, _setting(folder), int(arrival_ms[0]))
        # Python closes an object without references: a killed index must stay open.
        _KEPT.append(opened)
        told.append(Player(opened).play(arrival_ms, deliver_at_ms))
        (folder / NOW).write_text(str(opened.clock.now_ms()))
    return told


def recover(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Run the phase; returns its figures."""
    starts: list[list[Start]] = [[] for _ in folders]
    for number in range(_STARTS):
        for folder, mine in zip(folders, starts, strict=True):
            setting, now_ms = _setting(folder), int((folder / NOW).read_text())
            copied = folder / f"{INDEX}-{number}"
            shutil.copytree(folder / INDEX, copied)
            mine.append(_start(copied, setting, now_ms, _boundaries(folder, setting, now_ms)))
            shutil.rmtree(copied)
    return [_recovered(folder, mine) for folder, mine in zip(folders, starts, strict=True)]


def _boundaries(folder: Path, setting: Setting, now_ms: int) -> Int64Array:
    """The beginnings of the slices to measure."""
    _, deliver_at_ms = np.load(folder / "trace.npy")
    numbers, entries = np.unique(deliver_at_ms // setting.width_ms, return_counts=True)
    starts_ms = numbers[entries >= entries.max() / _WORTH_A_LOOK] * setting.width_ms
    return _some(starts_ms[starts_ms > now_ms])


def _recovered(folder: Path, starts: Sequence[Start]) -> dict[str, Any]:
    opened_ms = 1000 * min(one.opened_s for one in starts)
    first_pop_ms = 1000 * min(one.first_pop_s for one in starts)
    boundaries = [
        (start_ms, 1000 * min(one.boundaries_s[start_ms] for one in starts))
        for start_ms in starts[0].boundaries_s
    ]
    return {
        "opened_ms": opened_ms,
        "first_pop_ms": first_pop_ms,
        "recovery_ms": opened_ms + first_pop_ms,
        "boundaries": boundaries,
        "boundary_ms": sum(took_ms for _, took_ms in boundaries) / len(boundaries) if boundaries else None,
        "held": starts[0].held,
        "logged_bytes": sum(path.stat().st_size for path in (folder / INDEX).glob("*.log")),
    }


def _setting(folder: Path) -> Setting:
    return Setting.model_validate_json((folder / "trial.json").read_text())


PHASES = {"play": play, "recover": recover}


def main(phase: str, folders: Sequence[Path]) -> None:
    """Do one phase, print its figures or the disk's error, and end without closing anything."""
    told: list[dict[str, Any]] | str
    try:
        told = PHASES[phase](folders)
    except (OSError, TidegateIndexError) as error:
        told = str(error)
    print(json.dumps(told), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], [Path(one) for one in sys.argv[2:]])
