"""One scenario of ``scale`` in a process of its own: ``python -m bench.scale_worker NAME DIR COUNT``.

It prints its figures as one line of JSON and waits to be killed, so that what comes next finds the files as
kill -9 leaves them.
"""

from __future__ import annotations

import time

_STARTED_S = time.time()  # before the imports, which take longer than the rest of this module

import gc  # noqa: E402
import sys  # noqa: E402
from collections import Counter  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import psutil  # noqa: E402

from bench.index_driver import IndexDriver  # noqa: E402
from bench.meters import MIB, Pauses, PeakMemory, disk_bytes  # noqa: E402
from bench.scale_input import START_MS, Source, Tally  # noqa: E402
from bench.worker_process import tell_and_wait  # noqa: E402
from tidegate.index import keys  # noqa: E402
from tidegate.index.clock import ManualClock  # noqa: E402
from tidegate.index.delay_index import DelayIndex  # noqa: E402
from tidegate.index.keys import SliceId  # noqa: E402
from tidegate.index.store import Store  # noqa: E402
from tidegate.plugin.engine import DUE_RECORDS_MAX  # noqa: E402

_IMPORTED_S = time.time()

BATCH = 10_000
MARK = 10_000_000  # memory is noted each time that so many have been added
DAY_MS = 86_400_000
MINUTE_MS = 60_000
HOUR_MS = 3_600_000
SUBSCRIPTIONS, RATE = 1_000, 5  # entries a second of each
SPEED = 40  # simulated seconds a second
WEEK = Source(7 * DAY_MS)

Figures = dict[str, Any]


def fill(driver: IndexDriver, index: DelayIndex, source: Source, count: int) -> Figures:
    """Add ``count`` entries in batches, the clock going with real time; returns when all are durable."""
    memory = PeakMemory()
    marks, made_s = [], 0.0
    began_cpu_s, began_s = time.process_time(), time.perf_counter()
    began_ms = driver.clock.now_ms()
    for start in range(0, count, BATCH):
        before_s = time.perf_counter()
        entries = source.entries(start, min(BATCH, count - start))
        made_s += time.perf_counter() - before_s
        driver.clock.set_ms(began_ms + int((before_s - began_s) * 1e3))
        driver.add(index, entries)
        driver.turn()
        driver.wait_for_room()
        if (start + BATCH) % MARK == 0:
            marks.append(round(memory.peak_mib, 1))
            memory.reset()
    driver.commit_all()
    took_s = time.perf_counter() - began_s
    cpu_s = time.process_time() - began_cpu_s
    marks.append(round(memory.peak_mib, 1))
    pauses = driver.pauses
    return {
        "adds_per_s": count / took_s,
        "adds_per_s_less_input": count / (took_s - made_s),
        "cpu_ns": (cpu_s - made_s) * 1e9 / count,
        "waited_s": driver.waited_s,
        "pause_ms": pauses.longest_ms(),
        "pause_p999_ms": pauses.quantile_ms(0.999),
        "pauses_ms": pauses.by_kind_ms(),
        "staged_mib_max": driver.staged_bytes_max / MIB,
        "memory_mib": max(marks),
        "memory_marks_mib": marks,
    }


def sizes(index: DelayIndex, folder: Path, count: int) -> Figures:
    """Bytes an entry: of all files, and what they are made of."""
    one = index.stats()
    packed = sum(part.entries for part in one.slices)
    block_bytes = one.disk_bytes - one.journal_bytes
    all_bytes, log_bytes = disk_bytes(folder), disk_bytes(folder, ".log")
    return {
        "packed": packed,
        "block_bytes_an_entry": block_bytes / packed if packed else 0.0,
        "disk_bytes_an_entry": all_bytes / count,
        "disk_blocks": block_bytes / count,
        "disk_log": log_bytes / count,
        "disk_rest": (all_bytes - log_bytes - block_bytes) / count,
    }


