"""Messages are cancelled through a running daemon; the test plays the broker, which decides."""

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
from tests.support.flaky_store import FlakyStore
from tests.support.shim_client import ClientStream, ShimClient
from tests.support.waiting import until
from tidegate import Changed, Client, TidegateError
from tidegate.index import Entries, PositionSet, SubscriptionName
from tidegate.index.log.memory_home import World
from tidegate.plugin.daemon import broker_changes, cancelling, message_queries
from tidegate.plugin.daemon.index_logs import stream_log
from tidegate.plugin.daemon.serve import RunningDaemon
from tidegate.plugin.errors import UserError
from tidegate.plugin.wire.client import ask_socket
from tidegate.plugin.wire.messages import Cancel, Cancelled, Standing

TOPIC = "persistent://public/default/orders"
HOUR_MS = 3_600_000
NOTHING = PositionSet()
UNDECIDED = Cancelled(NOTHING, NOTHING, NOTHING, Standing.UNDECIDED)
COUNTS = ("done", "too_late", "acknowledged", "unknown", "undecided")
Serve = Callable[..., DaemonProcess]


def some(*entry_ids: int) -> PositionSet:
    return PositionSet.of((5, entry_id) for entry_id in entry_ids)


async def ask(socket_path: Path, positions: PositionSet, /, **more: object) -> dict[str, Any]:
    text = base64.b64encode(positions.serialize()).decode("ascii")
    request = {"what": "cancel", "topic": "orders", "subscription": "sub", "positions": text, **more}
    return await asyncio.to_thread(ask_socket, socket_path, request, 30.0)


def counts(answer: dict[str, Any]) -> dict[str, int]:
    return {name: answer[name] for name in COUNTS if answer[name]}


class Shim:
    """Decides as a broker does that holds what it was told, and has handed out ``given``."""

    def __init__(self, *given: int) -> None:
        self.given = some(*given)
        self.settling = PositionSet()

    def __call__(self, cancel: Cancel) -> Cancelled:
        acknowledged = cancel.positions.intersection(self.settling)
        too_late = cancel.positions.intersection(self.given)
        left = cancel.positions.difference(acknowledged).difference(too_late)
        left = left.intersection(PositionSet.of((5, at) for at in range(100)))
        if not cancel.ask:
            self.settling.update(left)
        return Cancelled(left, too_late, acknowledged)


async def opened(client: ShimClient, topic: str = TOPIC, **options: Any) -> ClientStream:
    stream = await client.open(topic, "sub", credit=0, **options)
    at_ms = time.time_ns() // 1_000_000 + HOUR_MS
    stream.add(Entries.of((at_ms, 5, entry_id) for entry_id in range(100)))
    await stream.durable()
    return stream


def held(daemon: RunningDaemon) -> PositionSet:
    index = daemon.engine.catalog.get(SubscriptionName(TOPIC, "sub"))
    assert index is not None
    index.check()
    return index.state.held.snapshot()


async def test_the_broker_decides_and_the_index_follows(start: StartDaemon, socket_path: Path) -> None:
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        stream = await opened(client)
        stream.on_cancel = Shim(2)
        dry = await ask(socket_path, some(1, 2, 500), dry_run=True)
        assert counts(dry) == {"done": 1, "too_late": 1, "unknown": 1}
        assert len(held(daemon)) == 100
        answer = await ask(socket_path, some(1, 2, 500))
        assert counts(answer) == {"done": 1, "too_late": 1, "unknown": 1}
        assert answer["ids"] == {"too_late": ["5:2"], "unknown": ["5:500"]}
        assert (5, 1) not in held(daemon)
        assert len(held(daemon)) == 99
        assert counts(await ask(socket_path, some(1))) == {"acknowledged": 1}


async def test_it_is_answered_when_it_is_durable(start: StartDaemon, socket_path: Path) -> None:
    store = FlakyStore()
    async with start(store=store), await ShimClient.connect(socket_path) as client:
        stream = await opened(client)
        stream.on_cancel = Shim()
        store.stick()
        asked = asyncio.create_task(ask(socket_path, some(1, 2)))
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
            stream = await opened(client)
            asked = asyncio.create_task(ask(socket_path, some(1, 2)))
            await until(lambda: bool(stream.cancels))
            shim(stream.cancels[0][1])  # it has cancelled, and the answer is lost with the connection
        async with await ShimClient.connect(socket_path) as client:
            stream = client.begin_open(TOPIC, "sub", credit=0)
            stream.on_cancel = shim
            await stream.opened()
            stream.ack(some(1, 2))
            assert counts(await asked) == {"acknowledged": 2}
            await stream.durable()
            assert len(held(daemon)) == 98


