"""An index restored from its log while others go on."""

from __future__ import annotations

import asyncio
import io
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from tests.support.daemons import StartDaemon
from tests.support.log_answers import answered_by
from tests.support.shim_client import TIMEOUT_S, ClientStream, DaemonError, ShimClient, entries
from tests.support.stores import copied
from tests.support.waiting import until
from tidegate.index import DelayIndex
from tidegate.index.clock import ManualClock
from tidegate.index.format import keys
from tidegate.index.log import AwayError, memory_home
from tidegate.index.log.memory_home import MemoryHome, World
from tidegate.index.names import SubscriptionName
from tidegate.index.store import Batch, MemoryStore
from tidegate.plugin.daemon.index_logs import restorer
from tidegate.plugin.errors import ErrorCode
from tidegate.plugin.wire.log_messages import LogOp, LogRequest

TOPIC = "persistent://public/default/orders"
NAME = SubscriptionName(TOPIC, "sub")
HOUR_MS = 3_600_000


def later_ms() -> int:
    return time.time_ns() // 1_000_000 + HOUR_MS


class SlowHome(MemoryHome):
    """A home with a last answer that comes on the test's command."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.has_read = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def read(self, ledger_id: int, first: int, last: int) -> list[bytes]:
        found = await super().read(ledger_id, first, last)
        self.has_read.set()
        await self.may_answer.wait()
        return found


async def test_a_restoration_that_comes_too_late_takes_nothing_from_a_newer_owner(
    start: StartDaemon, socket_path: Path
) -> None:
    """A broker stood still while the daemon read a log through it; the topic has moved on to another."""
    world = World()
    async with start(), await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        await client.open(TOPIC)
        client.streams[1].add(entries(10, later_ms()))
        await client.streams[1].close()
    async with (
        start() as daemon,
        await ShimClient.connect(socket_path, "former") as former,
        await ShimClient.connect(socket_path, "newer") as newer,
    ):
        former.logs = home = SlowHome(world)
        late = former.begin_open(TOPIC, epoch=2)
        await home.has_read.wait()
        newer.offer_logs(world)
        stream = await newer.open(TOPIC, epoch=3)
        assert len(stream.held) == 10
        stream.add(entries(5, later_ms(), ledger_id=2))
        await stream.durable()
        home.may_answer.set()
        with pytest.raises(DaemonError) as caught:
            await late.until(lambda: late.answered)
        assert caught.value.code == ErrorCode.STALE_EPOCH
        stream.add(entries(1, later_ms(), ledger_id=3))
        await stream.durable()
        index = daemon.engine.catalog.get(NAME)
        assert index is not None
        assert len(index.state.held) == 16, "what was answered DURABLE"
        await until(lambda: daemon.engine.catalog.stats().subscriptions == 1)


async def test_a_broker_that_opens_again_while_a_log_is_read_waits_for_no_former_tracker(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    """A topic came, went and came back; nobody answers for the first tracker."""
    world = World()
    async with start(), await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        await client.open(TOPIC)
        client.streams[1].add(entries(10, later_ms()))
        await client.streams[1].close()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        client.logs = home = SlowHome(world)
        former = client.begin_open(TOPIC, epoch=2)
        await home.has_read.wait()
        client.offer_logs(world)
        newer = client.begin_open(TOPIC, epoch=3)
        with pytest.raises(DaemonError) as caught:
            await former.until(lambda: former.answered)
        assert caught.value.code == ErrorCode.STALE_EPOCH
        await newer.until(lambda: newer.answered)
        assert len(newer.held) == 10
        home.may_answer.set()
        newer.add(entries(1, later_ms(), ledger_id=3))
        await newer.durable()
        served = daemon.engine.ownership.get(NAME)
        assert served is not None
        assert served.session.epoch == 3
    assert "the index log cannot be read" not in log.getvalue()


async def test_the_broker_that_was_first_to_ask_does_not_come_between_a_newer_one_and_its_log(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both wait for their logs; the former one's broker never answers."""
    world = World()
    async with start(), await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        await client.open(TOPIC)
        client.streams[1].add(entries(10, later_ms()))
        await client.streams[1].close()
    async with (
        start(),
        await ShimClient.connect(socket_path, "former") as former,
        await ShimClient.connect(socket_path, "newer") as newer,
    ):
        former.logs, newer.logs = SlowHome(world), SlowHome(world)
        deadlines = [asyncio.timeout(None), asyncio.timeout(None)]
        waiting = iter(deadlines)
        monkeypatch.setattr(restorer, "restore_deadline", lambda: next(waiting))
        late = former.begin_open(TOPIC, epoch=2)
        await former.logs.has_read.wait()
        stream = newer.begin_open(TOPIC, epoch=3)
        await newer.logs.has_read.wait()
        deadlines[0].reschedule(asyncio.get_running_loop().time())
        with pytest.raises(DaemonError) as caught:
            await late.until(lambda: late.answered)
        assert caught.value.code == ErrorCode.STALE_EPOCH
        newer.logs.may_answer.set()
        await stream.until(lambda: stream.answered)
        assert len(stream.held) == 10


