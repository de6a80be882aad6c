"""The daemon over a real socket: greeting, streams, credit, heartbeats, and every mistake of a client."""

from __future__ import annotations

import asyncio
import contextlib
import io
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyroaring import BitMap

from tests.support.daemons import StartDaemon
from tests.support.flaky_store import FlakyStore
from tests.support.golden_frames import BAD, golden_bytes, golden_error
from tests.support.shim_client import (
    GENERATION,
    INCARNATION,
    NO_POSITION,
    TIMEOUT_S,
    ClientStream,
    DaemonError,
    ShimClient,
    entries,
    random_incarnation,
)
from tests.support.stores import corrupt_blocks
from tests.support.waiting import until
from tidegate.index.clock import ManualClock
from tidegate.index.names import SubscriptionName
from tidegate.index.state.positions import PositionSet
from tidegate.index.store import MemoryStore
from tidegate.plugin.daemon import server as server_module
from tidegate.plugin.daemon.connection import Connection
from tidegate.plugin.daemon.listener import peer_uid, uid_allowed
from tidegate.plugin.errors import ErrorCode
from tidegate.plugin.wire.codec import decode, encode
from tidegate.plugin.wire.control_messages import Query
from tidegate.plugin.wire.frames import LENGTH_MAX, VERSION_MAX, VERSION_MIN, FrameDecoder
from tidegate.plugin.wire.messages import (
    NAME_BYTES_MAX,
    Add,
    Close,
    Credit,
    Due,
    Error,
    Held,
    Hello,
    Message,
    Open,
    Ping,
    Pong,
    Role,
    Unheld,
)

TOPIC = "persistent://public/default/orders"
HOUR_MS = 3_600_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def test_add_durable_due_ack(start: StartDaemon, socket_path: Path) -> None:
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC)
        assert not stream.held
        at = now_ms()
        stream.add(entries(5, at + 100, step_ms=20))
        stream.add(entries(5, at + HOUR_MS, ledger_id=2))
        await stream.durable()
        assert stream.durable_seq == 2
        due = await stream.take_due(5)
        assert list(due) == [(at + 100 + 20 * i, 1, i) for i in range(5)]
        assert now_ms() >= at + 180
        stream.ack(PositionSet.of_entries(due))
        await stream.durable()
        (index,) = daemon.engine.catalog
        assert len(index.state.held) == 5
        await stream.close()


async def test_due_comes_ahead_by_the_horizon(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC, horizon_ms=HOUR_MS)
        stream.add(entries(3, now_ms() + HOUR_MS - 1_000))
        assert len(await stream.take_due(3)) == 3


async def test_an_earlier_entry_wakes_the_timer(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC)
        stream.add(entries(1, now_ms() + HOUR_MS))
        await stream.durable()
        stream.add(entries(1, now_ms() + 30, first_entry=1))
        assert len(await stream.take_due(1)) == 1


async def test_what_was_handed_out_comes_again_after_a_reconnect_unless_in_flight(
    start: StartDaemon, socket_path: Path
) -> None:
    async with start():
        async with await ShimClient.connect(socket_path) as client:
            stream = await client.open(TOPIC)
            stream.add(entries(4, now_ms()))
            await stream.take_due(4)
            stream.ack(PositionSet.of([(1, 3)]))
            await stream.durable()
        async with await ShimClient.connect(socket_path) as client:
            stream = await client.open(TOPIC, in_flight=PositionSet.of([(1, 0)]))
            assert list(stream.held) == [(1, 0), (1, 1), (1, 2)]
            assert list(stream.acknowledged) == [(1, 3)]
            assert [entry_id for _, _, entry_id in await stream.take_due(2)] == [1, 2]


async def test_credit(start: StartDaemon, socket_path: Path) -> None:
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC, credit=3)
        stream.add(entries(10, now_ms()))
        await stream.durable()
        assert len(await stream.take_due(3)) == 3
        stream.add(entries(1, now_ms(), ledger_id=2))
        await stream.durable()
        assert stream.due_entries == 0
        stream.give_credit(4)
        assert [entry_id for _, _, entry_id in await stream.take_due(4)] == [3, 4, 5, 6]
        assert b"tidegate_credit_exhausted_total 2.0" in await daemon.exposition()


