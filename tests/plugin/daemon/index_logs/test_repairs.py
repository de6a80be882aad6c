"""A block of the local data is damaged: the index is read from its log, or its messages from the topic."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tests.plugin.daemon.index_logs.test_index_logs import HOUR_MS, NAME, TOPIC, now_ms, up_to_date
from tests.support.daemons import StartDaemon
from tests.support.index_logs import ledgers_of_blocks
from tests.support.shim_client import ClientStream, ShimClient, entries
from tests.support.stores import corrupt_blocks
from tests.support.waiting import until
from tidegate.index.clock import ManualClock
from tidegate.index.entries.entry import Entries
from tidegate.index.log.log_options import LogOptions
from tidegate.index.log.memory_home import World
from tidegate.index.names import SubscriptionName
from tidegate.index.state.positions import PositionSet
from tidegate.index.store import MemoryStore
from tidegate.plugin.daemon.index_logs.repairs import REST_S, Rests
from tidegate.plugin.daemon.serve import RunningDaemon
from tidegate.plugin.errors import ErrorCode

MENDED = "its stream is opened again so that its log is read instead"
RESTORED = "the index was restored from its log"
LOST = "positions lost to a corrupt block are read again"


async def fill(client: ShimClient, daemon: RunningDaemon, world: World) -> ClientStream:
    """50 entries in a block, also in the log; five of them acknowledged."""
    client.offer_logs(world)
    stream = await client.open(TOPIC)
    stream.add(entries(50, now_ms() + HOUR_MS))
    stream.ack(PositionSet.of((1, entry_id) for entry_id in range(5)))
    await stream.durable()
    daemon.engine.catalog.persist(NAME)
    await until(lambda: up_to_date(daemon))
    return stream


async def again(client: ShimClient, epoch: int, horizon_ms: int = 0) -> ClientStream:
    """The stream, opened anew after its end."""
    return await client.open(TOPIC, epoch=epoch, horizon_ms=horizon_ms)


@pytest.mark.parametrize("placed", [False, True], ids=["in the log", "in ledgers of their own"])
async def test_a_block_that_is_damaged_is_made_good_from_the_log(
    start: StartDaemon, socket_path: Path, log: io.StringIO, *, placed: bool
) -> None:
    """It is found when the block is loaded."""
    world, store = World(), MemoryStore()
    async with start(store=store, prefetch_ms=0) as daemon, await ShimClient.connect(socket_path) as client:
        if placed:
            assert daemon.engine._logs is not None
            daemon.engine._logs.shipping.options = LogOptions(inline_bytes=0)
        await fill(client, daemon, world)
        assert bool(ledgers_of_blocks(world)) == placed
        corrupt_blocks(store)
        # Its broker has room for two hours of due entries, and so the block is loaded.
        stream = await again(client, 2, 2 * HOUR_MS)
        error = await stream.ended()
        assert error.code == ErrorCode.STORAGE
        assert not stream.unheld
        stream = await again(client, 2, 2 * HOUR_MS)
        assert len(stream.held) == 45
        assert len(stream.acknowledged) == 5
        assert len(await stream.take_due(45)) == 45
        assert not stream.unheld
        assert MENDED in log.getvalue()
        assert RESTORED in log.getvalue()
        assert LOST not in log.getvalue()
        stream.add(entries(1, now_ms() + HOUR_MS, ledger_id=2))
        await stream.durable()
        await until(lambda: up_to_date(daemon))  # which goes on
        index = daemon.engine.catalog.get(NAME)
        assert index is not None
        index.check()


async def test_so_is_one_that_was_damaged_while_the_daemon_was_down(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    """A new log's begin reads the blocks, and finds it."""
    world, store = World(), MemoryStore()
    async with start(store=store) as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world)
    left = store.reopen()
    corrupt_blocks(left)
    async with start(store=left, prefetch_ms=0) as daemon, await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await again(client, 2)
        assert (await stream.ended()).code == ErrorCode.STORAGE
        stream = await again(client, 2, 2 * HOUR_MS)
        assert len(stream.held) == 45
        assert len(await stream.take_due(45)) == 45
        assert not stream.unheld
        assert LOST not in log.getvalue()
        await until(lambda: up_to_date(daemon))
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await again(client, 3)
        assert len(stream.held) == 45
        assert daemon.engine.catalog.stats().corrupt_records == 0


