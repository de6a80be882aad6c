"""Questions to a running daemon: the tide, pages in due order, one message; and the commands."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.support.daemons import DaemonProcess, StartDaemon, assert_one_line, run
from tests.support.shim_client import ClientStream, ShimClient
from tidegate.index import CorruptBlockError, Entries, EntryKey, PositionSet, SubscriptionName
from tidegate.index.timeline import tide
from tidegate.plugin.commands.tide import forecast, lines
from tidegate.plugin.daemon import drain_rates, looking
from tidegate.plugin.daemon.looking import BUCKETS_MAX, edges_of
from tidegate.plugin.daemon.selection import parse_id
from tidegate.plugin.daemon.serve import RunningDaemon
from tidegate.plugin.errors import UserError
from tidegate.plugin.wire.client import ask_socket

TOPIC = "persistent://public/default/orders"
MINUTE_MS = 60_000
HOUR_MS = 3_600_000
Serve = Callable[..., DaemonProcess]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def ask(socket_path: Path, what: str, topic: str = "orders", **more: object) -> dict[str, Any]:
    request = {"what": what, "topic": topic, "subscription": "sub", **more}
    return await asyncio.to_thread(ask_socket, socket_path, request)


async def added(client: ShimClient, entries: list[EntryKey], topic: str = TOPIC) -> ClientStream:
    stream = await client.open(topic, "sub", credit=0)
    stream.add(Entries.of(entries))
    await stream.durable()
    return stream


def spill(daemon: RunningDaemon, topic: str = TOPIC) -> None:
    daemon.engine.catalog.persist(SubscriptionName(topic, "sub"))


def spread(base_ms: int, count: int, apart_ms: int) -> list[EntryKey]:
    """Entries in no order of time."""
    return [(base_ms + (7 * at % count) * apart_ms, 5, at) for at in range(count)]


async def test_pages_in_due_order(start: StartDaemon, socket_path: Path) -> None:
    entries = sorted(spread(now_ms() - 20_000, 501, 1_000))
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        stream = await added(client, entries[::2])
        spill(daemon)
        stream.add(Entries.of(entries[1::2]))
        gone = entries[40:60]
        stream.ack(PositionSet.of(one[1:] for one in gone))
        await stream.durable()
        found: list[dict[str, Any]] = []
        cursor = None
        for _ in range(100):
            page = await ask(socket_path, "waiting", limit=50, after=cursor)
            found += page["entries"]
            cursor = page["next"]
            assert len(page["entries"]) == 50 or cursor is None
            if cursor is None:
                break
        expected = [
            {"message_id": f"{ledger}:{entry}", "deliver_at_ms": at}
            for at, ledger, entry in entries
            if (at, ledger, entry) not in gone
        ]
        assert found == expected
        from_ms, to_ms = entries[100][0], entries[110][0]
        part = await ask(socket_path, "waiting", from_ms=from_ms, to_ms=to_ms)
        assert [one["deliver_at_ms"] for one in part["entries"]] == [one[0] for one in entries[100:110]]
        assert part["next"] is None


async def test_the_tide_is_exact_wherever_the_entries_are(start: StartDaemon, socket_path: Path) -> None:
    base_ms = now_ms()
    entries = [*spread(base_ms - 10_000, 10, 100), *spread(base_ms + HOUR_MS, 600, 10_000)]
    entries = [(at, ledger, number) for number, (at, ledger, _) in enumerate(entries)]
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        stream = await added(client, entries[:400])
        spill(daemon)
        stream.add(Entries.of(entries[400:]))
        gone = entries[100:130]
        stream.ack(PositionSet.of(one[1:] for one in gone))
        await stream.durable()
        left = [at for at, ledger, number in entries if (at, ledger, number) not in gone]
        told = await ask(socket_path, "tide", step_ms=10 * MINUTE_MS, span_ms=2 * HOUR_MS)
        buckets = told["buckets"]
        assert told["overdue"] == 10
        assert told["entries"] == len(left)
        assert told["inexact_entries"] == 0
        assert buckets[0]["from_ms"] == told["now_ms"] + 1
        assert all(one["until_ms"] % (10 * MINUTE_MS) == 0 for one in buckets)
        assert buckets[-1]["until_ms"] >= told["now_ms"] + 2 * HOUR_MS
        for one in buckets:
            assert one["entries"] == sum(one["from_ms"] <= at < one["until_ms"] for at in left)
        assert told["later"] == sum(at >= buckets[-1]["until_ms"] for at in left)
        every = await asyncio.to_thread(ask_socket, socket_path, {"what": "tide"})
        assert (every["subscriptions"], every["entries"], every["later"]) == (1, len(left), 0)
        with patch.multiple(tide, EXACT_MAX=-1, DECODED_MAX=-1):  # as of millions, by descriptors alone
            rough = await ask(socket_path, "tide", step_ms=10 * MINUTE_MS, span_ms=2 * HOUR_MS)
        assert 0 < rough["inexact_entries"] <= len(entries)
        off = zip(rough["buckets"], buckets, strict=True)
        assert max(abs(one["entries"] - other["entries"]) for one, other in off) <= rough["inexact_entries"]


async def test_the_tide_of_many_is_their_sum_though_one_is_read_twice(
    start: StartDaemon, socket_path: Path
) -> None:
    base_ms = now_ms() + HOUR_MS
    counted = tide.Outline.tide
    failed: list[tide.Outline] = []

    def once_unreadable(outline: tide.Outline, *arguments: Any) -> tide.Tide:
        if len(failed) < 2:
            failed.append(outline)
            raise CorruptBlockError("a persist has replaced it")
        return counted(outline, *arguments)

    async with start(), await ShimClient.connect(socket_path) as client:
        for number in range(5):
            await added(client, spread(base_ms, 10 + number, MINUTE_MS), f"{TOPIC}-{number}")
        with patch.object(looking, "TOGETHER", 2), patch.object(tide.Outline, "tide", once_unreadable):
            told = await asyncio.to_thread(ask_socket, socket_path, {"what": "tide"})
    assert len(failed) == 2
    assert (told["subscriptions"], told["entries"], told["later"]) == (5, 60, 0)
    assert sum(one["entries"] for one in told["buckets"]) == 60


async def test_the_tide_tells_how_fast_consumers_take(start: StartDaemon, socket_path: Path) -> None:
    with patch.object(drain_rates, "MINUTE_NS", 1):
        async with start(), await ShimClient.connect(socket_path) as client:
            stream = await client.open(TOPIC, "sub", credit=100)
            stream.add(Entries.of(spread(now_ms() - 1_000, 20, 1)))
            await stream.until(lambda: sum(map(len, stream.due)) == 20)
            assert (await ask(socket_path, "tide"))["drain_per_second"] is None
            stream.ack(PositionSet.of((5, at) for at in range(20)))
            async with asyncio.timeout(30):
                while (await ask(socket_path, "tide"))["drain_per_second"] is None:
                    await asyncio.sleep(0.05)


async def test_partitions_are_one_topic(start: StartDaemon, socket_path: Path) -> None:
    base_ms = now_ms() + HOUR_MS
    async with start(), await ShimClient.connect(socket_path) as client:
        for number in range(3):
            topic = f"{TOPIC}-partition-{number}"
            await added(client, [(base_ms + 10 * at + number, 5 + number, at) for at in range(20)], topic)
        page = await ask(socket_path, "waiting", limit=4)
        assert [one["message_id"] for one in page["entries"]] == ["5:0:0", "6:0:1", "7:0:2", "5:1:0"]
        rest = await ask(socket_path, "waiting", after=page["next"])
        assert len(rest["entries"]) == 56
        assert rest["next"] is None
        others = await ask(socket_path, "waiting", without="0,2")
        assert [one["message_id"] for one in others["entries"]] == [f"6:{at}:1" for at in range(20)]
        with pytest.raises(UserError, match="without must be numbers"):
            await ask(socket_path, "waiting", without="0,,2")
        assert (await ask(socket_path, "tide"))["entries"] == 60
        shown = await ask(socket_path, "show", id="6:3:1")
        assert (shown["state"], shown["deliver_at_ms"]) == ("waiting", base_ms + 31)
        assert shown["topic"] == f"{TOPIC}-partition-1"
        last = client.streams[max(client.streams)]
        last.ack(PositionSet.of([(7, 3)]))
        await last.durable()
        shown = await ask(socket_path, "show", id="7:3")
        assert (shown["state"], shown["message_id"]) == ("acknowledged", "7:3:2"), (
            "of the third, not of the first"
        )
        shown = await ask(socket_path, "show", id="9:9")
        assert (shown["state"], shown["message_id"]) == ("unknown", "9:9:0")
        with pytest.raises(UserError, match="partition 7 is not of this topic"):
            await ask(socket_path, "show", id="6:3:7")


async def test_the_segments_of_a_scalable_topic_are_added_up(start: StartDaemon, socket_path: Path) -> None:
    base_ms = now_ms() + HOUR_MS
    async with start(), await ShimClient.connect(socket_path) as client:
        for number, name in enumerate(("orders/0000-7fff-1", "orders/8000-ffff-2", "orders-2/0000-ffff-0")):
            due = [(base_ms + at, 5 + number, at) for at in range(20)]
            await added(client, due, f"segment://public/default/{name}")
        asked = {"what": "tide", "topic": "topic://public/default/orders"}
        told = await asyncio.to_thread(ask_socket, socket_path, asked)
        assert (told["subscriptions"], told["entries"]) == (2, 40)
        told = await asyncio.to_thread(ask_socket, socket_path, {"what": "tide", "topic": "topic://*"})
        assert told["entries"] == 60
        asked = {"topic": "topic://public/default/orders"}
        exactly = await asyncio.to_thread(ask_socket, socket_path, {"what": "tide", "exact": True} | asked)
        assert exactly["entries"] == 40
        page = await ask(socket_path, "waiting", limit=30, **asked)
        rest = await ask(socket_path, "waiting", after=page["next"], **asked)
        found = [one["message_id"] for one in page["entries"] + rest["entries"]]
        assert sorted(found) == sorted(f"{ledger}:{at}" for ledger in (5, 6) for at in range(20))
        shown = await ask(socket_path, "show", id="6:3", **asked)
        assert (shown["state"], shown["topic"]) == ("waiting", "segment://public/default/orders/8000-ffff-2")
        with pytest.raises(UserError, match="no subscription"):
            await ask(socket_path, "waiting", topic="topic://public/default/order")


async def test_one_message(start: StartDaemon, socket_path: Path) -> None:
    base_ms = now_ms() + HOUR_MS
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        stream = await added(client, [(base_ms, 5, 0), (base_ms + 1, 5, 1), (base_ms, 5, 2)])
        spill(daemon)
        stream.ack(PositionSet.of([(5, 2)]))
        stream.mark_delete(4, 9)
        await stream.durable()
        shown = await ask(socket_path, "show", id="5:1")
        assert (shown["state"], shown["message_id"]) == ("waiting", "5:1")
        assert shown["deliver_at_ms"] == base_ms + 1
        states = {name: (await ask(socket_path, "show", id=name))["state"] for name in ("5:2", "4:3", "5:9")}
        assert states == {"5:2": "acknowledged", "4:3": "acknowledged", "5:9": "unknown"}


@pytest.mark.parametrize(
    ("what", "more", "said"),
    [
        ("tide", {"step_ms": 0}, "step_ms must be a number, 1 or more"),
        ("tide", {"span_ms": "1h"}, "span_ms must be a number"),
        ("tide", {"span_ms": 10**9, "step_ms": 1}, "give a longer step, or a shorter span"),
        ("tide", {"span_ms": (1 << 63) - 1}, "beyond the last possible time"),
        ("tide", {"topic": "*" * 40}, "has at most 32 ."),
        ("tide", {"topic": "other"}, "no subscription 'other:sub'"),
        ("waiting", {"topic": "order"}, "no subscription 'order:sub': is it orders:sub"),
        ("waiting", {"topic": "ord*"}, "name one subscription"),
        ("waiting", {"limit": 0}, "limit must be a number, 1 or more"),
        ("waiting", {"limit": 10_001}, "limit is 10000 at most"),
        ("waiting", {"after": "5:1"}, "after is the cursor"),
        ("waiting", {"after": 5}, "after is the cursor"),
        ("waiting", {"from_ms": 9, "to_ms": 9}, "to_ms must be later"),
        ("waiting", {"subscription": None}, "needs subscription"),
        ("show", {}, "show needs id"),
        ("show", {"id": "a:b"}, "no message id: write ledger:entry"),
        ("show", {"id": "1:2:-1:3"}, "is one message of a batch"),
        ("show", {"id": f"1:{1 << 32}"}, "a number is out of range"),
    ],
)
async def test_what_makes_no_sense_is_refused_in_one_line(
    what: str, more: dict[str, object], said: str, start: StartDaemon, socket_path: Path
) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        await added(client, [(now_ms() + HOUR_MS, 5, 0)])
        with pytest.raises(UserError, match=said) as error:
            await asyncio.to_thread(
                ask_socket, socket_path, {"what": what, "topic": "orders", "subscription": "sub"} | more
            )
        assert "\n" not in str(error.value)


async def test_the_commands(serve: Serve, socket_path: Path) -> None:
    daemon = serve()
    await daemon.ready()
    base_ms = now_ms() + HOUR_MS
    async with await ShimClient.connect(socket_path) as client:
        await added(client, spread(base_ms, 100, 1_000))
        at = ("--socket", str(socket_path))
        listed = await asyncio.to_thread(
            run, "list", "orders", "sub", "--due", "59m..3h", "--limit", "60", "--json", *at
        )
        assert listed.returncode == 0, listed.stderr
        found = [json.loads(line) for line in listed.stdout.splitlines()]
        assert [one["deliver_at_ms"] for one in found] == [base_ms + 1_000 * at for at in range(60)]
        assert set(found[0]) == {"message_id", "deliver_at_ms"}
        assert listed.stderr.startswith("more: --after ")
        cursor = listed.stderr.split()[-1]
        rest = await asyncio.to_thread(run, "list", "orders", "sub", "--after", cursor, "--json", *at)
        assert len(rest.stdout.splitlines()) == 40
        assert not rest.stderr
        told = await asyncio.to_thread(run, "tide", "orders", "--step", "1m", "--json", *at)
        answer = json.loads(told.stdout)
        assert (answer["overdue"], sum(one["entries"] for one in answer["buckets"])) == (0, 100)
        drawn = await asyncio.to_thread(run, "tide", "--drain", "5", *at)
        assert "100 messages of 1 subscription;" in drawn.stdout
        assert "at 5 a second: late by" in drawn.stdout
        shown = await asyncio.to_thread(run, "show", "orders", "sub", "5:0", "--json", *at)
        assert json.loads(shown.stdout)["state"] == "waiting"
        for arguments, said in (
            (("--due", "1h..10m"), "ends before it begins"),
            (("--due", "1732826400..1732826500"), "give milliseconds since 1970"),
            (("--due", "1h"), "is no range: write FROM..TO"),
            (("--due", "soon..1h"), "is no time"),
        ):
            bad = await asyncio.to_thread(run, "list", "orders", "sub", *arguments, *at)
            assert_one_line(bad, said, 2)
        wrong = await asyncio.to_thread(run, "show", "orders", "sub", "x", *at)
        assert_one_line(wrong, "write ledger:entry", 1)


def test_buckets_meet_whole_steps_and_reach_the_last_entry() -> None:
    edges = edges_of(10_500, 69_999, 10_000, None).tolist()
    assert edges == [10_501, 20_000, 30_000, 40_000, 50_000, 60_000, 70_000]
    assert edges_of(10_500, 0, None, None).tolist() == [10_501, 11_000]
    years = edges_of(0, 100 * 365 * 86_400_000, None, None)
    assert len(years) <= 62
    assert years[-1] > 100 * 365 * 86_400_000


@pytest.mark.parametrize("step_ms", [None, 1 << 54, (1 << 63) - 1])
def test_one_message_that_waits_for_ever_hides_no_other(step_ms: int | None) -> None:
    for_ever_ms = (1 << 63) - 1
    edges = edges_of(10_500, for_ever_ms, step_ms, None)
    assert 2 <= len(edges) <= BUCKETS_MAX + 1
    assert (edges[1:] > edges[:-1]).all()
    assert edges[-1] > for_ever_ms - 2 * int(edges[-1] - edges[-2])


def test_a_burst_is_late_by_what_it_takes_to_drain() -> None:
    buckets = [
        {"from_ms": 1 + 60_000 * at, "until_ms": 1 + 60_000 * (at + 1), "entries": 0} for at in range(9)
    ]
    buckets[3]["entries"] = 1_000_000
    late = forecast({"now_ms": 0, "overdue": 0, "buckets": buckets}, 5_000)
    assert late["late_max_ms"] == 200_000
    assert late["late_max_at_ms"] == buckets[3]["from_ms"]
    assert late["drained_at_ms"] == buckets[3]["from_ms"] + 200_000


def test_a_forecast_says_what_it_leaves_out() -> None:
    answer: dict[str, Any] = {
        "overdue": 0,
        "later": 7,
        "entries": 17,
        "subscriptions": 1,
        "subscriptions_away": 0,
    }
    answer |= {"inexact_entries": 0, "now_ms": 0, "buckets": [{"from_ms": 1, "until_ms": 2, "entries": 600}]}
    said = lines({**answer, "forecast": forecast(answer, 5)})[-1]
    assert "late by 2 min at most, around" in said
    assert "all but the later ones is taken by" in said
    answer |= {"overdue": 5, "later": 0}
    said = lines({**answer, "forecast": forecast(answer, 5)})[-1]
    assert "at most, from now for what is overdue, around" in said
    assert "all of this is taken by" in said


def test_a_forecast_says_where_its_rate_is_from() -> None:
    answer: dict[str, Any] = {"overdue": 10, "later": 0, "entries": 10, "subscriptions": 1, "now_ms": 0}
    answer |= {"subscriptions_away": 0, "inexact_entries": 0, "buckets": []}
    measured = forecast(answer, 5) | {"measured": True}
    said = lines({**answer, "forecast": measured})[-1]
    assert "at 5 a second, as in the fastest minute of the last day: late by 2 s" in said
    said = lines({**answer, "forecast": measured | {"measured": False}})[-1]
    assert "at 5 a second: late by 2 s" in said


def test_a_tide_as_text() -> None:
    answer = {"overdue": 5, "later": 0, "entries": 15, "subscriptions": 2, "subscriptions_away": 1}
    answer |= {"inexact_entries": 3, "now_ms": 0}
    text = lines({**answer, "buckets": [{"from_ms": 1, "until_ms": 2, "entries": 10}]})
    assert text[0].startswith("overdue")
    assert text[0].count("█") == 20
    assert text[1].count("█") == 40
    assert any("up to 3 of them" in line for line in text)
    assert any("still being brought here, and not counted: 1 subscription" in line for line in text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("17:4711", ((17, 4711), None)),
        (" 17:4711:-1 ", ((17, 4711), None)),
        ("17:4711:3", ((17, 4711), 3)),
        ("17:4711:3:-1", ((17, 4711), 3)),
        ("(17, 4711, -1, -1)", ((17, 4711), None)),
    ],
)
def test_message_ids(text: str, meant: object) -> None:
    assert parse_id(text) == meant
