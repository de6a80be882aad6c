"""The calls of a client over HTTP: paths, redirects, retries, errors. No network."""

from __future__ import annotations

import itertools
import json
import time
from typing import Any
from unittest import mock

import pytest

from tidegate import AsyncClient, Client
from tidegate.plugin.api.changes import Total, positions_of, run_blocking
from tidegate.plugin.client.calls import (
    REDIRECTS_MAX,
    RETRIES,
    Call,
    Pause,
    RefusedError,
    Reply,
    base_of,
    call_of,
    change_of,
    change_of_due,
    talk,
)
from tidegate.plugin.client.http_reach import HttpReach
from tidegate.plugin.errors import ConfigError, DaemonAwayError, NotNowError, UnknownNameError, UserError

BASE = "http://127.0.0.1:8088"
NAMED = {"topic": "orders", "subscription": "billing"}
ORDERS = "persistent/public/default/orders"
SHOW = {"what": "show", "topic": "orders", "subscription": "billing", "id": "17:4711"}
ROOT = f"{BASE}/tidegate/v1/persistent/public/default/orders/billing"
MOVED = "http://broker-2:8080/tidegate/v1/x"


def conversation(query: dict[str, Any], *said: Reply | Exception) -> tuple[list[Call], list[float], Any]:
    """The calls, the pauses, and the answer or error."""
    talking, calls, pauses = talk(BASE, query), [], []
    left, answer = iter(said), None
    try:
        wanted = next(talking)
        while True:
            if isinstance(wanted, Pause):
                pauses.append(wanted.seconds)
                wanted = next(talking)
            else:
                calls.append(wanted)
                wanted = talking.send(next(left))  # type: ignore[arg-type]
    except StopIteration as end:
        answer = end.value
    except UserError as error:
        answer = error
    return calls, pauses, answer


def ok(answer: dict[str, Any]) -> Reply:
    return Reply(200, json.dumps(answer).encode())


def refused(status: int, detail: str = "why") -> Reply:
    return Reply(status, json.dumps({"status": status, "detail": detail}).encode())


@pytest.mark.parametrize(
    ("query", "method", "path"),
    [
        (SHOW, "GET", f"{ORDERS}/billing/messages/17%3A4711"),
        (SHOW | {"topic": "shop/eu/a b"}, "GET", "persistent/shop/eu/a%20b/billing/messages/17%3A4711"),
        (
            SHOW | {"topic": "persistent://shop/eu/a/b"},
            "GET",
            "persistent/shop/eu/a%2Fb/billing/messages/17%3A4711",
        ),
        (
            SHOW | {"topic": "persistent://shop/eu/.."},
            "GET",
            "persistent/shop/eu/%2E%2E/billing/messages/17%3A4711",
        ),
        ({"what": "tide", "topic": "*", "subscription": "*"}, "GET", "tide"),
        ({"what": "tide", "topic": "ord*", "subscription": "billing"}, "GET", "tide"),
        ({"what": "tide", "topic": "orders", "subscription": "*"}, "GET", f"{ORDERS}/tide"),
        ({"what": "tide", "topic": "acme/shop/*", "subscription": "*"}, "GET", "persistent/acme/shop/tide"),
        ({"what": "tide", "topic": "persistent://a/b/*"}, "GET", "persistent/a/b/tide"),
        ({"what": "tide", "topic": "a/b/*", "subscription": "billing"}, "GET", "tide"),
        ({"what": "tide", "topic": "a/b*/*"}, "GET", "tide"),
        (NAMED | {"what": "tide"}, "GET", f"{ORDERS}/billing/tide"),
        (NAMED | {"what": "waiting"}, "GET", f"{ORDERS}/billing/waiting"),
        (NAMED | {"what": "cancel", "ids": ["1:2"]}, "POST", f"{ORDERS}/billing/cancel"),
    ],
)
def test_each_query_has_its_path(query: dict[str, Any], method: str, path: str) -> None:
    call = call_of(BASE, query)
    assert (call.method, call.url) == (method, f"{BASE}/tidegate/v1/{path}")
    assert (call.body is None) == (method == "GET")