async def test_what_was_told_since_the_log_was_left_is_told_again(
    start: StartDaemon, socket_path: Path
) -> None:
    """The answer to OPEN has the index's content; a broker omits nothing else."""
    world, store = World(), MemoryStore()
    async with start(store=store, prefetch_ms=0) as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world)
        client.log_silent = True  # from now on the log gets nothing
        stream = client.streams[1]
        stream.add(entries(10, now_ms() + HOUR_MS, ledger_id=2))
        stream.ack(PositionSet.of((1, entry_id) for entry_id in range(5, 9)))
        await stream.durable()
        corrupt_blocks(store)
        stream = await again(client, 2, 2 * HOUR_MS)
        await stream.ended()
        client.log_silent = False
        stream = await again(client, 2)
        assert stream.held.issubset(PositionSet.of((1, entry_id) for entry_id in range(5, 50)))
        assert len(stream.held) >= 41
        index = daemon.engine.catalog.get(NAME)
        assert index is not None
        assert index.state.held == stream.held
        stream.add(entries(10, now_ms() - 1, ledger_id=2))
        assert len(await stream.take_due(10)) == 10


@pytest.mark.parametrize("logs", ["none", "gone"])
async def test_without_a_log_its_messages_are_read_again(
    start: StartDaemon, socket_path: Path, log: io.StringIO, logs: str
) -> None:
    world, store = World(), MemoryStore()
    async with start(store=store, prefetch_ms=0) as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world)
        corrupt_blocks(store)
        if logs == "none":
            client.logs = None
            stream = await again(client, 2, 2 * HOUR_MS)
            await stream.until(lambda: len(stream.unheld) == 45)
        else:
            world.ledgers.clear()
            stream = await again(client, 2, 2 * HOUR_MS)
            assert (await stream.ended()).code == ErrorCode.STORAGE
            stream = await again(client, 2, 2 * HOUR_MS)
            await stream.until(lambda: len(stream.held.difference(stream.unheld)) == 0)
            assert "the index log cannot be read" in log.getvalue()
        stream.add(entries(50, now_ms() + HOUR_MS))
        assert len(await stream.take_due(45)) == 45
        assert RESTORED not in log.getvalue()


@pytest.mark.parametrize("begun", [False, True], ids=["not begun yet", "cannot be written"])
async def test_a_log_that_has_less_than_the_index_is_not_read(
    start: StartDaemon, socket_path: Path, log: io.StringIO, *, begun: bool
) -> None:
    """Missing entries would be read again, too, and more of them than the block had."""
    world, store = World(), MemoryStore()
    async with start(store=store, prefetch_ms=0) as daemon, await ShimClient.connect(socket_path) as client:
        client.log_silent = not begun
        client.offer_logs(world)
        stream = await client.open(TOPIC, credit=0, horizon_ms=2 * HOUR_MS)
        stream.add(entries(50, now_ms() + HOUR_MS))
        await stream.durable()
        daemon.engine.catalog.persist(NAME)
        if begun:
            await until(lambda: up_to_date(daemon))
            world.away = True
            stream.add(entries(10, now_ms() + HOUR_MS, ledger_id=2))
            await until(lambda: any(one.failure for one in daemon.engine.log_states()))
        corrupt_blocks(store)
        stream.give_credit(100)
        await stream.until(lambda: len(stream.unheld) == 50)
        assert MENDED not in log.getvalue()


