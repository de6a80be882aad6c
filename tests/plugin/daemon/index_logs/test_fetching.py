"""Blocks in ledgers of their own: a new owner answers before it has them, and fetches them in order."""

from __future__ import annotations

import asyncio
import io
import json
from functools import partial
from pathlib import Path

import pytest

from tests.plugin.daemon.index_logs.test_index_logs import (
    HOUR_MS,
    NAME,
    TOPIC,
    now_ms,
    pointed_to,
    up_to_date,
)
from tests.support.daemons import StartDaemon
from tests.support.index_logs import copy_of, ledgers_of_blocks, read
from tests.support.shim_client import INCARNATION, ClientStream, ShimClient, entries
from tests.support.stores import CrashStore
from tests.support.waiting import until
from tidegate.index.entries.entry import Entries
from tidegate.index.format import keys
from tidegate.index.format.manifest import Identity
from tidegate.index.log.home import AwayError, RefusedError
from tidegate.index.log.log_options import LogOptions
from tidegate.index.log.memory_home import MemoryHome, World
from tidegate.index.log.places import ledgers_of
from tidegate.index.log.pointer import Pointer
from tidegate.index.log.records import EntryKind
from tidegate.index.state.positions import PositionSet
from tidegate.index.subscription.delay_index import DelayIndex
from tidegate.plugin.daemon.index_logs import block_fetch
from tidegate.plugin.daemon.serve import RunningDaemon

COUNT = 3_000
MANY_SLICES = {"slice_width_ms": 1_000, "slice_width_auto": False}
PLACED = LogOptions(inline_bytes=0, journal_records=1)
HERE = "all blocks of a restored index have arrived"


class SlowHome(MemoryHome):
    """A home that gives blocks on command only, one record each time."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.may_read = asyncio.Semaphore(0)

    async def read(self, ledger_id: int, first: int, last: int) -> list[bytes]:
        found = await super().read(ledger_id, first, last)
        if found[0][3:4] == EntryKind.BLOCKS.value:
            await self.may_read.acquire()
            return found[:1]
        return found


def place_blocks(daemon: RunningDaemon) -> None:
    assert daemon.engine._logs is not None
    daemon.engine._logs.shipping.options = PLACED


async def fill(client: ShimClient, daemon: RunningDaemon, world: World, due_ms: int) -> ClientStream:
    """Entries in blocks, in the log's ledgers of blocks; a tenth is acknowledged."""
    place_blocks(daemon)
    client.offer_logs(world)
    stream = await client.open(TOPIC)
    for at in range(0, COUNT, 1_000):
        stream.add(Entries.of((due_ms + 30 * number, 1, number) for number in range(at, at + 1_000)))
        await stream.durable()
        daemon.engine.catalog.persist(NAME)
        await until(lambda: up_to_date(daemon))  # so that each is its own record of blocks
    stream.ack(PositionSet.of((1, number) for number in range(0, COUNT, 10)))
    await stream.durable()
    await until(lambda: up_to_date(daemon))
    assert ledgers_of_blocks(world)
    return stream


def goes_on(daemon: RunningDaemon, world: World, was: int) -> bool:
    return up_to_date(daemon) and pointed_to(world) != was


def is_partly_here(index: DelayIndex, count: int) -> bool:
    return 0 < index.upkeep.absent_blocks < count


def is_whole(index: DelayIndex) -> bool:
    return not index.upkeep.absent_blocks


def slow(client: ShimClient, world: World) -> SlowHome:
    home = SlowHome(world)
    world.owner = client.logs = home
    return home