async def test_frames_may_follow_open_at_once(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        stream = client.begin_open(TOPIC)
        stream.add(entries(2, now_ms()))
        stream.give_credit(1)
        await stream.durable()
        assert stream.answered
        assert len(await stream.take_due(2)) == 2


async def test_close_is_answered_with_durable_and_close_and_the_index_stays(
    start: StartDaemon, socket_path: Path
) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC)
        stream.add(entries(2, now_ms() + HOUR_MS))
        await stream.close()
        assert stream.durable_seq == 2
        again = await client.open(TOPIC)
        assert len(again.held) == 2


async def test_a_recreated_subscription_starts_empty(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC)
        stream.add(entries(2, now_ms() + HOUR_MS))
        await stream.close()
        again = await client.open(TOPIC, incarnation=random_incarnation())
        assert not again.held


async def test_clear_forgets_everything(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC)
        stream.add(entries(20, now_ms() + HOUR_MS))
        stream.ack(PositionSet.of([(1, 1)]))
        stream.clear()
        await stream.close()
        again = await client.open(TOPIC)
        assert not again.held
        assert not again.acknowledged


async def test_a_great_held_set_comes_in_parts(start: StartDaemon, socket_path: Path) -> None:
    scattered = PositionSet.of_bitmaps({ledger_id: BitMap(range(0, 131_072, 4)) for ledger_id in range(100)})
    async with start(), await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC)
        for ledger_id, bitmap in scattered.items():
            stream.ack(PositionSet.of_bitmaps({ledger_id: bitmap}))
        await stream.close()
        again = await client.open(TOPIC)
        assert again.held_frames > 1
        assert again.acknowledged == scattered


async def test_two_thousand_streams_on_one_connection(start: StartDaemon, socket_path: Path) -> None:
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        streams = [client.begin_open(f"{TOPIC}-{number}", credit=100) for number in range(2_000)]
        at = now_ms() + 200
        for stream in streams:
            stream.add(entries(2, at))
        await client.drain()
        for stream in streams:
            await stream.durable()
            assert len(await stream.take_due(2)) == 2
        assert len(daemon.engine.ownership) == 2_000
        for stream in streams:
            stream.change(Close())
        for stream in streams:
            await stream.until(lambda stream=stream: stream.closed)  # type: ignore[misc]
        assert len(daemon.engine.ownership) == 0


