"""The index with one slice width, in its own process: filled, popped half, killed -9 and opened again.

``python -m bench.tuning.worker PHASE DIR SETTING`` with SETTING as JSON (``Setting``) does one phase on the
same directory, prints its figures as JSON and waits to be killed:

- ``crowd`` does the work of ``fill`` and looks at the blocks after each batch, which takes time;
- ``fill`` adds the entries in batches, each durable before the next, until all are in slices; like the daemon
  it accepts no more while staging is far over its budget;
- ``pop`` pops and acknowledges up to the middle of a slice in the middle of the span. At some slices it
  measures the boundary as the daemon meets it: it reads ahead, then pops the first due entries;
- ``reopen`` opens the folder and pops the first due entry.
"""

from __future__ import annotations

import gc
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from pydantic import BaseModel

from bench.harness.meters import Pauses, PeakMemory, resident_mib
from bench.harness.worker_process import tell_and_wait
from bench.index.worker import INCARNATION, NAME
from tidegate.index import (
    ENTRY_BYTES,
    Catalog,
    DelayIndex,
    Entries,
    IndexOptions,
    ManualClock,
    PositionSet,
    RocksStore,
)

POP = 10_000
START_MS = 1_800_000_000_000
DAY_MS = 86_400_000
PREFETCH_MS = 10_000
LOOKS = 40
"""So many slice boundaries are looked at, if there are so many."""
READ_AHEAD_CALLS = 16
HELD_BACK_AT = 2
"""Staging budgets past which no more is taken: a small backlog must come in many spills."""


class Setting(BaseModel):
    """A worker's settings. ``width_ms`` None: automatic."""

    entries: int
    batch: int
    span_ms: int
    staging_bytes: int
    width_ms: int | None

    def options(self) -> IndexOptions:
        """The daemon's options with this width."""
        fixed = {} if self.width_ms is None else {"slice_width_ms": self.width_ms}
        return IndexOptions(
            staging_budget_bytes=self.staging_bytes,
            prefetch_ms=PREFETCH_MS,
            slice_width_auto=self.width_ms is None,
            **fixed,
        )


class WorkClock(ManualClock):
    """Messages' time stands still; the duration of work is measured, for the pace of compactions."""

    def monotonic_ns(self) -> int:
        """Of this machine."""
        return time.perf_counter_ns()


def opened(folder: Path, setting: Setting, now_ms: int) -> tuple[Catalog, DelayIndex, ManualClock]:
    """The catalog of the folder, as the daemon opens it."""
    clock = WorkClock(now_ms)
    catalog = Catalog.open(RocksStore.open(folder), clock, setting.options(), ThreadPoolExecutor(1))
    return catalog, catalog.subscription(NAME, INCARNATION), clock


