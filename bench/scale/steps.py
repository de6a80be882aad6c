"""The steps of the scenarios of ``scale``: filling, draining, and the files after them.

Each drives an index through ``IndexDriver`` and returns figures by name. Input is generated batch by batch,
so memory is the index's; the time includes it unless a figure's name says otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.harness.index_driver import IndexDriver
from bench.harness.made_entries import Source, Tally
from bench.harness.meters import MIB, PeakMemory, disk_bytes
from tidegate.index import DelayIndex, PositionSet, Store
from tidegate.index.format import keys
from tidegate.plugin.daemon.handing_out import FRAME_RECORDS_MAX

BATCH = 10_000
MARK = 10_000_000  # memory is recorded each time that so many have been added
DRAIN_MAX_S = 90.0  # entries not popped by then must still be held

Figures = dict[str, Any]


def fill(driver: IndexDriver, indexes: Sequence[DelayIndex], source: Source, count: int) -> Figures:
    """Add ``count`` entries in batches, to the indexes in turn, until all are durable.

    The clock follows the entries' arrivals, or real time without any.
    """
    memory, stopwatch = PeakMemory(), Stopwatch()
    marks = []
    began_ms = driver.clock.now_ms()
    for start in range(0, count, BATCH):
        with stopwatch.stopped():
            entries = source.entries(start, min(BATCH, count - start))
        if source.step_ns:
            driver.clock.set_ms(source.arrival_ms(start + len(entries) - 1))
        else:
            driver.clock.set_ms(began_ms + int(stopwatch.wall_s * 1e3))
        driver.add(indexes[start // BATCH % len(indexes)], entries)
        driver.turn()
        driver.wait_for_room()
        if (start + BATCH) % MARK == 0 and start + BATCH < count:
            marks.append(round(memory.peak_mib, 1))
            memory.reset()
    driver.commit_all()
    stopwatch.end()
    marks.append(round(memory.peak_mib, 1))
    return {
        "adds_per_s": count / stopwatch.wall_s,
        "adds_per_s_less_input": count / stopwatch.net_s,
        "cpu_ns": stopwatch.cpu_s * 1e9 / count,
        "waited_s": driver.waited_s,
        "staged_of_budget": driver.unspilled_bytes_max / driver.settings.staging_bytes,
        "staged_mib_max": driver.unspilled_bytes_max / MIB,
        "memory_mib": max(marks),
        "memory_marks_mib": marks,
        **pauses(driver),
    }


class Stopwatch:
    """Wall time and processor time from its creation to ``end``, with and without parts of this thread.

    ``wall_s`` is all of it; ``net_s`` and ``cpu_s`` exclude work while it was stopped.
    """

    def __init__(self) -> None:
        self.began_s, self._began_cpu_s = time.perf_counter(), time.process_time()
        self._ended: tuple[float, float] | None = None
        self._stopped_s = self._stopped_cpu_s = 0.0

    def stopped(self) -> _Stop:
        """Exclude the block."""
        return _Stop(self)

    def leave_out(self, wall_s: float, cpu_s: float) -> None:
        """Exclude so much."""
        self._stopped_s += wall_s
        self._stopped_cpu_s += cpu_s

    def end(self) -> None:
        """Stop for good."""
        self._ended = (time.perf_counter(), time.process_time())

    @property
    def wall_s(self) -> float:
        """Seconds from the beginning to the end."""
        return (self._ended[0] if self._ended else time.perf_counter()) - self.began_s

    @property
    def net_s(self) -> float:
        """The same without excluded times."""
        return self.wall_s - self._stopped_s

    @property
    def cpu_s(self) -> float:
        """Processor seconds of all threads, without excluded times."""
        ended_cpu_s = self._ended[1] if self._ended else time.process_time()
        return ended_cpu_s - self._began_cpu_s - self._stopped_cpu_s


class _Stop:
    def __init__(self, stopwatch: Stopwatch) -> None:
        self._stopwatch = stopwatch

    def __enter__(self) -> None:
        self._began_s, self._began_cpu_s = time.perf_counter(), time.thread_time()

    def __exit__(self, *_: object) -> None:
        self._stopwatch.leave_out(time.perf_counter() - self._began_s, time.thread_time() - self._began_cpu_s)


def pauses(driver: IndexDriver) -> Figures:
    """The durations of the answering thread's calls so far."""
    return {
        "pause_ms": driver.pauses.longest_ms(),
        "pause_p999_ms": driver.pauses.quantile_ms(0.999),
        "pauses_ms": driver.pauses.by_kind_ms(),
    }