async def test_what_is_answered_and_then_taken_over_is_done_once(
    start: StartDaemon, socket_path: Path
) -> None:
    """The broker's answer and its successor's OPEN come together: the successor is asked."""
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        stream = await opened(client)
        asked = asyncio.create_task(ask(socket_path, some(1, 2)))
        await until(lambda: bool(stream.cancels))
        async with await ShimClient.connect(socket_path, "broker-2") as other:
            successor = other.begin_open(TOPIC, "sub", credit=0, epoch=2)
            successor.on_cancel = Shim()
            await successor.opened()
            assert counts(await asked) == {"done": 2}
            assert len(held(daemon)) == 98


async def test_undecided_is_asked_again_and_told_in_the_end(start: StartDaemon, socket_path: Path) -> None:
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        stream = await opened(client)
        shim = Shim()
        stream.on_cancel = lambda cancel: shim(cancel) if len(stream.cancels) > 3 else UNDECIDED
        assert counts(await ask(socket_path, some(1))) == {"done": 1}
        stream.on_cancel = lambda _: UNDECIDED
        with patch.object(broker_changes, "PATIENCE_S", 0.3):
            answer = await ask(socket_path, some(3))
        assert counts(answer) == {"undecided": 1}
        assert "the broker cannot decide now" in answer["why"]
        assert (5, 3) in held(daemon)


@pytest.mark.parametrize(
    ("standing", "said"), [(Standing.UNSTORED, "not stored"), (Standing.NO_ROOM, "no room")]
)
async def test_nothing_is_done_before_pulsar_has_stored_it(
    start: StartDaemon, socket_path: Path, standing: Standing, said: str
) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        stream = await opened(client)
        shim, ready = Shim(2), [False]

        def answer(cancel: Cancel) -> Cancelled:
            decided = shim(cancel)
            return decided if ready[0] else replace(decided, standing=standing)

        stream.on_cancel = answer
        with patch.object(broker_changes, "PATIENCE_S", 0.3):
            first = await ask(socket_path, some(1, 2, 500))
        assert counts(first) == {"too_late": 1, "unknown": 1, "undecided": 1}
        assert first["ids"]["undecided"] == ["5:1"]
        assert said in first["why"]
        ready[0] = True
        assert counts(await ask(socket_path, some(1))) == {"acknowledged": 1}


