"""Short ways to a catalog with entries in it."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import numpy as np

from tidegate.index.catalog.catalog import Catalog
from tidegate.index.clock import ManualClock
from tidegate.index.entries.entry import Entries, EntryKey
from tidegate.index.format import keys
from tidegate.index.names import SubscriptionName
from tidegate.index.options import IndexOptions
from tidegate.index.state.positions import PositionSet
from tidegate.index.store import Batch, MemoryStore, Store
from tidegate.index.subscription.delay_index import DelayIndex

NAME = SubscriptionName("persistent://public/default/orders", "late")
OTHER = SubscriptionName("persistent://public/default/orders", "other")
INCARNATION = b"\x03" * 16
START_MS = 1_700_000_000_000
OPTIONS = IndexOptions(slice_width_ms=1_000, carry_ms=0, block_entries=100)


class LaterExecutor(Executor):
    """Runs what is submitted when told to, so that a test decides what happens meanwhile."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Any]] = []

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, lambda: function(*args, **kwargs)))
        return future

    def run_all(self) -> None:
        for future, function in self.waiting:
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)
        self.waiting = []


def opened(
    store: Store, options: IndexOptions = OPTIONS, now_ms: int = START_MS
) -> tuple[Catalog, DelayIndex]:
    catalog = Catalog.open(store, ManualClock(now_ms), options)
    return catalog, catalog.subscription(NAME, INCARNATION)


def reopened(
    store: MemoryStore, options: IndexOptions = OPTIONS, now_ms: int = START_MS
) -> tuple[Catalog, DelayIndex]:
    """Open a store that was left without being closed, as after kill -9."""
    store.close()
    return opened(store.reopen(), options, now_ms)


def spread(entries: int, over_ms: int, ledger_id: int = 5, seed: int = 1) -> Entries:
    """Entries of one ledger, due at random within `over_ms` from START_MS."""
    rng = np.random.default_rng(seed)
    return Entries(
        START_MS + rng.integers(0, over_ms, entries),
        np.full(entries, ledger_id, dtype=np.int64),
        np.arange(entries, dtype=np.int64),
    )


def drained(index: DelayIndex, now_ms: int = 1 << 60, limit: int = 64) -> list[EntryKey]:
    """Everything due, in the order popped."""
    popped: list[EntryKey] = []
    while len(some := index.timeline.pop_due(now_ms, limit)):
        popped += some
    return popped


def positions_of(rows: Iterable[EntryKey]) -> PositionSet:
    return PositionSet.of((ledger_id, entry_id) for _, ledger_id, entry_id in rows)


def stored(store: Store, kind: bytes) -> list[tuple[bytes, bytes]]:
    """All keys and values of one kind."""
    return list(store.scan(*keys.kind_range(kind)))


def overwrite(store: Store, key: bytes, value: bytes) -> None:
    batch = Batch()
    batch.put(key, value)
    store.write(batch, sync=True)


def damage(store: Store, key: bytes) -> None:
    """Flip a bit in the middle of a stored value."""
    value = store.get(key)
    assert value is not None
    at = len(value) // 2
    overwrite(store, key, value[:at] + bytes([value[at] ^ 4]) + value[at + 1 :])


def flip_byte(path: Path) -> None:
    """Flip a bit in the middle of a file, below every checksum of the store."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
