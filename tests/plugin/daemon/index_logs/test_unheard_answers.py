"""Requests executed by an index log's home while the daemon gets no answer."""

from __future__ import annotations

import asyncio
import io
import time
from pathlib import Path

import pytest

from tests.support.daemons import StartDaemon
from tests.support.log_answers import answered_by
from tests.support.shim_client import GENERATION, ClientStream, ShimClient, entries
from tests.support.stores import CrashStore, copied
from tests.support.waiting import until
from tidegate.index.log import AwayError, LogOptions, Pointer, RefusedError
from tidegate.index.log.memory_home import MemoryHome, World
from tidegate.index.state.positions import PositionSet
from tidegate.plugin.daemon import retention
from tidegate.plugin.daemon.index_logs import stream_log
from tidegate.plugin.daemon.serve import RunningDaemon
from tidegate.plugin.wire.log_messages import LogOp, LogRequest

TOPIC = "persistent://public/default/orders"
HOUR_MS = 3_600_000
RESTORED = "the index was restored from its log"


def later_ms() -> int:
    return time.time_ns() // 1_000_000 + HOUR_MS


def ledger_of(text: str) -> int:
    pointer = Pointer.parse(text)
    return -1 if pointer is None else pointer.ledger_id


def up_to_date(daemon: RunningDaemon) -> bool:
    states = daemon.engine.log_states()
    return bool(states) and all(one.ledger_id >= 0 and not one.lag_seconds for one in states)


class Unheard(MemoryHome):
    """Once `deaf`, it changes the ledger that counts, and is away before its answer."""

    deaf = False

    async def point(self, old: str, new: str) -> None:
        await super().point(old, new)
        if self.deaf and ledger_of(old) != ledger_of(new):
            self.world.away = True
            raise AwayError("nobody has heard what became of it")


async def test_who_has_not_heard_that_its_log_counts_takes_it_for_nobody_elses(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    """Killed after it, and back at the same daemon: DURABLE entries since are held, and revoked positions not
    known acknowledged.
    """
    world, store = World(), CrashStore()
    async with start(store=store) as daemon, await ShimClient.connect(socket_path) as client:
        assert daemon.engine._logs is not None
        daemon.engine._logs.shipping.options = LogOptions(tail_bytes=1, tail_snapshots=0)
        client.logs = world.owner = home = Unheard(world)
        stream = await client.open(TOPIC)
        stream.add(entries(10, later_ms()))
        stream.ack(PositionSet.of([(1, 0), (1, 1)]))
        await stream.durable()
        await until(lambda: up_to_date(daemon))
        home.deaf = True
        former = ledger_of(world.pointer)
        stream.add(entries(1, later_ms(), ledger_id=2))
        await until(lambda: world.away)
        assert ledger_of(world.pointer) != former
        stream.add(entries(5, later_ms(), ledger_id=3))
        stream.unack(PositionSet.of([(1, 1)]))
        await stream.durable()
        left = copied(store.durable)
    world.away = False
    async with start(store=left), await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=2)
        assert len([each for each in stream.held if each[0] == 3]) == 5
        assert list(stream.acknowledged) == [(1, 0)]
    assert RESTORED not in log.getvalue()


async def test_a_ledger_of_another_owner_is_read_all_the_same(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    """One that may count lacks later ones."""
    world, store = World(), CrashStore()
    async with start(store=store) as daemon, await ShimClient.connect(socket_path) as client:
        client.logs = world.owner = home = Unheard(world)
        home.deaf = True
        stream = await client.open(TOPIC)
        stream.add(entries(10, later_ms()))
        await stream.durable()
        await until(lambda: world.away)
        left = copied(store.durable)
        world.away = False
        home.deaf = False
        await until(lambda: up_to_date(daemon))
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=2)
        stream.add(entries(5, later_ms(), ledger_id=2))
        await stream.close()
    async with start(store=left), await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        assert len((await client.open(TOPIC, epoch=3)).held) == 15
    assert log.getvalue().count(RESTORED) == 2


