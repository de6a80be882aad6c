"""Messages chosen by key or property, and their content: the broker, which the test plays, reads them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import httpx
import pytest

from tests.support.daemons import StartDaemon, run
from tests.support.deciding import TOPIC, waiting
from tests.support.served import TOKEN, Served
from tests.support.shim_client import ShimClient
from tidegate import AsyncClient, Client, NotNowError, TidegateError
from tidegate.index import PositionSet, SubscriptionName
from tidegate.plugin.daemon import message_queries, peeking
from tidegate.plugin.errors import ErrorCode
from tidegate.plugin.wire.messages import Peek, Peeked, PeekKind

T = TypeVar("T")
ORDERS = "persistent/public/default/orders/sub"


class Stored:
    """Messages with the key of their entry id's last digit, and the property `id`; the first reads fail."""

    def __init__(self, *, failures: int = 0) -> None:
        self.failures = failures
        self.read = 0

    def __call__(self, peek: Peek) -> Peeked:
        if self.failures:
            self.failures -= 1
            return Peeked(PositionSet(), peek.positions)
        self.read += len(peek.positions)
        sought = peek.sought
        found = [
            (ledger_id, n)
            for ledger_id, n in peek.positions
            if (sought.kind == PeekKind.KEY and sought.value == str(n % 10))
            or (sought.kind == PeekKind.PROPERTY and (sought.name, sought.value) == ("id", str(n)))
        ]
        if sought.kind == PeekKind.ANY:
            ((_, n),) = peek.positions
            content = {"size_bytes": 40, "key": str(n % 10), "properties": {"id": str(n)}, "other": 1}
            return Peeked(peek.positions, PositionSet(), 40, json.dumps(content).encode())
        return Peeked(PositionSet.of(found), PositionSet(), 40 * len(peek.positions))


@pytest.fixture
async def stored(served: Served) -> Stored:
    stream = await waiting(served.broker, TOPIC, 2)
    stream.on_peek = made = Stored()
    return made


async def blocking(work: Callable[[Client], T], **reach: Any) -> T:
    def follow() -> T:
        with Client(**reach) as client:
            return work(client)

    return await asyncio.to_thread(follow)


@pytest.mark.parametrize("page", [7, 5_000])
@pytest.mark.parametrize("over_http", [True, False])
async def test_messages_with_a_key_are_listed(
    served: Served, stored: Stored, socket_path: Path, page: int, over_http: bool
) -> None:
    reach: dict[str, Any] = {"url": served.url, "token": TOKEN} if over_http else {"socket": socket_path}
    found = await blocking(lambda one: list(one.waiting("orders", "sub", key="3", page=page)), **reach)
    assert [one.message_id for one in found] == [f"5:{n}" for n in range(3, 100, 10)]
    found = await blocking(lambda one: list(one.waiting("orders", "sub", property="id=42")), **reach)
    assert [one.message_id for one in found] == ["5:42"]
    async with AsyncClient(**reach) as client:
        assert not [one async for one in client.waiting("orders", "sub", key="x", due="..30m")]
    assert stored.read == 200


@pytest.mark.parametrize("over_http", [True, False])
async def test_messages_with_a_key_are_changed(
    served: Served, stored: Stored, socket_path: Path, over_http: bool
) -> None:
    reach: dict[str, Any] = {"url": served.url, "token": TOKEN} if over_http else {"socket": socket_path}
    would = await blocking(lambda one: one.cancel("orders", "sub", key="3", dry_run=True), **reach)
    assert (would.done, would.dry_run) == (10, True)
    done = await blocking(lambda one: one.cancel("orders", "sub", key="3", all=True), **reach)
    assert done.done == 10
    done = await blocking(lambda one: one.cancel("orders", "sub", key="2"), **reach)
    assert (done.done, done.too_late) == (9, 1)
    moved = await blocking(lambda one: one.reschedule("orders", "sub", property="id=7", by_ms=1_000), **reach)
    assert moved.done == 1
    assert (await blocking(lambda one: one.release("orders", "sub", key="5", due="..2h"), **reach)).done == 10
    assert stored.read > 400


