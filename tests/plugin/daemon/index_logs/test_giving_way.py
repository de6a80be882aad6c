"""An index that gives way to its log: its knowledge, its owner, and its own log."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest

from tests.plugin.daemon.index_logs.test_index_logs import (
    HOUR_MS,
    NAME,
    TOPIC,
    fill,
    logged,
    now_ms,
    up_to_date,
)
from tests.support.daemons import StartDaemon
from tests.support.log_answers import answered_by
from tests.support.shim_client import GENERATION, ClientStream, ShimClient, entries
from tests.support.stores import copied
from tests.support.waiting import until
from tidegate.index import UNCLAIMED, DelayIndex
from tidegate.index.format import keys
from tidegate.index.log.memory_home import World
from tidegate.index.state.positions import PositionSet
from tidegate.index.store import Batch, MemoryStore
from tidegate.plugin.errors import ErrorCode
from tidegate.plugin.wire.log_messages import LogAnswer, LogOp, LogRequest

BEGINS_ANEW_S = 1.2
"""A fenced log begins anew after half a second."""


def of_first(entry_ids: Iterable[int]) -> PositionSet:
    return PositionSet.of((1, entry_id) for entry_id in entry_ids)


def damage_held(store: MemoryStore) -> None:
    key, value = next(store.scan(*keys.kind_range(keys.HELD)))
    batch = Batch()
    batch.put(key, value[:-1] + bytes([value[-1] ^ 1]))
    store.write(batch, sync=True)


@pytest.mark.parametrize("reset", [False, True])
async def test_what_was_acknowledged_while_its_log_was_away_outlasts_damage(
    start: StartDaemon, socket_path: Path, reset: bool
) -> None:
    """The log is the better copy of the held positions, and older."""
    world, store = World(), MemoryStore()
    async with start(store=store) as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world)
        world.away = True
        stream = client.streams[1]
        stream.ack(of_first(range(10, 60)))
        await stream.durable()
        await until(lambda: any(one.failure for one in daemon.engine.log_states()))
        daemon.engine.catalog.persist(NAME)
    left = store.reopen()
    damage_held(left)
    world.away = False
    async with start(store=left) as daemon, await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        before = world.pointer
        stream = await client.open(TOPIC, epoch=2, generation=GENERATION + reset)
        assert len(stream.acknowledged) == (0 if reset else 60)
        assert len(stream.held) == (90 if reset else 40)
        await until(lambda: up_to_date(daemon) and world.pointer != before)
        assert len((await logged(world)).state.acknowledged) == (0 if reset else 60), "a new owner is told"


async def test_what_came_after_the_end_of_the_log_is_no_sign_of_a_pulsar_that_was_put_back(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    """An owner unknown to the log has acknowledged it."""
    world = World()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world)
    world.away = True
    async with start(), await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=2, claims=(1, 2), end=(1, 99))
        stream.add(entries(5, now_ms() + HOUR_MS, ledger_id=2))
        stream.ack(PositionSet.of([(2, 1), (2, 3)]))
        await stream.durable()
        await stream.close()
        world.away = False
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=2, claims=(1, 2), end=(1, 99))
        assert stream.held == of_first(range(10, 100))
        assert stream.acknowledged == PositionSet.of([*of_first(range(10)), (2, 1), (2, 3)])
    assert "put back" not in log.getvalue()


async def test_a_mark_delete_position_of_before_a_reset_is_no_sign_of_one_either(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    """The log has it, and not the reset's seal."""
    world = World()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world)
        client.streams[1].mark_delete(1, 50)
        await client.streams[1].durable()
        await until(lambda: up_to_date(daemon))
    world.away = True
    async with start(), await ShimClient.connect(socket_path) as client:
        open_reset = partial(client.open, TOPIC, generation=GENERATION + 1, mark_delete=(1, 20))
        client.offer_logs(world)
        stream = await open_reset(epoch=2)
        stream.ack(of_first(range(60, 70)))
        await stream.durable()
        await stream.close()
        world.away = False
        client.offer_logs(world)
        stream = await open_reset(epoch=3)
        assert stream.acknowledged == of_first(range(60, 70))
        assert stream.held == of_first([*range(51, 60), *range(70, 100)])
    assert "put back" not in log.getvalue()


