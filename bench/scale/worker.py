"""One scenario of ``scale`` in its own process: ``python -m bench.scale.worker NAME DIR COUNT``.

It prints its figures as one line of JSON and waits for its kill, so the next step finds the files of a kill
-9. ``reopen-NAME`` continues with NAME's files.
"""

from __future__ import annotations

import time

_STARTED_S = time.time()  # before the imports, which take longer than opening the index

import sys  # noqa: E402
from collections import Counter  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
import psutil  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from bench.harness.index_driver import IndexDriver  # noqa: E402
from bench.harness.made_entries import START_MS, Source, Tally  # noqa: E402
from bench.harness.meters import Pauses, PeakMemory, disk_bytes  # noqa: E402
from bench.harness.worker_process import tell_and_wait  # noqa: E402
from bench.scale.looks import look  # noqa: E402
from bench.scale.steps import (  # noqa: E402
    BATCH,
    Figures,
    Stopwatch,
    drain,
    fill,
    pauses,
    sizes,
    take_due,
)
from tidegate.index import DelayIndex, Entries, ManualClock, Store  # noqa: E402
from tidegate.index.format import SliceId, keys  # noqa: E402
from tidegate.plugin.daemon.allocator import collect_rarely  # noqa: E402
from tidegate.plugin.daemon.handing_out import FRAME_RECORDS_MAX  # noqa: E402

_IMPORTED_S = time.time()

SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
NS_PER_S = 1_000_000_000
QUIET_MS = 5 * MINUTE_MS + SECOND_MS  # the daemon persists a journal that is five minutes old
SUBSCRIPTIONS, RATE = 1_000, 5  # entries a second of each
SPEED = 40  # simulated seconds a second