class Late(MemoryHome):
    """Once it `waits`, it changes the ledger that counts when it `may_point`. `refuses`: to read."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.waits = self.refuses = False
        self.is_asked = asyncio.Event()
        self.may_point = asyncio.Event()
        self.has_pointed = asyncio.Event()

    async def point(self, old: str, new: str) -> None:
        waited = self.waits and ledger_of(old) != ledger_of(new)
        if waited:
            self.waits = False
            self.is_asked.set()
            await self.may_point.wait()
        await super().point(old, new)
        if waited:
            self.has_pointed.set()

    async def read(self, ledger_id: int, first: int, last: int) -> list[bytes]:
        if self.refuses:
            raise RefusedError("not now")
        return await super().read(ledger_id, first, last)


async def left_amid_a_pointer(client: ShimClient, world: World) -> Late:
    """The home of a subscription with its stream ended, empty, and a pointer on its way."""
    client.logs = world.owner = home = Late(world)
    home.waits = True
    stream = await client.open(TOPIC)
    stream.add(entries(1, later_ms()))
    await home.is_asked.wait()
    stream.mark_delete(1, 0)
    await stream.close()
    return home


async def test_a_pointer_that_comes_after_its_stream_names_a_log_of_the_index_that_goes_on(
    start: StartDaemon, socket_path: Path, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index is empty when the stream ends, and is opened again, under another seal."""
    monkeypatch.setattr(stream_log, "LAST_WORDS_SECONDS", 0.01)
    world = World()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        home = await left_amid_a_pointer(client, world)
        stream = await client.open(TOPIC, generation=GENERATION + 1, mark_delete=(1, 0))
        home.may_point.set()
        await home.has_pointed.wait()
        stream.add(entries(10, later_ms(), ledger_id=2))
        stream.ack(PositionSet.of([(2, 0)]))
        await stream.durable()
        await until(lambda: up_to_date(daemon))
        await stream.close()
        stream = await client.open(TOPIC, epoch=2, generation=GENERATION + 1, mark_delete=(1, 0))
        assert (len(stream.held), list(stream.acknowledged)) == (9, [(2, 0)])
    pointer = Pointer.parse(world.pointer)
    assert pointer is not None
    assert world.ledgers.keys() == {pointer.ledger_id}, "the log that came late is deleted"
    assert RESTORED not in log.getvalue()