class LazyReader:
    """A broker that sends HELLO and OPEN and reads nothing until `read`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self._reader = reader
        self._decoder = FrameDecoder()

    @classmethod
    async def connect(cls, path: Path) -> LazyReader:
        lazy = cls(*await asyncio.open_unix_connection(str(path), limit=1_024))
        lazy.writer.write(encode(Hello(VERSION_MIN, VERSION_MAX, Role.BROKER, "lazy", "pulsar")))
        return lazy

    def open(self, topic: str) -> None:
        request = Open(INCARNATION, 1, GENERATION, 0, 0, NO_POSITION, topic, "sub", PositionSet())
        self.writer.write(encode(request, 1))

    async def read(self, enough: Callable[[Message], bool]) -> list[Message]:
        """Messages on stream 1 until the one that is `enough`."""
        messages: list[Message] = []
        async with asyncio.timeout(TIMEOUT_S):
            while not any(enough(message) for message in messages):
                frames = self._decoder.feed(await self._reader.read(1 << 20))
                messages += [decode(frame) for frame in frames if frame.stream == 1]
        return messages


async def make_great_answer(client: ShimClient) -> ClientStream:
    """A subscription with an answer to OPEN larger than a socket takes."""
    stream = await client.open(TOPIC)
    for ledger_id in range(200):
        stream.ack(PositionSet.of_bitmaps({ledger_id: BitMap(range(0, 131_072, 4))}))
    await stream.durable()
    return stream


async def test_unheld_never_overtakes_held(start: StartDaemon, socket_path: Path) -> None:
    """A HELD from before the loss would make the broker skip the lost positions, for ever."""
    store = MemoryStore()
    async with (
        start(store=store, write_buffer_bytes=65_536, heartbeat_ms=60_000) as daemon,
        await ShimClient.connect(socket_path) as client,
    ):
        filled = await make_great_answer(client)
        neighbour = await client.open(f"{TOPIC}-2")
        for stream in (filled, neighbour):
            stream.add(entries(500, now_ms() + HOUR_MS, ledger_id=1_000))
        await neighbour.durable()
        await filled.close()
        lazy = await LazyReader.connect(socket_path)
        with contextlib.closing(lazy.writer):
            lazy.open(TOPIC)
            await until(lambda: "lazy" in daemon.engine.brokers)
            await until(lambda: not daemon.engine.brokers["lazy"].writable)
            indexes = list(daemon.engine.catalog)
            for index in indexes:
                daemon.engine.catalog.persist(index.name)
            corrupt_blocks(store)
            for index in indexes:
                index.timeline.pop_due(now_ms() + 2 * HOUR_MS, 1)
            await neighbour.until(lambda: len(neighbour.unheld) == 500)  # of the same round of upkeep
            messages = await lazy.read(lambda message: isinstance(message, Unheld))
        await lazy.writer.wait_closed()
    *answer, last, unheld = messages
    assert all(isinstance(message, Held) and not message.last for message in answer)
    assert isinstance(last, Held)
    assert last.last
    assert isinstance(unheld, Unheld)
    assert len(unheld.positions) == 500


async def test_the_answer_of_an_ended_stream_ends_with_it(start: StartDaemon, socket_path: Path) -> None:
    async with (
        start(write_buffer_bytes=65_536, heartbeat_ms=60_000) as daemon,
        await ShimClient.connect(socket_path) as client,
    ):
        await (await make_great_answer(client)).close()
        lazy = await LazyReader.connect(socket_path)
        with contextlib.closing(lazy.writer):
            lazy.open(TOPIC)
            await until(lambda: "lazy" in daemon.engine.brokers)
            await until(lambda: not daemon.engine.brokers["lazy"].writable)
            await client.open(TOPIC, epoch=2)
            before = await lazy.read(lambda message: isinstance(message, Error))
            lazy.open(f"{TOPIC}-2")
            after = await lazy.read(lambda message: isinstance(message, Held) and message.last)
        await lazy.writer.wait_closed()
    assert isinstance(before[-1], Error)
    assert not any(isinstance(message, Held) and message.last for message in before)
    assert after == [Held(PositionSet(), PositionSet(), last=True)]


async def test_a_client_that_does_not_read_stops_nobody_else_and_costs_bounded_memory(
    start: StartDaemon, socket_path: Path
) -> None:
    count = 400_000
    asked = Open(INCARNATION, 1, GENERATION, 0, count, NO_POSITION, TOPIC, "sub", PositionSet())
    async with start(write_buffer_bytes=65_536, heartbeat_ms=60_000) as daemon:
        async with await ShimClient.connect(socket_path, name="filler") as filler:
            stream = await filler.open(TOPIC, credit=0)
            for first in range(0, count, 100_000):
                stream.add(entries(100_000, now_ms(), first_entry=first))
            await stream.durable()
        reader, writer = await asyncio.open_unix_connection(str(socket_path), limit=1_024)
        async with await ShimClient.connect(socket_path, name="other") as other:
            with contextlib.closing(writer):
                writer.write(
                    encode(Hello(VERSION_MIN, VERSION_MAX, Role.BROKER, "lazy", "pulsar")) + encode(asked, 1)
                )
                (index,) = daemon.engine.catalog
                await until(lambda: index.stats().in_flight > 0)
                neighbour = await other.open(f"{TOPIC}-2")
                neighbour.add(entries(1, now_ms()))
                assert len(await neighbour.take_due(1)) == 1
                assert index.stats().in_flight < count / 4
                read_bytes = 0
                async with asyncio.timeout(TIMEOUT_S):
                    while read_bytes < count * 24:
                        read_bytes += len(await reader.read(1 << 20))
                assert index.stats().in_flight == count
            await writer.wait_closed()


# --- greeting ---------------------------------------------------------------------------------------------


async def test_the_greeting(start: StartDaemon, socket_path: Path) -> None:
    async with start(heartbeat_ms=1_234) as daemon, await ShimClient.connect(socket_path) as client:
        assert client.welcome is not None
        assert client.welcome.version == 7
        assert client.welcome.heartbeat_ms == 1_234
        assert client.welcome.daemon_id == daemon.engine.daemon_id
        assert client.welcome.product.startswith("tidegate ")


async def test_another_version_is_refused_with_both_ranges(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.raw(socket_path) as client:
        client.send(Hello(8, 10, Role.BROKER, "b", "p"))
        error = await client.ended()
        assert error is not None
        assert error.code == ErrorCode.VERSION
        assert "3 to 7" in error.message
        assert "8 to 10" in error.message


async def test_a_wider_range_agrees_on_the_common_version(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.raw(socket_path) as client:
        client.send(Hello(0, 9, Role.BROKER, "b", "p"))
        await client.until(lambda: client.welcome is not None)
        assert client.welcome is not None
        assert client.welcome.version == 7


async def test_nothing_is_accepted_before_hello(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.raw(socket_path) as client:
        client.send(Ping())
        error = await client.ended()
        assert error is not None
        assert error.code == ErrorCode.MALFORMED


async def test_a_peer_that_reports_an_error_is_let_go(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    """The peer has given the connection up: later frames would be lost."""
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await client.open(TOPIC)
        client.send(Error(ErrorCode.MALFORMED, "a frame makes no sense"))
        assert await client.ended() is None
        await until(lambda: not daemon.engine.brokers)
    assert "a frame makes no sense" in log.getvalue()


async def test_the_same_broker_again_replaces_its_old_connection(
    start: StartDaemon, socket_path: Path
) -> None:
    async with start() as daemon, await ShimClient.connect(socket_path, "b") as first:
        old = await first.open(TOPIC)
        old.add(entries(2, now_ms() + HOUR_MS))
        await old.durable()
        async with await ShimClient.connect(socket_path, "b") as second:
            error = await first.ended()
            assert error is not None
            assert error.code == ErrorCode.STALE_EPOCH
            stream = await second.open(TOPIC)
            assert len(stream.held) == 2
            stream.add(entries(1, now_ms(), ledger_id=5))
            assert len(await stream.take_due(1)) == 1
            assert list(daemon.engine.brokers) == ["b"]
            assert b"tidegate_reconnects_total 1.0" in await daemon.exposition()


# --- lost blocks, forgotten subscriptions, back-pressure ---------------------------------------------------


async def test_positions_of_a_corrupt_block_are_reported_unheld(
    start: StartDaemon, socket_path: Path
) -> None:
    store = MemoryStore()
    at = now_ms() + 1_500
    async with start(store=store, prefetch_ms=0) as daemon, await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC)
        stream.add(entries(500, at + HOUR_MS))
        await stream.durable()
        daemon.engine.catalog.persist(stream_name())
        corrupt_blocks(store)
        again = await client.open(TOPIC, horizon_ms=2 * HOUR_MS)
        assert len(again.held) == 500
        await again.until(lambda: len(again.unheld) == 500)
        assert again.due_entries == 0
        assert b"tidegate_quarantined_blocks 1.0" in await daemon.exposition()
        again.add(entries(500, at + HOUR_MS))  # read again by the broker
        assert len(await again.take_due(500)) == 500


def stream_name() -> SubscriptionName:
    return SubscriptionName(TOPIC, "sub")


async def test_an_unsubscribed_subscription_is_forgotten(start: StartDaemon, socket_path: Path) -> None:
    store = MemoryStore()
    async with start(store=store) as daemon, await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC, epoch=9)
        stream.add(entries(5, now_ms() + HOUR_MS))
        stream.clear()
        await stream.close()
        assert not list(daemon.engine.catalog)
        again = await client.open(TOPIC, epoch=1, incarnation=random_incarnation())
        again.add(entries(5, now_ms() + HOUR_MS))
        await again.close()
        assert len(list(daemon.engine.catalog)) == 1
    async with start(store=store.reopen()) as daemon:
        (index,) = daemon.engine.catalog
        assert len(index.state.held) == 5


async def test_reading_is_held_back_while_spilling_is_behind(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    store = FlakyStore()
    async with (
        start(store=store, staging_bytes=65_536, staging_bytes_max=131_072, maintain_interval_ms=20),
        await ShimClient.connect(socket_path) as client,
    ):
        stream = await client.open(TOPIC)
        store.stick()  # nothing can be spilled
        stream.add(entries(20_000, now_ms() + HOUR_MS, ledger_id=0))
        assert await asyncio.to_thread(store.arrived.wait, TIMEOUT_S)
        stream.add(entries(20_000, now_ms() + HOUR_MS, ledger_id=1))
        await until(lambda: "reading is held back" in log.getvalue())
        store.release()
        for number in range(2, 50):
            stream.add(entries(20_000, now_ms() + HOUR_MS, ledger_id=number))
            await client.drain()
        await stream.durable()
        stream.add(entries(1, now_ms(), ledger_id=99))
        assert list(PositionSet.of_entries(await stream.take_due(1))) == [(99, 0)]
    assert "reading goes on" in log.getvalue()


# --- epochs and take-over ---------------------------------------------------------------------------------


async def test_a_greater_epoch_takes_over_and_a_smaller_one_is_refused(
    start: StartDaemon, socket_path: Path
) -> None:
    async with (
        start(),
        await ShimClient.connect(socket_path, "a") as a,
        await ShimClient.connect(socket_path, "b") as b,
    ):
        old = await a.open(TOPIC, epoch=3)
        new = await b.open(TOPIC, epoch=4)
        assert (await old.ended()).code == ErrorCode.STALE_EPOCH
        old.add(entries(1, now_ms()))  # was on its way: dropped without a word
        with pytest.raises(DaemonError) as refused:
            await a.open(TOPIC, epoch=3)
        assert refused.value.code == ErrorCode.STALE_EPOCH
        new.add(entries(1, now_ms(), ledger_id=2))
        assert list(PositionSet.of_entries(await new.take_due(1))) == [(2, 0)]
        other = await a.open(f"{TOPIC}-2")
        await other.close()


async def test_what_a_former_stream_adds_and_the_broker_has_is_not_handed_out_on_its_successor(
    start: StartDaemon, socket_path: Path
) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        former = await client.open(TOPIC, epoch=1)
        stream = await client.open(TOPIC, epoch=2, in_flight=PositionSet.of([(1, 1)]))
        former.add(entries(3, now_ms()))
        assert list(PositionSet.of_entries(await stream.take_due(2))) == [(1, 0), (1, 2)]


async def test_brokers_of_two_clusters_with_one_topic_are_told_apart_in_the_log(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    async with (
        start(),
        await ShimClient.connect(socket_path, "a") as a,
        await ShimClient.connect(socket_path, "b") as b,
    ):
        one = await a.open(TOPIC, epoch=1, incarnation=random_incarnation())
        await b.open(TOPIC, epoch=1, incarnation=random_incarnation())
        assert (await one.ended()).code == ErrorCode.STALE_EPOCH
        assert "give each cluster its own daemon" in log.getvalue()


async def test_a_subscription_made_again_counts_its_epochs_anew(
    start: StartDaemon, socket_path: Path
) -> None:
    """Nobody told the daemon of the former life's end: it was away then."""
    async with start(), await ShimClient.connect(socket_path) as client:
        old = await client.open(TOPIC, epoch=57)
        old.add(entries(3, now_ms() + HOUR_MS))
        await old.durable()
        life = random_incarnation()
        new = await client.open(TOPIC, epoch=1, incarnation=life)
        assert not new.held
        with pytest.raises(DaemonError) as refused:
            await client.open(TOPIC, epoch=0, incarnation=life)
        assert refused.value.code == ErrorCode.STALE_EPOCH


