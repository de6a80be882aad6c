"""A log's index beside local data with other knowledge: the later owner's word counts."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest

from tests.plugin.daemon.index_logs.test_giving_way import Trace, damage_held, of_first
from tests.plugin.daemon.index_logs.test_index_logs import HOUR_MS, NAME, TOPIC, now_ms, up_to_date
from tests.support.daemons import StartDaemon
from tests.support.shim_client import GENERATION, NO_POSITION, ClientStream, ShimClient, entries
from tests.support.stores import corrupt_blocks
from tests.support.waiting import until
from tidegate.index import Chain, DelayIndex
from tidegate.index.log.memory_home import World
from tidegate.index.store import MemoryStore
from tidegate.plugin.daemon.index_logs import restorer
from tidegate.plugin.daemon.serve import RunningDaemon
from tidegate.plugin.wire.messages import Ack

BUT_5 = [*range(5), *range(6, 10)]


async def first_owner(
    client: ShimClient, daemon: RunningDaemon, world: World, *, mark_delete: tuple[int, int] = NO_POSITION
) -> ClientStream:
    """100 entries in the log, 10 of them acknowledged."""
    client.offer_logs(world)
    stream = await client.open(TOPIC, claims=(1,), mark_delete=mark_delete)
    stream.add(entries(100, now_ms() + HOUR_MS))
    stream.ack(of_first(range(10)))
    await stream.durable()
    await until(lambda: up_to_date(daemon))
    return stream


async def second_owner(
    client: ShimClient, daemon: RunningDaemon, world: World, *, mark_delete: tuple[int, int] = NO_POSITION
) -> ClientStream:
    """On another machine: the log is then the better copy."""
    client.offer_logs(world)
    stream = await client.open(TOPIC, epoch=2, claims=(1, 2), mark_delete=mark_delete)
    stream.ack(of_first(range(10, 20)))
    await stream.durable()
    await until(lambda: up_to_date(daemon))
    await stream.close()
    return stream


def take_back_5(stream: ClientStream) -> None:
    """The cursor refuses to delete it, and it is read again."""
    stream.unack(of_first([5]))
    stream.add(entries(1, now_ms() + HOUR_MS, first_entry=5))


async def test_what_a_later_owner_than_the_log_took_back_stays_taken_back(
    start: StartDaemon, socket_path: Path
) -> None:
    world, store = World(), MemoryStore()
    async with start(store=store) as daemon, await ShimClient.connect(socket_path) as client:
        await (await first_owner(client, daemon, world)).close()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await second_owner(client, daemon, world)
    async with start(store=store.reopen()), await ShimClient.connect(socket_path) as client:
        world.away = True
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=3, claims=(1, 2, 3))
        assert stream.acknowledged == of_first(range(10))
        take_back_5(stream)
        await stream.durable()
        await stream.close()
        world.away = False
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=4, claims=(1, 2, 3, 4))
        assert stream.acknowledged == of_first(BUT_5)  # 10 to 19 it had as held when the log was away


async def test_what_was_taken_back_before_its_log_counted_stays_taken_back(
    start: StartDaemon, socket_path: Path
) -> None:
    """One daemon, one broker, and a written pointer without an answer."""
    world = World()
    async with start(), await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        trace = Trace(client)
        former = await client.open(TOPIC, claims=(1,))
        former.add(entries(100, now_ms() + HOUR_MS))
        former.ack(of_first(range(10)))
        await former.durable()
        await until(lambda: trace.points == 2)
        take_back_5(former)
        await former.durable()
        newer = await client.open(TOPIC, epoch=2, claims=(1, 2))
        trace.may_point.set()
        trace.may_create.set()
        assert newer.acknowledged == of_first(BUT_5)


@pytest.mark.parametrize("starts", [1, 2])
async def test_damaged_data_that_a_stream_has_gone_on_with_is_believed(
    start: StartDaemon, socket_path: Path, log: io.StringIO, starts: int
) -> None:
    world, store = World(), MemoryStore()
    async with start(store=store) as daemon, await ShimClient.connect(socket_path) as client:
        await first_owner(client, daemon, world)
        daemon.engine.catalog.persist(NAME)
    left = store.reopen()
    damage_held(left)
    world.away = True
    for _ in range(1, starts):
        async with start(store=left):
            pass
        left = left.reopen()
    async with start(store=left), await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=2, claims=(1, 2))
        assert not stream.held
        stream.add(entries(100, now_ms() + HOUR_MS))  # read from the topic again
        stream.add(entries(50, now_ms() + HOUR_MS, ledger_id=2))
        await stream.durable()
        await stream.close()
        world.away = False
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=3, claims=(1, 2, 3))
        assert len(stream.held) == 140
    assert "the index was restored from its log" not in log.getvalue()


async def test_acknowledgements_that_count_no_more_are_said(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    """Their log was away, and a later owner on another machine knew nothing of them."""
    world, store = World(), MemoryStore()
    async with start(store=store) as daemon, await ShimClient.connect(socket_path) as client:
        stream = await first_owner(client, daemon, world)
        world.away = True
        stream.ack(of_first(range(20, 60)))
        await stream.durable()
    world.away = False
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await second_owner(client, daemon, world)
    async with start(store=store.reopen()), await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=3, claims=(1, 2, 3))
        assert stream.acknowledged == of_first(range(20))
    assert '"forgotten": 40' in log.getvalue()
    assert "a later owner wrote the log" in log.getvalue()


@pytest.mark.parametrize("damaged", [False, True])
async def test_a_reset_that_the_local_data_shows_takes_back_what_the_log_says(
    start: StartDaemon, socket_path: Path, damaged: bool
) -> None:
    """A seek amid an unload leaves the seal. The log, which is behind, would have it all deleted again."""
    world, store = World(), MemoryStore()
    async with start(store=store) as daemon, await ShimClient.connect(socket_path) as client:
        stream = await first_owner(client, daemon, world, mark_delete=(1, 2))
        world.away = True
        stream.mark_delete(1, 30)
        await stream.durable()
        daemon.engine.catalog.persist(NAME)
    left = store.reopen()
    if damaged:
        damage_held(left)
    world.away = False
    async with start(store=left), await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=2, claims=(1, 2), mark_delete=(1, 2))
        assert not stream.acknowledged


async def test_such_a_reset_counts_for_the_log_of_another_machine_too(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    world, store = World(), MemoryStore()
    async with start(store=store) as daemon, await ShimClient.connect(socket_path) as client:
        await (await first_owner(client, daemon, world, mark_delete=(1, 2))).close()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await second_owner(client, daemon, world, mark_delete=(1, 2))
    async with start(store=store.reopen()), await ShimClient.connect(socket_path) as client:
        world.away = True
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=3, claims=(1, 2, 3), mark_delete=(1, 2))
        stream.mark_delete(1, 30)
        await stream.durable()
        await stream.close()
        world.away = False
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=4, claims=(1, 2, 3, 4), mark_delete=(1, 2))
        assert not stream.acknowledged
    assert "none of its acknowledgements counts" in log.getvalue()


@pytest.mark.parametrize("damaged", [False, True])
async def test_a_reset_that_the_log_shows_takes_back_what_the_local_data_says(
    start: StartDaemon, socket_path: Path, damaged: bool
) -> None:
    """Another machine has reported a later mark-delete position; then the same kind of seek."""
    world, store = World(), MemoryStore()
    async with start(store=store) as daemon, await ShimClient.connect(socket_path) as client:
        stream = await first_owner(client, daemon, world, mark_delete=(1, 2))
        daemon.engine.catalog.persist(NAME)
        await stream.close()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=2, claims=(1, 2), mark_delete=(1, 2))
        stream.mark_delete(1, 30)
        await stream.durable()
        await until(lambda: up_to_date(daemon))
        await stream.close()
    left = store.reopen()
    if damaged:
        damage_held(left)
    async with start(store=left), await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=3, claims=(1, 2, 3), mark_delete=(1, 2))
        assert not stream.acknowledged


@pytest.mark.parametrize("away", [False, True])
async def test_a_claim_that_shows_a_backup_takes_back_what_the_other_says(
    start: StartDaemon, socket_path: Path, away: bool
) -> None:
    """Pulsar returns to the time of the first owner, before its acknowledgements.

    The second owner's claim is in the log, or in the local data if the log was away.
    """
    world, store = World(), MemoryStore()
    async with start(store=store) as daemon, await ShimClient.connect(socket_path) as client:
        await (await first_owner(client, daemon, world)).close()
    left = store.reopen()
    if away:
        world.away = True
        async with start(store=left) as daemon, await ShimClient.connect(socket_path) as client:
            client.offer_logs(world)
            stream = await client.open(TOPIC, epoch=2, claims=(1, 2))
            stream.ack(of_first(range(10, 60)))
            await stream.durable()
            daemon.engine.catalog.persist(NAME)
        left = left.reopen()
        damage_held(left)
        world.away = False
    else:
        async with start() as daemon, await ShimClient.connect(socket_path) as client:
            await second_owner(client, daemon, world)
    async with start(store=left), await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=2, claims=(1, 99))
        assert not stream.acknowledged


async def test_a_move_there_and_back_says_nothing_of_what_mark_delete_has_passed(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    world, store = World(), MemoryStore()
    async with start(store=store) as daemon, await ShimClient.connect(socket_path) as client:
        stream = await first_owner(client, daemon, world, mark_delete=(1, 2))
        stream.ack(of_first(range(20, 60)))
        await stream.durable()
        await until(lambda: up_to_date(daemon))
        await stream.close()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=2, claims=(1, 2), mark_delete=(1, 2))
        stream.ack(of_first(range(10, 20)))
        stream.mark_delete(1, 59)
        await stream.durable()
        await until(lambda: up_to_date(daemon))
        await stream.close()
    async with start(store=store.reopen()), await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=3, claims=(1, 2, 3), mark_delete=(1, 59))
        assert stream.held == of_first(range(60, 100))
    assert "do not count" not in log.getvalue()


async def test_an_index_that_was_taken_in_is_not_given_up_for_a_bug(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, store = World(), MemoryStore()
    async with start(store=store) as daemon, await ShimClient.connect(socket_path) as client:
        await (await first_owner(client, daemon, world)).close()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await second_owner(client, daemon, world)

    def bug(*_: object) -> None:
        raise RuntimeError("a bug")

    left = store.reopen()
    with monkeypatch.context() as patched:
        patched.setattr(restorer, "take_over", bug)
        async with start(store=left), await ShimClient.connect(socket_path) as client:
            client.offer_logs(world)
            stream = await client.open(TOPIC, epoch=3, claims=(1, 2, 3))
            stream.ack(of_first(range(20, 30)))
            await stream.durable()
    async with start(store=left.reopen()) as daemon:
        index = daemon.engine.catalog.get(NAME)
        assert index is not None
        assert index.state.acknowledged == of_first(range(30))


async def test_whole_local_data_does_not_give_way_to_a_log_of_another_history(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    """That would be emptied at once. Here it is too old to be compared."""
    world = World()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await (await first_owner(client, daemon, world)).close()
    world.away = True
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=2, claims=(1, 2))
        stream.add(entries(100, now_ms() + HOUR_MS))
        stream.ack(of_first(range(60)))
        await stream.durable()
        await stream.close()
        for epoch in (40, 70):
            await (await client.open(TOPIC, epoch=epoch, claims=tuple(range(epoch - 38, epoch + 1)))).close()
        world.away = False
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=71, claims=tuple(range(8, 72)))
        assert stream.held == of_first(range(60, 100))
        assert stream.acknowledged == of_first(range(60))
        assert daemon.engine.catalog.stats().subscriptions == 1
    assert "it is of another history than the cursor" in log.getvalue()
    assert "begins anew" not in log.getvalue()


async def test_what_a_former_stream_tells_before_the_new_one_begins_counts(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log's index has the local data's seal at once, whatever else that knows."""
    world = World()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await (await first_owner(client, daemon, world)).close()
    world.away = True
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        former = await client.open(TOPIC, epoch=2, claims=(1, 2), generation=GENERATION + 1)
        former.add(entries(100, now_ms() + HOUR_MS))
        await former.durable()
        engine, catalog = daemon.engine, daemon.engine.catalog
        stream = engine.ownership.get(NAME)
        assert stream is not None
        set_chain = catalog.chains.set
        told: list[DelayIndex] = []

        def and_a_frame_is_read(index: DelayIndex, chain: Chain) -> None:
            set_chain(index, chain)
            if not told:
                told.append(index)
                former.seq += 1
                engine.apply_change(stream, former.seq, Ack(of_first(range(20, 30))), time.monotonic_ns())

        monkeypatch.setattr(catalog.chains, "set", and_a_frame_is_read)
        world.away = False
        client.offer_logs(world)
        newer = await client.open(TOPIC, epoch=3, claims=(1, 2, 3), generation=GENERATION + 1)
        await former.durable()
        assert told
        assert newer.acknowledged == of_first(range(20, 30))


async def test_a_damaged_block_nobody_serves_is_remembered(start: StartDaemon, socket_path: Path) -> None:
    """A persist removes it, and the next start finds no damage."""
    world, store = World(), MemoryStore()
    async with start(store=store, prefetch_ms=0) as daemon, await ShimClient.connect(socket_path) as client:
        stream = await first_owner(client, daemon, world)
        daemon.engine.catalog.persist(NAME)
        await until(lambda: up_to_date(daemon))
        await stream.close()
        await until(lambda: daemon.engine.ownership.get(NAME) is None)
        corrupt_blocks(store)
        index = daemon.engine.catalog.get(NAME)
        assert index is not None
        index.timeline.pop_due(now_ms() + 2 * HOUR_MS, 10)
        assert index.damaged
        daemon.engine.catalog.persist(NAME)
    async with start(store=store.reopen()), await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=2, claims=(1, 2))
        assert stream.held == of_first(range(10, 100))
