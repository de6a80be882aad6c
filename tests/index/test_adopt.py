"""An index that was restored takes the place of the former one with a commit, or not at all."""

from __future__ import annotations

import pytest

from tests.support.catalogs import INCARNATION, NAME, OPTIONS, START_MS, opened, reopened, spread
from tests.support.stores import FailingStore
from tidegate.index.catalog.catalog import Catalog
from tidegate.index.clock import ManualClock
from tidegate.index.errors import StorageError
from tidegate.index.format import keys
from tidegate.index.format.chain import Chain
from tidegate.index.format.keys import SliceId
from tidegate.index.format.manifest import Identity
from tidegate.index.store import Batch, MemoryStore, Store

IDENTITY = Identity(NAME, INCARNATION)
CHAIN = Chain(1, "memory")


def landed(catalog: Catalog, store: Store, *, damaged: bool = False) -> int:
    """The id under which an index was restored that has nothing, or a slice that cannot be read."""
    subscription_id = catalog.reserve_id()
    batch = Batch()
    batch.put(keys.subscription_key(keys.CHAIN, subscription_id), CHAIN.encode())
    if damaged:
        batch.put(keys.slice_key(subscription_id, SliceId(1_000, 1)), b"nothing that is known")
    store.write(batch, sync=False)
    return subscription_id


def rows_of(store: MemoryStore, subscription_id: int) -> list[bytes]:
    ranges = [keys.subscription_range(kind, subscription_id) for kind in keys.SUBSCRIPTION_KINDS]
    return [key for start, end in ranges for key, _ in store.scan(start, end)]


def test_before_its_commit_a_crash_brings_back_what_was_durable() -> None:
    store = MemoryStore()
    catalog, index = opened(store)
    index.add(spread(10, 1_000))
    catalog.commit()
    restored = landed(catalog, store)
    index = catalog.landed(restored, IDENTITY)
    catalog.adopt(index)
    assert not index.state.held

    catalog, index = reopened(store)

    assert len(index.state.held) == 10
    catalog.commit()
    assert not rows_of(store.reopen(), restored)


def test_with_its_commit_it_counts() -> None:
    store = MemoryStore()
    catalog, index = opened(store)
    index.add(spread(10, 1_000))
    catalog.commit()
    former = index.own_journal.subscription_id
    index = catalog.landed(landed(catalog, store), IDENTITY)
    catalog.adopt(index)
    index.add(spread(3, 1_000))
    catalog.commit()
    assert not rows_of(store, former)

    catalog, index = reopened(store)

    assert len(index.state.held) == 3
    assert catalog.chains.get(index) == CHAIN


def test_one_that_nobody_wants_is_nothing_after_a_crash() -> None:
    """It was read to its end, and somebody else had the index by then."""
    store = MemoryStore()
    catalog, index = opened(store)
    index.add(spread(10, 1_000))
    catalog.commit()
    catalog.abandon_id(landed(catalog, store))

    _, index = reopened(store)

    assert len(index.state.held) == 10


def test_one_that_finds_a_full_disk_changes_nothing() -> None:
    """Its damaged parts were to be set aside first."""
    store = FailingStore()
    catalog, index = opened(store)
    index.add(spread(10, 1_000))
    catalog.commit()
    restored = landed(catalog, store, damaged=True)
    store.writes_left = 0

    with pytest.raises(StorageError):
        catalog.landed(restored, IDENTITY)

    assert catalog.get(NAME) is index
    store.writes_left = None
    catalog.abandon_id(restored)
    index.add(spread(3, 1_000, ledger_id=6))
    catalog.commit()
    _, index = reopened(store.memory)
    assert len(index.state.held) == 13
    assert not rows_of(store.memory.reopen(), restored)


def test_where_a_chain_cannot_be_read_it_is_not_known() -> None:
    class Unreadable(MemoryStore):
        def get(self, key: bytes) -> bytes | None:
            if key[:1] == keys.CHAIN:
                raise StorageError("too many files are open")
            return super().get(key)

    catalog = Catalog.open(Unreadable(), ManualClock(START_MS), OPTIONS)
    index = catalog.subscription(NAME, INCARNATION)

    assert catalog.chains.get(index) is None


def test_a_chain_that_was_read_is_known_while_the_store_cannot_be_read() -> None:
    class Unreadable(MemoryStore):
        refuses = False

        def get(self, key: bytes) -> bytes | None:
            if self.refuses:
                raise StorageError("too many files are open")
            return super().get(key)

    store = Unreadable()
    catalog, index = opened(store)
    batch = Batch()
    batch.put(keys.subscription_key(keys.CHAIN, index.own_journal.subscription_id), CHAIN.encode())
    store.write(batch, sync=True)
    assert catalog.chains.get(index) == CHAIN
    store.refuses = True
    assert catalog.chains.get(index) == CHAIN
    index.damaged = True
    catalog.chains.doubt(index)
    assert catalog.chains.get(index) == CHAIN._replace(whole=False)
    catalog.chains.forget(index)
    assert catalog.chains.get(index) is None


def test_damage_found_amid_a_pending_chain_is_not_forgotten() -> None:
    store = MemoryStore()
    catalog, index = opened(store)
    catalog.chains.set(index, CHAIN)
    index.damaged = True
    catalog.chains.doubt(index)
    catalog.commit()

    catalog, index = reopened(store)

    assert catalog.chains.get(index) == CHAIN._replace(whole=False)
    catalog.chains.believe(index)
    catalog.commit()
    catalog, index = reopened(store)
    assert catalog.chains.get(index) == CHAIN
