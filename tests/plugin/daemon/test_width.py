"""`tidegate width`: asked and changed over the socket of a running daemon, durable before it is answered."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemons import DaemonProcess, StartDaemon, assert_one_line, run
from tests.support.flaky_store import FlakyStore
from tests.support.shim_client import ShimClient, entries
from tests.support.waiting import until
from tidegate.index.names import SubscriptionName
from tidegate.plugin.commands.width import lines
from tidegate.plugin.daemon.width import spellings
from tidegate.plugin.errors import UserError
from tidegate.plugin.wire.client import ask_socket
from tidegate.plugin.wire.control_messages import Query, json_body
from tidegate.plugin.wire.messages import NAME_BYTES_MAX

TOPIC = "persistent://public/default/orders"
OTHER = "persistent://shop/eu/returns"
HOUR_MS = 3_600_000
Serve = Callable[..., DaemonProcess]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def ask(socket_path: Path, subscription: object, **wish: object) -> dict[str, Any]:
    request = {"what": "width", "subscription": subscription, **wish}
    return await asyncio.to_thread(ask_socket, socket_path, request)


async def opened(client: ShimClient, *names: tuple[str, str]) -> None:
    """Streams with an hour's delay of a hundred messages."""
    for topic, subscription in names:
        stream = await client.open(topic, subscription)
        stream.add(entries(100, now_ms() + HOUR_MS))
        await stream.durable()


async def test_the_width_is_shown_set_and_made_automatic_again(start: StartDaemon, socket_path: Path) -> None:
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await opened(client, (TOPIC, "late"))
        (shown,) = (await ask(socket_path, f"{TOPIC}:late"))["subscriptions"]
        assert (shown["topic"], shown["subscription"]) == (TOPIC, "late")
        assert (shown["slice_width_ms"], shown["slice_width_auto"]) == (HOUR_MS, True)
        daemon.engine.catalog.persist(SubscriptionName(TOPIC, "late"))
        answer = await ask(socket_path, f"{TOPIC}:late", width_ms=600_000)
        (changed,) = answer["subscriptions"]
        assert answer["changed"]
        assert (changed["slice_width_ms"], changed["slice_width_auto"]) == (600_000, False)
        assert changed["slices"] == changed["slices_of_other_widths"] == 1
        (again,) = (await ask(socket_path, f"{TOPIC}:late", auto=True))["subscriptions"]
        assert (again["slice_width_ms"], again["slice_width_auto"]) == (600_000, True)
        (seen,) = (await asyncio.to_thread(ask_socket, socket_path, {"what": "status"}))["subscriptions"]
        assert (seen["slice_width_ms"], seen["slice_width_auto"]) == (600_000, True)
        assert seen["slice_width_reason"] == again["slice_width_reason"]


async def test_a_width_is_answered_when_it_is_durable(start: StartDaemon, socket_path: Path) -> None:
    store = FlakyStore()
    async with start(store=store) as daemon, await ShimClient.connect(socket_path) as client:
        await opened(client, (TOPIC, "late"))
        store.stick()
        asked = asyncio.create_task(ask(socket_path, "orders:late", width_ms=7_200_000))
        await until(store.arrived.is_set)
        (index,) = daemon.engine.catalog
        assert index.stats().slice_width_ms == 7_200_000
        await asyncio.sleep(0.05)
        assert not asked.done()
        store.release()
        (changed,) = (await asked)["subscriptions"]
        assert changed["slice_width_ms"] == 7_200_000
        assert daemon.engine.catalog.journal.durable_token == daemon.engine.catalog.stats().appended_token
        # A request that changes nothing has an answer, too.
        assert (await ask(socket_path, "orders:late", width_ms=7_200_000))["changed"]