async def test_a_log_that_could_not_be_written_for_long_is_not_read_by_the_next_stream_either(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    world, store = World(), MemoryStore()
    async with start(store=store, prefetch_ms=0) as daemon, await ShimClient.connect(socket_path) as client:
        stream = await fill(client, daemon, world)
        world.away = True
        stream.add(entries(1_000, now_ms() + HOUR_MS, ledger_id=2))
        await stream.durable()
        await until(lambda: any(state.failure for state in daemon.engine.log_states()))
        await stream.close()
        daemon.engine.catalog.persist(NAME)
        corrupt_blocks(store)
        world.away = False
        stream = await again(client, 2)  # which begins the log anew, and then meets the damage
        assert len(stream.held) == 1_045
        await stream.until(lambda: bool(stream.unheld))
        assert stream.error is None
        assert RESTORED not in log.getvalue()
        await until(lambda: up_to_date(daemon))


async def test_damage_that_is_met_while_nobody_is_there_is_made_good_for_whoever_comes(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    """As by a compaction between two owners."""
    world, store = World(), MemoryStore()
    async with start(store=store, prefetch_ms=0) as daemon, await ShimClient.connect(socket_path) as client:
        stream = await fill(client, daemon, world)
        await stream.close()
        corrupt_blocks(store)
        index = daemon.engine.catalog.get(NAME)
        assert index is not None
        assert not len(index.timeline.pop_due(now_ms() + 2 * HOUR_MS, 100))
        daemon.engine.catalog.persist(NAME)
        assert not index.state.held
        stream = await again(client, 2, 2 * HOUR_MS)
        assert len(stream.held) == 45
        assert len(await stream.take_due(45)) == 45
        assert RESTORED in log.getvalue()


async def test_a_disk_that_goes_on_losing_is_not_read_around_again_and_again(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    world, store = World(), MemoryStore()
    async with start(store=store, prefetch_ms=0) as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world)
        corrupt_blocks(store)
        await (await again(client, 2, 2 * HOUR_MS)).ended()
        await again(client, 2)
        assert log.getvalue().count(RESTORED) == 1
        await until(lambda: up_to_date(daemon))
        corrupt_blocks(store)
        stream = await again(client, 2, 2 * HOUR_MS)
        await stream.until(lambda: len(stream.unheld) == 45)
        assert stream.error is None
        assert log.getvalue().count(MENDED) == 1


async def test_what_was_read_from_the_topic_is_not_given_up_for_a_log_that_has_less(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    """Once a stream goes on without the damaged data, the local data is the best there is."""
    world, store = World(), MemoryStore()
    async with start(store=store, prefetch_ms=0) as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world)
        corrupt_blocks(store)
        world.ledgers.clear()
        await (await again(client, 2, 2 * HOUR_MS)).ended()
        stream = await again(client, 2, 2 * HOUR_MS)
        await stream.until(lambda: len(stream.held.difference(stream.unheld)) == 0)
        stream.add(entries(50, now_ms() + HOUR_MS))
        await stream.durable()
        await until(lambda: up_to_date(daemon))
        client.log_silent = True  # the log does not get later entries
        stream.add(entries(10, now_ms() + HOUR_MS, ledger_id=2))
        await stream.durable()
        client.log_silent = False
        stream = await again(client, 3)
        assert len(stream.held) == 55
        assert RESTORED not in log.getvalue()


def test_a_subscription_rests_however_many_others_do() -> None:
    """On a disk that loses all, the first would else be opened again as soon as the last one was."""
    clock = ManualClock()
    rests = Rests(clock.monotonic_ns)
    names = [SubscriptionName(f"persistent://public/default/{number}", "sub") for number in range(1_000)]
    assert all(rests.begin(name) for name in names)
    clock.advance(REST_S * 1_000 - 1)
    assert not any(rests.begin(name) for name in names)
    clock.advance(1)
    assert rests.begin(names[-1])
    assert len(rests) == 1
    assert not rests.begin(names[-1])


async def test_many_damaged_blocks_end_their_stream_once(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    world, store = World(), MemoryStore()
    async with start(store=store, prefetch_ms=0) as daemon, await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC)
        stream.add(Entries.of((now_ms() + HOUR_MS * day, 1, day) for day in range(1, 30)))
        await stream.durable()
        daemon.engine.catalog.persist(NAME)
        await until(lambda: up_to_date(daemon))
        corrupt_blocks(store)
        await (await again(client, 2, 48 * HOUR_MS)).ended()
        stream = await again(client, 2, 48 * HOUR_MS)
        assert len(await stream.take_due(29)) == 29
        assert not stream.unheld
        assert log.getvalue().count(MENDED) == 1