async def test_of_two_lives_on_one_connection_the_one_that_is_replaced_is_told(
    start: StartDaemon, socket_path: Path
) -> None:
    """Epochs have no order among lives. One replaced in silence would wait for ever."""
    async with start(), await ShimClient.connect(socket_path) as client:
        life, former_life = random_incarnation(), random_incarnation()
        new = await client.open(TOPIC, epoch=2, incarnation=life)
        new.add(entries(1, now_ms() + HOUR_MS))
        await new.durable()
        former = await client.open(TOPIC, epoch=1, incarnation=former_life)
        assert (await new.ended()).code == ErrorCode.STALE_EPOCH
        again = await client.open(TOPIC, epoch=3, incarnation=life)
        assert (await former.ended()).code == ErrorCode.STALE_EPOCH
        again.add(entries(2, now_ms()))
        await again.take_due(2)


async def test_of_two_lives_on_one_connection_the_one_that_ends_is_let_end(
    start: StartDaemon, socket_path: Path
) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        former = await client.open(TOPIC)
        former.add(entries(2, now_ms() + HOUR_MS))
        former.change(Close())
        new = await client.open(TOPIC, incarnation=random_incarnation())
        await former.until(lambda: former.closed)
        assert not new.held


async def test_a_reset_of_the_cursor_while_the_daemon_was_away_takes_acknowledgements_back(
    start: StartDaemon, socket_path: Path
) -> None:
    store = MemoryStore()
    async with start(store=store), await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC, generation=1)
        stream.add(entries(3, now_ms() + HOUR_MS))
        stream.ack(PositionSet.of([(1, 1)]))
        await stream.durable()
    async with start(store=(store := store.reopen())), await ShimClient.connect(socket_path) as client:
        assert list((await client.open(TOPIC, generation=1)).acknowledged) == [(1, 1)]
    async with start(store=store.reopen()), await ShimClient.connect(socket_path) as client:
        again = await client.open(TOPIC, generation=2)
        assert not again.acknowledged
        assert list(again.held) == [(1, 0), (1, 2)]