async def test_a_failing_store_is_not_taken_for_done(start: StartDaemon, socket_path: Path) -> None:
    store = FlakyStore()
    async with (
        start(store=store, storage_retry_ms=50) as daemon,
        await ShimClient.connect(socket_path) as client,
    ):
        await opened(client, (TOPIC, "late"))
        store.failing = True
        with pytest.raises(UserError, match="the new width is lost if the daemon stops now"):
            await ask(socket_path, "orders:late", width_ms=7_200_000)
        with pytest.raises(UserError, match="nothing can be made durable: try again later"):
            await ask(socket_path, "orders:late", width_ms=5_000)
        store.failing = False
        await until(lambda: daemon.health.ready)
        (index,) = daemon.engine.catalog
        assert index.stats().slice_width_ms == 7_200_000
        assert daemon.engine.catalog.journal.durable_token == daemon.engine.catalog.stats().appended_token


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (f"{TOPIC}:late", [(TOPIC, "late")]),
        ("orders:late", [(TOPIC, "late")]),
        ("public/default/orders:late", [(TOPIC, "late")]),
        ("shop/eu/returns:late", [(OTHER, "late")]),
        ("*:late", [(TOPIC, "late"), (OTHER, "late")]),
        ("orders*", [(TOPIC, "a:b"), (TOPIC, "late")]),
        ("orders:a:b", [(TOPIC, "a:b")]),
    ],
)
async def test_how_subscriptions_are_named(
    text: str, meant: list[tuple[str, str]], start: StartDaemon, socket_path: Path
) -> None:
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        names = [(TOPIC, "late"), (OTHER, "late"), (TOPIC, "a:b")]
        await opened(client, *names)
        answer = await ask(socket_path, text, width_ms=5_000)
        assert [(one["topic"], one["subscription"]) for one in answer["subscriptions"]] == meant
        for index in daemon.engine.catalog:
            set_here = (index.name.topic, index.name.subscription) in meant
            assert (index.stats().slice_width_ms == 5_000) == set_here


@pytest.mark.parametrize(
    ("subscription", "wish", "said"),
    [
        ("order:late", {}, "no subscription 'order:late': is it orders:late"),
        ("eu/returns:late", {}, "is it shop/eu/returns:late"),
        ("nothing.alike", {}, "no subscription 'nothing.alike': tidegate status lists them"),
        ("orders.late", {"auto": True}, "no subscription 'orders.late'"),
        (None, {}, "needs subscription, as in topic:subscription"),
        ("orders:late", {"width_ms": 999}, "a slice is 1s to 3660d wide, not 999ms"),
        ("orders:late", {"width_ms": 4_000 * 24 * HOUR_MS}, "a slice is 1s to 3660d wide, not 4000d"),
        ("orders:late", {"width_ms": -1}, "a slice is 1s to 3660d wide, not -1ms"),
        ("orders:late", {"width_ms": "10m"}, "width_ms must be a number"),
        ("orders:late", {"width_ms": True}, "width_ms must be a number"),
        ("orders:late", {"auto": "yes"}, "auto must be true or false"),
        ("orders:late", {"auto": True, "width_ms": 5_000}, "goes without width_ms"),
        ("*" * 33, {"auto": True}, "has 33 ., at most 32 are possible"),
        ("x" * 20_000, {"auto": True}, "is longer than any: at most 16385 characters"),
    ],
)
async def test_what_makes_no_sense_changes_nothing(
    subscription: object, wish: dict[str, object], said: str, start: StartDaemon, socket_path: Path
) -> None:
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await opened(client, (TOPIC, "late"), (OTHER, "late"))
        with pytest.raises(UserError, match=said.replace("*", ".")):
            await ask(socket_path, subscription, **wish)
        for index in daemon.engine.catalog:
            stats = index.stats()
            assert (stats.slice_width_ms, stats.slice_width_auto) == (HOUR_MS, True)


async def test_a_daemon_without_subscriptions_says_so(start: StartDaemon, socket_path: Path) -> None:
    async with start():
        with pytest.raises(UserError, match="not before its first delayed message"):
            await ask(socket_path, "orders:late")


async def test_a_broker_may_not_ask(start: StartDaemon, socket_path: Path) -> None:
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await opened(client, (TOPIC, "late"))
        client.send(Query(json_body({"what": "width", "subscription": "*", "width_ms": 5_000})), 0, 1)
        error = await client.ended()
        assert error is not None and "QUERY is not for a broker" in error.message
        (index,) = daemon.engine.catalog
        assert index.stats().slice_width_ms == HOUR_MS


def test_short_names() -> None:
    assert spellings(SubscriptionName(TOPIC, "s"))[-1] == "orders:s"
    assert spellings(SubscriptionName(OTHER, "s"))[-1] == "shop/eu/returns:s"
    assert spellings(SubscriptionName("odd", "s")) == ["odd:s"]


