"""An index goes from daemon to daemon by its log, through a broker that keeps it in memory."""

from __future__ import annotations

import asyncio
import gc
import io
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemons import StartDaemon
from tests.support.flaky_store import FlakyStore
from tests.support.index_logs import copy_of, read, restored
from tests.support.shim_client import GENERATION, INCARNATION, ShimClient, entries
from tests.support.stores import CrashStore
from tests.support.waiting import until
from tidegate.index.catalog.catalog import Catalog
from tidegate.index.clock import ManualClock
from tidegate.index.format import encode_block, keys
from tidegate.index.format.manifest import Identity
from tidegate.index.log.home import AwayError
from tidegate.index.log.log_options import LogOptions
from tidegate.index.log.memory_home import MemoryHome, World
from tidegate.index.log.pointer import Pointer
from tidegate.index.names import SubscriptionName
from tidegate.index.options import IndexOptions
from tidegate.index.state.positions import PositionSet
from tidegate.index.store import Batch, MemoryStore
from tidegate.index.subscription.delay_index import DelayIndex
from tidegate.plugin.daemon.index_logs import restorer, stream_log
from tidegate.plugin.daemon.serve import RunningDaemon
from tidegate.plugin.errors import ErrorCode
from tidegate.plugin.wire.client import ask_socket
from tidegate.plugin.wire.session import DaemonSession

TOPIC = "persistent://public/default/orders"
NAME = SubscriptionName(TOPIC, "sub")
HOUR_MS = 3_600_000
EARLY = "the index was restored from its log"
UNREADABLE = "the index log cannot be read"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def up_to_date(daemon: RunningDaemon) -> bool:
    states = daemon.engine.log_states()
    return bool(states) and all(one.ledger_id >= 0 and not one.lag_seconds for one in states)


def pointed_to(world: World) -> int:
    pointer = Pointer.parse(world.pointer)
    assert pointer is not None
    return pointer.ledger_id


async def logged(world: World) -> DelayIndex:
    """The log's content now; nobody is fenced."""
    identity = Identity(NAME, INCARNATION)
    return restored(await read(copy_of(world), identity), identity, ManualClock(), IndexOptions())


async def fill(client: ShimClient, daemon: RunningDaemon, world: World) -> None:
    """100 entries in the log, 10 of them acknowledged."""
    client.offer_logs(world)
    stream = await client.open(TOPIC)
    stream.add(entries(100, now_ms() + HOUR_MS))
    stream.ack(PositionSet.of((1, entry_id) for entry_id in range(10)))
    await stream.durable()
    await until(lambda: up_to_date(daemon))


class NeverWalked(dict[Any, Any]):
    """Of thousands of streams: a walk over all at each end stalls the loop for seconds."""

    def values(self) -> Any:
        raise AssertionError("all streams were looked at")

    items = __iter__ = values


async def test_the_end_of_a_stream_looks_at_no_others_and_leaves_nothing(
    start: StartDaemon, socket_path: Path
) -> None:
    world = World()
    async with start() as daemon:
        logs = daemon.engine._logs
        assert logs is not None
        logs._by_stream = NeverWalked()
        async with await ShimClient.connect(socket_path) as client:
            client.offer_logs(world)
            stream = await client.open(TOPIC)
            stream.add(entries(5, now_ms() + HOUR_MS))
            await stream.durable()
            await until(lambda: up_to_date(daemon))
            stream.clear()
            await stream.close()
        await until(lambda: not len(daemon.engine.catalog))
        gc.collect()
        assert not (logs._by_id or logs._streams or logs._shipped or len(logs._by_stream))


async def test_another_daemon_knows_what_the_first_one_did(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    world = World()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world)
        stream = client.streams[1]
        stream.add(entries(5, now_ms() + HOUR_MS, ledger_id=2))
        await stream.close()  # which takes the last words to the log
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=2)
        assert len(stream.held) == 95
        assert len(stream.acknowledged) == 10
        assert EARLY in log.getvalue()
        before = {pointed_to(world)}
        stream.add(entries(1, now_ms(), ledger_id=3))
        assert next(iter(await stream.take_due(1)))[1:] == (3, 0)
        # Another ledger, and the former one is deleted.
        await until(lambda: up_to_date(daemon) and set(world.ledgers) == {pointed_to(world)} != before)