async def test_what_is_stored_at_the_second_try_is_done(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        stream = await opened(client)
        shim = Shim()
        assert len(shim(Cancel(some(3))).changed) == 1  # before, by somebody else

        def answer(cancel: Cancel) -> Cancelled:
            decided = shim(cancel)
            return replace(decided, standing=Standing.UNSTORED) if len(stream.cancels) == 1 else decided

        stream.on_cancel = answer
        assert counts(await ask(socket_path, some(1, 3))) == {"done": 1, "acknowledged": 1}


@pytest.mark.parametrize("standing", [Standing.SETTLED, Standing.UNSTORED])
async def test_what_the_next_owner_has_not_read_is_perhaps_done(
    start: StartDaemon, socket_path: Path, standing: Standing
) -> None:
    """It names neither: one that was cancelled by the former owner is not unknown for that."""
    async with start(), await ShimClient.connect(socket_path) as client:
        stream = await opened(client)
        shim = Shim()

        def answer(cancel: Cancel) -> Cancelled:
            if len(stream.cancels) == 1:
                return replace(shim(cancel), standing=Standing.UNSTORED)
            return Cancelled(NOTHING, NOTHING, NOTHING, standing)

        stream.on_cancel = answer
        with patch.object(broker_changes, "PATIENCE_S", 0.3):
            told = await ask(socket_path, some(1, 500))
        assert counts(told) == {"unknown": 1, "undecided": 1}
        assert told["ids"] == {"unknown": ["5:500"], "undecided": ["5:1"]}


async def test_what_a_failing_store_has_not_is_undecided_and_the_rest_is_told(
    start: StartDaemon, socket_path: Path
) -> None:
    store = FlakyStore()
    async with start(store=store, storage_retry_ms=50) as daemon:
        async with await ShimClient.connect(socket_path) as client:
            stream = await opened(client)
            shim = Shim(2)

            def answer(cancel: Cancel) -> Cancelled:
                store.failing = True
                return shim(cancel)

            stream.on_cancel = answer
            told = await ask(socket_path, some(1, 2, 500))
            assert counts(told) == {"too_late": 1, "unknown": 1, "undecided": 1}
            assert told["ids"]["undecided"] == ["5:1"]
            assert "the store fails, a crash may undo what was changed" in told["why"]
            with pytest.raises(UserError, match="the store is failing"):
                await ask(socket_path, some(3))
            assert len(stream.cancels) == 1
            store.failing = False
            await until(lambda: daemon.health.ready)
        async with await ShimClient.connect(socket_path) as client:
            stream = await client.open(TOPIC, "sub", credit=0)
            stream.on_cancel = shim
            assert counts(await ask(socket_path, some(1))) == {"acknowledged": 1}


async def test_no_partition_is_asked_any_more_when_the_store_has_failed(
    start: StartDaemon, socket_path: Path
) -> None:
    store = FlakyStore()
    async with start(store=store), await ShimClient.connect(socket_path) as client:
        streams = [await opened(client, f"{TOPIC}-partition-{number}") for number in range(2)]
        shims = [Shim(), Shim()]

        def answer(cancel: Cancel) -> Cancelled:
            store.failing = True
            return shims[0](cancel)

        streams[0].on_cancel = answer
        streams[1].on_cancel = shims[1]
        told = await ask(socket_path, some(1, 500))
        assert counts(told) == {"undecided": 2}
        assert "the store is failing" in told["why"]
        assert not streams[1].cancels
        store.failing = False


async def test_a_bug_over_what_was_cancelled_ends_the_stream_and_the_next_is_asked(
    start: StartDaemon, socket_path: Path
) -> None:
    shim = Shim()
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        stream = await opened(client)
        stream.on_cancel = shim
        index = daemon.engine.catalog.get(SubscriptionName(TOPIC, "sub"))
        with patch.object(type(index), "acknowledge", side_effect=RuntimeError("a bug")):
            asked = asyncio.create_task(ask(socket_path, some(1)))
            await stream.ended()
        stream = await client.open(TOPIC, "sub", credit=0)
        stream.on_cancel = shim
        assert counts(await asked) == {"done": 1}


async def test_what_the_index_log_has_not_is_not_done(start: StartDaemon, socket_path: Path) -> None:
    """The next owner restores the index from the log."""
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        client.offer_logs(World())
        stream = await opened(client)
        stream.on_cancel = Shim()
        assert counts(await ask(socket_path, some(1))) == {"done": 1}
        client.log_silent = True
        with (
            patch.object(broker_changes, "PATIENCE_S", 0.3),
            patch.object(stream_log, "LAST_WORDS_SECONDS", 0.1),
        ):
            told = await ask(socket_path, some(2))
        assert counts(told) == {"undecided": 1}
        assert daemon.engine.log_states()[0].lag_seconds > 0
        client.log_silent = False


async def test_what_the_index_does_not_believe_is_not_done(start: StartDaemon, socket_path: Path) -> None:
    """Damage was found in it: until the stream is opened anew no acknowledgement counts."""
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        stream = await opened(client)
        stream.on_cancel = Shim()
        index = daemon.engine.catalog.get(SubscriptionName(TOPIC, "sub"))
        assert index is not None
        index.forget_acknowledgements()
        with patch.object(broker_changes, "PATIENCE_S", 0.3):
            answer = await ask(socket_path, some(1))
        assert counts(answer) == {"undecided": 1}
        assert (5, 1) in held(daemon)


async def test_without_a_broker_nothing_is_decided(start: StartDaemon, socket_path: Path) -> None:
    async with start() as daemon:
        async with await ShimClient.connect(socket_path) as client:
            await opened(client)
        await until(lambda: not daemon.engine.brokers)
        with patch.object(broker_changes, "PATIENCE_S", 0.3):
            answer = await ask(socket_path, some(1))
        assert counts(answer) == {"undecided": 1}
        assert "no broker serves" in answer["why"]
        assert len(held(daemon)) == 100


async def test_a_shim_of_before_is_not_asked(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.connect(socket_path, version=3) as client:
        stream = await opened(client)
        with pytest.raises(UserError, match="has a shim that cannot cancel"):
            await ask(socket_path, some(1))
        assert not stream.cancels
        shown = await asyncio.to_thread(
            ask_socket, socket_path, {"what": "show", "topic": "orders", "subscription": "sub", "id": "5:1"}
        )
        assert shown["state"] == "waiting"


async def test_partitions_get_what_is_theirs(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        streams = [await opened(client, f"{TOPIC}-partition-{number}") for number in range(2)]
        shims = [Shim(), Shim()]
        for stream, shim in zip(streams, shims, strict=True):
            stream.on_cancel = shim
        assert counts(await ask(socket_path, some(7), partition=1)) == {"done": 1}
        assert (len(shims[0].settling), len(shims[1].settling)) == (0, 1)
        assert counts(await ask(socket_path, some(500))) == {"unknown": 1}
        with pytest.raises(UserError, match="partition 4 is not of this topic"):
            await ask(socket_path, some(7), partition=4)


async def test_segments_of_a_scalable_topic_get_what_is_theirs(start: StartDaemon, socket_path: Path) -> None:
    """Also beside one that has ended, and has no broker any more."""
    names = [f"segment://public/default/orders/{name}" for name in ("0000-7fff-1", "8000-ffff-2")]
    async with start() as daemon:
        async with await ShimClient.connect(socket_path) as gone:
            await gone.open("segment://public/default/orders/0000-ffff-0", "sub", credit=0)
        async with await ShimClient.connect(socket_path) as client:
            for ledger_id, name in enumerate(names, 5):
                stream = await client.open(name, "sub", credit=0)
                stream.on_cancel = lambda cancel, ledger_id=ledger_id: Cancelled(
                    cancel.positions.within(ledger_id, ledger_id), NOTHING, NOTHING
                )
                due_ms = time.time_ns() // 1_000_000 + HOUR_MS
                stream.add(Entries.of((due_ms, ledger_id, at) for at in range(9)))
                await stream.durable()
            wanted = PositionSet.of([(5, 1), (6, 2), (6, 3)])
            answer = await ask(socket_path, wanted, topic="topic://public/default/orders")
            assert counts(answer) == {"done": 3}
            left = [daemon.engine.catalog.get(SubscriptionName(name, "sub")) for name in names]
            assert [len(one.state.held) for one in left if one is not None] == [8, 7]


async def test_a_segment_without_a_broker_keeps_no_other_from_its_change(
    start: StartDaemon, socket_path: Path
) -> None:
    names = [f"segment://public/default/orders/{name}" for name in ("0000-7fff-1", "8000-ffff-2")]
    due_ms = time.time_ns() // 1_000_000 + HOUR_MS
    async with start():
        async with await ShimClient.connect(socket_path) as gone:
            stream = await gone.open(names[0], "sub", credit=0)
            stream.add(Entries.of((due_ms, 5, at) for at in range(9)))
            await stream.durable()
        async with await ShimClient.connect(socket_path) as client:
            stream = await client.open(names[1], "sub", credit=0)
            stream.on_cancel = lambda cancel: Cancelled(cancel.positions.within(6, 6), NOTHING, NOTHING)
            stream.add(Entries.of((due_ms, 6, at) for at in range(9)))
            await stream.durable()
            wanted = PositionSet.of([(5, 1), (6, 2), (6, 3)])
            with patch.object(broker_changes, "PATIENCE_S", 0.05):
                answer = await ask(socket_path, wanted, topic="topic://public/default/orders")
            assert counts(answer) == {"done": 2, "undecided": 1}
            assert "no broker serves segment://public/default/orders/0000-7fff-1" in answer["why"]


async def test_partitions_of_another_topic_are_not_meant(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        stream = await opened(client, f"{TOPIC}-partition-0")
        stream.on_cancel = Shim()
        with pytest.raises(UserError, match="no subscription 'other:sub'"):
            await ask(socket_path, some(7), topic="other")
        assert not stream.cancels


async def test_an_id_without_its_partition_waits_for_few_silent_brokers(
    start: StartDaemon, socket_path: Path
) -> None:
    request = {"what": "show", "topic": "orders", "subscription": "sub", "id": "9:9"}
    async with start(), await ShimClient.connect(socket_path) as client:
        streams = [await opened(client, f"{TOPIC}-partition-{number}") for number in range(5)]
        with (
            patch.object(message_queries, "SHOW_PATIENCE_S", 0.05),
            patch.object(broker_changes, "LOOK_PATIENCE_S", 0.1),
            patch.object(cancelling, "LOOK_PATIENCE_S", 0.1),
            pytest.raises(UserError, match="give the id with its partition"),
        ):
            await asyncio.to_thread(ask_socket, socket_path, request)
        assert [bool(stream.cancels) for stream in streams] == [True, False, False, False, False]


async def test_ids_of_several_partitions_go_over_the_socket(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        for number in range(2):
            stream = await opened(client, f"{TOPIC}-partition-{number}")
            stream.on_cancel = Shim()

        def cancel(*ids: str) -> Changed:
            with Client(socket=socket_path) as own:
                return own.cancel("orders", "sub", ids=ids)

        with pytest.raises(TidegateError, match="partition 4 is not of this topic"):
            await asyncio.to_thread(cancel, "5:7:0", "5:7:4")
        done = await asyncio.to_thread(cancel, "5:7:0", "5:7:1", "5:500:1")
        assert (done.done, done.unknown, done.acknowledged) == (2, 1, 0)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"positions": "%%"}, "must be a set in base64"),
        ({"positions": "AAAA"}, "must be a set in base64"),
        ({"positions": 5}, "needs positions"),
        ({"positions": base64.b64encode(NOTHING.serialize()).decode()}, "0 positions, and 1 to 10000"),
        ({"dry_run": "yes"}, "dry_run must be true or false"),
        ({"partition": -1}, "partition must be a number"),
        ({"subscription": ""}, "needs subscription"),
        ({"topic": "other"}, "no subscription 'other:sub'"),
    ],
)
async def test_what_makes_no_sense_changes_nothing(
    more: dict[str, object], said: str, start: StartDaemon, socket_path: Path
) -> None:
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        stream = await opened(client)
        stream.on_cancel = Shim()
        with pytest.raises(UserError, match=said):
            await ask(socket_path, some(1), **more)
        assert not stream.cancels
        assert len(held(daemon)) == 100


async def test_too_many_at_once_are_refused(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        await opened(client)
        with pytest.raises(UserError, match="20000 positions, and 1 to 10000 can be in one request"):
            await ask(socket_path, PositionSet.of((5, at) for at in range(20_000)))


async def test_the_command(serve: Serve, socket_path: Path, tmp_path: Path) -> None:
    daemon = serve()
    await daemon.ready()
    at = ("orders", "sub", "--socket", str(socket_path))
    async with await ShimClient.connect(socket_path) as client:
        stream = await opened(client)
        stream.on_cancel = Shim(90)
        one = await asyncio.to_thread(run, "cancel", *at, "--id", "5:1", "--id", "5:1", "--json")
        assert one.returncode == 0, one.stderr
        assert counts(json.loads(one.stdout)) == {"done": 1}
        file = tmp_path / "ids"
        file.write_text("5:1\n\n(5,2,-1,-1)\n5:90\n", "utf-8")
        mixed = await asyncio.to_thread(run, "cancel", *at, "--ids", str(file), "--json")
        assert mixed.returncode == 1
        assert counts(json.loads(mixed.stdout)) == {"done": 1, "too_late": 1, "acknowledged": 1}
        dry = await asyncio.to_thread(run, "cancel", *at, "--due", "10m..2h", "--dry-run", "--json")
        assert counts(json.loads(dry.stdout)) == {"done": 97, "too_late": 1}
        every = await asyncio.to_thread(run, "cancel", *at, "--all")
        assert every.returncode == 1
        assert every.stdout.startswith("97 cancelled, 1 too late, 0 acknowledged")
        assert "too late: 5:90" in every.stdout
        file.write_text("5:1\nfive\n", "utf-8")
        bad = tmp_path / "bad"
        bad.write_bytes(b"\xff\xfe\x00")
        for arguments, said, code in (
            ((), "give one of --id, --ids, --due and --all", 2),
            (("--all", "--id", "5:1"), "give one of --id, --ids, --due and --all", 2),
            (("--due", "2h..1h"), "ends before it begins", 2),
            (("--ids", str(file)), "line 2: 'five' is no message id", 1),
            (("--ids", str(bad)), "is no file of message ids", 1),
            (("--ids", str(tmp_path / "none")), "cannot use", 1),
        ):
            assert_one_line(await asyncio.to_thread(run, "cancel", *at, *arguments), said, code)
