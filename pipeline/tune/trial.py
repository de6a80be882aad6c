"""The real index with one slice width, in processes of its own: a trace is played to it, then it is killed.

``python -m tidegate.pipeline.tune.trial PHASE FOLDER`` with ``trial.json`` (a `Setting`) and ``trace.npy``
(arrival_ms and deliver_at_ms, two rows, by arrival) in FOLDER does one phase and prints its figures as JSON:

- ``play`` gives the index the entries as they arrive, by a clock that is set to their times; what is due is
  popped and acknowledged, and the index spills when it wants to. Then it ends without closing anything;
- ``recover`` opens what is there and pops the first due entry.

Everything is as in the daemon, but for the work of a spill, which is done on the spot.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel

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
)
from tidegate.pipeline.errors import PipelineError

_NAME = SubscriptionName("persistent://tune/trial/trace", "trial")
_INCARNATION = bytes(16)
_BATCH = 5_000
_COMMIT = 50_000
_STEP_MS = 1_000
_POP = 10_000
_BOUNDARIES = 40
_LEDGER_ENTRIES = 50_000
_TIMEOUT_S = 300.0


class Setting(BaseModel):
    """How the index of a trial is set."""

    width_ms: int
    staging_bytes: int

    def options(self) -> IndexOptions:
        """As the daemon's, but that it looks ahead no further than it must: boundaries are to be seen."""
        return IndexOptions(
            slice_width_ms=self.width_ms, staging_budget_bytes=self.staging_bytes, prefetch_ms=0
        )


class Measured(BaseModel):
    """What a trial has shown; the names are those of a prediction.

    boundary_ms: of the first pop of a slice, as most of them took; None if no slice began.
    """

    memory_bytes: int
    bytes: int
    blocks: int
    spills: int
    work_s: float
    boundary_ms: float | None
    recovery_ms: float
    held: int
    staged: int


def run_trial(folder: Path, setting: Setting, arrival_ms: Int64Array, deliver_at_ms: Int64Array) -> Measured:
    """Both phases, each in a process of its own. Raises ``PipelineError``."""
    folder.mkdir(parents=True)
    np.save(folder / "trace.npy", np.stack([arrival_ms, deliver_at_ms]))
    (folder / "trial.json").write_text(setting.model_dump_json())
    figures = {**_phase("play", folder), **_phase("recover", folder)}
    boundaries_s = figures.pop("boundaries_s") + figures.pop("later_boundaries_s")
    figures["boundary_ms"] = float(np.median(boundaries_s)) * 1000 if boundaries_s else None
    return Measured.model_validate(figures)


def _phase(phase: str, folder: Path) -> dict[str, Any]:
    try:
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-m", "tidegate.pipeline.tune.trial", phase, str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise PipelineError(f"a trial of the index took longer than {_TIMEOUT_S:.0f} s") from error
    try:
        figures: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        raise PipelineError(f"a trial of the index failed ({phase}, exit code {done.returncode})") from error
    return figures