async def test_no_commit_is_asked_for_once_it_has_stopped(start: StartDaemon, socket_path: Path) -> None:
    """The last one is made then, and the catalog closed."""
    asked: list[None] = []
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, World())
        logs, index = daemon.engine._logs, daemon.engine.catalog.get(NAME)
        assert logs is not None and index is not None
        logs.on_change(
            lambda: asked.append(None), when_durable=lambda _, tell: tell(None), landed=lambda _: None
        )
        logs.doubt(index)
        assert asked == [None]
        logs.stop()
        logs.doubt(index)
        assert asked == [None]


async def test_a_log_counts_as_written_to_while_there_is_something_to_ship(
    start: StartDaemon, socket_path: Path
) -> None:
    world = World()
    async with start() as daemon:
        logs = daemon.engine._logs
        assert logs is not None
        async with await ShimClient.connect(socket_path) as client:
            await fill(client, daemon, world)
            await until(lambda: not logs.shipping.written)
            client.streams[1].add(entries(5, now_ms() + HOUR_MS, ledger_id=2))
        await until(lambda: not daemon.engine.brokers)
        await until(lambda: not logs.shipping.written)


async def test_what_was_put_in_while_no_broker_was_there_is_in_the_log(
    start: StartDaemon, socket_path: Path
) -> None:
    world = World()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world)
        await client.streams[1].close()

        def rebuild() -> None:
            with DaemonSession(socket_path) as session:
                session.take_in(NAME)
                block = encode_block(entries(50, now_ms() + HOUR_MS, ledger_id=2))
                assert list(session.put(NAME, [block])) == [50]

        await asyncio.to_thread(rebuild)
        before = pointed_to(world)
        await client.open(TOPIC, epoch=2)
        await until(lambda: up_to_date(daemon) and pointed_to(world) != before)
        assert len((await logged(world)).state.held) == 140


async def test_what_was_restored_is_on_the_disk_with_the_next_durable(
    start: StartDaemon, socket_path: Path
) -> None:
    """It is written without a sync, and the log may be away when a power cut has taken it."""
    world, store = World(), CrashStore()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world)
    async with start(store=store), await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=2)
        await stream.close()  # answered with DURABLE, the first word
        left = Catalog.open(store.crashed(kept_writes=0), ManualClock(), IndexOptions()).get(NAME)
    assert left is not None
    assert len(left.state.held) == 90


async def test_acknowledgements_of_another_generation_are_not_believed(
    start: StartDaemon, socket_path: Path
) -> None:
    world = World()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world)
    async with start(), await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=2, generation=GENERATION + 1)
        assert len(stream.held) == 90
        assert not stream.acknowledged


async def test_local_data_of_the_same_log_is_believed_without_reading_it(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    world, store = World(), MemoryStore()
    async with start(store=store) as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world)
    async with start(store=store.reopen()), await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        assert len((await client.open(TOPIC, epoch=2)).held) == 90
    assert EARLY not in log.getvalue()


async def test_older_local_data_gives_way_to_the_log(start: StartDaemon, socket_path: Path) -> None:
    world, store = World(), MemoryStore()
    async with start(store=store) as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world)
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=2)
        stream.ack(PositionSet.of((1, entry_id) for entry_id in range(50)))
        await stream.durable()
        await until(lambda: up_to_date(daemon))
    async with start(store=store.reopen()) as daemon, await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=3)
        assert len(stream.held) == 50 == len(stream.acknowledged)
        assert daemon.engine.catalog.stats().subscriptions == 1