async def test_what_is_held_is_told_before_its_blocks_are_here_and_handed_out_in_order_when_they_are(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    world = World()
    due_ms = now_ms() - HOUR_MS
    async with start(**MANY_SLICES) as daemon, await ShimClient.connect(socket_path) as client:
        stream = await fill(client, daemon, world, due_ms + 2 * HOUR_MS)
        stream.add(Entries.of((due_ms + 30 * number, 2, number) for number in range(COUNT)))
        await stream.durable()
        daemon.engine.catalog.persist(NAME)
        await until(lambda: up_to_date(daemon))
        # As the broker of a topic that moves: nobody has its entries in flight.
        await stream.close()
    async with start(**MANY_SLICES) as daemon, await ShimClient.connect(socket_path) as client:
        place_blocks(daemon)
        home = slow(client, world)
        stream = await client.open(TOPIC, epoch=2)
        assert len(stream.held) == COUNT * 9 // 10 + COUNT
        assert len(stream.acknowledged) == COUNT // 10
        index = daemon.engine.catalog.get(NAME)
        assert index is not None
        assert index.upkeep.absent_blocks > 30
        assert f"tidegate_absent_blocks {index.upkeep.absent_blocks}.0".encode() in await daemon.exposition()
        assert not stream.due
        assert HERE not in log.getvalue()
        found = Entries.empty()
        while len(found) < COUNT:
            home.may_read.release()
            await until(lambda: stream.due_entries > 0)
            found = Entries.concat((found, await stream.take_due(1)))
        assert found.entry_id.tolist() == list(range(COUNT))
        assert set(found.ledger_id.tolist()) == {2}
        assert not daemon.health.reasons()
        for _ in range(1_000):
            home.may_read.release()
        await until(lambda: HERE in log.getvalue())
        assert not index.upkeep.absent_blocks
        index.check()


async def test_the_next_owner_goes_on_with_the_ledgers_of_blocks_that_are_there(
    start: StartDaemon, socket_path: Path
) -> None:
    world = World()
    async with start(**MANY_SLICES) as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world, now_ms() + HOUR_MS)
        before = ledgers_of_blocks(world)
    for epoch in (2, 3):
        async with start(**MANY_SLICES) as daemon, await ShimClient.connect(socket_path) as client:
            place_blocks(daemon)
            client.offer_logs(world)
            was = pointed_to(world)
            stream = await client.open(TOPIC, epoch=epoch)
            assert len(stream.held) == COUNT * 9 // 10
            stream.add(entries(1, now_ms() + HOUR_MS, ledger_id=epoch))
            stream.ack(PositionSet.of([(epoch, 0)]))
            await stream.durable()
            await until(partial(goes_on, daemon, world, was))
            assert ledgers_of_blocks(world) == before
            pointer = Pointer.parse(world.pointer)
            assert pointer is not None
            assert set(world.ledgers) <= set(pointer.ledgers)
            index = daemon.engine.catalog.get(NAME)
            assert index is not None
            await until(partial(is_whole, index))
            index.check()
            # The log names all of them, and has none.
            log = await read(copy_of(world), Identity(NAME, INCARNATION))
            assert log.content.of(keys.BLOCK).keys() == log.content.places.keys()
            assert len(log.content.places) == index.stats().blocks


@pytest.mark.parametrize("still_named", [False, True])
async def test_a_log_names_no_places_in_ledgers_that_another_owner_has_deleted(
    start: StartDaemon, socket_path: Path, log: io.StringIO, *, still_named: bool
) -> None:
    """The other owner's log cannot be read, so the index here counts again, with its knowledge. The other's
    pointer names deleted ledgers until its next change.
    """
    world = World()
    async with start(**MANY_SLICES) as daemon, await ShimClient.connect(socket_path) as client:
        stream = await fill(client, daemon, world, now_ms() + HOUR_MS)
        await stream.close()
        pointer = Pointer.parse(world.pointer)
        assert pointer is not None
        gone = max(world.ledgers) + 100
        world.ledgers.clear()
        others = pointer.ledgers if still_named else ()
        world.pointer = str(pointer._replace(ledger_id=gone, others=others))
        stream = await client.open(TOPIC, epoch=3)
        assert "the index log cannot be read" in log.getvalue()
        assert len(stream.held) == COUNT * 9 // 10
        await until(lambda: goes_on(daemon, world, gone))
        read_again = await read(copy_of(world), Identity(NAME, INCARNATION))
        assert ledgers_of(read_again.content.places)
        assert ledgers_of(read_again.content.places) <= set(world.ledgers)


