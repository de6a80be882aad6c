"""Many seeds, over several processes."""

from __future__ import annotations

import multiprocessing
import os
import secrets
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import wait as wait_for_ends
from operator import itemgetter
from pathlib import Path

from tests.sim.generator import FAULTS, generate
from tests.sim.obligations import Cause
from tests.sim.player import Outcome, play

HERE = Path(__file__).parent
_SAY_EVERY_S = 10.0
_AHEAD = 2  # histories a process: one is played, one waits for it


def commit_seed() -> int:
    """A first seed, 0 … 2^32 - 1, the same for a commit each time; a new one outside a checkout."""
    try:
        ran = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=HERE, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return secrets.randbits(32)
    return int(ran.stdout[:8], 16)


@dataclass(frozen=True)
class Failure:
    """A seed with a violation in its history; `faults`: the kinds that it was drawn from."""

    seed: int
    outcome: Outcome
    faults: tuple[str, ...] = FAULTS


class Campaign:
    """The seeds first … first + count - 1.

    `seconds` bounds the begin of the last one, `processor_s` the processor time of all processes by then;
    `faults` are the kinds that histories are drawn from.
    """

    def __init__(
        self,
        first: int,
        count: int,
        jobs: int,
        seconds: float | None,
        faults: tuple[str, ...] = FAULTS,
        processor_s: float | None = None,
    ) -> None:
        self.first = first
        self.faults = faults
        self.count = count
        self.jobs = jobs
        self.done = 0
        self.failures: list[Failure] = []
        self.steps = 0
        self.virtual_ms = 0
        self.published = 0
        self.deliveries = 0
        self.resets = 0
        self.forgiven = 0
        self.repeats: Counter[Cause] = Counter()
        self.skipped: Counter[str] = Counter()
        self.elapsed_s = 0.0
        self.worked_s = 0.0
        self._seconds = seconds
        self._processor_s = processor_s

    @classmethod
    def of_commit(cls, count: int, core_s: float) -> Campaign:
        """This commit's seeds, on all cores: so much time of each, however busy it is."""
        cores = os.cpu_count() or 1
        return cls(commit_seed(), count, cores, None, processor_s=core_s * cores)

    def run(self, say: Callable[[str], None]) -> None:
        """Play them all, and report the progress now and then."""
        say(f"sim: {self.count} histories from seed {self.first} on, {self.jobs} processes")
        begin_s = said_s = time.monotonic()
        seeds = iter(range(self.first, self.first + self.count))
        playing: set[Future[tuple[int, Outcome, float]]] = set()
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(self.jobs, mp_context=context, initializer=_end_with_parent) as pool:
            while True:
                # The first of them whatever the time is: a machine may be slow to start a process.
                if not self.done or not self._is_over():
                    few = islice(seeds, _AHEAD * self.jobs - len(playing))
                    playing |= {pool.submit(_play_seed, seed, self.faults) for seed in few}
                if not playing:
                    return
                played, playing = wait(playing, return_when=FIRST_COMPLETED)
                for seed, outcome, took_s in sorted((each.result() for each in played), key=itemgetter(0)):
                    self.worked_s += took_s
                    self._count(seed, outcome)
                    if not outcome.passed:
                        say(f"sim: seed {seed} failed: {outcome.failure}")
                self.elapsed_s = time.monotonic() - begin_s
                if time.monotonic() - said_s > _SAY_EVERY_S:
                    said_s = time.monotonic()
                    say(
                        f"sim: {self.done} histories, {self.steps:,} steps ({self.steps_per_s:,.0f}/s), "
                        f"{len(self.failures)} failed"
                    )

    def _is_over(self) -> bool:
        return (self._seconds is not None and self.elapsed_s >= self._seconds) or (
            self._processor_s is not None and self.worked_s >= self._processor_s
        )

    def _count(self, seed: int, outcome: Outcome) -> None:
        self.done += 1
        self.steps += outcome.steps
        self.virtual_ms += outcome.virtual_ms
        self.published += outcome.published
        self.deliveries += outcome.deliveries
        self.resets += outcome.resets
        self.forgiven += outcome.forgiven
        self.repeats += outcome.repeats
        self.skipped += outcome.skipped
        if not outcome.passed:
            self.failures.append(Failure(seed, outcome, self.faults))

    @property
    def steps_per_s(self) -> float:
        """Over all processes."""
        return self.steps / max(self.elapsed_s, 1e-9)


def _end_with_parent() -> None:
    """A worker that waits for its next seed would not notice that nobody sends one."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "called in a worker"

    def end() -> None:
        wait_for_ends([parent.sentinel])
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()


def _play_seed(seed: int, faults: tuple[str, ...]) -> tuple[int, Outcome, float]:
    began_s = time.process_time()
    outcome = play(generate(seed, faults))
    return seed, outcome, time.process_time() - began_s