def test_an_answer_as_text() -> None:
    one = {"topic": TOPIC, "subscription": "late", "slice_width_ms": 600_000, "slice_width_auto": True}
    one |= {"slice_width_reason": "because", "slices": 1_200, "slices_of_other_widths": 1_100, "blocks": 9}
    answer = {"changed": False, "subscriptions": [one], "subscriptions_omitted": 2_000}
    assert lines(answer) == [
        f"{TOPIC}:late  10m, auto",
        "  because",
        "  1,100 of 1,200 slices have another width",
        "… and 2,000 subscriptions more",
    ]


async def test_the_command_and_kill_9(serve: Serve, socket_path: Path) -> None:
    daemon = serve()
    await daemon.ready()
    async with await ShimClient.connect(socket_path) as client:
        await opened(client, (TOPIC, "late"))
        at = ("--socket", str(socket_path))
        done = await asyncio.to_thread(run, "width", "orders:late", *at)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"{TOPIC}:late  1h, auto\n")
        done = await asyncio.to_thread(run, "width", "orders:late", "12h", *at)
        assert done.stdout == f"{TOPIC}:late  12h, fixed from now on\n"
        daemon.kill()
    assert_one_line(run("width", "orders:late", *at), "no daemon answers on", 3)
    await serve().ready()
    done = await asyncio.to_thread(run, "width", "orders:late", "--json", TIDEGATE_SOCKET=str(socket_path))
    (one,) = json.loads(done.stdout)["subscriptions"]
    assert (one["slice_width_ms"], one["slice_width_auto"]) == (12 * HOUR_MS, False)
    done = await asyncio.to_thread(run, "width", "order:late", "auto", *at)
    assert_one_line(done, "no subscription 'order:late': is it orders:late?", 1)


@pytest.mark.parametrize(
    ("settings", "width_ms", "auto"),
    [
        ({}, HOUR_MS, True),
        ({"slice_width_ms": 600_000}, 600_000, False),
        ({"slice_width_ms": 600_000, "slice_width_auto": True}, 600_000, True),
        ({"slice_width_auto": False}, HOUR_MS, False),
    ],
)
async def test_what_new_subscriptions_begin_with(
    settings: dict[str, object], width_ms: int, auto: bool, start: StartDaemon, socket_path: Path
) -> None:
    async with start(**settings), await ShimClient.connect(socket_path) as client:
        await opened(client, (TOPIC, "late"))
        (one,) = (await ask(socket_path, "orders:late"))["subscriptions"]
    assert (one["slice_width_ms"], one["slice_width_auto"]) == (width_ms, auto)


@pytest.mark.parametrize("own", [True, False])
async def test_a_width_that_was_set_outlives_an_empty_subscription(
    own: bool, start: StartDaemon, socket_path: Path
) -> None:
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC, "late")
        if own:
            await ask(socket_path, "orders:late", width_ms=5_000)
        await stream.close()
        assert len(daemon.engine.catalog) == int(own)
        await client.open(TOPIC, "late")
        (one,) = (await ask(socket_path, "orders:late"))["subscriptions"]
        assert one["slice_width_ms"] == (5_000 if own else HOUR_MS)


@pytest.mark.timeout(240)
async def test_a_pattern_that_would_keep_a_regular_expression_busy(
    start: StartDaemon, socket_path: Path
) -> None:
    long = "t" * (NAME_BYTES_MAX - len(TOPIC))
    async with start(), await ShimClient.connect(socket_path) as client:
        await opened(client, *((f"{TOPIC}{long}", f"late{number}") for number in range(5)))
        with pytest.raises(UserError, match="no subscription"):
            await ask(socket_path, "*t" * 31 + "*Z")
        with pytest.raises(UserError, match="no subscription"):
            await ask(socket_path, f"{TOPIC}{long}".replace("t", "x"))
        answer = await ask(socket_path, "*t" * 31 + "*late3")
        assert [one["subscription"] for one in answer["subscriptions"]] == ["late3"]


async def test_an_answer_with_long_names_fits_into_a_frame(start: StartDaemon, socket_path: Path) -> None:
    count = 400
    async with start(), await ShimClient.connect(socket_path) as client:
        for number in range(count):
            await client.open(TOPIC, f"{number:04}" + "\x01" * (NAME_BYTES_MAX - 4))
        for answer in (
            await ask(socket_path, "*"),
            await asyncio.to_thread(ask_socket, socket_path, {"what": "status"}),
        ):
            shown = len(answer["subscriptions"])
            assert 10 < shown < count
            assert answer["subscriptions_omitted"] == count - shown
