"""Entries that no broker has read, and questions that check an index: over a real socket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from pyroaring import BitMap64

from tests.support.daemons import StartDaemon
from tests.support.flaky_store import FlakyStore
from tests.support.shim_client import ShimClient, entries, random_incarnation
from tests.support.stores import CrashStore, copied
from tidegate.index import Entries, MemoryStore, PositionSet, SubscriptionName, sort_entries
from tidegate.index.format import encode_block
from tidegate.index.state import positions
from tidegate.plugin.daemon.ingestion import PIECE_ENTRIES
from tidegate.plugin.errors import DaemonAwayError, UserError
from tidegate.plugin.wire.control_messages import Ingest, Query, Reply, json_body
from tidegate.plugin.wire.messages import Role
from tidegate.plugin.wire.session import DaemonSession

TOPIC = "persistent://public/default/orders"
NAME = SubscriptionName(TOPIC, "sub")
HOUR_MS = 3_600_000
T = TypeVar("T")


def later_ms() -> int:
    return time.time_ns() // 1_000_000 + HOUR_MS


async def ask(path: Path, questions: Callable[[DaemonSession], T]) -> T:
    """Run `questions` with a session in a thread, as a command does in its process."""

    def run() -> T:
        with DaemonSession(path, timeout_s=60) as session:
            return questions(session)

    return await asyncio.to_thread(run)


def put(session: DaemonSession, *blocks: Entries, disown: bool = False) -> list[int]:
    session.take_in(NAME)
    return list(session.put(NAME, [encode_block(sort_entries(one)) for one in blocks], disown=disown))


async def test_the_broker_hears_what_was_put_in(start: StartDaemon, socket_path: Path) -> None:
    at = later_ms()
    async with start(), await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC, mark_delete=(1, 4))
        stream.add(entries(10, at))
        stream.ack(PositionSet.of([(1, 5)]))
        await stream.durable()
        # 0 … 4 are below mark-delete, 5 is acknowledged, 6 … 9 are held.
        added = await ask(socket_path, lambda session: put(session, entries(20, at), entries(20, at)))
        assert added == [10, 0]
        await stream.until(lambda: len(stream.held) == 10)
        assert list(stream.held) == [(1, number) for number in range(10, 20)]
        held, acknowledged = await ask(socket_path, lambda session: session.positions(NAME))
        assert list(held) == [(1, number) for number in range(6, 20)]
        assert list(acknowledged) == [(1, 5)]


@pytest.mark.parametrize(("end", "kept"), [((1, 9), True), ((1, 8), False)])
async def test_a_broker_may_have_seen_less_of_the_topic_than_was_put_in(
    start: StartDaemon, socket_path: Path, end: tuple[int, int], *, kept: bool
) -> None:
    """It asks for the topic's end as it loads the topic, and may reach the daemon only after a rebuild."""
    at = later_ms()
    async with start():
        async with await ShimClient.connect(socket_path) as client:
            stream = await client.open(TOPIC, mark_delete=(1, 4), claims=(11,))
            stream.add(entries(10, at))
            stream.ack(PositionSet.of([(1, 7)]))
            await stream.durable()
        assert await ask(socket_path, lambda session: put(session, entries(20, at))) == [10]
        async with await ShimClient.connect(socket_path) as client:
            stream = await client.open(TOPIC, epoch=2, mark_delete=(1, 4), claims=(11, 12), end=end)
            held, acknowledged = await ask(socket_path, lambda session: session.positions(NAME))
            assert list(held) == ([(1, 5), (1, 6), (1, 8), (1, 9)] if kept else []), "it reads the others"
            assert list(acknowledged) == ([(1, 7)] if kept else [])


async def test_what_was_put_in_is_durable_and_comes_when_due(start: StartDaemon, socket_path: Path) -> None:
    store = MemoryStore()
    at = time.time_ns() // 1_000_000 + 1_500
    async with start(store=store):
        assert await ask(socket_path, lambda session: put(session, entries(100, at))) == [100]
    store = store.reopen()
    async with start(store=store), await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC, incarnation=random_incarnation())
        assert len(stream.held) == 100, "what was there before the first owner is the first owner's"
        due = await stream.take_due(100)
        assert int(due.deliver_at_ms.max()) == at
        assert time.time_ns() // 1_000_000 >= at
    async with start(store=store.reopen()), await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC, incarnation=random_incarnation())
        assert not stream.held, "another life of the subscription"