def batches(setting: Setting) -> list[Entries]:
    """Entries of one topic in the order sent, each due at random within the span."""
    generator = np.random.default_rng(1)
    made = []
    for first in range(0, setting.entries, setting.batch):
        sequence = np.arange(first, min(setting.entries, first + setting.batch), dtype=np.int64)
        due_ms = START_MS + generator.integers(0, setting.span_ms, len(sequence))
        made.append(Entries(due_ms, 1 + sequence // 50_000, sequence % 50_000))
    return made


def fill(folder: Path, setting: Setting) -> dict[str, float]:
    """Add everything; returns the figures."""
    made = batches(setting)
    gc.collect()
    before_mib = resident_mib()
    memory = PeakMemory()
    catalog, index, clock = opened(folder, setting, START_MS - DAY_MS)
    began_s = time.perf_counter()
    for entries in made:
        index.add(entries)
        catalog.commit()
        catalog.maintain(clock.now_ms())
        while index.upkeep.staged_entries * ENTRY_BYTES > HELD_BACK_AT * setting.staging_bytes:
            time.sleep(0.001)  # a spill is under way; the next look takes it over
            catalog.maintain(clock.now_ms())
    catalog.persist(NAME)
    took_s = time.perf_counter() - began_s
    stats = index.stats()
    packed = sum(one.entries for one in stats.slices)
    return {
        "seconds": took_s,
        "memory_mib": memory.peak_mib - before_mib,
        "bytes_an_entry": (stats.disk_bytes - stats.journal_bytes) / packed,
        "blocks": stats.blocks,
        "slices": len(stats.slices),
        "width_ms": stats.slice_width_ms,
        "held": stats.held,
    }


def crowd(folder: Path, setting: Setting) -> dict[str, float]:
    """Add everything; returns the peak of blocks on the way."""
    catalog, index, clock = opened(folder, setting, START_MS - DAY_MS)
    most = 0
    for entries in batches(setting):
        index.add(entries)
        catalog.commit()
        catalog.maintain(clock.now_ms())
        while index.upkeep.staged_entries * ENTRY_BYTES > HELD_BACK_AT * setting.staging_bytes:
            time.sleep(0.001)  # a spill is under way; the next look takes it over
            catalog.maintain(clock.now_ms())
        most = max(most, index.stats().blocks)
    return {"blocks_max": most, "compactions": catalog.stats().compactions}


def pop(folder: Path, setting: Setting) -> dict[str, float]:
    """Pop the first half of the span; returns the figures."""
    memory = PeakMemory()
    catalog, index, clock = opened(folder, setting, START_MS)
    slices = index.stats().slices
    middle_ms = START_MS + setting.span_ms // 2
    last = next(one for one in slices if one.start_ms <= middle_ms < one.start_ms + one.width_ms)
    stop_ms = min(last.start_ms + last.width_ms // 2, START_MS + setting.span_ms)
    starts = sorted({one.start_ms for one in slices if one.start_ms < stop_ms})
    looks = starts if len(starts) <= LOOKS else starts[:: len(starts) // LOOKS]
    pauses = Pauses()
    popped = 0
    for start_ms in looks:
        popped += _pop_until(catalog, index, clock, max(start_ms - 1, START_MS), pauses)
        popped += _look(catalog, index, clock, pauses)
    popped += _pop_until(catalog, index, clock, stop_ms, pauses)
    return {
        "boundary_ms": pauses.longest_ms("boundary"),
        "catching_up_ms": pauses.longest_ms("catching up"),
        "memory_mib": memory.peak_mib,
        "popped": popped,
        "stop_ms": stop_ms,
    }


def _look(catalog: Catalog, index: DelayIndex, clock: ManualClock, pauses: Pauses) -> int:
    """The first entry of the next slice becomes due."""
    due_ms = index.timeline.next_due_ms()
    if due_ms is None:
        return 0
    for _ in range(READ_AHEAD_CALLS):
        with pauses.timed("boundary"):
            catalog.maintain(clock.now_ms())
    clock.set_ms(max(due_ms, clock.now_ms()))
    with pauses.timed("boundary"):
        entries = index.timeline.pop_due(clock.now_ms(), POP)
    return _acknowledge(catalog, index, entries)


def _pop_until(catalog: Catalog, index: DelayIndex, clock: ManualClock, until_ms: int, pauses: Pauses) -> int:
    """Everything due until then, as after a time without consumers."""
    clock.set_ms(max(until_ms, clock.now_ms()))
    popped = 0
    while (due_ms := index.timeline.next_due_ms()) is not None and due_ms <= clock.now_ms():
        with pauses.timed("catching up"):
            entries = index.timeline.pop_due(clock.now_ms(), POP)
        popped += _acknowledge(catalog, index, entries)
        catalog.maintain(clock.now_ms())
    return popped


def _acknowledge(catalog: Catalog, index: DelayIndex, entries: Entries) -> int:
    if len(entries):
        index.acknowledge(PositionSet.of_entries(entries))
        catalog.commit()
    return len(entries)


def reopen(folder: Path, setting: Setting, stop_ms: int) -> dict[str, float]:
    """Open and pop the first due entry; returns the figures."""
    began_s = time.perf_counter()
    _, index, clock = opened(folder, setting, stop_ms)
    opened_s = time.perf_counter() - began_s
    entries = Entries.empty()
    while not len(entries):
        clock.set_ms(max(clock.now_ms(), index.timeline.next_due_ms() or 0))
        entries = index.timeline.pop_due(clock.now_ms(), POP)
    return {
        "opened_s": opened_s,
        "first_pop_s": time.perf_counter() - began_s,
        "held": len(index.state.held),
        "early": int(np.count_nonzero(entries.deliver_at_ms > clock.now_ms())),
    }


def main(argv: list[str]) -> None:
    """Do one phase, print its figures and wait for the end of the input."""
    phase, folder, setting = argv[0], Path(argv[1]), Setting.model_validate_json(argv[2])
    if phase == "fill":
        figures = fill(folder, setting)
    elif phase == "crowd":
        figures = crowd(folder, setting)
    elif phase == "pop":
        figures = pop(folder, setting)
    else:
        figures = reopen(folder, setting, int(argv[3]))
    tell_and_wait(figures)


if __name__ == "__main__":
    main(sys.argv[1:])