def uniform(folder: Path, count: int) -> Figures:
    """Adds over 7 days; what is on disk at once, and after five quiet minutes."""
    clock = ManualClock(START_MS - DAY_MS)
    with IndexDriver.opened(folder, clock) as driver:
        index = driver.subscription()
        figures = fill(driver, index, WEEK, count)
        driver.settle()
        figures |= {f"first_{name}": value for name, value in sizes(index, folder, count).items()}
        clock.advance(5 * MINUTE_MS + 1_000)
        driver.settle()
        figures |= sizes(index, folder, count)
        tell_and_wait(figures)
    return figures


def reopen(folder: Path, count: int) -> Figures:
    """After kill -9: open, pop the first due entry, then all the rest, acknowledged, in steps of a minute."""
    process_s = psutil.Process().create_time()
    opened_s = time.perf_counter()
    clock = ManualClock(START_MS)
    with IndexDriver.opened(folder, clock) as driver:
        index = driver.subscription()
        tally = Tally(WEEK)
        driver.clock.set_ms(max(START_MS, index.next_due_ms() or 0) + 1_000)
        first = driver.pop(index, DUE_RECORDS_MAX)
        while not len(first):
            driver.turn()
            first = driver.pop(index, DUE_RECORDS_MAX)
        first_pop_s = time.perf_counter() - opened_s
        from_start_s = time.time() - process_s
        tally.take(first, clock.now_ms())
        driver.acknowledge(index, first)
        memory = PeakMemory()
        figures = drain(driver, index, tally, count, step_ms=max(1, WEEK.span_ms * DUE_RECORDS_MAX // count))
        tell_and_wait(
            figures
            | {
                "first_pop_s": first_pop_s,
                "first_pop_from_start_s": from_start_s,
                "import_s": _IMPORTED_S - _STARTED_S,
                "memory_mib": memory.peak_mib,
            }
        )
    return figures


def drain(driver: IndexDriver, index: DelayIndex, tally: Tally, count: int, step_ms: int) -> Figures:
    """Pop and acknowledge everything, the clock going in steps whenever nothing more is due."""
    end_ms = tally.source.first_ms + 2 * tally.source.span_ms + count * tally.source.step_ns // 1_000_000
    checked_s, popped = 0.0, tally.popped
    pop_s = driver.pauses.total_s("pop")
    began_s = time.perf_counter()
    while tally.popped < count and driver.clock.now_ms() <= end_ms:
        entries = driver.pop(index, DUE_RECORDS_MAX)
        if len(entries):
            before_s = time.perf_counter()
            tally.take(entries, driver.clock.now_ms())
            checked_s += time.perf_counter() - before_s
            driver.acknowledge(index, entries)
        elif (index.next_due_ms() or end_ms) > driver.clock.now_ms():
            driver.clock.advance(step_ms)
        driver.turn()
        driver.wait_for_room()
    driver.commit_all()
    took_s = time.perf_counter() - began_s
    pauses = driver.pauses
    return {
        "pops_per_s": (tally.popped - popped) / (pauses.total_s("pop") - pop_s),
        "pop_ack_per_s": (tally.popped - popped) / (took_s - checked_s),
        "pause_ms": pauses.longest_ms(),
        "pause_p999_ms": pauses.quantile_ms(0.999),
        "pauses_ms": pauses.by_kind_ms(),
        **tally.check(count),
    }


def burst(folder: Path, count: int, source: Source) -> Figures:
    """All due in one slice: filled, settled, popped long after the last was due, as after a long downtime."""
    clock = ManualClock(START_MS - DAY_MS)
    with IndexDriver.opened(folder, clock) as driver:
        index = driver.subscription()
        figures = {f"add_{name}": value for name, value in fill(driver, index, source, count).items()}
        driver.settle()
        memory, tally = PeakMemory(), Tally(source)
        clock.set_ms(source.first_ms + source.span_ms)
        driver.pauses = Pauses()
        figures |= drain(driver, index, tally, count, step_ms=source.span_ms)
        tell_and_wait(figures | {"memory_mib": memory.peak_mib})
    return figures


def burst_slice(folder: Path, count: int) -> Figures:
    """Random within one slice of an hour."""
    return burst(folder, count, Source(HOUR_MS, HOUR_MS * (START_MS // HOUR_MS + 1)))


def burst_instant(folder: Path, count: int) -> Figures:
    """All at one millisecond."""
    return burst(folder, count, Source(1))


def many(folder: Path, count: int) -> Figures:
    """1,000 subscriptions, five entries a second each, ``SPEED`` times faster than the clock on the wall."""
    return trickle(folder, count, SUBSCRIPTIONS)


def single(folder: Path, count: int) -> Figures:
    """The same entries on the same clock for one subscription, in batches of a simulated second."""
    return trickle(folder, count, 1)


def blocks_by_slice(store: Store) -> Counter[tuple[int, SliceId]]:
    """How many blocks each slice of each subscription has on disk."""
    return Counter(
        (keys.subscription_id_of(key), keys.parse_slice_key(key))
        for key, _ in store.scan(*keys.kind_range(keys.BLOCK))
    )


def trickle(folder: Path, count: int, subscriptions: int) -> Figures:
    """``count`` entries over 24 h arrive evenly, ``SUBSCRIPTIONS * RATE`` a simulated second."""
    clock = ManualClock(START_MS - DAY_MS)
    source = Source(DAY_MS)
    size = SUBSCRIPTIONS * RATE // subscriptions
    with IndexDriver.opened(folder, clock) as driver:
        indexes = [driver.subscription(number) for number in range(subscriptions)]
        driver.commit_all()
        memory = PeakMemory()
        made_s = 0.0
        began_s, began_cpu_s, began_ms = time.perf_counter(), time.process_time(), clock.now_ms()
        for start in range(0, count, SUBSCRIPTIONS * RATE):
            second = start // (SUBSCRIPTIONS * RATE)
            for number, index in enumerate(indexes):
                before_s = time.perf_counter()
                entries = source.entries(number * count // subscriptions + second * size, size)
                made_s += time.perf_counter() - before_s
                driver.add(index, entries)
                driver.turn()
                driver.wait_for_room()
            clock.set_ms(began_ms + (second + 1) * 1_000)
            driver.pause_until(began_s + (second + 1) / SPEED)
        driver.commit_all()
        took_s = time.perf_counter() - began_s
        driver.settle()
        cpu_s = time.process_time() - began_cpu_s - made_s
        slices = blocks_by_slice(driver.store)
        stats = driver.catalog.stats()
        packed = sum(part.entries for index in indexes for part in index.stats().slices)
        tell_and_wait(
            {
                "entries_per_s": count / took_s,
                "cpu_ns": cpu_s * 1e9 / count,
                "staged_of_budget": driver.staged_bytes_max / driver.settings.staging_bytes,
                "blocks_a_slice_max": max(slices.values(), default=0),
                "blocks_a_slice_mean": slices.total() / max(1, len(slices)),
                "entries_a_block": packed / max(1, stats.blocks),
                "disk_bytes_an_entry": disk_bytes(folder) / count,
                "memory_mib": memory.peak_mib,
                "persists": stats.persists,
                "pause_ms": driver.pauses.longest_ms(),
                "pause_p999_ms": driver.pauses.quantile_ms(0.999),
                "pauses_ms": driver.pauses.by_kind_ms(),
                "missing": count - stats.held,
            }
        )
    return {}


SCENARIOS: dict[str, Callable[[Path, int], Figures]] = {
    "uniform": uniform,
    "reopen": reopen,
    "many": many,
    "single": single,
    "burst-slice": burst_slice,
    "burst-instant": burst_instant,
}


def main(argv: list[str]) -> None:
    """Run one scenario."""
    gc.collect()
    SCENARIOS[argv[0]](Path(argv[1]), int(argv[2]))


if __name__ == "__main__":
    main(sys.argv[1:])