@pytest.mark.parametrize("topic", ["persistent://shop/orders", "other://a/b/c", "persistent://a/b/"])
def test_a_topic_without_a_place_is_refused(topic: str) -> None:
    with pytest.raises(UserError, match="is no topic in full"):
        call_of(BASE, SHOW | {"topic": topic})


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://host", "no URL of HTTP"),
        ("http://", "no URL of HTTP"),
        ("http://host:port", "no URL of HTTP"),
        ("http://host/?a=b", "no URL of HTTP"),
        ("http://user:secret@host", "give a token instead"),
    ],
)
def test_a_url_that_leads_nowhere_is_refused(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        base_of(url)
    assert "secret" not in str(caught.value)


def test_a_redirect_keeps_method_and_body() -> None:
    query = {"what": "cancel", "topic": "orders", "subscription": "billing", "ids": ["1:2"]}
    calls, _, answer = conversation(query, Reply(307, b"", MOVED), ok({"done": 1}))
    assert [(one.method, one.url) for one in calls] == [("POST", f"{ROOT}/cancel"), ("POST", MOVED)]
    assert calls[0].body == calls[1].body
    assert answer == {"done": 1}


@pytest.mark.parametrize(
    "location", ["https://broker-2/x", "ftp://x/", "file:///etc/passwd", "http://u:p@host/", "http://[", None]
)
def test_a_redirect_to_another_scheme_is_not_followed(location: str | None) -> None:
    calls, _, answer = conversation(SHOW, Reply(307, b"", location))
    assert len(calls) == 1
    assert isinstance(answer, UserError)
    assert len(str(answer).splitlines()) == 1


def test_redirects_end() -> None:
    calls, _, answer = conversation(SHOW, *[Reply(307, b"", MOVED)] * 20)
    assert len(calls) == REDIRECTS_MAX + 1
    assert isinstance(answer, NotNowError)


def test_a_call_without_an_answer_is_made_again_from_the_beginning() -> None:
    said = (Reply(307, b"", MOVED), DaemonAwayError("gone"), refused(503), ok({"state": "waiting"}))
    calls, pauses, answer = conversation(SHOW, *said)
    assert [one.url for one in calls] == [calls[0].url, MOVED, calls[0].url, calls[0].url]
    assert pauses == [0.1, 0.2]
    assert answer == {"state": "waiting"}


@pytest.mark.parametrize("lost", [DaemonAwayError("gone"), refused(504), refused(502)])
@pytest.mark.parametrize("chosen", [{"all": True}, {"due": "..1790000000000"}])
def test_a_change_without_ids_whose_answer_is_lost_is_not_made_again(
    lost: Reply | DaemonAwayError, chosen: dict[str, Any]
) -> None:
    query = NAMED | {"what": "cancel", **chosen}
    calls, pauses, answer = conversation(query, lost, ok(NOTHING))
    assert (len(calls), pauses) == (1, [])
    assert isinstance(answer, DaemonAwayError)
    assert "some may be changed" in str(answer)
    for again in (
        query | {"due": None, "all": None, "ids": ["1:2"]},
        query | {"what": "waiting", "all": None},
    ):
        assert len(conversation(again, lost, ok(NOTHING))[0]) == 2
    assert len(conversation(query, refused(503), ok(NOTHING))[0]) == 2


def test_tries_end_and_say_why() -> None:
    calls, pauses, answer = conversation(SHOW, *[DaemonAwayError("gone")] * 20)
    assert (len(calls), len(pauses)) == (RETRIES + 1, RETRIES)
    assert isinstance(answer, DaemonAwayError)
    calls, _, answer = conversation(SHOW, *[refused(503, "the store fails")] * 20)
    assert len(calls) == RETRIES + 1
    assert isinstance(answer, NotNowError)
    assert "the store fails" in str(answer)


@pytest.mark.parametrize(
    ("said", "waits_s"), [("2", 2.0), ("0", 0.1), ("9999999999999", 5.0), ("Sun, 29 Nov 2026", 0.1)]
)
def test_a_server_may_ask_for_a_longer_pause_in_bounds(said: str, waits_s: float) -> None:
    _, pauses, _ = conversation(SHOW, Reply(503, b"", retry_after=said), ok({}))
    assert pauses == [waits_s]


@pytest.mark.parametrize(
    ("reply", "kind", "said"),
    [
        (refused(401), RefusedError, "takes no such token"),
        (Reply(401, b"<html>"), RefusedError, "takes no such token: give one that this cluster accepts"),
        (Reply(414, b"<h1>"), RefusedError, "answers 414: its web server takes no request that long"),
        (Reply(431, b"<h1>"), RefusedError, "httpMaxRequestHeaderSize"),
        (refused(404, "no subscription"), UnknownNameError, "no subscription"),
        (Reply(404, b"<html>"), RefusedError, "is it a Tidegate?"),
        (refused(400, "a\n\x1b[31mb"), RefusedError, r"a\\n\\x1b\[31mb"),
        (Reply(200, b"hello"), RefusedError, "answers 200: is it a Tidegate?"),
        (Reply(200, b"[" * 100_000), RefusedError, "is it a Tidegate?"),
        (Reply(302, b"", "http://x/"), RefusedError, "answers 302"),
    ],
)
def test_an_error_is_one_line(reply: Reply, kind: type[UserError], said: str) -> None:
    calls, _, answer = conversation(SHOW, reply)
    assert len(calls) == 1
    with pytest.raises(kind, match=said):
        raise answer
    assert len(str(answer).splitlines()) == 1


NOTHING: dict[str, Any] = dict.fromkeys(("done", "too_late", "acknowledged", "unknown", "undecided"), 0) | {
    "ids": {}
}


def test_many_ids_are_sent_in_batches() -> None:
    asked: list[list[str]] = []

    def ask(query: dict[str, Any]) -> dict[str, Any]:
        asked.append(query["ids"])
        return NOTHING | {"done": len(query["ids"])}

    ids = [f"5:{n}" for n in range(25_000)] + ["5:1:3"]
    course = change_of({"what": "cancel"}, positions_of(enumerate(ids), "ids"), Total(False))
    assert run_blocking(course, ask)["done"] == 25_001
    assert [len(one) for one in asked] == [10_000, 10_000, 5_001]
    assert sorted(itertools.chain(*asked)) == sorted(ids)


@pytest.mark.parametrize("by_ids", [True, False])
def test_after_a_change_a_failure_is_told_with_the_counts(by_ids: bool) -> None:
    asked: list[dict[str, Any]] = []
    error: UserError = NotNowError("the store is failing")

    def ask(query: dict[str, Any]) -> dict[str, Any]:
        asked.append(query)
        if len(asked) == 2:
            raise error
        return NOTHING | {"done": 10_000, "next": "1:1:1"}

    def change(total: Total) -> dict[str, Any]:
        asked.clear()
        ids = positions_of(enumerate(f"5:{n}" for n in range(25_000)), "ids")
        query = {"what": "cancel"}
        return run_blocking(
            change_of(query, ids, total) if by_ids else change_of_due(query, None, total), ask
        )

    answer = change(Total(False))
    assert (answer["done"], answer["undecided"], len(asked)) == (10_000, 15_000 if by_ids else 0, 2)
    assert (answer["why"], answer.get("stopped", False)) == ("the store is failing", not by_ids)
    error, total = DaemonAwayError("gone"), Total(False)
    with pytest.raises(DaemonAwayError, match="gone"):
        change(total)
    assert total.counts["done"] == 10_000


def test_a_range_is_asked_until_its_end() -> None:
    asked: list[object] = []

    def ask(query: dict[str, Any]) -> dict[str, Any]:
        asked.append((query["due"], query["after"]))
        return NOTHING | {"done": 10, "next": None if len(asked) == 3 else f"1:1:{len(asked)}"}

    assert run_blocking(change_of_due({"what": "cancel"}, "..1h", Total(False)), ask)["done"] == 30
    assert asked == [("..1h", None), ("..1h", "1:1:1"), ("..1h", "1:1:2")]


def test_a_course_that_the_server_stops_ends() -> None:
    asked: list[object] = []

    def ask(query: dict[str, Any]) -> dict[str, Any]:
        asked.append(query["after"])
        return NOTHING | {"undecided": 5, "next": "0:0:0", "stopped": True, "why": "no broker"}

    total = Total(False)
    answer = run_blocking(change_of_due({"what": "cancel"}, None, total), ask)
    assert (asked, answer["undecided"], answer["why"], answer["stopped"]) == ([None], 5, "no broker", True)


def test_a_range_means_the_same_in_each_request_of_a_change() -> None:
    reach = HttpReach(BASE, None, 1.0)
    asked: list[str] = []

    def ask(query: dict[str, Any]) -> dict[str, Any]:
        asked.append(query["due"])
        return NOTHING | {"next": "1:1:1" if len(asked) < 3 else None}

    before_ms = time.time_ns() // 1_000_000
    run_blocking(reach.change_of_due({"what": "cancel"}, "10m..1h", Total(False)), ask)
    reach.close()
    assert len(asked) == 3
    assert len(set(asked)) == 1
    from_ms, to_ms = map(int, asked[0].split(".."))
    assert to_ms - from_ms == 3_000_000
    assert before_ms <= from_ms - 600_000 <= time.time_ns() // 1_000_000
    with pytest.raises(UserError, match="ends before it begins"):
        list(Client(BASE).waiting("orders", "billing", due="2h..1h"))
    with pytest.raises(UserError, match="ends before it begins"):
        reach.change_of_due({"what": "cancel"}, "2h..1h", Total(False))


def pages(asked: list[str]) -> Any:
    def ask(query: dict[str, Any]) -> dict[str, Any]:
        asked.append(query["due"])
        entries = [{"message_id": f"5:{len(asked)}", "deliver_at_ms": len(asked)}]
        return {"entries": entries, "next": "1:1:1" if len(asked) < 3 else None}

    return ask


def moving_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = itertools.count(1_790_000_000_000_000_000, 1_000_000_000)
    monkeypatch.setattr(time, "time_ns", lambda: next(moments))


def test_a_range_means_the_same_in_each_page(monkeypatch: pytest.MonkeyPatch) -> None:
    moving_clock(monkeypatch)
    asked: list[str] = []
    with Client(BASE) as client:
        monkeypatch.setattr(client, "_reach", mock.Mock(ask=pages(asked)))
        assert len(list(client.waiting("orders", "billing", due="10m..1h"))) == 3
    assert asked == ["1790000600000..1790003600000"] * 3


async def test_a_range_means_the_same_in_each_page_of_an_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    moving_clock(monkeypatch)
    asked: list[str] = []
    async with AsyncClient(BASE) as client:
        monkeypatch.setattr(
            client, "_reach", mock.Mock(ask=mock.AsyncMock(side_effect=pages(asked)), close=mock.AsyncMock())
        )
        assert len([one async for one in client.waiting("orders", "billing", due="10m..1h")]) == 3
    assert asked == ["1790000600000..1790003600000"] * 3