class MomentarilyAway(MemoryHome):
    """A home that answers only the third request, each time; never once it has `left`."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.asked: list[str] = []
        self.left = False

    def _be_away(self, what: str) -> None:
        self.asked.append(what)
        if self.left or len(self.asked) % 3:
            raise AwayError(f"no bookie answers {what}")

    async def open(self, ledger_id: int) -> int:
        self._be_away("OPEN")
        return await super().open(ledger_id)

    async def read(self, ledger_id: int, first: int, last: int) -> list[bytes]:
        self._be_away("READ")
        return await super().read(ledger_id, first, last)


async def test_a_home_that_is_away_for_a_moment_is_asked_again(
    start: StartDaemon, socket_path: Path, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code 4 means: try again. One such answer had ended the restoration, with an empty HELD."""
    monkeypatch.setattr(restorer, "ASK_AGAIN_SECONDS", 0.0)
    world = World()
    async with start(), await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        await client.open(TOPIC)
        client.streams[1].add(entries(10, later_ms()))
        await client.streams[1].close()
    async with start(), await ShimClient.connect(socket_path) as client:
        client.logs = home = MomentarilyAway(world)
        stream = await client.open(TOPIC, epoch=2)
        assert home.asked[:6] == ["OPEN"] * 3 + ["READ"] * 3
        assert len(stream.held) == 10
    assert "the index log cannot be read" not in log.getvalue()


async def test_a_home_that_stays_away_is_given_up_in_time_and_named(
    start: StartDaemon, socket_path: Path, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restorer, "ASK_AGAIN_SECONDS", 0.0)
    deadline = asyncio.timeout(None)
    monkeypatch.setattr(restorer, "restore_deadline", lambda: deadline)
    world = World()
    async with start(), await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        await client.open(TOPIC)
        client.streams[1].add(entries(10, later_ms()))
        await client.streams[1].close()
    async with start(), await ShimClient.connect(socket_path) as client:
        client.logs = home = MomentarilyAway(world)
        home.left = True
        stream = client.begin_open(TOPIC, epoch=2)
        await until(lambda: len(home.asked) > 20)
        assert not stream.answered, "its time is not over"
        deadline.reschedule(asyncio.get_running_loop().time())
        await stream.until(lambda: stream.answered)
        assert not stream.held
    assert "no bookie answers OPEN" in log.getvalue()