async def test_a_partition_that_goes_while_its_messages_are_looked_for_is_none_of_ours(
    served: Served, socket_path: Path
) -> None:
    """Its subscription is deleted, and its index with it, between the list and the reading."""
    for number in range(2):
        stream = await waiting(served.broker, f"{TOPIC}-partition-{number}", entries=5)
        stream.on_peek = Stored()
    engine = served.daemon.engine
    entries = engine.queries._messages._looking.entries

    async def listed(request: dict[str, object]) -> dict[str, Any]:
        page = await entries(request)
        name = SubscriptionName(f"{TOPIC}-partition-1", "sub")
        gone = engine.ownership.get(name)
        assert gone is not None
        gone.connection.end_stream(gone, ErrorCode.FAILED, "it is deleted")
        engine.catalog.remove(name)
        return page

    with patch.object(engine.queries._messages._looking, "entries", listed):
        answer = await served.get(f"{ORDERS}/waiting?key=3")
    assert answer.status_code == 503, answer.text
    assert "no broker that could read serves" in answer.json()["detail"]


async def test_without_a_token_nobody_hears_what_is_in_messages(
    start: StartDaemon, socket_path: Path
) -> None:
    """Any user of the machine may ask."""
    async with start(http="127.0.0.1:0") as daemon, await ShimClient.connect(socket_path) as broker:
        stream = await waiting(broker, TOPIC)
        stream.on_peek = made = Stored()
        url = f"http://127.0.0.1:{daemon.http_port}/tidegate/v1/{ORDERS}"
        async with httpx.AsyncClient(trust_env=False) as client:
            shown = (await client.get(f"{url}/messages/5:3")).json()
            assert (shown["state"], shown.keys() & set(peeking.CONTENT)) == ("waiting", set())
            for query in ("key=3", "property=id%3D3"):
                refused = await client.get(f"{url}/waiting?{query}")
                assert refused.status_code == 401
                assert "give it http_token_file" in refused.json()["detail"]
        assert made.read == 0


async def test_over_http_a_key_stands_alone_or_with_a_range(served: Served, stored: Stored) -> None:
    assert (await served.post(f"{ORDERS}/cancel", {"key": "1"})).json()["done"] == 10
    assert (await served.post(f"{ORDERS}/cancel", {"due": "..2h", "property": "id=4"})).json()["done"] == 1
    page = (await served.get(f"{ORDERS}/waiting?key=5&limit=20")).json()
    assert (len(page["entries"]), page["read"], page["read_bytes"]) == (2, 20, 800)
    assert page["next"] is not None
    before = stored.read
    for path, body in (
        ("cancel", {"key": "1", "property": "id=1"}),
        ("cancel", {"ids": ["5:1"], "key": "1"}),
        ("cancel", {"property": "id"}),
        ("cancel", {"key": ""}),
        ("reschedule", {"key": "1", "by_ms": 1_000}),
        ("cancel", {"all": True, "due": "..2h", "key": "1"}),
    ):
        assert (await served.post(f"{ORDERS}/{path}", body)).status_code == 400, body
    assert (await served.get(f"{ORDERS}/waiting?key=5&property=id%3D1")).status_code == 400
    assert stored.read == before


async def test_the_content_of_a_message_is_shown(served: Served, stored: Stored) -> None:
    shown = (await served.get(f"{ORDERS}/messages/5:42")).json()
    assert (shown["key"], shown["properties"], shown["size_bytes"]) == ("2", {"id": "42"}, 40)
    assert "other" not in shown
    assert "key" not in (await served.get(f"{ORDERS}/messages/9:9")).json()
    state = await blocking(lambda one: one.show("orders", "sub", "5:7"), url=served.url, token=TOKEN)
    assert (state.key, state.properties, state.size_bytes) == ("7", {"id": "7"}, 40)


async def test_a_message_that_cannot_be_read_now_is_read_again(served: Served, stored: Stored) -> None:
    stored.failures = 2
    assert (await served.get(f"{ORDERS}/waiting?key=5")).json()["read"] == 100
    stored.failures = 3
    answer = await served.get(f"{ORDERS}/waiting?key=5")
    assert answer.status_code == 503
    assert "cannot be read now" in answer.json()["detail"]


