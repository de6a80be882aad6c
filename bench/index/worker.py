"""The index in its own process, for its own memory and to be killed.

``python -m bench.index.worker fill DIR COUNT`` adds COUNT entries over 7 days in committed batches of 10,000,
prints its figures as JSON and waits to be killed. ``… drain DIR`` opens the folder, pops the first due entry,
then everything, acknowledging and committing as the daemon does, and prints its figures.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from bench.harness.meters import Pauses, PeakMemory, resident_mib
from tidegate.index import (
    Catalog,
    Entries,
    IndexOptions,
    ManualClock,
    PositionSet,
    RocksStore,
    SubscriptionName,
)

BATCH = 10_000
DAY_MS = 86_400_000
SPAN_MS = 7 * DAY_MS
START_MS = 1_800_000_000_000
ENTRIES_PER_LEDGER = 50_000
NAME = SubscriptionName("persistent://public/default/bench", "bench")
INCARNATION = bytes(16)


def batch(number: int, generator: np.random.Generator) -> Entries:
    """The ``number``-th batch: the next positions, due evenly over ``SPAN_MS`` from ``START_MS`` on."""
    sequence = np.arange(number * BATCH, (number + 1) * BATCH, dtype=np.int64)
    due = START_MS + generator.integers(0, SPAN_MS, BATCH)
    return Entries(due, 1 + sequence // ENTRIES_PER_LEDGER, sequence % ENTRIES_PER_LEDGER)


def fill(folder: Path, count: int) -> dict[str, float]:
    """Add ``count`` entries, each batch durable before the next; returns the figures."""
    generator = np.random.default_rng(1)
    batches = [batch(number, generator) for number in range(count // BATCH)]
    gc.collect()
    base_mib = resident_mib()
    memory, pauses = PeakMemory(), Pauses()
    clock = ManualClock(START_MS - DAY_MS)
    executor = ThreadPoolExecutor(1)
    catalog = Catalog.open(RocksStore.open(folder), clock, IndexOptions(slice_width_auto=True), executor)
    index = catalog.subscription(NAME, INCARNATION)
    began_s = time.perf_counter()
    for entries in batches:
        with pauses.timed("add"):
            token = index.add(entries)
        with pauses.timed("commit"):
            durable = catalog.commit()
        if durable < token:
            raise RuntimeError(f"commit made {durable} durable, the batch is {token}")
        with pauses.timed("maintain"):
            catalog.maintain(clock.now_ms())
    took_s = time.perf_counter() - began_s
    settle(catalog, clock)
    stats, one = catalog.stats(), index.stats()
    return {
        "adds_per_s": count / took_s,
        "pause_ms": pauses.longest_ms(),
        "memory_mib": memory.peak_mib,
        "input_mib": base_mib,
        "held": stats.held,
        "packed": sum(part.entries for part in one.slices),
        "block_bytes": one.disk_bytes - one.journal_bytes,
    }


def settle(catalog: Catalog, clock: ManualClock) -> None:
    """Let background work finish: maintain until the number of persists stays the same for half a second."""
    persists, since_s = -1, time.perf_counter()
    while time.perf_counter() - since_s < 0.5:
        catalog.maintain(clock.now_ms())
        catalog.commit()
        if catalog.stats().persists != persists:
            persists, since_s = catalog.stats().persists, time.perf_counter()
        time.sleep(0.01)  # the absence of work is no event


def drain(folder: Path, count: int) -> dict[str, float]:
    """Open, pop the first due entry, then all of them in steps of a minute; returns the figures."""
    opened_s = time.perf_counter()
    clock = ManualClock(START_MS)
    executor = ThreadPoolExecutor(1)
    catalog = Catalog.open(RocksStore.open(folder), clock, IndexOptions(slice_width_auto=True), executor)
    index = catalog.subscription(NAME, INCARNATION)
    due_ms = index.timeline.next_due_ms()
    clock.set_ms(max(START_MS, due_ms or 0) + 1_000)
    first: Entries = Entries.empty()
    while not len(first):
        first = index.timeline.pop_due(clock.now_ms(), BATCH)
        catalog.maintain(clock.now_ms())
    first_pop_s = time.perf_counter() - opened_s
    memory, pauses = PeakMemory(), Pauses()
    # About a batch falls due between two looks.
    step_ms = max(1, SPAN_MS * BATCH // count)
    popped, pop_s, last_ms = len(first), 0.0, 0
    ordered = True
    index.acknowledge(PositionSet.of_entries(first))
    began_s = time.perf_counter()
    while popped < count:
        before_s = time.perf_counter()
        with pauses.timed("pop"):
            entries = index.timeline.pop_due(clock.now_ms(), BATCH)
        pop_s += time.perf_counter() - before_s
        if len(entries):
            ordered = ordered and int(entries.deliver_at_ms[0]) >= last_ms
            last_ms = int(entries.deliver_at_ms[-1])
            popped += len(entries)
            with pauses.timed("acknowledge"):
                index.acknowledge(PositionSet.of_entries(entries))
            with pauses.timed("commit"):
                catalog.commit()
        if len(entries) < BATCH:
            if clock.now_ms() > START_MS + 2 * SPAN_MS:
                break
            clock.advance(step_ms)
        with pauses.timed("maintain"):
            catalog.maintain(clock.now_ms())
    took_s = time.perf_counter() - began_s
    return {
        "first_pop_s": first_pop_s,
        "pops_per_s": popped / pop_s,
        "pop_ack_per_s": popped / took_s,
        "pause_ms": pauses.longest_ms(),
        "memory_mib": memory.peak_mib,
        "missing": count - popped,
        "out_of_order": 0 if ordered else 1,
    }


def main(argv: list[str]) -> None:
    """Do one phase and print its figures; ``fill`` then waits for the end of its input."""
    phase, folder, count = argv[0], Path(argv[1]), int(argv[2])
    figures = fill(folder, count) if phase == "fill" else drain(folder, count)
    print(json.dumps(figures), flush=True)
    if phase == "fill":
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])
