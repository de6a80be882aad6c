"""/tidegate/v1 of a running daemon; the test plays the broker."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pytest

from tests.support.daemons import StartDaemon
from tests.support.deciding import HOUR_MS, TOPIC, DecidingBroker, waiting
from tests.support.served import Served
from tests.support.shim_client import ShimClient
from tidegate.index import Entries, PositionSet, SubscriptionName
from tidegate.plugin.api import api, changes, over_http, routes
from tidegate.plugin.daemon import broker_changes
from tidegate.plugin.wire.messages import Cancelled, Standing

ORDERS = "persistent/public/default/orders/sub"
COUNTS = ("done", "too_late", "acknowledged", "unknown", "undecided")


def counts(answer: httpx.Response) -> dict[str, int]:
    assert answer.status_code == 200, answer.text
    found = answer.json()
    return {name: found[name] for name in COUNTS if found[name]}


def problem(answer: httpx.Response) -> tuple[int, str]:
    """The status and the detail, of a document as RFC 9457 has it."""
    assert answer.headers["content-type"] == "application/problem+json"
    said = answer.json()
    assert set(said) == {"type", "title", "status", "detail"}
    assert said["status"] == answer.status_code
    assert len(said["detail"].splitlines()) == 1
    return answer.status_code, said["detail"]


def held(served: Served, topic: str = TOPIC) -> PositionSet:
    index = served.daemon.engine.catalog.get(SubscriptionName(topic, "sub"))
    assert index is not None
    found: PositionSet = index.state.held.snapshot()
    return found


async def test_each_id_gets_an_answer(served: Served) -> None:
    await waiting(served.broker, TOPIC, 2)
    dry = await served.post(f"{ORDERS}/cancel", {"ids": ["5:1", "5:2", "5:500"], "dry_run": True})
    assert counts(dry) == {"done": 1, "too_late": 1, "unknown": 1}
    assert dry.json()["dry_run"] is True
    assert len(held(served)) == 100
    answer = await served.post(f"{ORDERS}/cancel", {"ids": ["5:1", "5:2", "5:500"]})
    assert counts(answer) == {"done": 1, "too_late": 1, "unknown": 1}
    assert answer.json()["ids"] == {"too_late": ["5:2"], "unknown": ["5:500"]}
    assert answer.headers["content-type"] == "application/json"
    assert (5, 1) not in held(served)
    assert counts(await served.post(f"{ORDERS}/cancel", {"ids": ["5:1"]})) == {"acknowledged": 1}


async def test_a_due_range_and_all_that_waits(served: Served) -> None:
    await waiting(served.broker, TOPIC, 99)
    answer = await served.post(f"{ORDERS}/cancel", {"due": "..60m", "dry_run": True})
    assert 0 <= answer.json()["done"] <= 5
    assert answer.json()["next"] is None
    answer = await served.post(f"{ORDERS}/cancel", {"due": "59m..61m"})
    assert 50 <= answer.json()["done"] <= 62
    done = answer.json()["done"]
    answer = await served.post(f"{ORDERS}/cancel", {"all": True})
    assert counts(answer) == {"done": 99 - done, "too_late": 1}
    assert list(held(served)) == [(5, 99)]


async def test_a_request_for_more_than_it_may_change_ends_with_a_cursor(served: Served) -> None:
    await waiting(served.broker)
    with patch.object(routes, "CHANGED_MAX", 30):
        first = await served.post(f"{ORDERS}/cancel", {"all": True})
        assert counts(first) == {"done": 30}
        done, cursor = 30, first.json()["next"]
        while cursor is not None:
            answer = await served.post(f"{ORDERS}/cancel", {"all": True, "after": cursor})
            done, cursor = done + answer.json()["done"], answer.json()["next"]
    assert done == 100
    assert not held(served)


async def test_a_release_of_all_ends_where_nothing_leaves(served: Served) -> None:
    stream = await waiting(served.broker)
    now_ms = time.time_ns() // 1_000_000
    stream.add(Entries.of((now_ms - n, 6, n) for n in range(100)))
    await stream.durable()
    with patch.object(routes, "CHANGED_MAX", 30), patch.object(changes, "PAGE_ENTRIES", 10):
        done, cursor, requests = 0, "0:0:0", 0
        while cursor is not None:
            answer = await served.post(f"{ORDERS}/release", {"all": True, "after": cursor})
            done, cursor, requests = done + answer.json()["done"], answer.json()["next"], requests + 1
            assert requests < 10
    assert done == 100


async def test_a_change_to_a_time_counts_each_message_once(served: Served) -> None:
    await waiting(served.broker)
    at_ms = time.time_ns() // 1_000_000 + 3 * HOUR_MS
    with patch.object(changes, "PAGE_ENTRIES", 30):
        answer = await served.post(f"{ORDERS}/reschedule", {"all": True, "at_ms": at_ms})
    assert counts(answer) == {"done": 100}


async def test_a_request_ends_where_no_broker_decides(served: Served) -> None:
    stream = await waiting(served.broker)
    stream.on_cancel = lambda asked: Cancelled(
        PositionSet(), PositionSet(), PositionSet(), Standing.UNDECIDED
    )
    with patch.object(broker_changes, "PATIENCE_S", 0.1), patch.object(changes, "PAGE_ENTRIES", 10):
        answer = (await served.post(f"{ORDERS}/cancel", {"all": True})).json()
    assert (answer["undecided"], answer["stopped"]) == (10, True)
    assert "the broker cannot decide now" in answer["why"]
    stream.on_cancel = DecidingBroker()
    again = await served.post(f"{ORDERS}/cancel", {"all": True, "after": answer["next"]})
    assert counts(again) == {"done": 100}


async def test_a_request_that_takes_long_ends_with_a_cursor(served: Served) -> None:
    await waiting(served.broker)
    with patch.object(api, "REQUEST_SECONDS", 0.0), patch.object(changes, "PAGE_ENTRIES", 10):
        # There is a free place, and one query is asked.
        first = await served.post(f"{ORDERS}/cancel", {"all": True})
        assert counts(first) == {"done": 10}
        assert first.json()["next"] is not None


async def test_a_request_without_a_place_is_refused_in_time(served: Served) -> None:
    stream = await waiting(served.broker)
    stream.on_cancel = None
    with patch.object(api, "REQUEST_SECONDS", 0.2), patch.object(broker_changes, "PATIENCE_S", 1.0):
        asked = [served.post(f"{ORDERS}/cancel", {"ids": ["5:1"]}) for _ in range(api.AT_ONCE + 1)]
        answers = await asyncio.gather(*asked)
    refused = [one for one in answers if one.status_code != 200]
    assert len(refused) == 1
    assert problem(refused[0]) == (503, "16 requests are under way: ask again, nothing was done")
    assert all(one.json()["undecided"] == 1 for one in answers if one.status_code == 200)


async def test_what_waits_comes_in_pages(served: Served) -> None:
    await waiting(served.broker)
    found, cursor = [], ""
    while cursor is not None:
        page = (await served.get(f"{ORDERS}/waiting?limit=30{cursor and f'&after={cursor}'}")).json()
        found += page["entries"]
        cursor = page["next"]
    assert [one["message_id"] for one in found] == [f"5:{n}" for n in range(100)]
    assert found == sorted(found, key=lambda one: one["deliver_at_ms"])
    some = (await served.get(f"{ORDERS}/waiting?due=..59m")).json()
    assert some["entries"] == []
    assert (await served.client.head(f"/tidegate/v1/{ORDERS}/waiting")).content == b""


async def test_the_state_of_one_message(served: Served) -> None:
    await waiting(served.broker, TOPIC, 2)
    shown = (await served.get(f"{ORDERS}/messages/5:1")).json()
    assert (shown["state"], shown["topic"]) == ("waiting", TOPIC)
    assert abs(shown["deliver_at_ms"] - time.time() * 1_000 - HOUR_MS) < 60_000
    assert (await served.get(f"{ORDERS}/messages/5%3A2")).json()["state"] == "handed_out"
    assert (await served.get(f"{ORDERS}/messages/9:9")).json()["state"] == "unknown"


async def test_the_tide_of_a_subscription_a_topic_and_all(served: Served) -> None:
    await waiting(served.broker)
    await waiting(served.broker, "persistent://public/default/orders-partition-1")
    await waiting(served.broker, "persistent://shop/eu/other")
    for segment in "0000-7fff-1", "8000-ffff-2":
        await waiting(served.broker, f"segment://shop/asia/orders/{segment}")
    for path, subscriptions in (
        (f"{ORDERS}/tide", 1),
        ("persistent/public/default/orders-partition-1/sub/tide", 1),
        ("persistent/public/default/orders/tide", 2),
        ("segment/shop/asia/orders/0000-7fff-1/sub/tide", 1),
        ("topic/shop/asia/orders/sub/tide", 2),
        ("topic/shop/asia/orders/tide", 2),
        ("tide", 5),
        ("tide?topic=persistent:*orders*", 2),
        ("tide?topic=persistent:*orders*&subscription=sub", 2),
        ("persistent/public/default/tide", 2),
        ("persistent/shop/eu/tide", 1),
    ):
        answer = (await served.get(path)).json()
        assert (answer["subscriptions"], answer["entries"]) == (subscriptions, 100 * subscriptions), path
    fine = (await served.get(f"{ORDERS}/tide?span_ms=7200000&step_ms=60000")).json()
    assert sum(one["entries"] for one in fine["buckets"]) == 100
    assert 120 <= len(fine["buckets"]) <= 122
    for path in (
        "persistent/public/default/*/tide",
        "persistent/public/default/*/*/tide",
        "persistent/public/defaul/tide",
        "persistent/public/*/tide",
        "segment/public/default/tide",
        "topic/shop/asia/order/tide",
        "persistent/public/tide",
    ):
        assert problem(await served.get(path))[0] == 404


async def test_the_status_is_that_of_the_page(served: Served) -> None:
    await waiting(served.broker)
    for path in ("status", "status?sort=due"):
        answer = (await served.get(path)).json()
        assert [(one["topic"], one["held"]) for one in answer["subscriptions"]] == [(TOPIC, 100)], path
    assert problem(await served.get("status?sort=name"))[0] == 400


@pytest.mark.parametrize(
    ("topic", "path"),
    [
        ("segment://shop/eu/orders/0000-7fff-1", "segment/shop/eu/orders/0000-7fff-1/sub"),
        ("persistent://shop/eu/a/b", "persistent/shop/eu/a%2Fb/sub"),
        ("persistent://shop/eu/a%2Fb", "persistent/shop/eu/a%252Fb/sub"),
        ("persistent://shop/eu/*", "persistent/shop/eu/*/sub"),
        ("persistent://shop/eu/ä\n<b>", "persistent/shop/eu/%C3%A4%0A%3Cb%3E/sub"),
        ("persistent://shop/eu/..", "persistent/shop/eu/%2E%2E/sub"),
        ("persistent://shop/eu/tide", "persistent/shop/eu/tide/sub"),
    ],
)
async def test_names_are_data(served: Served, topic: str, path: str) -> None:
    await waiting(served.broker, topic)
    await waiting(served.broker, "persistent://shop/eu/another")
    # By hand: a client would put the path in order.
    reader, writer = await asyncio.open_connection("127.0.0.1", served.daemon.http_port)
    head = "Host: localhost\r\nAuthorization: Bearer a long random word\r\nConnection: close\r\n"
    writer.write(f"GET /tidegate/v1/{path}/messages/5:1 HTTP/1.1\r\n{head}\r\n".encode())
    answer = await reader.read()
    writer.close()
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["topic"] == topic
    operation = next(one for one in routes.OPERATIONS if one.what == "show")
    found = routes.place_of(routes.path_of(operation, {"topic": topic, "subscription": "sub", "id": "5:1"}))
    assert found.names == {"topic": topic, "subscription": "sub", "id": "5:1"}


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({}, 400, "exactly one of ids, due, all"),
        ({"ids": ["5:1"], "all": True}, 400, "exactly one of ids, due, all"),
        ({"ids": ["5:1"], "dryrun": True}, 400, "'dryrun' is not known"),
        ({"ids": ["5:1"], "dry_run": "yes"}, 400, "dry_run must be true or false"),
        ({"ids": []}, 400, "ids must be a list"),
        ({"ids": "5:1"}, 400, "ids must be a list"),
        ({"ids": [5]}, 400, "ids must be a list of texts"),
        ({"ids": ["5:1", "five"]}, 400, "ids, line 2: 'five' is no message id"),
        ({"ids": ["5:1:-1:3"]}, 400, "one message of a batch"),
        ({"ids": ["5:1:9"]}, 400, "partition 9 is not of this topic"),
        ({"ids": ["5:1"], "after": "1:1:1"}, 400, "after goes with due or all"),
        ({"all": False}, 400, "all must be true"),
        ({"due": "2h..1h"}, 400, "ends before it begins"),
        ({"due": "1760000000..1760003600"}, 400, "in the early 1970s: give milliseconds"),
        ({"due": "soon"}, 400, "due must be written as in 10m..1h"),
        ({"due": ".."}, 400, "is no range"),
        ({"all": True, "after": "x"}, 400, "after must be written as in"),
        ([], 400, "must be a JSON object"),
        ({"ids": [f"5:{n}" for n in range(10_001)]}, 413, "10001 members, and 10000 can be"),
        ({"ids": [f"5:{n}" for n in range(1_000_000)]}, 413, "a body has 1048576 bytes at most"),
    ],
)
async def test_a_wrong_body_changes_nothing(served: Served, body: Any, status: int, said: str) -> None:
    await waiting(served.broker)
    found, detail = problem(await served.post(f"{ORDERS}/cancel", body))
    assert (found, said in detail) == (status, True), detail
    assert len(held(served)) == 100


async def test_a_time_in_seconds_is_refused_with_the_unit_wanted(served: Served) -> None:
    await waiting(served.broker)
    answer = await served.post(f"{ORDERS}/reschedule", {"all": True, "at_ms": 1_760_000_000})
    status, detail = problem(answer)
    assert (status, "at_ms must be a whole number of ms since 1970," in detail) == (400, True), detail
    shown = (await served.get(f"{ORDERS}/messages/5:7")).json()
    assert "moved_from_ms" not in shown, shown


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("GET", "persistent/public/default/none/sub/tide", 404, "no subscription"),
        ("GET", "persistent/public/default/none/tide", 404, "no subscription of"),
        ("POST", "persistent/public/default/none/sub/cancel", 404, "no subscription"),
        ("GET", f"{ORDERS}/none", 404, "nothing is at this path"),
        ("GET", f"{ORDERS}/waiting/", 404, "nothing is at this path"),
        ("GET", "persistent/public/default//sub/waiting", 404, "nothing is at this path"),
        ("GET", "persistent/a%2Fb/default/orders/sub/waiting", 404, "has no slash"),
        ("GET", "", 404, "nothing is at this path"),
        ("GET", f"{ORDERS}/cancel", 405, "POST is allowed here"),
        ("POST", f"{ORDERS}/waiting", 405, "GET or HEAD is allowed here"),
        ("DELETE", f"{ORDERS}/messages/5:1", 405, "GET or HEAD is allowed here"),
        ("OPTIONS", f"{ORDERS}/cancel", 405, "POST is allowed here"),
        ("GET", f"{ORDERS}/waiting?limit=10001", 400, "limit must be a whole number from 1 to 10000"),
        ("GET", f"{ORDERS}/waiting?limit=ten", 400, "limit must be a whole number"),
        ("GET", f"{ORDERS}/waiting?limit=1&limit=2", 400, "limit is given twice"),
        ("GET", f"{ORDERS}/waiting?from=1", 400, "'from' is not known; known: due, limit, after"),
        ("GET", f"{ORDERS}/waiting?due=1760000000..", 400, "due: 1760000000 ms is in the early 1970s"),
        ("GET", f"{ORDERS}/messages/five", 400, "'five' is no message id"),
        ("GET", f"{ORDERS}/tide?span_ms=86400000&step_ms=1", 400, "buckets"),
        ("GET", "persistent/public/default/%FF/sub/tide", 400, "not UTF-8"),
    ],
)
async def test_a_wrong_request_is_a_problem(
    served: Served, method: str, path: str, status: int, said: str
) -> None:
    await waiting(served.broker)
    body = {"all": True} if method == "POST" else None
    answer = await served.client.request(method, f"/tidegate/v1/{path}", json=body)
    found, detail = problem(answer)
    assert (found, said in detail) == (status, True), detail
    if status == 405:
        assert set(answer.headers["Allow"].split(", ")) == set(
            said.removesuffix(" is allowed here").split(" or ")
        )
    assert len(held(served)) == 100


async def test_the_page_hears_no_other_method(served: Served) -> None:
    answer = await served.client.post("/tidegate/", json={})
    assert problem(answer) == (405, "GET or HEAD is allowed here")
    assert answer.headers["Allow"] == "GET, HEAD"


async def test_only_a_continue_may_be_expected(served: Served) -> None:
    await waiting(served.broker)
    body = {"all": True}
    answer = await served.post(f"{ORDERS}/cancel", body, Expect="a-rabbit")
    assert problem(answer) == (417, "the header Expect may only be 100-continue")
    assert len(held(served)) == 100
    answer = await served.post(f"{ORDERS}/cancel", body, Expect="100-Continue")
    assert counts(answer) == {"done": 100}


async def test_a_client_that_waits_for_a_continue_gets_it(served: Served) -> None:
    await waiting(served.broker)
    reader, writer = await asyncio.open_connection("127.0.0.1", served.daemon.http_port)
    body, own = b'{"all": true}', served.client.headers["Authorization"]
    head = (
        f"POST /tidegate/v1/{ORDERS}/cancel HTTP/1.1\r\nHost: localhost\r\nAuthorization: {own}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
    )
    writer.write(head.encode())
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(body)
    assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
    writer.close()


async def test_who_may_not(served: Served, start: StartDaemon) -> None:
    await waiting(served.broker)
    url, body = f"{served.url}/tidegate/v1/{ORDERS}/cancel", {"all": True}
    own = served.client.headers["Authorization"]
    async with httpx.AsyncClient(trust_env=False) as client:
        for given in (None, "Bearer another", "Basic YTpi"):
            answer = await client.post(url, json=body, headers={"Authorization": given} if given else {})
            assert problem(answer) == (401, "a token is needed")
            assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert problem(await client.get(url))[0] == 401
        for headers, status in (
            ({"Origin": "https://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Sec-Fetch-Site": "same-site"}, 403),
            ({"Host": "evil.example"}, 421),
            ({"Content-Type": "text/plain"}, 415),
            ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ):
            with_token = {"Authorization": own, "Content-Type": "application/json", **headers}
            answer = await client.post(url, content=json.dumps(body), headers=with_token)
            assert problem(answer)[0] == status, headers
        assert len(held(served)) == 100
        same = {"Authorization": own, "Origin": served.url, "Sec-Fetch-Site": "same-origin"}
        assert (await client.post(url, json=body, headers=same)).json()["done"] == 100


async def test_without_a_token_of_its_own_a_daemon_shows_and_changes_nothing(
    start: StartDaemon, socket_path: Path
) -> None:
    async with (
        start(http="127.0.0.1:0") as daemon,
        await ShimClient.connect(socket_path) as broker,
        httpx.AsyncClient(trust_env=False, base_url=f"http://127.0.0.1:{daemon.http_port}") as client,
    ):
        await waiting(broker)
        assert (await client.get(f"/tidegate/v1/{ORDERS}/tide")).json()["entries"] == 100
        answer = await client.post(f"/tidegate/v1/{ORDERS}/cancel", json={"all": True})
        assert problem(answer)[0] == 401
        assert "http_token_file" in problem(answer)[1]


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_that_ends_early_changes_nothing(served: Served, chunked: bool, at_once: bool) -> None:
    await waiting(served.broker)
    body = b'{"all": true}'
    sent = b"20\r\n" + body if chunked else body
    length = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: 100"
    reader, writer = await asyncio.open_connection("127.0.0.1", served.daemon.http_port)
    writer.write(
        b"POST /tidegate/v1/" + ORDERS.encode() + b"/cancel HTTP/1.1\r\nHost: localhost\r\n"
        b"Authorization: Bearer a long random word\r\nContent-Type: application/json\r\n"
        + length + b"\r\n\r\n" + sent
    )  # fmt: skip
    if not at_once:
        await asyncio.sleep(0.05)
    writer.write_eof()
    head, _, said = (await asyncio.wait_for(reader.read(), 20)).partition(b"\r\n\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.1 400")
    assert b"ends before its end" in said
    assert len(held(served)) == 100


async def test_a_whole_request_is_answered_though_its_sender_has_ended(served: Served) -> None:
    """As by ``nc -N``: the end comes while the broker decides. The connection ends with the answer."""
    stream = await waiting(served.broker)
    broker, stream.on_cancel = stream.on_cancel, None
    assert broker is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", served.daemon.http_port)
    body = b'{"ids": ["5:1"]}'
    writer.write(
        b"POST /tidegate/v1/" + ORDERS.encode() + b"/cancel HTTP/1.1\r\nHost: localhost\r\n"
        b"Authorization: Bearer a long random word\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body) + body
    )
    while not stream.cancels:
        await asyncio.sleep(0.01)
    writer.write_eof()
    await asyncio.sleep(0.05)
    [(seq, asked)] = stream.cancels
    stream.client.send(broker(asked), stream.stream_id, seq)
    head, _, said = (await asyncio.wait_for(reader.read(), 5)).partition(b"\r\n\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.1 200")
    assert json.loads(said)["done"] == 1


@pytest.mark.parametrize("text", ['{"all": true', "[" * 100_000, '{"all": true, "all": true}', "\xff", ""])
async def test_what_is_no_json_changes_nothing(served: Served, text: str) -> None:
    await waiting(served.broker)
    answer = await served.client.post(
        f"/tidegate/v1/{ORDERS}/cancel",
        content=text.encode("latin-1"),
        headers={"Content-Type": "application/json"},
    )
    status, said = problem(answer)
    assert status == 400
    assert "the body is no JSON" in said
    assert len(held(served)) == 100


async def test_a_body_that_does_not_come_ends_in_time(
    start: StartDaemon, socket_path: Path, token_file: Path
) -> None:
    with patch.object(over_http, "BODY_SECONDS", 0.2):
        async with start(http="127.0.0.1:0", http_token_file=token_file) as daemon:
            reader, writer = await asyncio.open_connection("127.0.0.1", daemon.http_port)
            writer.write(
                b"POST /tidegate/v1/" + ORDERS.encode() + b"/cancel HTTP/1.1\r\nHost: localhost\r\n"
                b"Authorization: Bearer a long random word\r\nContent-Type: application/json\r\n"
                b"Content-Length: 100\r\n\r\n{"
            )
            assert (await asyncio.wait_for(reader.readline(), 20)).startswith(b"HTTP/1.1 408")
            writer.close()


async def test_a_bug_is_told_in_the_log_and_not_to_the_client(served: Served, log: Any) -> None:
    await waiting(served.broker)
    with patch.object(
        served.daemon.engine.queries._messages._looking, "tide", side_effect=RuntimeError("secret")
    ):
        answer = await served.get(f"{ORDERS}/tide")
    assert problem(answer) == (500, "a bug in the daemon, its log has more")
    assert "secret" in log.getvalue()


async def test_ids_of_several_partitions(served: Served) -> None:
    for partition in (0, 1):
        name = f"persistent://public/default/parts-partition-{partition}"
        stream = await served.broker.open(name, "sub", credit=0)
        at_ms = time.time_ns() // 1_000_000 + HOUR_MS
        stream.add(Entries.of((at_ms, 5, n) for n in range(10)))
        await stream.durable()
        stream.on_cancel = DecidingBroker(partition)
    path = "persistent/public/default/parts/sub"
    ids = ["5:0:0", "5:1:0", "5:0:1", "5:1:1"]
    answer = await served.post(f"{path}/cancel", {"ids": ids})
    assert counts(answer) == {"done": 2, "too_late": 2}
    assert answer.json()["ids"] == {"too_late": ["5:0:0", "5:1:1"]}
    refused = await served.post(f"{path}/cancel", {"ids": ["5:2:0", "5:2:1", "5:2:7"]})
    assert problem(refused) == (400, "partition 7 is not of this topic: check the message id")
    again = await served.post(f"{path}/cancel", {"ids": ["5:2:0", "5:2:1"]})
    assert counts(again) == {"done": 2}


async def test_the_pace_of_release(served: Served) -> None:
    await waiting(served.broker)
    for path, body, kept in (
        ("pause", {}, {"paused": True, "rate": None, "spread_ms": None, "held_back": 7}),
        ("pace", {"rate": 500}, {"paused": False, "rate": 500, "spread_ms": None, "held_back": 7}),
        ("pace", {"spread_ms": 60_000}, {"paused": False, "rate": None, "spread_ms": 60_000, "held_back": 7}),
        ("resume", {}, {"paused": False, "rate": None, "spread_ms": None, "held_back": 0}),
    ):
        answer = await served.post(f"{ORDERS}/{path}", body)
        assert answer.json() == {
            "schema": 1,
            "done": True,
            "held_back": kept["held_back"],
            "subscriptions": [{"topic": TOPIC, "subscription": "sub", **kept}],
        }
        assert (await served.get(f"{ORDERS}/pace")).json() == answer.json()


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("pause", {"rate": 1}, "'rate' is not known; nothing can be given here"),
        ("pace", {}, "exactly one of rate, spread_ms"),
        ("pace", {"rate": 1, "spread_ms": 1_000}, "exactly one of rate, spread_ms"),
        ("pace", {"rate": 0}, "rate must be a whole number from 1 to 1000000"),
        ("pace", {"rate": 1.5}, "rate must be a whole number"),
        ("pace", {"spread_ms": 1}, "spread_ms must be a whole number from 1000"),
    ],
)
async def test_a_wrong_pace_changes_nothing(
    served: Served, path: str, body: dict[str, Any], said: str
) -> None:
    stream = await waiting(served.broker)
    status, detail = problem(await served.post(f"{ORDERS}/{path}", body))
    assert (status, said in detail) == (400, True), detail
    assert not stream.paces