async def test_a_reloaded_topic_takes_over_on_the_same_connection_and_late_acks_count(
    start: StartDaemon, socket_path: Path
) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        old = await client.open(TOPIC)
        old.add(entries(3, now_ms() + HOUR_MS))
        await old.durable()
        new = await client.open(TOPIC)
        old.ack(PositionSet.of([(1, 1)]))
        await old.close()
        new.add(entries(1, now_ms(), ledger_id=2))
        assert list(PositionSet.of_entries(await new.take_due(1))) == [(2, 0)]
        await new.close()
        assert list((await client.open(TOPIC)).acknowledged) == [(1, 1)]


async def test_what_a_former_stream_adds_wakes_the_one_that_hands_it_out(
    start: StartDaemon, socket_path: Path
) -> None:
    """Nothing else happens to the subscription: its only entry would wait for ever."""
    async with start(), await ShimClient.connect(socket_path) as client:
        old = await client.open(TOPIC)
        new = await client.open(TOPIC)
        old.add(entries(2, now_ms() + 100))
        await old.durable()
        due = await new.take_due(2)
        assert list(PositionSet.of_entries(due)) == [(1, 0), (1, 1)]
        assert not old.due


# --- what a client can do wrong ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", [path for path in BAD if golden_error(path) == 2], ids=lambda path: path.stem
)
async def test_a_malformed_frame_ends_the_connection_and_nothing_else(
    path: Path, start: StartDaemon, socket_path: Path
) -> None:
    async with start(), await ShimClient.connect(socket_path, "good") as good:
        stream = await good.open(TOPIC)
        async with await ShimClient.connect(socket_path, "bad") as bad:
            before = await bad.open(f"{TOPIC}-2", "bad")
            before.add(entries(2, now_ms() + HOUR_MS))
            bad.send_bytes(golden_bytes(path))
            error = await bad.ended()
            assert error is not None
            assert error.code == ErrorCode.MALFORMED
        async with await ShimClient.connect(socket_path, "bad") as bad:
            assert len((await bad.open(f"{TOPIC}-2", "bad")).held) == 2, "what came before it counts"
        stream.add(entries(1, now_ms()))
        assert len(await stream.take_due(1)) == 1