async def test_what_a_later_owner_took_back_stays_taken_back(start: StartDaemon, socket_path: Path) -> None:
    """The topic comes back to a daemon with data older than the log; the cursor had refused one."""
    world, store = World(), MemoryStore()
    async with start(store=store) as daemon, await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=1, claims=(1,))
        stream.add(entries(100, now_ms() + HOUR_MS))
        stream.ack(of_first(range(10)))
        await stream.durable()
        await until(lambda: up_to_date(daemon))
        await stream.close()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=2, claims=(1, 2))
        assert stream.acknowledged == of_first(range(10))
        stream.unack(of_first([5]))
        stream.add(entries(1, now_ms() + HOUR_MS, first_entry=5))
        await stream.durable()
        await until(lambda: up_to_date(daemon))
        await stream.close()
    async with start(store=store.reopen()), await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=3, claims=(1, 2, 3))
        assert stream.held == of_first([5, *range(10, 100)])
        assert stream.acknowledged == of_first([*range(5), *range(6, 10)])


async def test_what_was_put_in_before_it_was_opened_gives_way_and_that_is_said(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    world = World()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world)
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        unclaimed = daemon.engine.catalog.subscription(NAME, UNCLAIMED)
        unclaimed.add(entries(7, now_ms() + HOUR_MS, ledger_id=5))
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=2)
        assert stream.held == of_first(range(10, 100)), "the broker reads what is missing"
    assert "the index log replaces entries put in" in log.getvalue()
    assert '"held": 7' in log.getvalue()


async def test_two_lives_of_a_subscription_are_told_apart_before_the_new_stream_begins(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    """The index of the one gives way to the log of the other: perhaps their brokers are of two clusters."""
    world = World()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world)
    async with (
        start(),
        await ShimClient.connect(socket_path, "one") as one,
        await ShimClient.connect(socket_path, "other") as other,
    ):
        stream = await one.open(TOPIC, incarnation=bytes(16 * [7]))
        stream.ack(of_first(range(50)))
        await stream.durable()
        other.offer_logs(world)
        assert (await other.open(TOPIC)).acknowledged == of_first(range(10)), "nothing of another life"
        assert (await stream.ended()).code == ErrorCode.STALE_EPOCH
    assert "two brokers serve different subscriptions of the same name" in log.getvalue()


@pytest.mark.parametrize("restarted", [False, True])
async def test_what_was_acknowledged_while_its_log_could_not_be_read_outlasts_it(
    start: StartDaemon, socket_path: Path, restarted: bool
) -> None:
    world, store = World(), MemoryStore()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world)
    world.away = True

    async def open_when_it_is_back(client: ShimClient) -> None:
        world.away = False
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=3)
        assert stream.acknowledged == of_first(range(60))
        assert stream.held == of_first(range(60, 100))

    async with start(store=store) as daemon, await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=2)
        assert not stream.held
        stream.add(entries(100, now_ms() + HOUR_MS))
        stream.ack(of_first(range(60)))
        await stream.durable()
        if not restarted:
            await stream.close()
            await open_when_it_is_back(client)
            return
    async with start(store=store.reopen()), await ShimClient.connect(socket_path) as client:
        await open_when_it_is_back(client)


async def test_what_outlasts_the_log_is_durable_with_what_came_of_it(
    start: StartDaemon, socket_path: Path
) -> None:
    """A kill right after the index has come, and the log away for good: the local data has all."""
    world, store = World(), MemoryStore()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world)
    world.away = True
    async with start(store=store) as daemon, await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=2)
        stream.ack(of_first(range(60)))
        await stream.durable()
        await stream.close()
        world.away = False
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=3)
        stream.add(entries(1, now_ms() + HOUR_MS, ledger_id=2))
        await stream.durable()
        left = copied(store)
    async with start(store=left), await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC, epoch=4)
        assert stream.acknowledged == of_first(range(60))


