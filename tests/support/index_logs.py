"""An index log without a daemon: a writer on a store, and a home at which things happen meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tidegate.index.catalog.catalog import Catalog
from tidegate.index.clock import ManualClock
from tidegate.index.errors import UnreadableLogError
from tidegate.index.format import keys
from tidegate.index.format.manifest import Identity, decode_slice
from tidegate.index.log.home import HomeError
from tidegate.index.log.log_options import LogOptions
from tidegate.index.log.memory_home import MemoryHome, World
from tidegate.index.log.places import Places, block_ids, by_record, read_record, writes
from tidegate.index.log.pointer import Pointer
from tidegate.index.log.reader import LogText, read_log
from tidegate.index.log.records import EntryKind
from tidegate.index.log.restore import named_places, restoration
from tidegate.index.log.tap import TappedStore
from tidegate.index.log.writer import LogWriter
from tidegate.index.options import IndexOptions
from tidegate.index.store import MemoryStore, Store
from tidegate.index.subscription.delay_index import DelayIndex

ResultT = TypeVar("ResultT")


class BusyHome(MemoryHome):
    """A home during whose answers something else happens."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.meanwhile: Callable[[], None] = lambda: None

    async def append(self, ledger_id: int, entry: bytes) -> int:
        await asyncio.sleep(0)
        number = await super().append(ledger_id, entry)
        self.meanwhile()
        return number


async def inline(work: Callable[[], ResultT]) -> ResultT:
    """Run it here and now."""
    return work()


class Shipper:
    """A writer and what it needs; `run` drives it."""

    def __init__(
        self,
        store: TappedStore,
        subscription_id: int,
        identity: Identity,
        world: World,
        *,
        options: LogOptions,
        dirty_ns: int | None,
        damaged: Callable[[list[bytes]], None] = lambda _: None,
        index: DelayIndex | None = None,
        places: Places | None = None,
    ) -> None:
        self.home = BusyHome(world)
        world.owner = self.home
        self._store = store
        self.chained: list[int] = []
        self.may_count: list[int] = []
        self.places = {} if places is None else places
        self.writer = LogWriter(
            identity,
            subscription_id,
            self.home,
            store,
            world.pointer,
            options=options,
            dirty_ns=dirty_ns,
            random=lambda: random.getrandbits(64),
            offload=inline,
            catch_up=self.note,
            may_count=self._may_count,
            chained=self.chained.append,
            damaged=damaged,
            block_bytes=lambda: 0 if index is None else index.timeline.stored_bytes,
            places=self.places,
            complete=lambda: index is None or not index.upkeep.absent_blocks,
        )
        store.watch(subscription_id)

    async def _may_count(self, ledger_id: int) -> None:
        self.may_count.append(ledger_id)

    def note(self) -> None:
        for noted in self._store.pop_noted():
            self.writer.note(noted)

    async def ship(self) -> None:
        self.note()
        await self.writer.ship()


def run(work: Awaitable[ResultT]) -> ResultT:
    """Do it to its end."""

    async def whole() -> ResultT:
        return await work

    return asyncio.run(whole())


def run_beside(work: Awaitable[ResultT]) -> ResultT:
    """The same, also from within what `run` runs."""
    with ThreadPoolExecutor(1) as beside:
        return beside.submit(run, work).result()


def copy_of(world: World) -> World:
    """The same ledgers, for looking at without fencing anybody."""
    made = World(pointer=world.pointer, next_ledger_id=world.next_ledger_id)
    for ledger_id, ledger in world.ledgers.items():
        made.ledgers[ledger_id] = type(ledger)(ledger.writer, list(ledger.entries))
    return made


def ledgers_of_blocks(world: World) -> set[int]:
    """Those that have any."""
    return {
        each for each, ledger in world.ledgers.items()
        if any(entry[3:4] == EntryKind.BLOCKS.value for entry in ledger.entries)
    }  # fmt: skip


async def read(world: World, identity: Identity) -> LogText:
    """The content of the log that the pointer names. Raises as `read_log`."""
    pointer = Pointer.parse(world.pointer)
    assert pointer is not None
    return await read_log(MemoryHome(world), pointer.ledger_id, identity)


def land(index: DelayIndex, store: Store, places: Places, world: World, count: int | None = None) -> None:
    """Bring so many of the absent blocks as the daemon would, all by default, from a copy of the ledgers."""

    async def bring() -> None:
        for record, blocks in by_record(places, index.upkeep.absent_in_order()[:count]).items():
            assert record is not None
            home = MemoryHome(copy_of(world))
            try:
                found = await read_record(home, record, await home.open(record.ledger_id))
            except (UnreadableLogError, HomeError) as error:
                index.upkeep.lose_absent(blocks, str(error))
                continue
            batch, missing = writes(found, index.own_journal.subscription_id, blocks)
            assert not missing
            store.write(batch, sync=False)
            index.upkeep.land([key for _, key, _ in batch.operations])

    asyncio.run(bring())


def adopted(log: LogText, identity: Identity, catalog: Catalog, store: Store) -> DelayIndex:
    """The index that a log makes in a store, with the blocks absent of which it has only the places."""
    subscription_id = catalog.reserve_id()
    for batch in restoration(log.content, subscription_id, 1_000):
        store.write(batch, sync=False)
    index = catalog.landed(subscription_id, identity, block_ids(named_places(log.content)))
    catalog.adopt(index)
    return index


def restored(
    log: LogText, identity: Identity, clock: ManualClock, options: IndexOptions, world: World | None = None
) -> DelayIndex:
    """The index that a log makes in an empty store. world: has the ledgers in which its blocks lie."""
    store = MemoryStore()
    catalog = Catalog.open(store, clock, options)
    index = adopted(log, identity, catalog, store)
    if world is not None:
        land(index, store, named_places(log.content), world)
        assert not index.upkeep.absent_blocks
    else:
        assert catalog.stats().corrupt_records == 0
    named = {
        keys.block_of_slice(key, block.block_id)
        for key, value in store.scan(*keys.kind_range(keys.SLICE))
        for block in decode_slice(value)
    }
    assert {key for key, _ in store.scan(*keys.kind_range(keys.BLOCK))} <= named
    assert index.name == identity.name
    return index
