"""Hands out entries from an unreadable sector. Arguments: data directory, where to say which sector.

Says the fate of each entry (handed out, or to be read again), and of the blocks in a snapshot.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from tidegate.index import (
    Catalog,
    Entries,
    IndexOptions,
    ManualClock,
    PositionSet,
    RocksStore,
    SubscriptionName,
)
from tidegate.index.format.keys import BLOCK
from tidegate.index.log.snapshot import Snapshot

T0 = 1_800_000_000_000
COUNT = 20_000
NAME = SubscriptionName("persistent://public/default/orders", "sub")
OPTIONS = IndexOptions(block_entries=1_000)

data, bad = Path(sys.argv[1]), Path(sys.argv[2])
clock = ManualClock(T0)
store = RocksStore.open(data)
catalog = Catalog.open(store, clock, OPTIONS)
index = catalog.subscription(NAME, bytes(16))
generator = np.random.default_rng(20)
index.add(
    Entries(
        T0 + 60_000 + generator.integers(0, 3_000_000, COUNT),
        generator.integers(0, 1_000, COUNT),
        np.arange(COUNT, dtype=np.int64),
    )
)
catalog.persist(NAME)
store._families.main.flush()
catalog.close()

store = RocksStore.open(data)
catalog = Catalog.open(store, clock, OPTIONS)
found = catalog.get(NAME)
assert found is not None
bad.write_text("20000 24096 .sst")
snapshot = Snapshot(store, found.own_journal.subscription_id)
shipped = [operation for piece in iter(snapshot.next_piece, None) for operation in piece]
blocks = sum(key[:1] == BLOCK for _, key, _ in shipped)
damaged = snapshot.take_damaged()
clock.advance(3_600_000)
due, lost = PositionSet(), PositionSet()
for _ in range(200):
    due.update(PositionSet.of_entries(found.timeline.pop_due(clock.now_ms(), COUNT)))
    catalog.maintain(clock.now_ms())
    lost.update(found.take_unheld())
print(len(due), len(lost), len(due.intersection(lost)), found.state.held == due, blocks, len(damaged))
bad.unlink()
catalog.close()