@pytest.mark.parametrize("reset", [False, True])
async def test_without_the_log_older_local_acknowledgements_count_under_their_seal(
    start: StartDaemon, socket_path: Path, log: io.StringIO, reset: bool
) -> None:
    """Acknowledgements from elsewhere are unknown here: the cursor has them, or the messages come again."""
    world, store = World(), MemoryStore()
    async with start(store=store) as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world)
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=2)
        stream.ack(PositionSet.of((1, entry_id) for entry_id in range(50)))
        await stream.durable()
        await until(lambda: up_to_date(daemon))
    world.ledgers.clear()
    async with start(store=store.reopen()), await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=3, generation=GENERATION + reset)
        assert UNREADABLE in log.getvalue()
        assert len(stream.held) == 90
        assert len(stream.acknowledged) == (0 if reset else 10)


@pytest.mark.parametrize("what", ["gone", "empty", "flipped", "away", "pointer"])
async def test_a_log_that_cannot_be_read_is_said_and_the_stream_opens(
    start: StartDaemon, socket_path: Path, log: io.StringIO, what: str
) -> None:
    world = World()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world)
    (ledger,) = world.ledgers.values()
    match what:
        case "gone":
            world.ledgers.clear()
        case "empty":
            ledger.entries.clear()
        case "flipped":
            ledger.entries[0] = ledger.entries[0][:-1] + b"\xff"
        case "away":
            world.away = True
        case _:
            world.pointer = "7;what is this"
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=2)
        assert not stream.held
        assert UNREADABLE in log.getvalue()
        assert b"tidegate_index_log_unreadable_total 1.0" in await daemon.exposition()
        world.away = False
        stream.add(entries(3, now_ms()))
        assert len(await stream.take_due(3)) == 3
        await until(lambda: up_to_date(daemon) or what == "away")


async def test_a_damaged_end_costs_the_end(start: StartDaemon, socket_path: Path, log: io.StringIO) -> None:
    world = World()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world)
        stream = client.streams[1]
        stream.add(entries(7, now_ms() + HOUR_MS, ledger_id=2))
        await stream.durable()
        await until(lambda: up_to_date(daemon))
    (ledger,) = world.ledgers.values()
    ledger.entries[-1] = ledger.entries[-1][:-1]
    async with start(), await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        assert len((await client.open(TOPIC, epoch=2)).held) == 90
    assert "the end of an index log cannot be read" in log.getvalue()


async def test_what_comes_while_the_log_is_read_counts_after_it(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world)
    monkeypatch.setattr(restorer, "RESTORE_SECONDS", 0.3)
    async with start(), await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        client.log_silent = True
        stream = client.begin_open(TOPIC, epoch=2)
        stream.add(entries(3, now_ms(), ledger_id=9))
        await stream.until(lambda: stream.answered)
        assert not stream.held, "nobody has told what the log says"
        assert len(await stream.take_due(3)) == 3


async def test_while_the_home_is_away_all_goes_on_and_the_log_follows(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    world = World()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world)
        world.away = True
        stream = client.streams[1]
        stream.add(entries(5, now_ms(), ledger_id=2))
        assert len(await stream.take_due(5)) == 5
        await stream.durable()
        await until(lambda: any(one.failure for one in daemon.engine.log_states()))
        assert "the index log cannot be written" in log.getvalue()
        told = (await asyncio.to_thread(ask_socket, socket_path, {"what": "status"}))["index_logs"]
        assert (told["subscriptions"], told["failing"]) == (1, 1)
        ((topic, _, failure),) = [one.values() for one in told["named"]]
        assert topic == TOPIC and failure
        world.away = False
        await until(lambda: up_to_date(daemon))
        told = (await asyncio.to_thread(ask_socket, socket_path, {"what": "status"}))["index_logs"]
        assert (told["failing"], told["named"]) == (0, [])
    async with start(), await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        assert len((await client.open(TOPIC, epoch=2)).held) == 95


async def test_a_former_owner_writes_nothing_more(start: StartDaemon, socket_path: Path) -> None:
    world = World()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world)
        world.new_owner()
        (ledger,) = world.ledgers.values()
        ledger.writer = None
        pointer, kept = world.pointer, list(ledger.entries)
        stream = client.streams[1]
        stream.add(entries(5, now_ms() + HOUR_MS, ledger_id=2))
        await stream.durable()
        await until(lambda: any("pointer" in one.failure for one in daemon.engine.log_states()))
        assert world.pointer == pointer
        assert ledger.entries == kept
        assert list(world.ledgers.values()) == [ledger], "what it has made for nothing is deleted"
        logs = daemon.engine._logs
        assert logs is not None
        await until(lambda: not logs.shipping.written)
        made = world.next_ledger_id
        stream.add(entries(5, now_ms() + HOUR_MS, ledger_id=3))
        await stream.durable()
        assert not logs.shipping.written
        assert world.next_ledger_id == made, "it does not try again and again"


