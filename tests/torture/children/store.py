"""Uses a store in every way that it knows. Argument: data directory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tidegate.index import Batch, RocksStore
from tidegate.index.format import SliceId, keys
from tidegate.index.rocks import families, rocks

families._WRITE_BUFFER_BYTES = families._JOURNAL_BUFFER_BYTES = 64 << 10
rocks._TIDY_BYTES = 64 << 10

store = RocksStore.open(Path(sys.argv[1]))
for number in range(200):
    batch = Batch()
    batch.put(keys.block_key(1, SliceId(1_000, number % 50), 1), os.urandom(10_000))
    batch.put(keys.journal_key(1, number + 1, 1), os.urandom(500))
    store.write(batch, sync=number % 7 == 0)
    if number % 60 == 59:
        store.tidy()
    if number == 150:
        store._failed = True  # opened again
store.close()