class Inline(Executor):
    """Does what it is given on the spot, and takes the time."""

    def __init__(self) -> None:
        self.jobs = 0
        self.work_s = 0.0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Do it now."""
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
    """An index with what drives it."""

    catalog: Catalog
    delays: DelayIndex
    clock: ManualClock
    executor: Inline


class Player:
    """Plays a trace to an index, and keeps what it sees."""

    def __init__(self, opened: Opened) -> None:
        self._catalog, self._index, self._clock, self._executor = opened
        self._memory = self._blocks = self._bytes = 0
        self._boundary_s: list[float] = []
        self._spills = 0

    def play(self, arrival_ms: Int64Array, deliver_at_ms: Int64Array, width_ms: int) -> dict[str, Any]:
        """All of it; the figures."""
        place = np.arange(len(arrival_ms), dtype=np.int64)
        ledger, entry = 1 + place // _LEDGER_ENTRIES, place % _LEDGER_ENTRIES
        boundaries = _some(np.unique(deliver_at_ms // width_ms) * width_ms)
        begin = uncommitted = 0
        while begin < len(arrival_ms):
            until_ms = max(int(arrival_ms[begin]) + _STEP_MS, self._clock.now_ms())
            end = min(int(np.searchsorted(arrival_ms, until_ms, side="right")), begin + _BATCH)
            now_ms = int(arrival_ms[end - 1])
            self._pass(now_ms, boundaries)
            batch = slice(begin, end)
            self._index.add(Entries(deliver_at_ms[batch], ledger[batch], entry[batch]))
            # How often the journal is synced has nothing to do with slices.
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
            "boundaries_s": self._boundary_s,
            "staged": self._index.staged_entries,
        }

    def pass_on(self, until_ms: int, boundaries: Int64Array) -> list[float]:
        """Time passes and nothing arrives; how long the first pop of each slice took, in seconds."""
        self._pass(until_ms, boundaries)
        return self._boundary_s

    def _maintain(self, now_ms: int) -> None:
        staged, jobs = self._index.staged_entries, self._executor.jobs
        self._catalog.maintain(now_ms)
        if self._executor.jobs == jobs:
            return
        self._spills += self._index.staged_entries < staged
        self._catalog.maintain(now_ms)  # takes over what was done
        stats = self._index.stats()
        # Memory is at its most when a spill begins.
        self._memory = max(self._memory, stats.memory_bytes + staged * ENTRY_BYTES)
        self._blocks = max(self._blocks, stats.blocks)
        self._bytes = max(self._bytes, stats.disk_bytes - stats.journal_bytes)

    def _pass(self, now_ms: int, boundaries: Int64Array) -> None:
        """Time passes: what is due is popped and acknowledged, and the beginnings of slices are looked at."""
        for start_ms in boundaries[(boundaries > self._clock.now_ms()) & (boundaries <= now_ms)].tolist():
            self._set(start_ms - 1)
            self._pop()
            first_ms = self._index.next_due_ms()
            self._set(max(start_ms, first_ms or 0) if first_ms and first_ms <= now_ms else start_ms)
            began_s = time.perf_counter()
            popped = self._index.pop_due(self._clock.now_ms(), _POP)
            took_s = time.perf_counter() - began_s
            if len(popped):
                self._boundary_s.append(took_s)
                self._index.acknowledge(PositionSet.of_entries(popped))
        self._set(now_ms)
        self._pop()

    def _set(self, now_ms: int) -> None:
        if now_ms > self._clock.now_ms():
            self._clock.set_ms(now_ms)

    def _pop(self) -> None:
        while (due_ms := self._index.next_due_ms()) is not None and due_ms <= self._clock.now_ms():
            popped = self._index.pop_due(self._clock.now_ms(), _POP)
            if len(popped):
                self._index.acknowledge(PositionSet.of_entries(popped))


def _some(boundaries: Int64Array) -> Int64Array:
    """All of them, or so many that are spread over all."""
    step = -(-len(boundaries) // _BOUNDARIES)
    return boundaries[:: max(step, 1)]


def _opened(folder: Path, setting: Setting, now_ms: int) -> Opened:
    clock, executor = ManualClock(now_ms), Inline()
    catalog = Catalog.open(RocksStore.open(folder / "index"), clock, setting.options(), executor)
    return Opened(catalog, catalog.subscription(_NAME, _INCARNATION), clock, executor)


def main(phase: str, folder: Path) -> None:
    """Do one phase and end without closing anything."""
    setting = Setting.model_validate_json((folder / "trial.json").read_text())
    arrival_ms, deliver_at_ms = np.load(folder / "trace.npy")
    if phase == "play":
        opened = _opened(folder, setting, int(arrival_ms[0]))
        figures = Player(opened).play(arrival_ms, deliver_at_ms, setting.width_ms)
        (folder / "now").write_text(str(opened.clock.now_ms()))
    else:
        began_s = time.perf_counter()
        opened = _opened(folder, setting, int((folder / "now").read_text()))
        index, clock = opened.delays, opened.clock
        due_ms = index.next_due_ms()
        while due_ms is not None:
            clock.set_ms(max(clock.now_ms(), due_ms))
            if len(index.pop_due(clock.now_ms(), _POP)):
                break
            due_ms = index.next_due_ms()
        figures = {"recovery_ms": (time.perf_counter() - began_s) * 1000, "held": len(index.held())}
        boundaries = _some(np.unique(deliver_at_ms // setting.width_ms) * setting.width_ms)
        figures["later_boundaries_s"] = Player(opened).pass_on(
            int(boundaries[-1]) + setting.width_ms, boundaries
        )
    print(json.dumps(figures), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
