"""Adds and persists while its files may not grow past a limit, then with the limit lifted.

Argument: data directory. Output: the reasons of refusal, and last how many entries are durable.
"""

from __future__ import annotations

import contextlib
import resource
import sys
from pathlib import Path

import numpy as np

from tidegate.index.catalog.catalog import Catalog
from tidegate.index.clock import ManualClock
from tidegate.index.entries.entry import Entries
from tidegate.index.errors import StorageError
from tidegate.index.names import SubscriptionName
from tidegate.index.options import IndexOptions
from tidegate.index.rocks.rocks import RocksStore

NAME = SubscriptionName("persistent://public/default/orders", "late")
START_MS = 1_700_000_000_000
BATCH = 5_000

rng = np.random.default_rng(1)
clock = ManualClock(START_MS)
store = RocksStore.open(Path(sys.argv[1]))
catalog = Catalog.open(store, clock, IndexOptions(staging_budget_bytes=24 * 4 * BATCH, carry_ms=0))
index = catalog.subscription(NAME, b"\x03" * 16)
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
refused = 0
added = 0
while refused < 3:
    position = np.arange(added, added + BATCH)
    index.add(Entries(START_MS + rng.integers(0, 86_400_000, BATCH), position // 10_000, position % 10_000))
    added += BATCH
    try:
        catalog.commit()
    except StorageError as error:
        refused += 1
        print("refused:", error, flush=True)
    clock.advance(2_000)
    with contextlib.suppress(StorageError):
        catalog.maintain(clock.now_ms())
    index.check()
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
catalog.commit()
clock.advance(2_000)
catalog.maintain(clock.now_ms())
index.check()
catalog.close()
print("durable", added)