async def test_what_is_held_is_not_copied_for_each_piece(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 100 M held that would take longer than all else."""
    copied: list[int] = []

    def copy(bitmap: BitMap64) -> BitMap64:
        copied.append(len(bitmap))
        return copy_of(bitmap)

    copy_of = positions._copied
    async with start():
        monkeypatch.setattr(positions, "_copied", copy)
        blocks = [entries(20 * PIECE_ENTRIES, later_ms()).part(at, at + 65_536) for at in (0, 65_536)]
        assert await ask(socket_path, lambda session: put(session, *blocks)) == [65_536, 65_536]
    # A persist takes a snapshot, which costs one.
    assert (
        len([size for size in copied if size > 2 * PIECE_ENTRIES]) < len(blocks) * 65_536 / PIECE_ENTRIES / 4
    )


async def test_one_rebuild_at_a_time(start: StartDaemon, socket_path: Path) -> None:
    async with start():
        with DaemonSession(socket_path) as first:
            await asyncio.to_thread(first.take_in, NAME)
            with pytest.raises(UserError, match=r"another rebuild of .* is running"):
                await ask(socket_path, lambda session: session.take_in(NAME))
            await ask(socket_path, lambda session: session.take_in(SubscriptionName(TOPIC, "other")))
        await ask(socket_path, lambda session: put(session, entries(1, later_ms())))


async def test_what_is_known_of_an_index(start: StartDaemon, socket_path: Path) -> None:
    """Asking makes none, and tells the seal that the cursor had at the last OPEN."""
    async with start(), await ShimClient.connect(socket_path) as client:
        for _ in range(2):
            assert await ask(socket_path, lambda session: session.about(NAME)) == {"known": False}
        await ask(socket_path, lambda session: session.take_in(NAME))
        assert await ask(socket_path, lambda session: session.about(NAME)) == {"known": True, "generation": 0}
        for seal in (7, (1 << 63) - 1):
            await client.open(TOPIC, generation=seal)
            found = await ask(socket_path, lambda session: session.about(NAME))
            assert found == {"known": True, "generation": seal}
        with pytest.raises(UserError, match="needs topic and subscription"):
            await ask(socket_path, lambda session: session.ask({"what": "index", "topic": TOPIC}))


async def test_what_is_refused(start: StartDaemon, socket_path: Path) -> None:
    async with start():
        with pytest.raises(UserError, match="nobody has taken"):
            await ask(socket_path, lambda session: list(session.put(NAME, [b"x"])))

        def damaged(session: DaemonSession) -> list[int]:
            session.take_in(NAME)
            return list(session.put(NAME, [b"x" * 40]))

        with pytest.raises(UserError, match="not a block of entries"):
            await ask(socket_path, damaged)
        with pytest.raises(UserError, match="before 1970"):
            await ask(socket_path, lambda session: put(session, entries(3, -2)))
        with pytest.raises(UserError, match="has no index of"):
            await ask(socket_path, lambda session: session.positions(SubscriptionName(TOPIC, "unknown")))
        with pytest.raises(UserError, match="must be numbers"):
            await ask(
                socket_path,
                lambda session: session.ask(
                    {"what": "entries", "topic": TOPIC, "subscription": "sub", "after_ms": "now"}
                ),
            )
        assert await ask(socket_path, lambda session: put(session, entries(1, later_ms()))) == [1]


async def test_who_asks_without_end_is_refused(start: StartDaemon, socket_path: Path) -> None:
    """A read brings thousands of frames, and each block is kept until its turn comes."""
    block = encode_block(entries(1, later_ms()))
    async with start(), await ShimClient.connect(socket_path, "control-1", Role.CONTROL) as client:
        client.send(Query(json_body({"what": "take-in", "topic": TOPIC, "subscription": "sub"})), seq=1)
        for number in range(2, 502):
            client.send(Ingest(TOPIC, "sub", block), seq=number)
        client.send(Query(json_body({"what": "status"})), seq=502)
        await client.until(lambda: len(replies(client)) == 502)
        refused = [one for one in replies(client) if "wait for the answers" in str(one.get("error"))]
        assert 100 < len(refused) <= 502 - 16
        client.send(Ingest(TOPIC, "sub", block), seq=503)
        await client.until(lambda: len(replies(client)) == 503)
        assert replies(client)[-1] == {"entries": 1, "added": 0}


def replies(client: ShimClient) -> list[dict[str, object]]:
    return [message.answer() for message, _ in client.received if isinstance(message, Reply)]


async def test_entries_are_told_in_order_wherever_they_are(start: StartDaemon, socket_path: Path) -> None:
    """Staged, spilled into slices, and in flight: in pages."""
    at, count = later_ms(), 150_000
    # In no order of time, so that many runs overlap.
    shuffled = [
        Entries(part.deliver_at_ms[::-1], part.ledger_id, part.entry_id)
        for part in (entries(50_000, at, step_ms=7, ledger_id=ledger) for ledger in (3, 1, 2))
    ]
    async with (
        start(staging_bytes=65_536 * 24, staging_bytes_max=4 * 65_536 * 24),
        await ShimClient.connect(socket_path) as client,
    ):
        stream = await client.open(TOPIC, horizon_ms=HOUR_MS)
        for part in shuffled:
            for first in range(0, len(part), 10_000):
                stream.add(part.part(first, first + 10_000))
        await stream.durable()
        stream.ack(PositionSet.of([(1, number) for number in range(100)]))
        await stream.durable()
        pages = await ask(socket_path, lambda session: list(session.entries(NAME)))
        told = Entries.concat(pages)
        assert len(pages) > 1
        assert told.is_sorted()
        assert len(told) == count - 100
        expected = sort_entries(Entries.concat(shuffled))
        live = expected.take((expected.ledger_id != 1) | (expected.entry_id >= 100))
        assert told == live


async def test_disowned_positions_are_read_again(start: StartDaemon, socket_path: Path) -> None:
    at = later_ms()
    async with start(), await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC)
        stream.add(entries(10, at))
        await stream.durable()
        gone = await ask(socket_path, lambda session: put(session, entries(3, at), disown=True))
        assert gone == [3]
        await stream.until(lambda: len(stream.unheld) == 3)
        held, _ = await ask(socket_path, lambda session: session.positions(NAME))
        assert list(held) == [(1, number) for number in range(3, 10)]
        stream.add(entries(3, at))
        await stream.durable()
        assert len(Entries.concat(await ask(socket_path, lambda session: list(session.entries(NAME))))) == 10


async def test_what_was_disowned_is_not_held_after_a_crash(start: StartDaemon, socket_path: Path) -> None:
    """Answered, and killed with -9 at once: what `verify --repair` did must not be undone."""
    at = later_ms()
    store = CrashStore()
    async with start(store=store), await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC)
        stream.add(entries(10, at))
        await stream.durable()

        def disown(session: DaemonSession) -> tuple[list[int], MemoryStore]:
            return put(session, entries(3, at), disown=True), copied(store.durable)

        gone, left = await ask(socket_path, disown)
        assert gone == [3]
    async with start(store=left), await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC)
        assert list(stream.held) == [(1, number) for number in range(3, 10)]
        stream.add(entries(3, at))
        await stream.durable()
        held, _ = await ask(socket_path, lambda session: session.positions(NAME))
        assert len(held) == 10


async def test_while_the_store_fails_nothing_is_disowned(start: StartDaemon, socket_path: Path) -> None:
    at = later_ms()
    store = FlakyStore()
    async with start(store=store), await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC)
        stream.add(entries(10, at))
        await stream.durable()
        store.failing = True
        with pytest.raises(UserError, match="store fail"):
            await ask(socket_path, lambda session: put(session, entries(3, at), disown=True))
        store.failing = False


async def test_what_the_broker_has_in_flight_is_not_handed_out_when_a_rebuild_brings_it(
    start: StartDaemon, socket_path: Path
) -> None:
    """Rule 4: not again on this connection. The index had lost it, so OPEN showed nothing of it as held."""
    due = time.time_ns() // 1_000_000 - 1_000
    async with start(), await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC, in_flight=PositionSet.of([(1, 0), (1, 2)]))
        assert await ask(socket_path, lambda session: put(session, entries(4, due))) == [4]
        await stream.until(lambda: len(stream.held) == 4)
        handed_out = await stream.take_due(2)
        assert [entry_id for _, _, entry_id in handed_out] == [1, 3]
        # On the next connection, which has nothing of them in flight, they are handed out.
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        assert await ask(socket_path, lambda session: put(session, entries(4, due))) == [4]
        stream = await client.open(TOPIC, incarnation=random_incarnation())
        assert len(await stream.take_due(4)) == 4
        assert daemon.engine.catalog.stats().subscriptions == 1


async def test_a_daemon_that_goes_away(start: StartDaemon, socket_path: Path, tmp_path: Path) -> None:
    with pytest.raises(DaemonAwayError, match="no daemon answers on"):
        await ask(tmp_path / "nobody.sock", lambda session: session.take_in(NAME))
    async with start():
        session = DaemonSession(socket_path)
        await asyncio.to_thread(session.__enter__)
        await asyncio.to_thread(session.take_in, NAME)
    with pytest.raises(DaemonAwayError, match="hung up"):
        await asyncio.to_thread(session.take_in, NAME)
    session.__exit__(None, None, None)
