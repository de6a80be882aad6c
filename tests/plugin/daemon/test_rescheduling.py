"""Messages are moved and released through a running daemon; the test plays the broker, which decides."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.support.daemons import DaemonProcess, StartDaemon, assert_one_line, run
from tests.support.deciding import DecidingBroker
from tests.support.flaky_store import FlakyStore
from tests.support.shim_client import ClientStream, ShimClient
from tests.support.waiting import until
from tidegate.index import Entries, MemoryStore, PositionSet, SubscriptionName
from tidegate.plugin.api import changes
from tidegate.plugin.daemon import broker_changes, peeking, rescheduling
from tidegate.plugin.daemon.serve import RunningDaemon
from tidegate.plugin.errors import UserError
from tidegate.plugin.shared.moments import AT_ONCE_MS, due_utc
from tidegate.plugin.wire.client import ask_socket
from tidegate.plugin.wire.messages import Peek, Peeked, Reschedule, Rescheduled, Standing

TOPIC = "persistent://public/default/orders"
AT = ("orders", "sub")
HOUR_MS = 3_600_000
NOTHING = PositionSet()
COUNTS = ("done", "too_late", "acknowledged", "unknown", "undecided")
Serve = Callable[..., DaemonProcess]


def some(*entry_ids: int) -> PositionSet:
    return PositionSet.of((5, entry_id) for entry_id in entry_ids)


async def query(socket_path: Path, what: str, /, **more: object) -> dict[str, Any]:
    request = {"what": what, "topic": "orders", "subscription": "sub", **more}
    return await asyncio.to_thread(ask_socket, socket_path, request, 30.0)


async def ask(socket_path: Path, what: str, positions: PositionSet, /, **more: object) -> dict[str, Any]:
    text = base64.b64encode(positions.serialize()).decode("ascii")
    return await query(socket_path, what, **{"positions": text, **more})


def counts(answer: dict[str, Any]) -> dict[str, int]:
    return {name: answer[name] for name in COUNTS if answer[name]}


class Shim(DecidingBroker):
    """Is asked to move messages only."""

    def __init__(self, *given: int, acknowledged: tuple[int, ...] = ()) -> None:
        super().__init__(*given)
        self.acknowledged = some(*acknowledged)

    def __call__(self, asked: Reschedule) -> Rescheduled:  # type: ignore[override]
        return self.reschedule(asked)


async def opened(client: ShimClient, credit: int = 0) -> tuple[ClientStream, int]:
    """A stream, and the time at which all of its hundred messages are due."""
    stream = await client.open(TOPIC, "sub", credit=credit)
    at_ms = time.time_ns() // 1_000_000 + HOUR_MS
    stream.add(Entries.of((at_ms, 5, entry_id) for entry_id in range(100)))
    await stream.durable()
    return stream, at_ms


def moved(daemon: RunningDaemon) -> dict[tuple[int, int], int]:
    index = daemon.engine.catalog.get(SubscriptionName(TOPIC, "sub"))
    assert index is not None
    index.check()
    return {one[1:]: one[0] for one in index.state.moved.snapshot().entries()}


async def test_the_broker_decides_and_the_index_follows(start: StartDaemon, socket_path: Path) -> None:
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        stream, at_ms = await opened(client)
        stream.on_reschedule = shim = Shim(2, acknowledged=(3,))
        wanted = {"done": 1, "too_late": 1, "acknowledged": 1, "unknown": 1}
        new_ms = at_ms + HOUR_MS
        dry = await ask(socket_path, "reschedule", some(1, 2, 3, 500), at_ms=new_ms, dry_run=True)
        assert counts(dry) == wanted
        assert (shim.overrides, moved(daemon)) == ({}, {})
        answer = await ask(socket_path, "reschedule", some(1, 2, 3, 500), at_ms=new_ms)
        assert counts(answer) == wanted
        assert answer["ids"] == {"too_late": ["5:2"], "acknowledged": ["5:3"], "unknown": ["5:500"]}
        assert shim.overrides == moved(daemon) == {(5, 1): new_ms}
        assert counts(await ask(socket_path, "reschedule", some(1), at_ms=new_ms)) == {"done": 1}
        tide = await query(socket_path, "tide", step_ms=HOUR_MS, span_ms=4 * HOUR_MS)
        assert [one["entries"] for one in tide["buckets"] if one["entries"]] == [99, 1]
        listed = await query(socket_path, "waiting", from_ms=at_ms + 1)
        assert listed["entries"] == [{"message_id": "5:1", "deliver_at_ms": new_ms}]


async def test_a_span_is_added_once(start: StartDaemon, socket_path: Path) -> None:
    """Also if the broker has to be asked again, and for a message that was moved before."""
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        stream, at_ms = await opened(client)
        shim = Shim(acknowledged=(70,))

        def second(asked: Reschedule) -> Rescheduled:
            decided = shim(asked)
            return replace(decided, standing=Standing.UNSTORED) if len(stream.reschedules) == 1 else decided

        stream.on_reschedule = second
        assert counts(await ask(socket_path, "reschedule", some(1, 2), by_ms=1_000)) == {"done": 2}
        assert moved(daemon) == shim.overrides == {(5, 1): at_ms + 1_000, (5, 2): at_ms + 1_000}
        answer = await ask(socket_path, "reschedule", some(2, 500), by_ms=-500)
        assert counts(answer) == {"done": 1, "unknown": 1}
        assert moved(daemon) == shim.overrides == {(5, 1): at_ms + 1_000, (5, 2): at_ms + 500}
        assert counts(await ask(socket_path, "reschedule", some(3), by_ms=-(10**12))) == {"done": 1}
        assert shim.overrides[5, 3] == at_ms - 10**12
        assert counts(await ask(socket_path, "reschedule", some(4), by_ms=0)) == {"done": 1}
        assert shim.overrides.get((5, 4), at_ms) == at_ms


async def test_two_spans_at_once_are_both_added(start: StartDaemon, socket_path: Path) -> None:
    """Also where one names the partition, and the other the topic."""
    async with start(), await ShimClient.connect(socket_path) as client:
        stream = await client.open(f"{TOPIC}-partition-0", "sub", credit=0)
        at_ms = time.time_ns() // 1_000_000 + HOUR_MS
        stream.add(Entries.of([(at_ms, 5, 1)]))
        await stream.durable()
        shim = Shim()
        first = asyncio.create_task(ask(socket_path, "reschedule", some(1), by_ms=1_000))
        await stream.until(lambda: bool(stream.reschedules))
        more = {"topic": "orders-partition-0", "by_ms": 500}
        second = asyncio.create_task(ask(socket_path, "reschedule", some(1), **more))
        told = await query(socket_path, "tide")  # the daemon has both requests by now, or soon
        assert told["entries"] == 1
        await asyncio.sleep(0.1)
        stream.on_reschedule = shim
        for seq, asked in list(stream.reschedules):
            client.send(shim(asked), stream.stream_id, seq)
        assert counts(await first) == counts(await second) == {"done": 1}
        assert shim.overrides == {(5, 1): at_ms + 1_500}


async def test_a_span_that_would_wait_long_is_refused(start: StartDaemon, socket_path: Path) -> None:
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        stream, at_ms = await opened(client)
        asked = asyncio.create_task(ask(socket_path, "reschedule", some(1), at_ms=at_ms + 5))
        await stream.until(lambda: bool(stream.reschedules))
        with (
            patch.object(rescheduling, "PATIENCE_S", 0.1),
            pytest.raises(UserError, match="other changes of its messages' times are under way"),
        ):
            await ask(socket_path, "reschedule", some(2), by_ms=5)
        stream.on_reschedule = shim = Shim()
        assert counts(await ask(socket_path, "reschedule", some(2), by_ms=5, dry_run=True)) == {"done": 1}
        client.send(shim(stream.reschedules[0][1]), stream.stream_id, stream.reschedules[0][0])
        assert counts(await asked) == {"done": 1}
        assert counts(await ask(socket_path, "reschedule", some(2), by_ms=5)) == {"done": 1}
        assert moved(daemon) == {(5, 1): at_ms + 5, (5, 2): at_ms + 5}


async def test_a_message_that_the_index_does_not_have_yet_is_asked_for_again(
    start: StartDaemon, socket_path: Path
) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC, "sub", credit=0)
        stream.on_reschedule = Shim(acknowledged=(2,))
        answer = await ask(socket_path, "reschedule", some(1, 2, 500), by_ms=1_000)
        assert counts(answer) == {"acknowledged": 1, "unknown": 1, "undecided": 1}
        assert "the index does not have yet" in answer["why"]


async def test_a_released_message_is_due_whatever_a_clock_says(start: StartDaemon, socket_path: Path) -> None:
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        stream, at_ms = await opened(client, credit=10)
        stream.on_reschedule = shim = Shim()
        before_ms = time.time_ns() // 1_000_000
        assert counts(await ask(socket_path, "release", some(7))) == {"done": 1}
        assert list(await stream.take_due(1)) == [(AT_ONCE_MS, 5, 7)]
        for more in ({"at_ms": at_ms}, {"at_ms": before_ms}):
            assert counts(await ask(socket_path, "release", some(9), **more)) == {"done": 1}
        assert list(await stream.take_due(1)) == [(AT_ONCE_MS, 5, 9)]
        assert shim.overrides == moved(daemon) == {(5, 7): AT_ONCE_MS, (5, 9): AT_ONCE_MS}
        shown = await query(socket_path, "show", id="5:7")
        assert (shown["deliver_at_ms"], shown["moved_from_ms"]) == (AT_ONCE_MS, at_ms)
        assert "moved_from_ms" not in await query(socket_path, "show", id="5:8")
        said = await asyncio.to_thread(run, "show", "orders", "sub", "5:7", "--socket", str(socket_path))
        assert f"due at once, moved from {due_utc(at_ms, ' UTC')}\n" in said.stdout


async def test_a_released_message_that_waits_is_shown_so(start: StartDaemon, socket_path: Path) -> None:
    """Without a credit it stays here. A span that is added to it begins now."""
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        stream, _ = await opened(client)
        stream.on_reschedule = shim = Shim()
        before_ms = time.time_ns() // 1_000_000
        assert counts(await ask(socket_path, "release", some(7, 9))) == {"done": 2}
        status = await asyncio.to_thread(ask_socket, socket_path, {"what": "status"})
        (told,) = status["subscriptions"]
        assert (told["overdue_ms"], told["near_due"]) == (0, True)
        assert before_ms <= told["next_due_ms"] <= time.time_ns() // 1_000_000
        assert (await query(socket_path, "tide"))["overdue"] == 2
        assert counts(await ask(socket_path, "reschedule", some(9), by_ms=HOUR_MS)) == {"done": 1}
        assert before_ms <= shim.overrides[5, 9] - HOUR_MS <= time.time_ns() // 1_000_000
        assert moved(daemon) == shim.overrides


async def test_it_is_answered_when_it_is_durable(start: StartDaemon, socket_path: Path) -> None:
    store = FlakyStore()
    async with start(store=store), await ShimClient.connect(socket_path) as client:
        stream, _ = await opened(client)
        stream.on_reschedule = Shim()
        store.stick()
        asked = asyncio.create_task(ask(socket_path, "release", some(1, 2)))
        await until(store.arrived.is_set)
        await asyncio.sleep(0.05)
        assert not asked.done()
        store.release()
        assert counts(await asked) == {"done": 2}


async def test_a_stream_that_ends_before_it_answers_is_asked_again(
    start: StartDaemon, socket_path: Path
) -> None:
    shim = Shim()
    async with start() as daemon:
        async with await ShimClient.connect(socket_path) as client:
            stream, at_ms = await opened(client)
            asked = asyncio.create_task(ask(socket_path, "reschedule", some(1), by_ms=HOUR_MS))
            await until(lambda: bool(stream.reschedules))
            shim(stream.reschedules[0][1])  # it has moved it, and the answer is lost with the connection
        async with await ShimClient.connect(socket_path) as client:
            stream = client.begin_open(TOPIC, "sub", credit=0)
            stream.on_reschedule = shim
            await stream.opened()
            stream.move(Entries.of((at_ms, *one) for one, at_ms in shim.overrides.items()))
            assert counts(await asked) == {"done": 1}
            assert moved(daemon) == shim.overrides == {(5, 1): at_ms + HOUR_MS}


@pytest.mark.parametrize(
    ("standing", "said"), [(Standing.UNSTORED, "not stored"), (Standing.NO_ROOM, "too many moved")]
)
async def test_nothing_is_done_before_it_is_stored(
    start: StartDaemon, socket_path: Path, standing: Standing, said: str
) -> None:
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        stream, _ = await opened(client)
        shim = Shim(2)
        stream.on_reschedule = lambda asked: replace(shim(asked), standing=standing)
        with patch.object(broker_changes, "PATIENCE_S", 0.3):
            answer = await ask(socket_path, "release", some(1, 2, 500))
        assert counts(answer) == {"too_late": 1, "unknown": 1, "undecided": 1}
        assert said in answer["why"]
        assert not moved(daemon)


async def test_a_moved_message_is_handed_out_at_its_new_time_only(
    start: StartDaemon, socket_path: Path
) -> None:
    """Frames of the broker: what its near tier has at the new time is not handed out; all else is, again."""
    async with start(), await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC, "sub", credit=100)
        now_ms = time.time_ns() // 1_000_000
        stream.add(Entries.of([(now_ms, 5, 1), (now_ms, 5, 2), (now_ms, 5, 3)]))
        assert len(await stream.take_due(3)) == 3
        stream.move(Entries.of([(now_ms + 1, 5, 1), (now_ms + HOUR_MS, 5, 2)]))
        assert list(await stream.take_due(1)) == [(now_ms + 1, 5, 1)]
        stream.move(Entries.of([(now_ms + 2, 5, 3)]), near=True)
        stream.move(Entries.of([(now_ms + 3, 5, 4)]))
        assert list(await stream.take_due(1)) == [(now_ms + 3, 5, 4)]
        stream.add(Entries.of([(now_ms, 5, 2), (now_ms, 5, 4)]))
        await stream.durable()
        assert not stream.due


async def test_moves_outlive_the_daemon(start: StartDaemon, socket_path: Path) -> None:
    store = MemoryStore()
    async with start(store=store) as daemon, await ShimClient.connect(socket_path) as client:
        stream, at_ms = await opened(client)
        stream.on_reschedule = Shim()
        assert counts(await ask(socket_path, "reschedule", some(1), at_ms=at_ms + 1)) == {"done": 1}
        assert moved(daemon) == {(5, 1): at_ms + 1}
    async with start(store=store.reopen()) as daemon:
        assert moved(daemon) == {(5, 1): at_ms + 1}


def test_a_change_by_a_span_begins_after_the_last_page() -> None:
    """A message moved from the first page would come again on the second, and be moved once more."""
    times = dict.fromkeys([(5, at) for at in range(20)], 1_000)
    moved = list[int]()

    def answer(query: dict[str, Any]) -> dict[str, Any]:
        if query["what"] == "waiting":
            page = sorted((at_ms, *one) for one, at_ms in times.items())
            page = [one for one in page if cursor_text(one) > (query["after"] or "")][: query["limit"]]
            entries = [{"message_id": f"{one[1]}:{one[2]}", "deliver_at_ms": one[0]} for one in page]
            return {
                "entries": entries,
                "next": cursor_text(page[-1]) if len(page) == query["limit"] else None,
            }
        some = PositionSet.deserialize(base64.b64decode(query["positions"]))
        moved.append(len(some))
        times.update((one, times[one] + query["by_ms"]) for one in some)
        return dict.fromkeys(COUNTS, 0) | {"done": len(some), "ids": {}}

    query = {"what": "reschedule", "topic": "orders", "subscription": "sub", "by_ms": 5_000}
    with patch.object(changes, "PAGE_ENTRIES", 7):
        course = changes.change_of_due(query, None, None, changes.Total(False), now_ms=lambda: 0)
        total = changes.run_blocking(course, answer)
    assert (total["done"], total["next"], moved) == (20, None, [20])
    assert set(times.values()) == {6_000}


def cursor_text(key: tuple[int, ...]) -> str:
    return ":".join(f"{one:08}" for one in key)


async def test_a_span_too_long_for_one_partition_changes_none(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        streams = []
        for number, at_ms in enumerate((5_000_000_000_000, 250_000_000_000_000)):
            stream = await client.open(f"{TOPIC}-partition-{number}", "sub", credit=0)
            stream.add(Entries.of([(at_ms, 5, number)]))
            await stream.durable()
            # Each partition has its own entry only.
            stream.on_reschedule = Shim() if number else DecidingBroker(entries=1).reschedule
            streams.append(stream)
        with pytest.raises(UserError, match="no message can wait so long, nothing was changed"):
            await ask(socket_path, "reschedule", some(0, 1), by_ms=10_000_000_000_000)
        assert not any(stream.reschedules for stream in streams)
        answer = await ask(socket_path, "reschedule", some(0, 1), by_ms=1_000)
        assert counts(answer) == {"done": 2}


async def test_a_span_releases_no_message_that_waits_for_ever(start: StartDaemon, socket_path: Path) -> None:
    """Pulsar takes any time of 63 bits."""
    async with start(), await ShimClient.connect(socket_path) as client:
        stream, _ = await opened(client)
        stream.on_reschedule = broker = Shim()
        stream.add(Entries.of([((1 << 63) - 1, 5, 100)]))
        await stream.durable()
        with pytest.raises(UserError, match="no message can wait so long, nothing was changed"):
            await ask(socket_path, "reschedule", some(1, 100), by_ms=1_800_000)
        assert not broker.overrides


async def test_what_one_partition_has_changed_is_told_though_the_next_fails(
    start: StartDaemon, socket_path: Path
) -> None:
    async with (
        start(),
        await ShimClient.connect(socket_path) as client,
        await ShimClient.connect(socket_path, "broker-2", version=5) as old,
    ):
        for number, of in enumerate((client, old)):
            stream = await of.open(f"{TOPIC}-partition-{number}", "sub", credit=0)
            stream.add(Entries.of([(time.time_ns() // 1_000_000 + HOUR_MS, 5, number)]))
            await stream.durable()
            # Each partition has its own entry only.
            stream.on_reschedule = Shim() if number else DecidingBroker(entries=1).reschedule
        answer = await ask(socket_path, "reschedule", some(0, 1), at_ms=5_000_000_000_000)
        assert counts(answer) == {"done": 1, "undecided": 1}
        assert "has a shim that cannot reschedule" in answer["why"]
        with pytest.raises(UserError, match="has a shim that cannot reschedule"):
            await ask(socket_path, "reschedule", some(1), at_ms=5_000_000_000_000)


async def test_a_shim_of_before_is_not_asked(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.connect(socket_path, version=5) as client:
        stream, _ = await opened(client)
        with pytest.raises(UserError, match="has a shim that cannot reschedule"):
            await ask(socket_path, "release", some(1))
        assert not stream.reschedules


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "needs at_ms or by_ms"),
        ({"at_ms": 1_790_000_000_000, "by_ms": 5}, "needs at_ms or by_ms"),
        ({"at_ms": 1_790_000_000}, "give milliseconds"),
        ({"at_ms": -5}, "before 1970"),
        ({"at_ms": 1 << 62}, "after the year 9999"),
        ({"at_ms": "soon"}, "at_ms must be a whole number"),
        ({"by_ms": True}, "by_ms must be a whole number"),
        ({"by_ms": 1 << 62}, "no message can wait so long"),
        ({"by_ms": 253_402_000_000_000}, "no message can wait so long"),
        ({"by_ms": 5, "positions": "%%"}, "must be a set in base64"),
    ],
)
async def test_requests_that_make_no_sense_change_nothing(
    more: dict[str, object], said: str, start: StartDaemon, socket_path: Path
) -> None:
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        stream, _ = await opened(client)
        stream.on_reschedule = Shim()
        with pytest.raises(UserError, match=said):
            await ask(socket_path, "reschedule", some(1), **more)
        assert not stream.reschedules
        assert not moved(daemon)


def chunks_of(*numbers: int) -> Callable[[Peek], Peeked]:
    """A shim whose messages of these entry ids are the chunks of one message."""
    told = {f"5:{entry}": [number, len(numbers), "p-1"] for number, entry in enumerate(numbers)}

    def peek(asked: Peek) -> Peeked:
        found = {f"{at}:{entry}": told.get(f"{at}:{entry}") for at, entry in asked.positions}
        content = {"chunks": {name: one for name, one in found.items() if one}}
        return Peeked(asked.positions, NOTHING, 40, json.dumps(content).encode())

    return peek


@pytest.mark.parametrize("what", ["release", "reschedule"])
async def test_the_chunks_of_a_message_do_not_come_apart(
    what: str, start: StartDaemon, socket_path: Path
) -> None:
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        stream, at_ms = await opened(client)
        stream.on_reschedule, stream.on_peek = Shim(), chunks_of(3, 5, 8)
        more = {"at_ms": at_ms + HOUR_MS} if what == "reschedule" else {}
        for entry_id in (3, 8):
            said = f"5:{entry_id} is chunk . of 3 of a message.*nothing was changed"
            with pytest.raises(UserError, match=said):
                await ask(socket_path, what, some(1, entry_id), by_ids=True, **more)
        assert not moved(daemon)
        assert counts(await ask(socket_path, what, some(1, 3, 5, 8), by_ids=True, **more)) == {"done": 4}
        page = await ask(socket_path, what, some(2, 3), **more)  # of a range: another page has the others
        assert counts(page) == {"done": 2}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"no JSON",
        b'{"chunks": [1]}',
        b'{"chunks": {"x": [0, 2, "p"]}}',
        b'{"chunks": {"5:3": [1, "3", "p"]}}',
        b'{"chunks": {"5:3": [1, 3, []]}}',
    ],
)
async def test_a_shim_that_tells_no_chunks_stops_nothing(
    content: bytes, start: StartDaemon, socket_path: Path
) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        stream, _ = await opened(client)
        stream.on_reschedule = Shim()
        stream.on_peek = lambda asked: Peeked(asked.positions, NOTHING, 40, content)
        assert counts(await ask(socket_path, "release", some(3), by_ids=True)) == {"done": 1}


async def test_chunks_are_asked_for_again_until_all_are_read(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        stream, _ = await opened(client)
        stream.on_reschedule = Shim()
        chunks, asked = chunks_of(3, 5, 8), list[Peek]()

        def half_read(peek: Peek) -> Peeked:
            asked.append(peek)
            left = PositionSet.of([(5, 8)]) if len(asked) % 2 else NOTHING
            answer = chunks(Peek(peek.positions.difference(left)))
            return replace(answer, unread=left)

        stream.on_peek = half_read
        assert counts(await ask(socket_path, "release", some(3, 5, 8), by_ids=True)) == {"done": 3}
        assert [len(peek.positions) for peek in asked] == [3, 1]


async def test_chunks_that_cannot_be_read_stop_nothing(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        stream, _ = await opened(client)
        stream.on_reschedule = Shim()
        chunks, last = chunks_of(3, 5), PositionSet.of([(5, 5)])
        stream.on_peek = lambda asked: replace(chunks(Peek(asked.positions.difference(last))), unread=last)
        assert counts(await ask(socket_path, "release", some(3, 5), by_ids=True)) == {"done": 2}


async def test_a_broker_that_reads_nothing_stops_nothing(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        stream, _ = await opened(client)
        stream.on_reschedule, stream.on_peek = Shim(), None
        with patch.object(peeking, "CONTENT_PATIENCE_S", 0.1):
            assert counts(await ask(socket_path, "release", some(3), by_ids=True)) == {"done": 1}


async def test_the_commands(serve: Serve, socket_path: Path, tmp_path: Path) -> None:
    daemon = serve()
    await daemon.ready()
    socket = ("--socket", str(socket_path))

    async def command(*words: str) -> Any:
        return await asyncio.to_thread(run, *words, *socket)

    async with await ShimClient.connect(socket_path) as client:
        stream, at_ms = await opened(client)
        stream.on_reschedule = shim = Shim(90)
        one = await command("reschedule", *AT, "--id", "5:1", "--at", str(at_ms + HOUR_MS), "--json")
        assert one.returncode == 0, one.stderr
        assert counts(json.loads(one.stdout)) == {"done": 1}
        iso = await command("reschedule", *AT, "--id", "5:2", "--at", "2099-01-01T00:00:00Z")
        assert iso.stdout.startswith("1 rescheduled, 0 too late")
        assert shim.overrides == {(5, 1): at_ms + HOUR_MS, (5, 2): 4_070_908_800_000}
        file = tmp_path / "ids"
        file.write_text("5:3\n5:90\n", "utf-8")
        mixed = await command("reschedule", *AT, "--ids", str(file), "--by", "-10m", "--json")
        assert mixed.returncode == 1
        assert counts(json.loads(mixed.stdout)) == {"done": 1, "too_late": 1}
        assert shim.overrides[5, 3] == at_ms - 600_000
        dry = await command("release", *AT, "--due", "10m..70m", "--dry-run", "--json")
        assert counts(json.loads(dry.stdout)) == {"done": 97, "too_late": 1}
        every = await command("reschedule", *AT, "--all", "--by", "1s")
        assert every.stdout.startswith("99 rescheduled, 1 too late"), every.stderr
        assert shim.overrides[5, 4] == at_ms + 1_000
        released = await command("release", *AT, "--all", "--json")
        assert counts(json.loads(released.stdout)) == {"done": 99, "too_late": 1}
        assert (await command("list", *AT, "--limit", "1")).stdout == "at once              5:0\n"
        assert ", due at once" in (await command("show", *AT, "5:0")).stdout
        for words, said in (
            (("reschedule", *AT, "--id", "5:1"), "give one of --at and --by"),
            (("reschedule", *AT, "--id", "5:1", "--at", "1790000000"), "give milliseconds"),
            (("reschedule", *AT, "--id", "5:1", "--at", "99999999999999999"), "after the year 9999"),
            (("reschedule", *AT, "--id", "5:1", "--by", "soon"), "is not a duration"),
            (("reschedule", *AT, "--due", "1h..10m", "--by", "1m"), "ends before it begins"),
            (("release", *AT), "give one of --id, --ids, --due and --all"),
            (("release", "orders", "other", "--id", "5:1"), "no subscription"),
        ):
            wrong = await command(*words)
            assert wrong.returncode != 0
            assert said in wrong.stderr, wrong.stderr
        assert_one_line(await command("release", *AT, "--id", "five"), "is no message id", 1)