class Worlds:
    """The logs of `count` subscriptions of 10 entries or more, in `log_entries` or more of its ledger."""

    def __init__(self, count: int) -> None:
        self.by_topic = {f"{TOPIC}-{number}": World() for number in range(count)}
        self.held: list[int] = []

    async def fill(self, client: ShimClient, log_entries: int = 1) -> None:
        for topic, world in self.by_topic.items():
            client.offer_logs(world)
            stream = await client.open(topic)
            held = 0
            while not held or max(len(one.entries) for one in world.ledgers.values()) < log_entries:
                stream.add(entries(10, later_ms(), first_entry=held))
                await stream.durable()
                held += 10
                await until(partial(self._is_begun, world))
            await stream.close()
            self.held.append(held)

    @staticmethod
    def _is_begun(world: World) -> bool:
        return any(one.entries for one in world.ledgers.values())


class ManyHomes(ShimClient):
    """A broker with a home for each of its streams. Answers are counted, and come on the test's command."""

    def prepare(self) -> None:
        self.homes: dict[int, MemoryHome] = {}
        self.may_answer = asyncio.Event()
        self.reading = 0
        self.reading_max = 0

    def begin_all(self, worlds: Worlds) -> list[ClientStream]:
        opened = []
        for number, (topic, world) in enumerate(worlds.by_topic.items(), 1):
            self.logs = self.homes[number] = world.new_owner()
            opened.append(self.begin_open(topic, epoch=2, stream_id=number))
        return opened

    def answer_log(self, stream_id: int, seq: int, request: LogRequest) -> None:
        async def answer() -> None:
            # The answer after the second one shows that the log is long.
            late = request.op is LogOp.READ and request.first > 1
            self.reading += late
            self.reading_max = max(self.reading_max, self.reading)
            await self.may_answer.wait()
            if late:
                await asyncio.sleep(0.01)
            self.reading -= late
            self.send(await answered_by(self.homes[stream_id], request), stream_id, seq)

        self.spawn(answer())