def sizes(driver: IndexDriver, index: DelayIndex, folder: Path, count: int) -> Figures:
    """Bytes an entry: of all files, by kind of file, and of their live data, by kind of value.

    Written data are in RocksDB's WAL until in a table; deleted or replaced data are in tables until
    compacted.
    """
    one = index.stats()
    packed = sum(part.entries for part in one.slices)
    block_bytes = one.disk_bytes - one.journal_bytes
    all_bytes, wal_bytes, table_bytes = (disk_bytes(folder, suffix) for suffix in ("", ".log", ".sst"))
    return {
        "packed": packed,
        "block_bytes_an_entry": block_bytes / packed if packed else 0.0,
        "disk_bytes_an_entry": all_bytes / count,
        "disk_tables": table_bytes / count,
        "disk_log": wal_bytes / count,
        "disk_other": (all_bytes - wal_bytes - table_bytes) / count,
        "alive_blocks": block_bytes / count,
        "alive_bitmaps": stored_bytes(driver.store, keys.HELD, keys.ACKNOWLEDGED) / count,
        "alive_journal": stored_bytes(driver.store, keys.JOURNAL, keys.CARRY) / count,
    }


def stored_bytes(store: Store, *kinds: bytes) -> int:
    """Bytes of all keys and values of these kinds."""
    return sum(len(key) + len(value) for kind in kinds for key, value in store.scan(*keys.kind_range(kind)))


def drain(driver: IndexDriver, index: DelayIndex, tally: Tally, count: int, step_ms: int) -> Figures:
    """Pop and acknowledge everything; the clock advances in steps whenever no more is due.

    After ``DRAIN_MAX_S`` it ends; the rest must then be held.
    """
    before, pop_s = tally.popped, driver.pauses.total_s("pop")
    stopwatch = Stopwatch()
    while tally.popped < count and stopwatch.wall_s < DRAIN_MAX_S:
        if not take_due(driver, index, tally, stopwatch):
            next_ms = index.timeline.next_due_ms()
            if next_ms is None:
                break
            if next_ms > driver.clock.now_ms():
                driver.clock.set_ms(max(driver.clock.now_ms() + step_ms, next_ms))
        driver.turn()
        driver.wait_for_room()
    driver.commit_all()
    stopwatch.end()
    popped = tally.popped - before
    return {
        "pops_per_s": popped / (driver.pauses.total_s("pop") - pop_s),
        "pop_ack_per_s": popped / stopwatch.net_s,
        "pop_cpu_ns": stopwatch.cpu_s * 1e9 / popped if popped else 0.0,
        "popped": tally.popped,
        **pauses(driver),
        **tally.check(count, index.stats().held),
    }


def take_due(driver: IndexDriver, index: DelayIndex, tally: Tally, stopwatch: Stopwatch) -> int:
    """Pop once, check the entries and acknowledge them; returns their number. The check is not timed."""
    entries = driver.pop(index, FRAME_RECORDS_MAX)
    if len(entries):
        with stopwatch.stopped():
            tally.examine(entries, driver.clock.now_ms())
            positions = PositionSet.of_entries(entries)  # the form into which a broker's frame is parsed
        driver.acknowledge(index, positions)
    return len(entries)
