"""A log that is read goes to the store as it comes, and not into memory first."""

from __future__ import annotations

import asyncio
import gc
from concurrent.futures import ThreadPoolExecutor

import pytest

from tidegate.index.catalog.catalog import Catalog
from tidegate.index.clock import ManualClock
from tidegate.index.errors import StorageError
from tidegate.index.format import keys
from tidegate.index.format.chain import Chain
from tidegate.index.format.keys import SliceId
from tidegate.index.format.manifest import Identity
from tidegate.index.log.landing import PIECE_BYTES, Landing
from tidegate.index.log.memory_home import MemoryHome, MemoryLedger, World
from tidegate.index.log.reader import read_log
from tidegate.index.log.records import EntryKind, Header, encode_operations, encode_record
from tidegate.index.names import SubscriptionName
from tidegate.index.store import Batch, MemoryStore

IDENTITY = Identity(SubscriptionName("persistent://public/default/orders", "sub"), bytes(range(16)))
CHAIN = Chain(1, "memory")
BLOCKS, BLOCK_BYTES = 60, 100_000
SUBSCRIPTION_ID, OTHER_ID = 7, 8


def block_key(number: int) -> bytes:
    return keys.stripped(keys.block_key(0, SliceId(1_000, number), 1))


def a_log() -> World:
    """Many blocks that no slice names; a range of them, to the end of all blocks, is deleted again."""
    chain = 3
    records = [
        (EntryKind.SNAPSHOT, [(Batch.PUT, block_key(number), bytes(BLOCK_BYTES))]) for number in range(BLOCKS)
    ]
    records.append((EntryKind.SNAPSHOT_END, []))
    records.append((EntryKind.BATCH, [(Batch.DELETE_RANGE, block_key(50), keys.after_kind(keys.BLOCK))]))
    entries = [Header(chain, IDENTITY).encode()]
    for kind, operations in records:
        entries += encode_record(kind, encode_operations(operations), chain, len(entries))
    return World(ledgers={1: MemoryLedger(None, entries)})


class StandingHome(MemoryHome):
    """A home that does not tell the end of the log before it is let."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.may_end = asyncio.Event()

    async def read(self, ledger_id: int, first: int, last: int) -> list[bytes]:
        if first > BLOCKS // 2:
            await self.may_end.wait()
        return await super().read(ledger_id, first, last)


class WatchedStore(MemoryStore):
    """Notes the largest write."""

    largest_bytes = 0

    def write(self, batch: Batch, *, sync: bool) -> None:
        self.largest_bytes = max(self.largest_bytes, batch.size_bytes)
        super().write(batch, sync=sync)


class FullStore(MemoryStore):
    """Refuses each write."""

    def write(self, batch: Batch, *, sync: bool) -> None:
        raise StorageError("no space left on device")


def blocks_of(store: MemoryStore, subscription_id: int) -> int:
    return len(list(store.scan(*keys.subscription_range(keys.BLOCK, subscription_id))))


@pytest.fixture
def store() -> WatchedStore:
    """It has a block of another subscription, whose id comes after the one that is restored."""
    made = WatchedStore()
    batch = Batch()
    batch.put(keys.block_key(OTHER_ID, SliceId(1_000, 55), 1), b"another's")
    made.write(batch, sync=True)
    return made


async def test_blocks_are_written_while_the_log_is_read(store: WatchedStore) -> None:
    home = StandingHome(a_log())
    abandoned: list[int] = []
    with ThreadPoolExecutor(1) as executor:
        landing = Landing(store, SUBSCRIPTION_ID, CHAIN, executor=executor, abandon=abandoned.append)
        reading = asyncio.create_task(read_log(home, 1, IDENTITY, landing))
        async with asyncio.timeout(60):
            while not blocks_of(store, SUBSCRIPTION_ID):
                await asyncio.sleep(0.001)
        home.may_end.set()
        log = await reading
        assert not log.damage
        assert len(log.content.of(keys.BLOCK)) == 50
        assert not any(log.content.of(keys.BLOCK).values()), "none of them is in memory"
        await landing.finish(log)
    assert store.largest_bytes < 3 * PIECE_BYTES < BLOCKS * BLOCK_BYTES
    assert blocks_of(store, SUBSCRIPTION_ID) == 0, "no slice names them"
    assert blocks_of(store, OTHER_ID) == 1
    assert store.get(keys.subscription_key(keys.CHAIN, SUBSCRIPTION_ID)) == CHAIN.encode()
    assert store.get(keys.subscription_key(keys.IDENTITY, SUBSCRIPTION_ID)) is None, "adopted with a commit"
    assert abandoned == []


async def test_what_a_crash_leaves_of_it_is_deleted_and_its_id_not_used_again() -> None:
    home = StandingHome(a_log())
    store, clock = MemoryStore(), ManualClock()
    catalog = Catalog.open(store, clock)
    subscription_id = catalog.reserve_id()
    with ThreadPoolExecutor(1) as executor:
        landing = Landing(store, subscription_id, CHAIN, executor=executor, abandon=lambda _: None)
        reading = asyncio.create_task(read_log(home, 1, IDENTITY, landing))
        async with asyncio.timeout(60):
            while not blocks_of(store, subscription_id):
                await asyncio.sleep(0.001)
        reading.cancel()
    again = Catalog.open(store, clock)

    assert blocks_of(store, subscription_id) == 0
    assert again.reserve_id() > subscription_id


async def test_what_is_given_up_is_abandoned_when_nobody_writes_any_more(store: WatchedStore) -> None:
    home = StandingHome(a_log())
    abandoned: list[int] = []
    with ThreadPoolExecutor(1) as executor:
        landing = Landing(store, SUBSCRIPTION_ID, CHAIN, executor=executor, abandon=abandoned.append)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await read_log(home, 1, IDENTITY, landing)
        landing.give_up()
        async with asyncio.timeout(60):
            while abandoned != [SUBSCRIPTION_ID]:
                await asyncio.sleep(0.001)
    assert store.get(keys.subscription_key(keys.IDENTITY, SUBSCRIPTION_ID)) is None


async def test_a_write_that_failed_before_the_log_was_given_up_is_nobodys_unhandled_error() -> None:
    unhandled: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    abandoned: list[int] = []
    with ThreadPoolExecutor(1) as executor:
        landing = Landing(FullStore(), SUBSCRIPTION_ID, CHAIN, executor=executor, abandon=abandoned.append)
        landing.apply_operation(Batch.PUT, block_key(1), bytes(PIECE_BYTES))
        await landing.drain(PIECE_BYTES)
    assert landing._writing is not None
    await asyncio.wait([landing._writing])
    landing.give_up()
    del landing
    await asyncio.sleep(0)  # its last callback has a hold of it
    gc.collect()

    assert abandoned == [SUBSCRIPTION_ID]
    assert not unhandled