async def test_the_time_to_read_a_log_begins_when_those_before_it_are_read(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many topics come at once. None is abandoned because of the others."""
    worlds, begun = Worlds(5), 0
    async with start(), await ShimClient.connect(socket_path) as client:
        await worlds.fill(client)
    monkeypatch.setattr(restorer, "AT_ONCE_MAX", 1)

    def deadline() -> asyncio.Timeout:
        nonlocal begun
        begun += 1
        return asyncio.timeout(TIMEOUT_S)

    monkeypatch.setattr(restorer, "restore_deadline", deadline)
    async with start() as daemon, await ManyHomes.connect(socket_path) as client:
        client.prepare()
        streams = client.begin_all(worlds)
        await until(lambda: begun > 0)
        other = await ShimClient.connect(socket_path, "other")
        await (await other.open(TOPIC)).close()  # earlier requests have begun as far as they could
        await other.disconnect()
        assert begun == 1
        client.may_answer.set()
        await client.until(lambda: all(stream.answered for stream in streams))
        assert [len(stream.held) for stream in streams] == worlds.held
        assert begun == len(streams)
        assert b"tidegate_index_log_restored_total 5.0" in await daemon.exposition()


async def test_few_long_logs_are_read_at_a_time(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worlds = Worlds(6)
    async with start(), await ShimClient.connect(socket_path) as client:
        await worlds.fill(client, log_entries=8)
    monkeypatch.setattr(memory_home, "READ_BYTES", 1)
    monkeypatch.setattr(restorer, "LONG_BYTES", 1)
    monkeypatch.setattr(restorer, "LONG_AT_ONCE_MAX", 2)
    async with start(), await ManyHomes.connect(socket_path) as client:
        client.prepare()
        client.may_answer.set()
        streams = client.begin_all(worlds)
        await client.until(lambda: all(stream.answered for stream in streams))
        assert [len(stream.held) for stream in streams] == worlds.held
        assert 1 <= client.reading_max <= 2


class BlockedStore(MemoryStore):
    """A store in which the index logs' thread stands still at its first write until released."""

    def __init__(self) -> None:
        super().__init__()
        self.stands = threading.Event()
        self.may_write = threading.Event()

    def write(self, batch: Batch, *, sync: bool) -> None:
        if threading.current_thread().name.startswith("tidegate-log"):
            self.stands.set()
            self.may_write.wait()
        super().write(batch, sync=sync)


async def test_a_restoration_that_was_given_up_leaves_nothing_in_the_store(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is slower than the broker waits. Later writes would win at the next start."""
    world, store = World(), BlockedStore()
    async with start(), await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        await client.open(TOPIC)
        client.streams[1].add(entries(10, later_ms()))
        await client.streams[1].close()
    deadline = asyncio.timeout(None)
    monkeypatch.setattr(restorer, "restore_deadline", lambda: deadline)
    async with start(store=store), await ShimClient.connect(socket_path) as client:
        client.logs = MemoryHome(world)
        stream = client.begin_open(TOPIC, epoch=2)
        assert await asyncio.to_thread(store.stands.wait, TIMEOUT_S)
        deadline.reschedule(asyncio.get_running_loop().time())
        await stream.until(lambda: stream.answered)
        assert not stream.held
        stream.add(entries(5, later_ms(), ledger_id=2))
        await stream.durable()
        store.may_write.set()

        async def committed() -> bool:
            stream.add(entries(1, later_ms(), ledger_id=3))
            await stream.durable()
            rows = list(store.scan(*keys.kind_range(keys.IDENTITY)))
            return len(rows) == 1 and len(list(store.scan(*keys.kind_range(keys.CHAIN)))) <= 1

        async with asyncio.timeout(TIMEOUT_S):
            while not await committed():
                pass
    async with start(store=store.reopen()) as daemon:
        index = daemon.engine.catalog.get(NAME)
        assert index is not None
        assert {ledger_id for ledger_id, _ in index.state.held} == {2, 3}


async def test_what_was_restored_for_a_broker_that_leaves_is_forgotten_like_all_that_nobody_opens(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves after its index is here, and before its stream: no stream ends then."""
    world, clock, kept_ms = World(), ManualClock(later_ms()), 864_000
    async with start(), await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        await client.open(TOPIC)
        client.streams[1].add(entries(10, later_ms()))
        await client.streams[1].close()
    settings = {"forget_days": kept_ms / 86_400_000, "heartbeat_ms": 600_000, "maintain_interval_ms": 10}
    async with start(clock=clock, **settings) as daemon, await ShimClient.connect(socket_path) as client:
        catalog = daemon.engine.catalog
        adopt = catalog.adopt

        def adopt_and_leave(index: DelayIndex) -> None:
            adopt(index)
            for broker in list(daemon.engine.brokers.values()):
                broker.fail(ErrorCode.SHUTTING_DOWN, "it leaves")

        monkeypatch.setattr(catalog, "adopt", adopt_and_leave)
        client.logs = MemoryHome(world)
        client.begin_open(TOPIC, epoch=2)
        await until(lambda: catalog.get(NAME) is not None)
        assert daemon.engine.ownership.get(NAME) is None
        clock.advance(kept_ms)
        await until(lambda: catalog.get(NAME) is None)


async def test_what_this_daemon_has_shipped_itself_is_not_restored(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    """Nothing else happens after the log's begin: the daemon must know nevertheless that it has the local
    data.
    """
    world, store = World(), MemoryStore()
    async with start(store=store) as daemon, await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC)
        stream.add(entries(10, later_ms()))
        await stream.durable()
        await until(
            lambda: any(one.ledger_id >= 0 and not one.lag_seconds for one in daemon.engine.log_states())
        )
        await until(lambda: any(store.scan(*keys.kind_range(keys.CHAIN))))
        left = copied(store)
        client.offer_logs(world)
        again = await client.open(TOPIC, epoch=2)
        assert len(again.held) == 10
    assert "the index was restored from its log" not in log.getvalue()
    async with start(store=left), await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        assert len((await client.open(TOPIC, epoch=3)).held) == 10
    assert "the index was restored from its log" not in log.getvalue(), "as after kill -9"