async def test_an_index_that_exists_is_uploaded_when_the_log_is_switched_on(
    start: StartDaemon, socket_path: Path
) -> None:
    """In the background: nothing else happens."""
    world, store = World(), MemoryStore()
    async with start(store=store), await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC)
        stream.add(entries(100, now_ms() + HOUR_MS))
        stream.ack(PositionSet.of((1, entry_id) for entry_id in range(10)))
        await stream.close()
    async with start(store=store.reopen()) as daemon, await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        assert len((await client.open(TOPIC, epoch=2)).held) == 90
        await until(lambda: up_to_date(daemon))
        assert len((await logged(world)).state.held) == 90


async def test_what_came_while_the_log_was_switched_off_is_in_it_when_it_is_on_again(
    start: StartDaemon, socket_path: Path
) -> None:
    """The broker is restarted twice with another conf, and its daemon goes on."""
    world = World()
    async with start() as daemon:
        async with await ShimClient.connect(socket_path) as client:
            await fill(client, daemon, world)
            await client.streams[1].close()
        async with await ShimClient.connect(socket_path) as client:
            client.offer_logs(world)
            client.log_home = ""
            stream = await client.open(TOPIC, epoch=2)
            stream.add(entries(5, now_ms() + HOUR_MS, ledger_id=2))
            await stream.close()
            assert daemon.engine.log_states() == []
            assert len((await logged(world)).state.held) == 90, "it is left as it is"
        async with await ShimClient.connect(socket_path) as client:
            client.offer_logs(world)
            assert len((await client.open(TOPIC, epoch=3)).held) == 95
            await until(lambda: up_to_date(daemon))
            assert len((await logged(world)).state.held) == 95
            await until(lambda: len(world.ledgers) == 1)


async def test_without_a_home_there_is_no_log(start: StartDaemon, socket_path: Path) -> None:
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC)
        stream.add(entries(5, now_ms() + HOUR_MS))
        await stream.durable()
        assert daemon.engine.log_states() == []


async def test_a_full_disk_and_its_end_with_the_log_on(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    """The log has everything durable, and no more; when there is room again, it follows."""
    world, store = World(), FlakyStore()
    async with (
        start(store=store, storage_retry_ms=50) as daemon,
        await ShimClient.connect(socket_path) as client,
    ):
        await fill(client, daemon, world)
        store.failing = True
        stream = client.streams[1]
        stream.add(entries(5, now_ms() + HOUR_MS, ledger_id=2))
        assert (await stream.ended()).code == ErrorCode.STORAGE
        assert len((await logged(world)).state.held) == 90
        store.failing = False
        await until(lambda: daemon.health.ready)
        client.offer_logs(world)
        again = await client.open(TOPIC, epoch=2)
        again.add(entries(5, now_ms() + HOUR_MS, ledger_id=2))
        await again.durable()
        await until(lambda: up_to_date(daemon))
    async with start(), await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        assert len((await client.open(TOPIC, epoch=3)).held) == 95


async def test_a_log_that_finds_a_full_disk_is_restored_when_there_is_room(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    world, store = World(), FlakyStore()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world)
    pointer = world.pointer
    async with (
        start(store=store, storage_retry_ms=50) as daemon,
        await ShimClient.connect(socket_path) as client,
    ):
        store.failing = True
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=2)
        assert not stream.held, "the topic is read"
        assert "no space left" in log.getvalue()
        stream.add(entries(3, now_ms() + HOUR_MS))
        assert (await stream.ended()).code == ErrorCode.STORAGE
        assert world.pointer == pointer, "the log is left as it is"
        store.failing = False
        client.offer_logs(world)
        again = await client.open(TOPIC, epoch=3)
        assert len(again.held) == 90
        assert EARLY in log.getvalue()


