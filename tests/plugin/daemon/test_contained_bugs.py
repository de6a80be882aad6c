"""A bug ends the part that met it, one stream, one answer, one try, and nothing else. Nobody believes its
half-done work.
"""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemons import StartDaemon
from tests.support.shim_client import DaemonError, ShimClient, entries
from tests.support.waiting import until
from tidegate.index.entries.entry import Entries
from tidegate.index.errors import StorageError
from tidegate.index.format import encode_block
from tidegate.index.log.memory_home import World
from tidegate.index.log.writer import LogWriter
from tidegate.index.names import SubscriptionName
from tidegate.index.state.positions import PositionSet
from tidegate.index.subscription.delay_index import DelayIndex
from tidegate.plugin.daemon import held_news, session
from tidegate.plugin.daemon.index_logs.stream_log import StreamLog
from tidegate.plugin.daemon.serve import RunningDaemon
from tidegate.plugin.daemon.stream import Stream
from tidegate.plugin.errors import ErrorCode, StartError, UserError
from tidegate.plugin.wire.client import ask_socket
from tidegate.plugin.wire.messages import Durable, Message
from tidegate.plugin.wire.session import DaemonSession

TOPIC = "persistent://public/default/orders"
FAR_MS = 1 << 42


def index_of(daemon: RunningDaemon, topic: str) -> DelayIndex:
    index = daemon.engine.catalog.get(SubscriptionName(topic, "sub"))
    assert index is not None
    return index


@pytest.mark.parametrize("frames", [1, 3])
async def test_a_bug_at_a_frame_ends_its_stream_alone(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch, frames: int
) -> None:
    """`frames`: several small ones are applied together."""
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        failing = await client.open(TOPIC)
        other = await client.open(f"{TOPIC}-2")
        failing.add(entries(5, FAR_MS))
        await failing.durable()
        failing.ack(PositionSet.of([(1, 4)]))
        await failing.durable()
        index = index_of(daemon, TOPIC)

        def bug(_: Entries) -> None:
            raise RuntimeError("a bug")

        with monkeypatch.context() as patched:
            patched.setattr(index.timeline, "stage", bug)
            for number in range(frames):
                failing.add(entries(5, FAR_MS, ledger_id=2 + number))
            other.add(entries(5, FAR_MS))
            error = await failing.ended()
        assert error.code == ErrorCode.FAILED
        assert "a bug" in error.message
        await other.durable()
        assert not client.closed

        # The positions had been noted before it failed: nobody would ever have handed them out.
        await until(lambda: len(index.state.held) == 4)
        index.check()
        again = await client.open(TOPIC, horizon_ms=0)
        assert sorted(again.held.difference(again.unheld)) == [(1, 0), (1, 1), (1, 2), (1, 3)]
        assert not again.acknowledged
        again.add(entries(5, FAR_MS, ledger_id=2))
        await again.durable()
        assert len(index.state.held) == 9
        index.check()


async def test_a_bug_at_handing_out_ends_its_stream_alone_and_keeps_nothing_back(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries popped then are no longer staged, and were not sent."""
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        failing = await client.open(TOPIC, horizon_ms=0)
        other = await client.open(f"{TOPIC}-2", horizon_ms=0)
        index = index_of(daemon, TOPIC)

        def bug(_: Entries) -> None:
            raise MemoryError("a bug")

        with monkeypatch.context() as patched:
            patched.setattr(index.state, "hand_out", bug)
            failing.add(entries(5, 1))
            error = await failing.ended()
        assert error.code == ErrorCode.FAILED
        other.add(entries(5, 1))
        await other.take_due(5)
        assert not client.closed

        await until(lambda: not index.state.held)
        index.check()
        again = await client.open(TOPIC, horizon_ms=0)
        again.add(entries(5, 1))
        assert len(await again.take_due(5)) == 5


async def test_a_bug_at_opening_refuses_the_stream_alone_and_keeps_nothing_back(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries in flight are then staged once more, and some may be lost on the way."""
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC, horizon_ms=0)
        stream.add(entries(5, 1))
        await stream.take_due(5)
        index = index_of(daemon, TOPIC)

        def bug() -> None:
            index.timeline._staging.in_flight.pop_all()
            raise MemoryError("a bug")

        with monkeypatch.context() as patched:
            patched.setattr(index.timeline, "rewind", bug)
            with pytest.raises(DaemonError, match=r"FAILED.*a bug"):
                await client.open(TOPIC, epoch=2)
        assert not client.closed
        await until(lambda: not index.state.held)
        index.check()


