"""The hottest paths of the index, each on one thread: add and commit, spill, pop and acknowledge.

And one not hot but expensive: five entries at a time for each of 1,000 subscriptions.

The daemon's executors' work (writing a commit, a persist) runs inline, so a path's time and a profiler of one
thread have all of it. Preparation (input, earlier content) is outside of a path's ``Region``.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from cProfile import Profile
from dataclasses import dataclass
from pathlib import Path

from bench.harness.index_driver import INCARNATION, subscription_name
from bench.harness.made_entries import START_MS, Source
from tidegate.index import Catalog, ManualClock, PositionSet
from tidegate.plugin.daemon.handing_out import FRAME_RECORDS_MAX
from tidegate.plugin.daemon.serve import index_options, open_store
from tidegate.plugin.daemon.settings import Settings

BATCH = 10_000
SPILL = 1_000_000  # entries of one persist: about what fits into the staging budget
SUBSCRIPTIONS, FEW = 1_000, 5
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
NAME = subscription_name()


@dataclass
class Region:
    """The timed part of a path: seconds, processor seconds and the kernel's work, over all its pieces."""

    profile: Profile | None = None
    wall_s: float = 0.0
    cpu_s: float = 0.0
    switches: int = 0
    faults: int = 0

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Time a piece of it."""
        before = resource.getrusage(resource.RUSAGE_THREAD)
        began_s = time.perf_counter()
        if self.profile is not None:
            self.profile.enable()
        try:
            yield
        finally:
            if self.profile is not None:
                self.profile.disable()
            self.wall_s += time.perf_counter() - began_s
            after = resource.getrusage(resource.RUSAGE_THREAD)
            self.cpu_s += after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            self.switches += after.ru_nivcsw + after.ru_nvcsw - before.ru_nivcsw - before.ru_nvcsw
            self.faults += after.ru_minflt - before.ru_minflt


def opened(folder: Path, clock: ManualClock) -> Catalog:
    """The catalog with the daemon's defaults and no executor."""
    settings = Settings(data=folder)
    return Catalog.open(open_store(settings), clock, index_options(settings), None)


def add(folder: Path, count: int, region: Region) -> None:
    """Batches of 10,000, each committed."""
    source, clock = Source(7 * DAY_MS), ManualClock(START_MS - DAY_MS)
    catalog = opened(folder, clock)
    index = catalog.subscription(NAME, INCARNATION)
    for start in range(0, count, BATCH):
        if start and start % SPILL == 0:
            catalog.persist(NAME)
        entries = source.entries(start, BATCH)
        with region.timed():
            index.add(entries)
            catalog.commit()


def trickle(folder: Path, count: int, region: Region) -> None:
    """``FEW`` entries for each of 1,000 subscriptions in turn, committed together; nothing is spilled."""
    source, clock = Source(DAY_MS), ManualClock(START_MS - DAY_MS)
    catalog = opened(folder, clock)
    indexes = [
        catalog.subscription(subscription_name(number), INCARNATION) for number in range(SUBSCRIPTIONS)
    ]
    catalog.commit()
    for start in range(0, count, FEW * SUBSCRIPTIONS):
        batches = [source.entries(start + number * FEW, FEW) for number in range(SUBSCRIPTIONS)]
        with region.timed():
            for index, entries in zip(indexes, batches, strict=True):
                index.add(entries)
            catalog.commit()


def spill(folder: Path, count: int, region: Region) -> None:
    """A persist for every million entries over 7 days, with the merges that follow."""
    source, clock = Source(7 * DAY_MS), ManualClock(START_MS - DAY_MS)
    catalog = opened(folder, clock)
    index = catalog.subscription(NAME, INCARNATION)
    for start in range(0, count, BATCH):
        index.add(source.entries(start, BATCH))
        if (start + BATCH) % SPILL == 0 or start + BATCH >= count:
            catalog.commit()
            with region.timed():
                catalog.persist(NAME)


def pop(folder: Path, count: int, region: Region) -> None:
    """Pop spilled entries due in two hours, at the daemon's batch size, acknowledged and committed."""
    source, clock = Source(2 * HOUR_MS), ManualClock(START_MS - DAY_MS)
    spill_all(folder, count, source)
    clock.set_ms(START_MS)
    catalog = opened(folder, clock)
    index = catalog.subscription(NAME, INCARNATION)
    step_ms = max(1, source.span_ms * FRAME_RECORDS_MAX // count)
    popped = 0
    while popped < count:
        clock.advance(step_ms)
        with region.timed():
            entries = index.timeline.pop_due(clock.now_ms(), FRAME_RECORDS_MAX)
        popped += len(entries)
        positions = PositionSet.of_entries(entries)
        with region.timed():
            if len(entries):
                index.acknowledge(positions)
                catalog.commit()
        catalog.maintain(clock.now_ms())
        if index.timeline.next_due_ms() is None:
            break
    if popped != count:
        raise RuntimeError(f"{popped} of {count} entries came out")


def spill_all(folder: Path, count: int, source: Source) -> None:
    """Leave ``count`` entries in slices on disk."""
    catalog = opened(folder, ManualClock(START_MS - DAY_MS))
    index = catalog.subscription(NAME, INCARNATION)
    for start in range(0, count, BATCH):
        index.add(source.entries(start, BATCH))
        if (start + BATCH) % SPILL == 0:
            catalog.persist(NAME)
    catalog.persist(NAME)
    catalog.close()


PATHS: dict[str, Callable[[Path, int, Region], None]] = {
    "add": add,
    "spill": spill,
    "pop": pop,
    "trickle": trickle,
}
