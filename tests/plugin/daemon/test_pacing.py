"""Subscriptions are paused and paced through a running daemon; the test plays the broker, which decides."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from unittest.mock import patch

import pytest

from tests.support.daemons import StartDaemon, assert_one_line, run
from tests.support.shim_client import ShimClient, entries
from tests.support.waiting import until
from tidegate.index import SubscriptionName
from tidegate.plugin.daemon import pacing
from tidegate.plugin.daemon.serve import RunningDaemon
from tidegate.plugin.errors import UserError
from tidegate.plugin.wire.client import ask_socket
from tidegate.plugin.wire.messages import Pace, Paced
from tidegate.plugin.wire.release_pace import PaceKind, ReleasePace

TOPIC = "persistent://public/default/orders"
PAUSED = ReleasePace(PaceKind.PAUSED)
NONE = ReleasePace()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def ask(socket_path: Path, **more: object) -> dict[str, Any]:
    request = {"what": "pace", "topic": "orders", "subscription": "sub", **more}
    return await asyncio.to_thread(ask_socket, socket_path, request, 30.0)


async def metrics(daemon: RunningDaemon) -> str:
    with await asyncio.to_thread(
        urllib.request.urlopen, f"http://127.0.0.1:{daemon.http_port}/metrics"
    ) as answer:
        return str(answer.read(), "utf-8")


async def scraped(daemon: RunningDaemon, *lines: str) -> None:
    """Wait until a scrape shows these: an answer may be of a moment ago."""
    for _ in range(200):
        text = await metrics(daemon)
        if all(line in text for line in lines):
            return
        await asyncio.sleep(0.05)
    raise AssertionError([line for line in text.splitlines() if "held_back" in line or "lateness" in line])


async def command(*arguments: str) -> CompletedProcess[str]:
    return await asyncio.to_thread(run, *arguments)


class Broker:
    """Keeps the pace that it is told, and holds ``held_back`` back."""

    def __init__(self, pace: ReleasePace = NONE, held_back: int = 0) -> None:
        self.pace = pace
        self.held_back = held_back

    def __call__(self, asked: Pace) -> Paced:
        if not asked.ask:
            self.pace = asked.pace
        return Paced(self.pace, self.held_back if self.pace.is_on else 0)


async def test_the_broker_keeps_it_and_everything_shows_it(start: StartDaemon, socket_path: Path) -> None:
    async with start(http="127.0.0.1:0") as daemon, await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC, "sub", credit=10)
        stream.on_pace = broker = Broker(held_back=10)
        answer = await ask(socket_path)
        assert answer["subscriptions"] == [
            {"topic": TOPIC, "subscription": "sub", "paused": False, "rate": None, "spread_ms": None}
            | {"held_back": 0}
        ]
        assert (await ask(socket_path, kind="paused"))["done"]
        assert broker.pace == PAUSED
        stream.add(entries(25, now_ms() - 60_000))
        await stream.take_due(10)
        answer = await ask(socket_path)
        assert answer["held_back"] == 25, "10 with the broker, 15 that it has no room for"
        status = await asyncio.to_thread(ask_socket, socket_path, {"what": "status"})
        assert status["paced"] == {
            "subscriptions": 1,
            "paused": 1,
            "named": [
                {"topic": TOPIC, "subscription": "sub", "paused": True, "rate": None, "spread_ms": None}
            ],
        }
        assert status["subscriptions"][0]["pace"]["paused"]
        said = await command("status", "--socket", str(socket_path))
        assert f"PAUSED: {TOPIC}:sub: nothing leaves until tidegate resume" in said.stdout
        assert "consumers do not keep up" not in said.stdout
        labels = 'namespace="public/default",subscription="sub",topic="' + TOPIC + '"'
        await scraped(
            daemon,
            f"tidegate_subscription_paused{{{labels}}} 1.0",
            f"tidegate_subscription_entries_held_back{{{labels}}} 25.0",
            "tidegate_subscriptions_paused 1.0",
        )

        assert (await ask(socket_path, kind="rate", amount=500))["done"]
        assert broker.pace == ReleasePace(PaceKind.RATE, 500)
        said = await command("status", "--socket", str(socket_path))
        assert f"PACE: {TOPIC}:sub: at most 500 a second leave" in said.stdout
        await scraped(daemon, f"tidegate_subscription_release_rate{{{labels}}} 500.0")
        await ask(socket_path, kind="none")
        assert "PACE" not in (await command("status", "--socket", str(socket_path))).stdout
        audited = (daemon.engine.settings.data / "audit.jsonl").read_text("utf-8").splitlines()
        changes = [(one["command"], one["kind"], one["done"]) for one in map(json.loads, audited)]
        assert changes == [("pace", kind, True) for kind in ("paused", "rate", "none")]


async def test_what_was_held_back_is_not_late(start: StartDaemon, socket_path: Path) -> None:
    """A minute late: with cause before the resume, without after it."""
    async with start(http="127.0.0.1:0") as daemon, await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC, "sub", credit=0)
        stream.on_pace = Broker()
        await ask(socket_path, kind="paused")
        stream.add(entries(5, now_ms() - 60_000))
        await stream.durable()
        await ask(socket_path, kind="none")
        stream.give_credit(5)
        await stream.take_due(5)
        await scraped(daemon, "tidegate_entries_held_back_total 5.0", "tidegate_lateness_seconds_count 0.0")
        await asyncio.sleep(0.01)
        stream.add(entries(3, now_ms(), ledger_id=2))
        await stream.durable()
        await asyncio.sleep(0.01)
        stream.give_credit(3)
        await stream.take_due(3)
        await scraped(daemon, "tidegate_entries_held_back_total 5.0", "tidegate_lateness_seconds_count 3.0")


async def test_a_broker_tells_a_new_stream_and_a_restart_forgets_nothing(
    start: StartDaemon, socket_path: Path
) -> None:
    async with start(http="127.0.0.1:0") as daemon, await ShimClient.connect(socket_path) as client:
        stream = client.begin_open(TOPIC, "sub", credit=100)
        client.send(Paced(PAUSED), stream.stream_id)
        await stream.until(lambda: stream.answered)
        stream.add(entries(5, now_ms() - 60_000))
        await stream.take_due(5)
        await scraped(daemon, "tidegate_entries_held_back_total 5.0", "tidegate_lateness_seconds_count 0.0")
        stream.on_pace = Broker(PAUSED)
        assert (await ask(socket_path))["subscriptions"][0]["paused"]


async def test_an_answer_that_comes_behind_the_close_is_dropped(
    start: StartDaemon, socket_path: Path
) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC, "sub")
        await stream.close()
        client.send(Paced(PAUSED), stream.stream_id, 7)
        other = await client.open(TOPIC, "sub")
        assert stream.error is None
        assert other.error is None


async def test_what_is_not_set_says_why(start: StartDaemon, socket_path: Path) -> None:
    with patch.object(pacing, "PATIENCE_S", 0.3):
        async with start():
            async with await ShimClient.connect(socket_path) as client:
                stream = await client.open(TOPIC, "sub")
                stream.on_pace = lambda _: Paced(NONE, 0, "Pulsar could not store it")
                answer = await ask(socket_path, kind="paused")
                assert not answer["done"]
                assert answer["subscriptions"][0]["why"] == "Pulsar could not store it"
                assert not answer["subscriptions"][0]["paused"]
                said = await command("pause", "orders", "sub", "--socket", str(socket_path))
                assert said.returncode == 1
                assert "Pulsar could not store it" in said.stderr
                stream.on_pace = None
                assert "not answered" in (await ask(socket_path, kind="paused"))["subscriptions"][0]["why"]
            answer = await ask(socket_path, kind="paused")
            assert "subscribe a consumer" in answer["subscriptions"][0]["why"]


async def test_a_stream_that_ends_is_followed_by_the_next(start: StartDaemon, socket_path: Path) -> None:
    async with start():
        async with await ShimClient.connect(socket_path) as client:
            stream = await client.open(TOPIC, "sub")
            asked = asyncio.create_task(ask(socket_path, kind="paused"))
            await until(lambda: bool(stream.paces))
        async with await ShimClient.connect(socket_path) as client:
            stream = client.begin_open(TOPIC, "sub")
            stream.on_pace = Broker()
            await stream.opened()
            assert (await asked)["done"]


async def test_an_answer_of_a_superseded_stream_does_not_count(start: StartDaemon, socket_path: Path) -> None:
    """The next tracker may have read the pace before the former one wrote it."""
    async with start(), await ShimClient.connect(socket_path) as client:
        former = await client.open(TOPIC, "sub")
        asked = asyncio.create_task(ask(socket_path, kind="paused"))
        await former.until(lambda: bool(former.paces))
        stream = client.begin_open(TOPIC, "sub")
        stream.on_pace = broker = Broker()
        await stream.opened()
        client.send(Paced(PAUSED), former.stream_id, former.paces[0][0])
        assert (await asked)["done"]
        assert broker.pace == PAUSED


async def test_a_pace_that_its_last_broker_has_not_told_is_not_known(
    start: StartDaemon, socket_path: Path
) -> None:
    """The former tracker ended amid the write: it may have stored the pause, and the next does not answer."""
    with patch.object(pacing, "PATIENCE_S", 0.3), patch.object(pacing, "ANSWER_S", 0.2):
        async with start(), await ShimClient.connect(socket_path) as client:
            former = await client.open(TOPIC, "sub")
            former.on_pace = lambda _: Paced(NONE, 0, "the broker lets the topic go, or opens it anew")
            asked = asyncio.create_task(ask(socket_path, kind="paused"))
            await former.until(lambda: bool(former.paces))
            await client.open(TOPIC, "sub")
            (answer,) = (await asked)["subscriptions"]
            assert "not answered" in answer["why"]
            assert "paused" not in answer


async def test_what_was_set_is_told_though_the_next_broker_cannot_be_asked(
    start: StartDaemon, socket_path: Path
) -> None:
    async with (
        start(),
        await ShimClient.connect(socket_path) as client,
        await ShimClient.connect(socket_path, "broker-2", version=5) as old,
    ):
        first = await client.open(f"{TOPIC}-partition-0", "sub")
        first.on_pace = broker = Broker()
        await old.open(f"{TOPIC}-partition-1", "sub")
        answer = await ask(socket_path, kind="paused")
        assert broker.pace == PAUSED
        assert not answer["done"]
        told = answer["subscriptions"]
        assert told[0]["paused"]
        assert "why" not in told[0]
        assert "restart it with this version's jar" in told[1]["why"]


async def test_the_patience_of_a_request_is_for_all_partitions(start: StartDaemon, socket_path: Path) -> None:
    with patch.object(pacing, "PATIENCE_S", 0.3):
        async with start() as daemon:
            async with await ShimClient.connect(socket_path) as client:
                for number in range(50):
                    await client.open(f"{TOPIC}-partition-{number}", "sub")
            await until(lambda: not daemon.engine.brokers)
            ownership = daemon.engine.ownership
            with patch.object(ownership, "get", wraps=ownership.get) as looked:
                answer = await ask(socket_path, kind="paused")
            assert all("no broker serves it" in one["why"] for one in answer["subscriptions"])
            assert 50 <= looked.call_count < 100, "those after the first are looked at once"


async def test_a_broker_of_an_older_version_is_not_asked(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.connect(socket_path, version=5) as client:
        stream = await client.open(TOPIC, "sub")
        with pytest.raises(UserError, match="restart it with this version's jar"):
            await ask(socket_path, kind="paused")
        assert stream.paces == []


async def test_a_spread_hears_what_there_is_no_credit_for(start: StartDaemon, socket_path: Path) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC, "sub", credit=10)
        stream.on_pace = Broker()
        assert (await ask(socket_path, kind="spread", amount=600_000))["subscriptions"][0][
            "spread_ms"
        ] == 600_000
        stream.add(entries(25, now_ms() - 1_000))
        await stream.take_due(10)
        await stream.until(lambda: stream.behind[-1:] == [15])
        stream.give_credit(100)
        await stream.take_due(15)
        await stream.until(lambda: stream.behind[-1:] == [0])
        assert (await ask(socket_path, kind="rate", amount=1_000))["done"]


async def test_a_spread_that_follows_another_hears_its_own_number(
    start: StartDaemon, socket_path: Path
) -> None:
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC, "sub", credit=10)
        stream.on_pace = Broker()
        await ask(socket_path, kind="spread", amount=600_000)
        stream.add(entries(25, now_ms() - 1_000))
        await stream.take_due(10)
        await stream.until(lambda: stream.behind[-1:] == [15])
        await ask(socket_path, kind="none")
        await until(lambda: not daemon.engine.pacing._counting)
        stream.give_credit(100)
        await stream.take_due(15)
        await ask(socket_path, kind="spread", amount=600_000)
        await stream.until(lambda: stream.behind[-1:] == [0])


async def test_a_spread_that_is_told_just_as_the_counting_for_another_ends_is_counted(
    start: StartDaemon, socket_path: Path
) -> None:
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await client.open(TOPIC, "sub", credit=10)
        stream = daemon.engine.ownership.get(SubscriptionName(TOPIC, "sub"))
        assert stream is not None
        spread, told = Paced(ReleasePace(PaceKind.SPREAD, 600_000)), daemon.engine.pacing.told
        with patch.object(pacing, "COUNT_S", 0):
            told(stream, 0, spread)
            await asyncio.sleep(0)
            told(stream, 0, Paced(NONE))
            await asyncio.sleep(0)
            told(stream, 0, spread)
            for _ in range(5):
                await asyncio.sleep(0)
            assert stream in daemon.engine.pacing._counting


async def test_a_pace_that_changes_elsewhere_is_shown_and_a_spread_is_told(
    start: StartDaemon, socket_path: Path
) -> None:
    """The broker tells it unasked: a former tracker has stored it."""
    async with start(), await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC, "sub", credit=10)

        async def shown(name: str, value: object) -> None:
            for _ in range(200):
                status = await asyncio.to_thread(ask_socket, socket_path, {"what": "status"})
                if status["subscriptions"][0]["pace"][name] == value:
                    return
                await asyncio.sleep(0.05)
            raise AssertionError(status["subscriptions"][0]["pace"])

        client.send(Paced(PAUSED), stream.stream_id)
        await shown("paused", value=True)
        stream.add(entries(25, now_ms() - 1_000))
        await stream.take_due(10)
        client.send(Paced(ReleasePace(PaceKind.SPREAD, 600_000)), stream.stream_id)
        await shown("spread_ms", 600_000)
        await stream.until(lambda: stream.behind[-1:] == [15])
        client.send(Paced(NONE), stream.stream_id)
        await shown("spread_ms", None)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"kind": "slowly"}, "kind must be one of none, paused, rate, spread"),
        ({"kind": "rate"}, "a whole number, 1 to 1000000"),
        ({"kind": "rate", "amount": 0.5}, "a whole number"),
        ({"kind": "rate", "amount": True}, "a whole number"),
        ({"kind": "rate", "amount": 1_000_001}, "a whole number"),
        ({"kind": "spread", "amount": 999}, "1000 to"),
        ({"kind": "paused", "amount": 1}, "0 to 0"),
        ({"kind": "paused", "subscription": "nobody"}, "nobody"),
    ],
)
async def test_bad_requests_change_nothing(
    start: StartDaemon, socket_path: Path, asked: dict[str, Any], why: str
) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC, "sub")
        stream.on_pace = Broker()
        with pytest.raises(UserError, match=why):
            await ask(socket_path, **asked)
        assert stream.paces == []


async def test_the_commands(start: StartDaemon, socket_path: Path) -> None:
    where = ("orders", "sub", "--socket", str(socket_path))
    async with start(), await ShimClient.connect(socket_path) as client:
        streams = [await client.open(f"{TOPIC}-partition-{number}", "sub") for number in range(2)]
        brokers = [Broker(held_back=7), Broker(held_back=4)]
        for stream, broker in zip(streams, brokers, strict=True):
            stream.on_pace = broker
        said = await command("pause", *where)
        assert said.returncode == 0
        assert said.stdout.splitlines() == [
            f"{TOPIC}-partition-0:sub: PAUSED, nothing leaves, 7 held back",
            f"{TOPIC}-partition-1:sub: PAUSED, nothing leaves, 4 held back",
        ]
        answer = json.loads((await command("pace", *where, "--rate", "500", "--json")).stdout)
        assert answer["done"]
        assert [one["rate"] for one in answer["subscriptions"]] == [500, 500]
        assert answer["held_back"] == 11
        assert "at most 500 a second leave" in (await command("pace", *where)).stdout
        answer = json.loads((await command("pace", *where, "--spread", "10m", "--json")).stdout)
        assert [one["spread_ms"] for one in answer["subscriptions"]] == [600_000, 600_000]
        assert "a burst is spread over 10m" in (await command("pace", *where)).stdout
        said = await command("resume", *where)
        assert "messages leave as they come due" in said.stdout
        assert [broker.pace for broker in brokers] == [NONE, NONE]
        for bad in ("0.5", "0", "many", "-1", "1000001"):
            said = await command("pace", *where, f"--rate={bad}")
            assert_one_line(said, "to hold everything back use tidegate pause", 2)
        for options, why in (
            (("--spread", "10"), "is not a duration"),
            (("--spread", "5ms"), "a spread is 1s to 7d, not 5ms"),
            (("--spread", "10m", "--rate", "5"), "not both"),
        ):
            assert_one_line(await command("pace", *where, *options), why, 2)
    assert (await command("pause", *where)).returncode == 3