async def test_a_bug_in_an_answer_ends_its_stream_alone_and_the_others_get_theirs(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the last HELD nothing is ever handed out on a stream, and its broker would wait for ever.

    Its log is read first, so that no frame meets the bug.
    """
    world = World()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, horizon_ms=0)
        stream.add(entries(5, 1))
        await stream.durable()
        await until(lambda: world.pointer.startswith("1;1;"))
        await stream.close()
        daemon.engine.catalog.remove(SubscriptionName(TOPIC, "sub"))

        def bug(_: PositionSet) -> Iterator[PositionSet]:
            raise MemoryError("a bug")

        with monkeypatch.context() as patched:
            patched.setattr(session, "split_positions", bug)
            with pytest.raises(DaemonError, match=r"FAILED.*a bug"):
                await client.open(TOPIC, epoch=2, horizon_ms=0)
        assert not client.closed
        again = await client.open(TOPIC, epoch=3, horizon_ms=0)
        assert len(await again.take_due(5)) == 5


async def test_a_bug_in_beginning_a_log_refuses_its_stream_alone(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        client.offer_logs(World())
        other = await client.open(f"{TOPIC}-2")

        def bug(_: StreamLog) -> None:
            raise MemoryError("a bug")

        with monkeypatch.context() as patched:
            patched.setattr(StreamLog, "wake", bug)
            with pytest.raises(DaemonError, match=r"FAILED.*a bug"):
                await client.open(TOPIC)
        other.add(entries(5, FAR_MS))
        await other.durable()
        assert not client.closed
        assert len(daemon.engine.log_states()) == 1
        await client.open(TOPIC)
        assert len(daemon.engine.log_states()) == 2


async def test_a_bug_in_telling_what_is_durable_ends_its_stream_alone(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """News of one commit goes to one stream after another."""
    async with start(commit_interval_ms=200), await ShimClient.connect(socket_path) as client:
        failing = await client.open(TOPIC)
        other = await client.open(f"{TOPIC}-2")
        for stream in (failing, other):
            await stream.durable()

        tell = Stream.send

        def bug(stream: Stream, message: Message, seq: int = 0) -> None:
            if stream.name.topic == TOPIC and isinstance(message, Durable):
                raise MemoryError("a bug")
            tell(stream, message, seq)

        with monkeypatch.context() as patched:
            patched.setattr(Stream, "send", bug)
            failing.add(entries(5, FAR_MS))
            other.add(entries(5, FAR_MS))
            error = await failing.ended()
            assert error is not None and error.code == ErrorCode.FAILED
            await other.durable()
        assert not client.closed
        again = await client.open(TOPIC, epoch=2)
        assert len(again.held) == 5


async def test_a_bug_of_one_who_waits_for_a_commit_keeps_no_other_from_being_told(
    start: StartDaemon, socket_path: Path
) -> None:
    """A rebuild would wait for ever."""
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC)
        told = asyncio.Event()

        def bug(_: StorageError | None) -> None:
            raise MemoryError("a bug")

        token = index_of(daemon, TOPIC).add(entries(5, FAR_MS))
        daemon.engine._committer.after(token, bug)
        daemon.engine._committer.after(token, lambda _: told.set())
        await asyncio.wait_for(told.wait(), 20)
        stream.add(entries(5, FAR_MS, ledger_id=2))
        await stream.durable()


async def test_positions_that_a_bug_keeps_from_being_told_as_lost_are_not_taken_for_held(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker skips supposedly held entries: nobody would ever hand them out."""
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        failing = await client.open(TOPIC)
        failing.add(entries(5, FAR_MS))
        await failing.durable()

        def bug(_: PositionSet) -> Iterator[PositionSet]:
            raise MemoryError("a bug")

        with monkeypatch.context() as patched:
            patched.setattr(held_news, "split_positions", bug)
            index_of(daemon, TOPIC).disown(PositionSet.of([(1, 4)]))
            error = await failing.ended()
        assert error is not None and error.code == ErrorCode.FAILED
        again = await client.open(TOPIC, epoch=2)
        assert sorted(again.held) == [(1, 0), (1, 1), (1, 2), (1, 3)]


async def test_what_a_bug_keeps_a_rebuild_from_letting_go_of_is_read_again(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half-done, it is held no longer, and the broker must learn that."""
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC)
        stream.add(entries(5, FAR_MS))
        await stream.durable()
        index = index_of(daemon, TOPIC)

        def let_go() -> None:
            with DaemonSession(socket_path) as asking:
                name = SubscriptionName(TOPIC, "sub")
                asking.take_in(name)
                list(asking.put(name, [encode_block(entries(5, FAR_MS))], disown=True))

        def bug(_: PositionSet) -> None:
            raise MemoryError("a bug")

        with monkeypatch.context() as patched:
            patched.setattr(index.timeline, "depart", bug)
            with pytest.raises(UserError, match="a bug"):
                await asyncio.to_thread(let_go)
        await until(lambda: len(stream.unheld) == 5)
        assert not index.state.held
        index.check()


async def test_entries_that_a_bug_has_put_in_by_half_are_not_held(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start() as daemon:

        def rebuild(ledger_id: int) -> None:
            with DaemonSession(socket_path) as asking:
                name = SubscriptionName(TOPIC, "sub")
                asking.take_in(name)
                list(asking.put(name, [encode_block(entries(5, FAR_MS, ledger_id=ledger_id))]))

        await asyncio.to_thread(rebuild, 1)
        index = index_of(daemon, TOPIC)

        def bug(_: Entries) -> None:
            raise MemoryError("a bug")

        with monkeypatch.context() as patched:
            patched.setattr(index.timeline, "stage", bug)
            with pytest.raises(UserError, match="a bug"):
                await asyncio.to_thread(rebuild, 2)
        await until(lambda: len(index.state.held) == 5)
        index.check()


@pytest.mark.parametrize("what", ["status", "positions", "take-in", "width"])
async def test_a_query_that_meets_a_bug_is_answered(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch, log: io.StringIO, what: str
) -> None:
    """A client would wait for ever, or lose its connection without a word."""
    query = {"what": what, "topic": TOPIC, "subscription": "sub"}
    if what == "width":
        query["subscription"] = "*"
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC)
        stream.add(entries(5, FAR_MS))
        await stream.durable()
        index = index_of(daemon, TOPIC)

        def bug() -> None:
            raise RuntimeError("it has failed")

        class Failing:
            def __getattr__(self, name: str) -> None:
                bug()

        with monkeypatch.context() as patched:
            patched.setattr(index, "stats", bug)
            patched.setattr(index, "state", Failing())
            with pytest.raises(UserError, match=r"a bug in the daemon.*it has failed"):
                await asyncio.to_thread(ask_socket, socket_path, query)
        assert "RuntimeError" in log.getvalue()
        await asyncio.to_thread(ask_socket, socket_path, {"what": "status"})


async def test_a_bug_in_shipping_a_log_is_told_and_tried_again(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch, log: io.StringIO
) -> None:
    world = World()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        with monkeypatch.context() as patched:

            async def bug(_: LogWriter) -> None:
                raise RuntimeError("it has failed")

            patched.setattr(LogWriter, "ship", bug)
            stream = await client.open(TOPIC)
            stream.add(entries(5, FAR_MS))
            await stream.durable()
            await until(lambda: any("it has failed" in one.failure for one in daemon.engine.log_states()))
        assert "RuntimeError" in log.getvalue()
        await until(lambda: all(one.ledger_id >= 0 and not one.failure for one in daemon.engine.log_states()))


@pytest.mark.parametrize("fails", range(1, 5))
async def test_a_daemon_that_may_have_no_more_threads_says_so_at_its_start(
    start: StartDaemon, monkeypatch: pytest.MonkeyPatch, fails: int
) -> None:
    """Later, work for the thread would wait for ever: the first commit, and every one after it."""
    begin = threading.Thread.start
    begun = 0

    def begin_some(thread: threading.Thread) -> None:
        nonlocal begun
        begun += thread.name.startswith("tidegate-")
        if begun == fails:
            raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", begin_some)
    with pytest.raises(StartError, match=r"cannot start a thread .*: raise the limit"):
        async with start():
            pass
    assert not [one for one in threading.enumerate() if one.name.startswith("tidegate-")]