class Trace:
    """Requests to a broker about logs; some answers wait for a release."""

    def __init__(self, client: ShimClient) -> None:
        self.done: list[tuple[int, LogOp]] = []
        self.points = 0
        self.may_point = asyncio.Event()
        self.may_create = asyncio.Event()
        self._client = client
        client.answer_log = self._answer  # type: ignore[method-assign]

    def _answer(self, stream_id: int, seq: int, request: LogRequest) -> None:
        self._client.spawn(self._answered(stream_id, seq, request))

    async def _answered(self, stream_id: int, seq: int, request: LogRequest) -> None:
        if (stream_id, request.op) == (2, LogOp.CREATE):
            await self.may_create.wait()
        answered = await self._do(request)
        self.done.append((stream_id, request.op))
        if request.op is LogOp.POINT:
            self.points += 1
            if self.points == 2:
                await self.may_point.wait()
        self._client.send(answered, stream_id, seq)

    async def _do(self, request: LogRequest) -> LogAnswer:
        assert self._client.logs is not None
        return await answered_by(self._client.logs, request)


async def test_the_log_of_an_index_that_gave_way_is_not_begun_anew(
    start: StartDaemon, socket_path: Path
) -> None:
    """Its broker has a newer tracker beside the former one: an empty log would get the pointer, and the good
    one be deleted.
    """
    world = World()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        trace = Trace(client)
        former = await client.open(TOPIC)
        former.add(entries(100, now_ms() + HOUR_MS))
        former.ack(of_first(range(10)))
        await former.durable()
        await until(lambda: trace.points == 2)
        former.ack(of_first(range(10, 60)))
        await former.durable()
        newer = await client.open(TOPIC, epoch=2)
        assert newer.acknowledged == of_first(range(60)), "what was answered DURABLE"
        good = world.pointer
        trace.may_point.set()
        former.ack(of_first(range(60, 70)))
        await former.durable()
        await asyncio.sleep(BEGINS_ANEW_S)
        assert world.pointer == good
        assert (1, LogOp.DELETE) not in trace.done
        trace.may_create.set()
        newer.ack(of_first(range(70, 90)))
        await newer.durable()
        await until(lambda: up_to_date(daemon) and world.pointer != good)
        assert (await logged(world)).state.held == of_first(range(90, 100))
        # The former one's last words count, too.
        assert (await logged(world)).state.acknowledged == of_first(range(90))
        await former.close()
        again = await client.open(TOPIC, epoch=3)
        assert again.acknowledged == of_first(range(90))


async def test_a_broker_whose_index_gave_way_is_told_even_if_who_asked_for_it_is_gone(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds entries that the log lacks; nobody else would ever read them."""
    world = World()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await fill(client, daemon, world)
    async with (
        start() as daemon,
        await ShimClient.connect(socket_path, "lives") as lives,
        await ShimClient.connect(socket_path, "leaves") as leaves,
    ):
        stream = await lives.open(TOPIC, epoch=2)
        stream.add(entries(5, now_ms() + HOUR_MS, ledger_id=2))
        await stream.durable()
        catalog = daemon.engine.catalog
        adopt = catalog.adopt

        def adopt_and_leave(index: DelayIndex) -> None:
            adopt(index)
            daemon.engine.brokers["leaves"].fail(ErrorCode.SHUTTING_DOWN, "it leaves")

        monkeypatch.setattr(catalog, "adopt", adopt_and_leave)
        leaves.offer_logs(world)
        leaves.begin_open(TOPIC, epoch=2)
        assert (await stream.ended()).code == ErrorCode.STALE_EPOCH
        assert daemon.engine.ownership.get(NAME) is None
        again: ClientStream = await lives.open(TOPIC, epoch=3)
        assert of_first(range(10, 100)) == again.held, "it is told what there is"
        again.add(entries(5, now_ms(), ledger_id=2))
        assert len(await again.take_due(5)) == 5