async def test_blocks_that_cannot_be_had_are_read_from_the_topic(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    world = World()
    async with start(**MANY_SLICES) as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world, now_ms() + HOUR_MS)
    gone = ledgers_of_blocks(world)
    for ledger_id in gone:
        del world.ledgers[ledger_id]
    async with start(**MANY_SLICES) as daemon, await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=2)
        held = PositionSet.of(stream.held)
        await stream.until(lambda: len(stream.unheld) == len(held))
        assert "their messages are read again" in log.getvalue()
        # And so they are held again, as the broker tells them.
        stream.add(Entries.of((now_ms(), *position) for position in held))
        await stream.take_due(len(held))


class RefusingHome(MemoryHome):
    """A home that opens no ledger of blocks for this owner."""

    async def open(self, ledger_id: int) -> int:
        if ledger_id in ledgers_of_blocks(self.world):
            raise RefusedError("it is switched off")
        return await super().open(ledger_id)


async def test_blocks_that_the_home_refuses_are_read_from_the_topic(
    start: StartDaemon, socket_path: Path
) -> None:
    """The stream goes on: nothing else would fetch them."""
    world = World()
    async with start(**MANY_SLICES) as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world, now_ms() + HOUR_MS)
    async with start(**MANY_SLICES), await ShimClient.connect(socket_path) as client:
        world.owner = client.logs = RefusingHome(world)
        stream = await client.open(TOPIC, epoch=2)
        await stream.until(lambda: len(stream.unheld) == COUNT * 9 // 10)


class AwayHome(MemoryHome):
    """A home with no answer from the part with the blocks."""

    async def open(self, ledger_id: int) -> int:
        if ledger_id in ledgers_of_blocks(self.world):
            raise AwayError("nobody is there")
        return await super().open(ledger_id)


async def test_a_home_that_stays_away_is_given_up_once_and_not_for_each_record(
    start: StartDaemon, socket_path: Path, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_fetch, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(block_fetch, "GIVE_UP_SECONDS", 0.05)
    world = World()
    async with start(**MANY_SLICES) as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world, now_ms() + HOUR_MS)
    async with start(**MANY_SLICES) as daemon, await ShimClient.connect(socket_path) as client:
        world.owner = client.logs = AwayHome(world)
        stream = await client.open(TOPIC, epoch=2)
        index = daemon.engine.catalog.get(NAME)
        assert index is not None
        assert daemon.engine._logs is not None
        records = {
            (place.ledger_id, place.entry)
            for place in daemon.engine._logs._fetches._places[index][1].values()
        }
        assert len(records) > 1
        await stream.until(lambda: len(stream.unheld) == COUNT * 9 // 10)
        assert index.stats().blocks_absent == 0
        assert log.getvalue().count(f"not within {block_fetch.GIVE_UP_SECONDS:g} s") == 1


class StuckHome(MemoryHome):
    """A home that gives its first record of blocks for each other one, too."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._first: list[bytes] = []

    async def read(self, ledger_id: int, first: int, last: int) -> list[bytes]:
        found = await super().read(ledger_id, first, last)
        if found[0][3:4] != EntryKind.BLOCKS.value:
            return found
        self._first = self._first or found[:1]
        return self._first


async def test_blocks_that_their_record_lacks_count_as_lost(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    """Else a start would believe the blocks here, and read the log no more."""
    world = World()
    async with start(**MANY_SLICES) as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world, now_ms() + HOUR_MS)
    async with start(**MANY_SLICES) as daemon, await ShimClient.connect(socket_path) as client:
        world.owner = client.logs = StuckHome(world)
        await client.open(TOPIC, epoch=2)
        await until(lambda: HERE in log.getvalue())
        (here,) = [line for line in map(json.loads, log.getvalue().splitlines()) if line["event"] == HERE]
        index = daemon.engine.catalog.get(NAME)
        assert index is not None
        assert here["lost"] == index.upkeep._quarantine.blocks_total > 0


async def test_a_start_amid_it_reads_the_log_again(start: StartDaemon, socket_path: Path) -> None:
    """Blocks here by then are a part, and nobody believes them to be all."""
    world, store = World(), CrashStore()
    async with start(**MANY_SLICES) as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world, now_ms() + HOUR_MS)
    async with start(**MANY_SLICES, store=store) as daemon, await ShimClient.connect(socket_path) as client:
        home = slow(client, world)
        stream = await client.open(TOPIC, epoch=2)
        index = daemon.engine.catalog.get(NAME)
        assert index is not None
        count = index.upkeep.absent_blocks
        home.may_read.release()
        await until(partial(is_partly_here, index, count))
        stream.add(entries(1, now_ms() + HOUR_MS, ledger_id=2))
        await stream.durable()
        left = store.crashed(kept_writes=1_000)
    async with start(**MANY_SLICES, store=left) as daemon, await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=3)
        assert len(stream.held) >= COUNT * 9 // 10
        index = daemon.engine.catalog.get(NAME)
        assert index is not None
        await until(partial(is_whole, index))
        index.check()
        assert not daemon.engine.catalog.stats().corrupt_records


async def test_a_start_amid_it_without_the_log_looks_for_what_is_lost(
    start: StartDaemon, socket_path: Path
) -> None:
    world, store = World(), CrashStore()
    async with start(**MANY_SLICES) as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world, now_ms() + HOUR_MS)
    async with start(**MANY_SLICES, store=store) as daemon, await ShimClient.connect(socket_path) as client:
        slow(client, world)
        stream = await client.open(TOPIC, epoch=2)
        stream.add(entries(1, now_ms() + HOUR_MS, ledger_id=2))
        await stream.durable()
        left = store.crashed(kept_writes=1_000)
    async with start(**MANY_SLICES, store=left) as daemon, await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC, epoch=3)  # of a broker that offers no log
        await stream.until(lambda: len(stream.unheld) == COUNT * 9 // 10)


async def test_another_stream_goes_on_with_it(start: StartDaemon, socket_path: Path) -> None:
    world = World()
    async with start(**MANY_SLICES) as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world, now_ms() + HOUR_MS)
    async with start(**MANY_SLICES) as daemon:
        async with await ShimClient.connect(socket_path) as client:
            slow(client, world)
            await client.open(TOPIC, epoch=2)
        index = daemon.engine.catalog.get(NAME)
        assert index is not None
        assert index.upkeep.absent_blocks
        async with await ShimClient.connect(socket_path) as client:
            client.offer_logs(world)
            stream = await client.open(TOPIC, epoch=3)
            assert len(stream.held) == COUNT * 9 // 10
            assert daemon.engine.catalog.get(NAME) is index
            await until(partial(is_whole, index))
            index.check()


async def test_a_log_elsewhere_begins_when_all_is_here(
    start: StartDaemon, socket_path: Path, tmp_path: Path
) -> None:
    """A log at a URL cannot name blocks at the bookies, and would lack them."""
    world = World()
    async with start(**MANY_SLICES) as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world, now_ms() + HOUR_MS)
    url = f"file://{tmp_path}"
    async with start(**MANY_SLICES) as daemon, await ShimClient.connect(socket_path) as client:
        place_blocks(daemon)
        home = slow(client, world)
        client.log_home = url
        before = world.pointer
        stream = await client.open(TOPIC, epoch=2)
        stream.add(entries(1, now_ms() + HOUR_MS, ledger_id=2))
        await stream.durable()
        await asyncio.sleep(0.5)
        assert world.pointer == before
        for _ in range(1_000):
            home.may_read.release()
        await until(lambda: up_to_date(daemon) and url in world.pointer)
    async with start(**MANY_SLICES) as daemon, await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        client.log_home = url
        stream = await client.open(TOPIC, epoch=3)
        assert len(stream.held) == COUNT * 9 // 10 + 1
        index = daemon.engine.catalog.get(NAME)
        assert index is not None
        await until(partial(is_whole, index))
        index.check()
        assert not daemon.engine.catalog.stats().corrupt_records