async def test_a_pointer_that_comes_after_its_index_gave_way_names_nothing_new(
    start: StartDaemon, socket_path: Path, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon could not read the log and began its own; the next OPEN has it read the former after all."""
    world = World()
    async with start(), await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC)
        stream.add(entries(10, later_ms()))
        await stream.close()
    monkeypatch.setattr(stream_log, "LAST_WORDS_SECONDS", 0.01)
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        client.logs = world.owner = home = Late(world)
        home.refuses = home.waits = True
        stream = await client.open(TOPIC, epoch=2)
        assert not stream.held
        stream.add(entries(5, later_ms()))
        await home.is_asked.wait()
        await stream.close()
        home.refuses = False
        stream = await client.open(TOPIC, epoch=2)
        assert len(stream.held) == 10
        home.may_point.set()
        await home.has_pointed.wait()
        stream.ack(PositionSet.of([(1, 9)]))
        stream.add(entries(7, later_ms(), ledger_id=2))
        await stream.durable()
        await client.disconnect()
        await until(lambda: not daemon.engine.log_states())
        async with await ShimClient.connect(socket_path) as again:
            again.offer_logs(world)
            stream = await again.open(TOPIC, epoch=3)
            assert len(stream.held) == 16
    assert log.getvalue().count(RESTORED) == 1


async def test_an_empty_index_to_whose_log_a_pointer_may_come_is_forgotten_later(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_log, "LAST_WORDS_SECONDS", 0.01)
    monkeypatch.setattr(retention, "KEPT_NS", 1_000_000_000)
    world = World()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await left_amid_a_pointer(client, world)
        assert len(daemon.engine.catalog) == 1
        await until(lambda: not len(daemon.engine.catalog))


class NoMoreLedgers(MemoryHome):
    """A home without room for another ledger."""

    full = False

    async def create(self) -> int:
        if self.full:
            raise AwayError("no bookie has room")
        return await super().create()


async def test_a_log_that_counts_is_followed_in_the_pauses_between_failing_beginnings(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_log, "RETRY_FIRST_S", 3_600.0)
    monkeypatch.setattr(stream_log, "RETRY_MAX_S", 3_600.0)
    world = World()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        assert daemon.engine._logs is not None
        daemon.engine._logs.shipping.options = LogOptions(tail_bytes=1, tail_snapshots=0)
        client.logs = world.owner = home = NoMoreLedgers(world)
        stream = await client.open(TOPIC)
        stream.add(entries(10, later_ms()))
        await stream.durable()
        await until(lambda: up_to_date(daemon))
        home.full = True
        counting = ledger_of(world.pointer)
        for ledger_id in (2, 3, 4):
            stream.add(entries(5, later_ms(), ledger_id=ledger_id))
            await stream.durable()
            await until(lambda: any(one.failure for one in daemon.engine.log_states()))
            await until(lambda: up_to_date(daemon))
        assert ledger_of(world.pointer) == counting
    async with start(), await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        assert len((await client.open(TOPIC, epoch=2)).held) == 25


class OneHomeEach(ShimClient):
    """A broker with a home for each stream, which makes ledgers on command.

    makers: streams with one being made; makers_max: the most at a time.
    """

    def prepare(self) -> None:
        self.homes: dict[int, MemoryHome] = {}
        self.may_make = asyncio.Event()
        self.may_make.set()
        self.makers: set[int] = set()
        self.makers_max = 0

    def answer_log(self, stream_id: int, seq: int, request: LogRequest) -> None:
        async def answer() -> None:
            if request.op is LogOp.CREATE:
                self.makers.add(stream_id)
                self.makers_max = max(self.makers_max, len(self.makers))
                await self.may_make.wait()
                self.makers.discard(stream_id)
            self.send(await answered_by(self.homes[stream_id], request), stream_id, seq)

        self.spawn(answer())


async def answered(stream: ClientStream) -> None:
    await stream.until(lambda: stream.answered)


async def test_logs_that_have_grown_too_long_are_begun_anew_in_turn_and_followed_meanwhile(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few beginnings at a time: each costs the home more than its size suggests. A waiting one loses
    nothing.
    """
    monkeypatch.setattr(stream_log, "BEGINNINGS_MAX", 2)
    worlds = [World() for _ in range(4)]
    async with start() as daemon, await OneHomeEach.connect(socket_path) as client:
        assert daemon.engine._logs is not None
        client.prepare()
        for number, world in enumerate(worlds, 1):
            client.logs = client.homes[number] = world.new_owner()
            stream = client.begin_open(f"{TOPIC}-{number}", stream_id=number)
            await answered(stream)
            stream.add(entries(10, later_ms()))
            await stream.durable()
        await until(lambda: up_to_date(daemon))
        client.makers_max = 0
        client.may_make.clear()
        counting = [ledger_of(world.pointer) for world in worlds]
        daemon.engine._logs.shipping.options = options = LogOptions(tail_bytes=1, tail_snapshots=0)
        for log in daemon.engine._logs._by_id.values():
            log.writer._options = options
        for stream in client.streams.values():
            stream.add(entries(5, later_ms(), ledger_id=2))
            await stream.durable()
        await until(lambda: len(client.makers) == 2)
        # Two are beginning the next one, two wait for that: their logs get the streams' changes nevertheless.
        waiting = client.streams.keys() - client.makers
        logs = daemon.engine._logs._by_id.values()
        queued = [log.writer for log in logs if log.stream.session.stream_id in waiting]
        for ledger_id in (3, 4):
            for stream_id in waiting:
                client.streams[stream_id].add(entries(5, later_ms(), ledger_id=ledger_id))
                await client.streams[stream_id].durable()
            await until(lambda: all(writer.since_ns is None for writer in queued))
        assert [ledger_of(world.pointer) for world in worlds] == counting
        client.may_make.set()
        await until(lambda: all(ledger_of(world.pointer) not in counting for world in worlds))
        assert client.makers_max == 2
