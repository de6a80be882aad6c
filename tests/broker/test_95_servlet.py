"""Waiting messages over the broker's own web port."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.cluster import Cluster
from tests.support.daemons import run
from tests.support.inbox import Inbox, assert_exactly
from tests.support.lane import MINUTES_10_MS, Lane
from tests.support.servlets import Web, problem
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.tidegate_only, pytest.mark.usefixtures("repaired")]

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def web(cluster: Cluster) -> Iterator[Web]:
    opened = Web(cluster.broker.admin_url)
    yield opened
    opened.close()


@pytest.fixture
def filled(lane: Lane, web: Web) -> Inbox:
    """Ten messages wait for ten minutes, for a consumer that is there."""
    inbox = Inbox()
    lane.subscribe(inbox)
    lane.send_in(*[MINUTES_10_MS + 1_000 * at for at in range(10)])
    wait_until(lambda: waiting(web, lane) == 10, "10 are in the index")
    return inbox


def waiting(web: Web, lane: Lane) -> int:
    """The number of messages that wait; 0 before the index is there."""
    answer = web.get(lane.topic, "tide")
    return int(answer.json()["entries"]) if answer.is_success else 0


@pytest.mark.usefixtures("filled")
def test_what_waits_is_counted_listed_and_shown(lane: Lane, web: Web) -> None:
    tide = web.get(lane.topic, "tide?step_ms=60000").json()
    assert tide["overdue"] + sum(one["entries"] for one in tide["buckets"]) + tide["later"] == 10
    assert web.client.get(f"/tidegate/v1/persistent/{lane.topic}/tide").json()["entries"] == 10
    page = web.get(lane.topic, "waiting?limit=4").json()
    assert len(page["entries"]) == 4
    rest = web.get(lane.topic, f"waiting?after={page['next']}").json()
    assert len(rest["entries"]) == 6
    first = page["entries"][0]
    shown = web.get(lane.topic, f"messages/{first['message_id']}")
    assert shown.headers["Cache-Control"] == "no-store"
    assert (shown.json()["state"], shown.json()["deliver_at_ms"]) == ("waiting", first["deliver_at_ms"])


@pytest.mark.usefixtures("filled", "repaired")
def test_the_fleet_is_seen_through_the_brokers(cluster: Cluster) -> None:
    def fleet() -> dict[str, Any]:
        done = run("fleet", "--json", "--admin-url", cluster.broker.admin_url)
        (one,) = json.loads(done.stdout)["brokers"]
        assert done.returncode == (0 if one["well"] else 1), done.stderr
        return dict(one)

    found = fleet()
    assert found["state"] == "ready"
    assert found["held"] >= 10
    cluster.daemon.kill()
    wait_until(lambda: fleet()["state"].startswith("NO DAEMON: no daemon answers"), "the broker says so")


def test_what_is_cancelled_comes_to_nobody(lane: Lane, web: Web) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    sent = lane.send_in(*[20_000] * 6)
    wait_until(lambda: waiting(web, lane) == 6, "6 are in the index")
    ids = [one["message_id"] for one in web.get(lane.topic, "waiting").json()["entries"]]
    answer = web.post(lane.topic, "cancel", {"ids": ids[:3]})
    assert (answer.status_code, answer.json()["done"]) == (200, 3)
    assert web.post(lane.topic, "cancel", {"ids": ids[:3]}).json()["acknowledged"] == 3
    inbox.wait_for(sent[3:])
    lane.wait_stats(lambda now: now.backlog == 0, "what was cancelled is no backlog")
    assert_exactly(inbox.arrivals, sent[3:])


@pytest.mark.usefixtures("filled")
def test_bad_input_is_a_problem_and_changes_nothing(lane: Lane, web: Web) -> None:
    base = f"/tidegate/v1/persistent/{lane.topic}/sub"
    for answer, status in (
        (web.post(lane.topic, "cancel", {"ids": ["1:"]}), 400),
        (web.post(lane.topic, "cancel", {"ids": ["1:2"], "dry-run": True}), 400),
        (web.client.post(f"{base}/cancel", data={"all": "true"}), 415),
        (web.client.post(f"{base}/cancel", json={"all": True}, headers={"Content-Type": "text/plain"}), 415),
        (web.post(lane.topic, "cancel", {"ids": ["1:2"] * 200_000}), 413),
        (web.client.post(f"{base}/cancel", content=pieces(), headers=JSON), 413),
        (web.client.delete(f"{base}/cancel"), 405),
        (web.client.post(f"{base}/tide", json={}), 405),
        (web.get(lane.topic, "nothing"), 404),
        (web.get(lane.topic, "tide", subscription="nobody"), 404),
        (web.get("nobody/default/t", "tide"), 404),
        (web.get("public/nothing/t", "tide"), 404),
        (web.get(lane.topic, "tide?step_ms=-1"), 400),
        (web.client.get("/tidegate/v1/tides"), 404),
        (web.client.get("/tidegate/v1/non-persistent/public/default/t/sub/tide"), 404),
    ):
        assert problem(answer)[0] == status, answer.request.url
    # Newer Jettys refuse these by a page of their own.
    for answer in (web.get(lane.topic, "tide", subscription="%FF"), web.get("public/default/a%2Fb", "tide")):
        assert answer.status_code == 400
    assert waiting(web, lane) == 10


def test_a_wrong_method_hears_the_described_ones(lane: Lane, web: Web) -> None:
    names = dict(zip(("tenant", "namespace", "topic"), lane.topic.split("/"), strict=True))
    names |= {"segment": "0000-7fff-1", "subscription": "sub", "id": "5:1"}
    paths = web.client.get("/tidegate/v1/openapi.json").json()["paths"]
    for template, described in paths.items():
        methods = {one.upper() for one in described} & {"GET", "POST"}
        answer = web.client.delete(template.format(**names))
        if "/topic/" in template:
            assert problem(answer)[0] == 404, template
            continue
        assert problem(answer)[0] == 405, template
        assert set(answer.headers["Allow"].split(", ")) - {"HEAD"} == methods, template
        assert ("HEAD" in answer.headers["Allow"]) == ("GET" in methods), template


def pieces() -> Iterator[bytes]:
    """A body that does not say how long it is."""
    for _ in range(1_200):
        yield b" " * 1_024


@pytest.mark.usefixtures("filled")
def test_a_body_that_ends_early_changes_nothing(cluster: Cluster, lane: Lane, web: Web) -> None:
    head = (
        f"POST /tidegate/v1/persistent/{lane.topic}/sub/cancel HTTP/1.1\r\nHost: localhost\r\n"
        'Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"all": true}'
    )
    with socket.create_connection(("127.0.0.1", cluster.broker.ports.web), timeout=60.0) as client:
        client.sendall(head.encode())
        client.shutdown(socket.SHUT_WR)
        answer = client.makefile("rb").read()
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400")
    assert waiting(web, lane) == 10


@pytest.mark.usefixtures("filled")
def test_names_with_other_characters_are_one_segment(lane: Lane, web: Web) -> None:
    name = "bill/é +%20?"
    inbox = Inbox()
    lane.subscribe(inbox, name=name)
    encoded = quote(name, safe="")

    def listed() -> int:
        answer = web.get(lane.topic, "waiting", subscription=encoded)
        return len(answer.json()["entries"]) if answer.is_success else 0

    wait_until(lambda: listed() == 10, "its index has them, too")


def test_a_topic_in_partitions_is_asked_for_each(make_lane: Callable[..., Lane], web: Web) -> None:
    lane = make_lane()
    lane.admin.create_partitioned(lane.topic, 2)
    inbox = Inbox()
    lane.subscribe(inbox)
    lane.send_in(*[MINUTES_10_MS] * 10)
    answer = web.get(lane.topic, "tide")
    assert problem(answer)[0] == 409
    assert answer.json()["partitions"] == 2

    def of_partitions() -> int:
        found = [web.get(f"{lane.topic}-partition-{number}", "tide") for number in range(2)]
        return sum(one.json()["entries"] for one in found if one.is_success)

    wait_until(lambda: of_partitions() == 10, "both partitions are in the index")


@pytest.mark.usefixtures("filled")
def test_without_a_daemon_it_says_so_and_goes_on_with_the_next(
    cluster: Cluster, lane: Lane, web: Web
) -> None:
    cluster.daemon.kill()
    status, detail = problem(web.get(lane.topic, "tide"))
    assert status == 503
    assert "tidegate serve" in detail
    cluster.daemon.start()
    wait_until(lambda: waiting(web, lane) == 10, "the next daemon answers")