async def test_an_oversized_frame(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        client.send_bytes(struct.pack("<I", LENGTH_MAX + 1))
        error = await client.ended()
        assert error is not None
        assert error.code == ErrorCode.OVERSIZED


async def test_a_torn_frame_at_the_end_of_a_connection_is_dropped(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    async with start():
        async with await ShimClient.connect(socket_path) as client:
            stream = await client.open(TOPIC)
            stream.add(entries(1, now_ms() + HOUR_MS))
            await stream.durable()
            client.send_bytes(
                encode(Add(entries(1, now_ms(), first_entry=1), near=False), stream.stream_id, 2)[:-1]
            )
        async with await ShimClient.connect(socket_path, "next") as client:
            assert list((await client.open(TOPIC)).held) == [(1, 0)]
    assert "inside a frame" in log.getvalue()


@pytest.mark.parametrize("seq", [1, 3])
async def test_a_seq_out_of_order(seq: int, start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC)
        stream.add(entries(1, now_ms() + HOUR_MS))
        client.send(Add(entries(1, now_ms(), first_entry=1), near=False), stream.stream_id, seq)
        error = await client.ended()
        assert error is not None
        assert error.code == ErrorCode.OUT_OF_ORDER


async def test_an_unknown_stream_is_told_so_and_the_connection_stays(
    start: StartDaemon, socket_path: Path
) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        stranger = client.streams[99] = ClientStream(client, 99, 0)
        client.send(Credit(1), 99)
        assert (await stranger.ended()).code == ErrorCode.UNKNOWN_STREAM
        await (await client.open(TOPIC)).close()


@pytest.mark.parametrize("too_long", ["topic", "subscription"])
async def test_a_name_that_is_none_ends_its_stream_and_nothing_else(
    too_long: str, start: StartDaemon, socket_path: Path
) -> None:
    longest = "ß" * (NAME_BYTES_MAX // 2)

    def names(name: str) -> tuple[str, str]:
        return (name, "sub") if too_long == "topic" else (TOPIC, name)

    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        stream = await client.open(*names(longest))
        with pytest.raises(DaemonError, match=f"MALFORMED: its {too_long} has 8193 bytes, at most 8192"):
            await client.open(*names(longest + "s"))
        stream.add(entries(1, now_ms() + HOUR_MS))
        await stream.durable()
        assert len(daemon.engine.catalog) == 1


async def test_a_broker_with_a_name_that_is_none(start: StartDaemon, socket_path: Path) -> None:
    async with start() as daemon:
        client = await ShimClient.raw(socket_path)
        async with client:
            client.send(Hello(VERSION_MIN, VERSION_MAX, Role.BROKER, "b" * 60_000, "pulsar"))
            error = await client.ended()
            assert error is not None
            assert error.code == ErrorCode.MALFORMED
        assert not daemon.engine.brokers


async def test_opening_an_open_stream_again(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        await client.open(TOPIC)
        client.begin_open(f"{TOPIC}-2", stream_id=1)
        error = await client.ended()
        assert error is not None
        assert error.code == ErrorCode.ALREADY_OPEN


@pytest.mark.parametrize("role", Role)
async def test_a_frame_that_is_not_for_this_role(role: Role, start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.connect(socket_path, role=role) as client:
        if role == Role.BROKER:
            client.send(Query(b"{}"), 0, 1)
        else:
            client.begin_open(TOPIC)
        error = await client.ended()
        assert error is not None
        assert error.code == ErrorCode.MALFORMED


async def test_a_frame_that_only_the_daemon_sends(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        client.send(Due(entries(1, 0)), 1)
        error = await client.ended()
        assert error is not None
        assert error.code == ErrorCode.MALFORMED


async def test_another_users_process_is_turned_away(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch, log: io.StringIO
) -> None:
    monkeypatch.setattr(server_module, "uid_allowed", lambda uid: False)
    async with start(), await ShimClient.raw(socket_path) as client:
        with contextlib.suppress(ConnectionError):
            client.send(Hello(1, 1, Role.BROKER, "b", "p"))
        assert await client.ended() is None
        assert client.welcome is None
    assert "another user" in log.getvalue()


def test_the_kernel_tells_the_peers_uid() -> None:
    here, there = socket.socketpair()
    with here, there:
        assert uid_allowed(peer_uid(here))
    assert not uid_allowed(2**31 - 7)


# --- heartbeats -------------------------------------------------------------------------------------------


async def test_ping_is_answered_with_its_seq(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        client.send(Ping(), 0, 77)
        await client.until(lambda: (Pong(), 77) in client.received)


async def test_a_silent_client_is_closed_and_one_that_answers_is_not(
    start: StartDaemon, socket_path: Path
) -> None:
    async with (
        start(heartbeat_ms=100),
        await ShimClient.connect(socket_path, "silent") as silent,
        await ShimClient.connect(socket_path, "alive") as alive,
    ):
        silent.silent = True
        assert await silent.ended() is None
        assert (Ping(), 0) in silent.received
        await alive.until(lambda: len(alive.received) >= 8)
        assert not alive.closed


async def test_what_the_daemon_itself_is_late_is_no_silence_of_a_client(
    start: StartDaemon, socket_path: Path
) -> None:
    clock = ManualClock(now_ms())
    async with start(clock=clock, heartbeat_ms=100), await ShimClient.connect(socket_path) as client:
        for pings in range(1, 4):
            clock.advance(60_000)
            await client.until(lambda pings=pings: len(client.received) >= pings)  # type: ignore[misc]


# --- shutting down ----------------------------------------------------------------------------------------


async def test_stopping_tells_everyone_and_loses_nothing(start: StartDaemon, socket_path: Path) -> None:
    store = MemoryStore()
    async with start(store=store):
        client = await ShimClient.connect(socket_path)
        stream = await client.open(TOPIC)
        stream.add(entries(3, now_ms() + HOUR_MS))
        await stream.durable()
    error = await client.ended()
    assert error is not None
    assert error.code == ErrorCode.SHUTTING_DOWN
    await client.disconnect()
    assert not socket_path.exists()
    assert stream.durable_seq == 1


async def test_the_mark_delete_position_of_the_cursor(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC, mark_delete=NO_POSITION)
        stream.add(entries(4, now_ms() + HOUR_MS))
        stream.ack(PositionSet.of([(1, 2)]))
        stream.mark_delete(1, 2)
        await stream.close()
        again = await client.open(TOPIC, mark_delete=(1, 2))
        assert list(again.held) == [(1, 3)]
        assert not again.acknowledged


async def test_the_last_words_of_a_killed_broker_count(start: StartDaemon, socket_path: Path) -> None:
    """A write to a dead peer ends the connection at once; the peer's last frames must not go with it."""
    async with start() as daemon:
        client = await ShimClient.connect(socket_path)
        stream = await client.open(TOPIC)
        stream.add(entries(100, now_ms() + HOUR_MS))
        await stream.durable()
        (connection,) = daemon.engine.brokers.values()
        assert isinstance(connection, Connection)
        connection.pause_writing()  # so that it reads no more
        acknowledged = PositionSet.of((1, number) for number in range(60))
        stream.ack(acknowledged)
        await client.drain()
        await client.disconnect()
        connection.send(Ping())
        await connection.lost
        (index,) = daemon.engine.catalog
        assert index.state.acknowledged == acknowledged
        assert len(index.state.held) == 40


async def test_a_fault_at_the_end_of_a_connection_does_not_keep_the_daemon(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start() as daemon:
        client = await ShimClient.connect(socket_path)
        await client.open(TOPIC)
        (connection,) = daemon.engine.brokers.values()
        assert isinstance(connection, Connection)
        monkeypatch.setattr(daemon.engine, "gone", lambda _: 1 / 0)
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        await client.disconnect()
        await asyncio.wait_for(connection.lost, TIMEOUT_S)