@pytest.mark.parametrize("starts_before", [0, 1])
@pytest.mark.parametrize("kind", [keys.HELD, keys.ACKNOWLEDGED, keys.STATE, keys.JOURNAL])
async def test_a_flipped_byte_on_the_own_disk_is_made_good_from_the_log(
    start: StartDaemon, socket_path: Path, log: io.StringIO, kind: bytes, starts_before: int
) -> None:
    """A start mends the store, and no broker may come before the next one."""
    world, store = World(), MemoryStore()
    async with start(store=store) as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world)
        index = daemon.engine.catalog.get(NAME)
        assert index is not None
        if kind != keys.JOURNAL:
            daemon.engine.catalog.persist(NAME)
        await until(lambda: up_to_date(daemon))
    left = store.reopen()
    key, value = next(left.scan(*keys.kind_range(kind)))
    batch = Batch()
    batch.put(key, value[:-1] + bytes([value[-1] ^ 1]))
    left.write(batch, sync=True)
    for _ in range(starts_before):
        async with start(store=left):
            pass
        left = left.reopen()
    async with start(store=left) as daemon, await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=2)
        assert len(stream.held) == 90
        assert len(stream.acknowledged) == 10
        assert "is damaged, its log is read instead" in log.getvalue()
        assert EARLY in log.getvalue()
        await until(lambda: up_to_date(daemon))
        assert daemon.engine.catalog.stats().subscriptions == 1


async def test_what_a_new_owner_would_replay_one_by_one_is_kept_short(
    start: StartDaemon, socket_path: Path
) -> None:
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        assert daemon.engine._logs is not None
        daemon.engine._logs.shipping.options = LogOptions(journal_records=10)
        await fill(client, daemon, World())
        index = daemon.engine.catalog.get(NAME)
        assert index is not None
        assert daemon.engine.catalog.stats().persists == 0
        stream = client.streams[1]
        for number in range(20):
            stream.add(entries(1, now_ms() + HOUR_MS, ledger_id=10 + number))
            await stream.durable()
        await until(lambda: index.own_journal.records <= 10 and daemon.engine.catalog.stats().persists > 0)


async def test_what_was_on_its_way_to_the_disk_when_its_stream_ended_gets_into_the_log(
    start: StartDaemon, socket_path: Path
) -> None:
    """As when a broker is killed: it is written when nobody notes it for the log any more."""
    world, store = World(), FlakyStore()
    async with start(store=store) as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world)
        store.stick()
        client.streams[1].add(entries(5, now_ms() + HOUR_MS, ledger_id=2))
        await asyncio.to_thread(store.arrived.wait)
        await client.disconnect()
        await until(lambda: not daemon.engine.brokers)
        store.release()
        async with await ShimClient.connect(socket_path) as again:
            again.offer_logs(world)
            stream = await again.open(TOPIC, epoch=2)
            assert len(stream.held) == 95
            await until(lambda: up_to_date(daemon))
            assert len((await logged(world)).state.held) == 95


async def test_close_waits_for_no_next_log_that_cannot_be_begun(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The former log has all."""
    monkeypatch.setattr(stream_log, "LAST_WORDS_SECONDS", 3_600.0)

    async def no_bookie(_: MemoryHome) -> int:
        raise AwayError("no bookie")

    world = World()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        assert daemon.engine._logs is not None
        daemon.engine._logs.shipping.options = LogOptions(tail_bytes=1, tail_snapshots=0)
        await fill(client, daemon, world)
        monkeypatch.setattr(MemoryHome, "create", no_bookie)
        stream = client.streams[1]
        stream.add(entries(5, now_ms() + HOUR_MS, ledger_id=2))
        await stream.durable()
        await until(lambda: any("no bookie" in one.failure for one in daemon.engine.log_states()))
        await until(lambda: up_to_date(daemon))
        await asyncio.wait_for(stream.close(), 60)
        assert len((await logged(world)).state.held) == 95
