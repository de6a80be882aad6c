"""Adds, acknowledges, persists and compacts for ever; says after each commit what is durable.

Arguments: data directory, entries already there. Output: durable entries, how many of the first are
acknowledged, slices compacted.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np

from tidegate.index.catalog.catalog import Catalog
from tidegate.index.clock import ManualClock
from tidegate.index.entries.entry import Entries
from tidegate.index.names import SubscriptionName
from tidegate.index.options import IndexOptions
from tidegate.index.rocks.rocks import RocksStore
from tidegate.index.state.positions import PositionSet

NAME = SubscriptionName("persistent://public/default/orders", "late")
START_MS = 1_700_000_000_000
OPTIONS = IndexOptions(
    slice_width_ms=1_000, carry_ms=200, block_entries=100, staging_budget_bytes=24_000, merge_runs=3
)

clock = ManualClock(START_MS)
catalog = Catalog.open(RocksStore.open(Path(sys.argv[1])), clock, OPTIONS, ThreadPoolExecutor(2))
index = catalog.subscription(NAME, b"\x03" * 16)
added = int(sys.argv[2])
done = acknowledged = 0


def say() -> None:
    # One write, also where Python does not buffer: killed within it, it must not have said half of a line.
    sys.stdout.write(f"{added} {acknowledged} {catalog.stats().compactions}\n")
    sys.stdout.flush()


while True:
    position = np.arange(added, added + 300)
    index.add(Entries(START_MS + position % 7_000, position // 1_000, position % 1_000))
    added += 300
    acknowledged = added // 2
    index.acknowledge(PositionSet.of((at // 1_000, at % 1_000) for at in range(done, acknowledged)))
    done = acknowledged
    if (added // 300) % 3 == 0:
        index.timeline.pop_due(START_MS + 3_000, 500)
    catalog.commit()
    say()
    catalog.maintain(START_MS)
    while (added // 300) % 8 == 0 and (
        catalog.background.running is not None or index.upkeep.crowding is not None
    ):
        say()
        wait(filter(None, [catalog.background.running]))
        catalog.maintain(START_MS)
