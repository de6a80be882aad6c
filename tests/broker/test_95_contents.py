"""Messages chosen by key or property, and shown with their content, on a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster
from tests.support.daemons import run
from tests.support.inbox import UID, Inbox, Sent, assert_exactly
from tests.support.lane import MINUTES_10_MS, Lane
from tests.support.servlets import Web
from tests.support.waiting import wait_until
from tidegate import Client, TidegateError

pytestmark = [pytest.mark.tidegate_only, pytest.mark.usefixtures("repaired")]

MESSAGES = 1_200  # over three ledgers, and more than one read of the broker


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with Client(cluster.broker.admin_url) as opened:
        yield opened


@pytest.fixture
def inbox(lane: Lane) -> Inbox:
    made = Inbox()
    lane.subscribe(made)
    return made


@pytest.fixture
def sent(lane: Lane, inbox: Inbox, client: Client) -> list[Sent]:
    """Messages that wait, with the keys red, green, blue by turns; a property has a number."""
    assert not inbox.arrivals
    delays_ms = [MINUTES_10_MS + 100 * at for at in range(MESSAGES)]
    made = lane.send_in(*delays_ms, keys=["red", "grün", "blue"], payload=b"x" * 100)

    def waiting() -> bool:
        try:
            return client.tide(lane.topic, "sub").entries == MESSAGES
        except TidegateError:
            return False

    wait_until(waiting, "all are in the index")
    return made


def test_messages_are_chosen_by_key_and_by_property(
    cluster: Cluster, lane: Lane, inbox: Inbox, sent: list[Sent], client: Client
) -> None:
    green = [one for one in sent if one.key == "grün"]
    listed = list(client.waiting(lane.topic, "sub", key="grün"))
    assert [one.deliver_at_ms for one in listed] == [one.deliver_at_ms for one in green]
    (one,) = client.waiting(lane.topic, "sub", property=f"{UID}={sent[700].uid}")
    assert one.deliver_at_ms == sent[700].deliver_at_ms
    shown = client.show(lane.topic, "sub", one.message_id)
    assert (shown.state, shown.key, shown.properties[UID]) == ("waiting", sent[700].key, sent[700].uid)
    assert shown.size_bytes is not None
    assert shown.size_bytes > 100

    would = client.cancel(lane.topic, "sub", key="grün", dry_run=True)
    assert (would.done, would.dry_run) == (len(green), True)
    cancelled = client.cancel(lane.topic, "sub", key="grün")
    assert (cancelled.done, cancelled.all_done) == (len(green), True)
    at = ("--socket", str(cluster.daemon.socket_path), "--json")
    released = run("release", lane.topic, "sub", "--key", "red", *at)
    red = [one for one in sent if one.key == "red"]
    assert json.loads(released.stdout)["done"] == len(red), released.stderr
    assert "reads up to 800 messages, about" in released.stderr
    inbox.wait_for(red)
    assert_exactly(inbox.arrivals, red)
    assert list(client.waiting(lane.topic, "sub", key="grün")) == []


def test_over_http_a_key_is_a_choice(cluster: Cluster, lane: Lane, sent: list[Sent]) -> None:
    web = Web(cluster.broker.admin_url)
    answer = web.post(lane.topic, "reschedule", {"key": "blue", "at_ms": sent[-1].deliver_at_ms})
    assert answer.json()["done"] == MESSAGES // 3 - 1, answer.text  # the last one has that time
    page = web.client.get(
        f"/tidegate/v1/persistent/{lane.topic}/sub/waiting", params={"key": "grün", "limit": 30}
    ).json()
    assert (len(page["entries"]), page["read"]) == (15, 30)
    assert page["read_bytes"] > 3_000
    web.close()