async def test_pieces_are_bounded(served: Served, stored: Stored) -> None:
    asked: list[int] = []
    stream = served.broker.streams[1]

    def note(peek: Peek) -> Peeked:
        asked.append(len(peek.positions))
        return stored(peek)

    stream.on_peek = note
    with patch.object(peeking, "PIECE", 30):
        assert len((await served.get(f"{ORDERS}/waiting?key=5")).json()["entries"]) == 10
    assert asked == [30, 30, 30, 10]
    with patch.object(message_queries, "PAGE_MAX", 40):
        assert (await served.get(f"{ORDERS}/waiting?key=5")).json()["read"] == 40


FOREVER_S = 3_600.0


async def test_a_silent_broker_delays_no_other_ones_reads(served: Served, socket_path: Path) -> None:
    silent = await waiting(served.broker, f"{TOPIC}-a")
    silent.on_peek = None
    async with await ShimClient.connect(socket_path, "broker-2") as other:
        (await waiting(other, f"{TOPIC}-b")).on_peek = Stored()
        with patch.object(peeking, "PATIENCE_S", FOREVER_S):
            stuck = asyncio.create_task(served.get("persistent/public/default/orders-a/sub/waiting?key=3"))
            await served.broker.until(lambda: bool(silent.peeks))
            page = (await served.get("persistent/public/default/orders-b/sub/waiting?key=3")).json()
        assert len(page["entries"]) == 10
        stuck.cancel()


async def test_a_read_waits_for_others_of_its_broker_and_not_for_ever(served: Served) -> None:
    silent = await waiting(served.broker, f"{TOPIC}-a")
    silent.on_peek = None
    with patch.object(peeking, "PATIENCE_S", FOREVER_S):
        stuck = asyncio.create_task(served.get("persistent/public/default/orders-a/sub/waiting?key=3"))
        await served.broker.until(lambda: bool(silent.peeks))
    with patch.object(peeking, "PATIENCE_S", 0.01):
        answer = await served.get("persistent/public/default/orders-a/sub/waiting?key=4")
    assert answer.status_code == 503
    assert "still reading for others" in answer.json()["detail"]
    assert len(silent.peeks) == 1
    stuck.cancel()


async def test_without_a_broker_nothing_is_chosen(served: Served, stored: Stored) -> None:
    await served.broker.disconnect()
    with pytest.raises(TidegateError) as caught:
        await blocking(lambda one: list(one.waiting("orders", "sub", key="3")), url=served.url, token=TOKEN)
    assert isinstance(caught.value, NotNowError)
    assert not stored.read


async def test_the_commands_say_first_what_it_takes(
    served: Served, stored: Stored, socket_path: Path
) -> None:
    at = ("--socket", str(socket_path), "--json")

    async def command(*arguments: str) -> Any:
        return await asyncio.to_thread(run, *arguments)

    listed = await command("list", "orders", "sub", "--key", "3", "--limit", "4", *at)
    assert [json.loads(one)["message_id"] for one in listed.stdout.splitlines()] == [
        "5:3",
        "5:13",
        "5:23",
        "5:33",
    ]
    cost, more = listed.stderr.splitlines()
    assert cost.startswith("tidegate: reads up to 100 messages, about 4 KiB in "), cost
    rest = await command("list", "orders", "sub", "--key", "3", "--after", more.split()[-1], *at)
    assert len(rest.stdout.splitlines()) == 6
    for due, messages in (("..30m", 0), ("..2h", 100), ("2h..", 0)):
        of_range = await command("list", "orders", "sub", "--key", "3", "--due", due, *at)
        (cost,) = of_range.stderr.splitlines()
        assert cost.startswith(f"tidegate: reads up to {messages} messages"), cost
    would = await command("cancel", "orders", "sub", "--property", "id=42", "--dry-run", *at)
    assert (would.returncode, json.loads(would.stdout)["done"]) == (0, 1)
    done = await command("cancel", "orders", "sub", "--key", "3", *at)
    assert json.loads(done.stdout)["done"] == 10, done.stderr
    for arguments in (
        ("--id", "5:1", "--key", "3"),
        ("--key", "3", "--property", "a=b"),
        ("--property", "a"),
    ):
        assert (await command("cancel", "orders", "sub", *arguments, *at)).returncode == 2
    shown = await command("show", "orders", "sub", "5:42", "--socket", str(socket_path))
    assert shown.stdout.splitlines()[1:] == ["40 bytes, key 2", "id=42"]
