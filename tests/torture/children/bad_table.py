"""Goes on while RocksDB's own compaction meets an unreadable sector.

Arguments: data directory, where to say which sector. Says how many commits failed, how many entries were
handed out, are to be read again, and were added, and whether compactions were and are disabled.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import numpy as np

from tidegate.index import (
    Catalog,
    Entries,
    IndexOptions,
    ManualClock,
    RocksStore,
    StorageError,
    SubscriptionName,
)

T0 = 1_800_000_000_000
NAME = SubscriptionName("persistent://public/default/orders", "sub")
OPTIONS = IndexOptions(block_entries=1_000, retry_ms=1)

logging.basicConfig(format="%(levelname)s %(message)s")
data, bad = Path(sys.argv[1]), Path(sys.argv[2])
clock = ManualClock(T0)
store = RocksStore.open(data)
catalog = Catalog.open(store, clock, OPTIONS)
index = catalog.subscription(NAME, bytes(16))
generator = np.random.default_rng(20)
added = 0


def add(count: int) -> None:
    """Entries due within an hour."""
    global added  # noqa: PLW0603
    due_ms = T0 + 60_000 + generator.integers(0, 3_000_000, count)
    index.add(Entries(due_ms, np.ones(count, np.int64), np.arange(added, added + count, dtype=np.int64)))
    added += count


def to_table() -> None:
    """As when the memtable is full."""
    store._families.main.flush()


add(20_000)
catalog.persist(NAME)
to_table()
before = catalog.stats().store_compactions_disabled
bad.write_text(f"20000 24096 {min(data.glob('*.sst')).name}")
failed = 0
for _ in range(40):
    add(1_000)
    try:
        catalog.commit()
        catalog.persist(NAME)
        to_table()
    except StorageError:
        failed += 1
    except Exception as error:
        # Of RocksDB, met by this test's own call.
        assert "Input/output error" in str(error), error
catalog.commit()
clock.advance(3_600_000)
due = lost = 0
for _ in range(200):
    due += len(index.timeline.pop_due(clock.now_ms(), added))
    clock.advance(10)
    try:
        catalog.maintain(clock.now_ms())
    except StorageError:
        failed += 1
    lost += len(index.take_unheld())
print(failed, due, lost, added, before, catalog.stats().store_compactions_disabled)
catalog.close()