SOURCES = {
    "uniform": Source(7 * DAY_MS),
    "ten-years": Source(3_652 * DAY_MS),
    "burst-slice": Source(HOUR_MS),
    "burst-instant": Source(1),
    "looks": Source(7 * DAY_MS),
    "fixed": Source(1, step_ns=NS_PER_S // 50_000, delay_ms=30 * MINUTE_MS),
    "mixed": Source(2 * MINUTE_MS, step_ns=NS_PER_S // 50_000),
}


def filled(name: str, folder: Path, count: int) -> Figures:
    """Add all; the sizes on disk at once, and after five quiet minutes. Left for ``reopen``."""
    source = SOURCES[name]
    clock = ManualClock(START_MS - DAY_MS)
    with IndexDriver.opened(folder, clock) as driver:
        index = driver.subscription()
        figures = fill(driver, [index], source, count)
        driver.settle()
        figures |= {f"first_{figure}": value for figure, value in sizes(driver, index, folder, count).items()}
        clock.advance(QUIET_MS)
        driver.settle()
        figures |= sizes(driver, index, folder, count)
        figures["slices"] = index.stats().slices_on_disk
        tell_and_wait(figures)
    return figures


def looks(name: str, folder: Path, count: int) -> Figures:
    """Add all, settle, and look: the tide, and pages."""
    source = SOURCES[name]
    clock = ManualClock(START_MS - DAY_MS)
    with IndexDriver.opened(folder, clock) as driver:
        index = driver.subscription()
        fill(driver, [index], source, count)
        clock.advance(QUIET_MS)
        driver.settle()
        figures = look(driver, index, source, count)
        tell_and_wait(figures)
    return figures


def reopened(name: str, folder: Path, count: int) -> Figures:
    """After kill -9: open, pop the first due entry, then all the rest, acknowledged."""
    process_s = psutil.Process().create_time()
    source = SOURCES[name]
    opened_s = time.perf_counter()
    clock = ManualClock(START_MS)
    with IndexDriver.opened(folder, clock) as driver:
        index = driver.subscription()
        clock.set_ms(max(START_MS, index.timeline.next_due_ms() or 0) + SECOND_MS)
        stopwatch, tally = Stopwatch(), Tally(source)
        while not take_due(driver, index, tally, stopwatch) and index.timeline.next_due_ms() is not None:
            clock.advance(1)
            driver.turn()
        figures = {
            "first_pop_s": time.perf_counter() - opened_s,
            "first_pop_from_start_s": time.time() - process_s,
            "import_s": _IMPORTED_S - _STARTED_S,
        }
        memory = PeakMemory()
        step_ms = source.span_ms * FRAME_RECORDS_MAX // count + 1
        figures |= drain(driver, index, tally, count, step_ms)
        tell_and_wait(figures | {"memory_mib": memory.peak_mib})
    return figures


def burst(name: str, folder: Path, count: int) -> Figures:
    """Filled, settled, popped when all are due: at the end of the slice, as after a long downtime."""
    source = SOURCES[name]
    clock = ManualClock(START_MS - DAY_MS)
    with IndexDriver.opened(folder, clock) as driver:
        index = driver.subscription()
        index.set_slice_width(HOUR_MS)  # else the daemon would choose a narrow one, for many slices
        figures = {f"add_{figure}": value for figure, value in fill(driver, [index], source, count).items()}
        driver.settle()
        figures["slices"] = index.stats().slices_on_disk
        memory, driver.pauses = PeakMemory(), Pauses()
        clock.set_ms(source.first_ms + source.span_ms)
        figures |= drain(driver, index, Tally(source), count, source.span_ms)
        tell_and_wait(figures | {"memory_mib": memory.peak_mib})
    return figures


def fixed(name: str, folder: Path, count: int) -> Figures:
    """One delay level: filled as the entries arrive, settled, measured on disk, popped."""
    source = SOURCES[name]
    clock = ManualClock(source.arrival_ms(0))
    with IndexDriver.opened(folder, clock) as driver:
        index = driver.subscription()
        figures = fill(driver, [index], source, count)
        clock.advance(QUIET_MS)
        driver.settle()
        figures |= sizes(driver, index, folder, count)
        drained = drain(driver, index, Tally(source), count, SECOND_MS)
        tell_and_wait(figures | {figure: drained[figure] for figure in drained if figure not in figures})
    return figures


def mixed(name: str, folder: Path, count: int) -> Figures:
    """Adds, pops and acknowledgements together, while spilling: a batch arrives, due entries leave."""
    source = SOURCES[name]
    clock = ManualClock(source.arrival_ms(0))
    with IndexDriver.opened(folder, clock) as driver:
        index, tally = driver.subscription(), Tally(source)
        memory, stopwatch = PeakMemory(), Stopwatch()
        for start in range(0, count, BATCH):
            with stopwatch.stopped():
                entries = source.entries(start, min(BATCH, count - start))
            clock.set_ms(source.arrival_ms(start + len(entries) - 1))
            driver.add(index, entries)
            driver.turn()
            while (index.timeline.next_due_ms() or clock.now_ms() + 1) <= clock.now_ms():
                take_due(driver, index, tally, stopwatch)
                driver.turn()
            driver.wait_for_room()
        driver.commit_all()
        stopwatch.end()
        figures: Figures = {
            "through_per_s": count / stopwatch.net_s,
            "popped_while_adding": tally.popped / count,
            "persists": driver.catalog.stats().persists,
            "staged_of_budget": driver.unspilled_bytes_max / driver.settings.staging_bytes,
            **pauses(driver),
        }
        drained = drain(driver, index, tally, count, SECOND_MS)
        figures |= {figure: drained[figure] for figure in drained if figure not in figures}
        tell_and_wait(figures | {"memory_mib": memory.peak_mib})
    return figures


def trickle(name: str, folder: Path, count: int) -> Figures:
    """Many subscriptions with ``RATE`` entries a second each, at ``SPEED`` times real time.

    ``many``: batches of ``RATE``, in turns; ``one-small``: as many for one subscription; ``one``: each
    second's arrivals as one batch for one subscription. All are due over 24 h.
    """
    among = subscriptions_of(count)
    a_second = among * RATE
    subscriptions, size = {"many": (among, RATE), "one-small": (1, RATE), "one": (1, a_second)}[name]
    source = Source(DAY_MS)
    clock = ManualClock(START_MS - DAY_MS)
    seconds, each = count // a_second, count // subscriptions
    with IndexDriver.opened(folder, clock) as driver:
        indexes = [driver.subscription(number) for number in range(subscriptions)]
        driver.commit_all()
        memory, stopwatch = PeakMemory(), Stopwatch()
        for second in range(seconds):
            with stopwatch.stopped():
                first = np.arange(subscriptions, dtype=np.int64) * each + second * a_second // subscriptions
                batches = arriving(source, first, a_second // subscriptions, size)
            for number, batch in enumerate(batches):
                driver.add(indexes[number % subscriptions], batch)
                driver.turn()
                driver.wait_for_room()
            clock.set_ms(START_MS - DAY_MS + (second + 1) * SECOND_MS)
            driver.pause_until(stopwatch.began_s + (second + 1) / SPEED)
        driver.commit_all()
        took_s = stopwatch.wall_s
        clock.advance(QUIET_MS)
        driver.settle()
        stopwatch.end()
        blocks, stats = blocks_by_slice(driver.store), driver.catalog.stats()
        packed = sum(part.entries for index in indexes for part in index.stats().slices)
        figures: Figures = {
            "entries_per_s": count / took_s,
            "cpu_ns": stopwatch.cpu_s * 1e9 / count,
            "staged_of_budget": driver.unspilled_bytes_max / driver.settings.staging_bytes,
            "blocks_a_slice_max": max(blocks.values(), default=0),
            "blocks_a_slice_mean": blocks.total() / max(1, len(blocks)),
            "entries_a_block": packed / max(1, blocks.total()),
            "disk_bytes_an_entry": disk_bytes(folder) / count,
            "memory_mib": memory.peak_mib,
            "persists": stats.persists,
            **pauses(driver),
        }
        tell_and_wait(figures | emptied(driver, indexes, source, each))
    return figures


def subscriptions_of(count: int) -> int:
    """The number of subscriptions for so many entries; fewer in a quick run, for their share."""
    return SUBSCRIPTIONS if count >= 1_000_000 else SUBSCRIPTIONS // 10


def arriving(source: Source, first: NDArray[np.int64], count: int, size: int) -> list[Entries]:
    """Batches of ``size``: ``count`` entries from each of the numbers ``first`` on."""
    made = source.numbered((first[:, None] + np.arange(count, dtype=np.int64)).ravel())
    return [made.take(np.arange(at, at + size)) for at in range(0, len(made), size)]


def emptied(driver: IndexDriver, indexes: list[DelayIndex], source: Source, each: int) -> Figures:
    """Pop everything from every subscription, with the clock past the last; returns all verdicts' sum."""
    driver.clock.set_ms(source.first_ms + source.span_ms)
    driver.pauses, verdict, popped = Pauses(), Counter[str](), 0
    for number, index in enumerate(indexes):
        tally = Tally(source, first=number * each)
        while index.timeline.next_due_ms() is not None:
            entries = driver.pop(index, FRAME_RECORDS_MAX)
            tally.examine(entries, driver.clock.now_ms())
            if not len(entries):
                driver.turn()
        popped += tally.popped
        verdict.update(tally.check(each))
    return {"pops_per_s": popped / driver.pauses.total_s("pop"), **verdict}


def blocks_by_slice(store: Store) -> Counter[tuple[int, SliceId]]:
    """The number of blocks on disk of each slice of each subscription."""
    return Counter(
        (keys.subscription_id_of(key), keys.parse_slice_key(key))
        for key, _ in store.scan(*keys.kind_range(keys.BLOCK))
    )


SCENARIOS: dict[str, Callable[[str, Path, int], Figures]] = {
    "uniform": filled,
    "ten-years": filled,
    "looks": looks,
    "burst-slice": burst,
    "burst-instant": burst,
    "fixed": fixed,
    "mixed": mixed,
    "many": trickle,
    "one-small": trickle,
    "one": trickle,
}


def main(argv: list[str]) -> None:
    """Run one scenario."""
    collect_rarely()  # as the daemon does
    name, folder, count = argv[0], Path(argv[1]), int(argv[2])
    if name.startswith("reopen-"):
        reopened(name.removeprefix("reopen-"), folder, count)
    else:
        SCENARIOS[name](name, folder, count)


if __name__ == "__main__":
    main(sys.argv[1:])
