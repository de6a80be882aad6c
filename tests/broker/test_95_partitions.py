"""A partitioned topic by its own name, over the broker's web port: client and commands."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator

import pytest

from tests.support.cluster import Cluster
from tests.support.daemons import run
from tests.support.inbox import Inbox, assert_exactly
from tests.support.lane import MINUTES_10_MS, Lane, now_ms
from tests.support.waiting import wait_until
from tidegate import AsyncClient, Client, TidegateError, UnknownNameError

pytestmark = [pytest.mark.tidegate_only, pytest.mark.usefixtures("repaired")]

PARTITIONS = 3


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with Client(cluster.broker.admin_url) as opened:
        yield opened


@pytest.fixture
def lane(make_lane: Callable[..., Lane]) -> Lane:
    made = make_lane()
    made.admin.create_partitioned(made.topic, PARTITIONS)
    return made


def entries(client: Client, lane: Lane) -> int:
    """The number of messages that wait; 0 before an index is there."""
    try:
        return client.tide(lane.topic, "sub").entries
    except UnknownNameError:
        return 0


def test_all_partitions_are_looked_at_and_changed_as_one_topic(
    cluster: Cluster, lane: Lane, client: Client
) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    start_ms = now_ms()
    sent = lane.send([start_ms + MINUTES_10_MS + 1_000 * at for at in range(30)])
    wait_until(lambda: entries(client, lane) == 30, "all partitions are in the index")
    tide = client.tide(lane.topic, "sub", step_ms=60_000)
    assert (tide.subscriptions, tide.overdue, tide.later) == (PARTITIONS, 0, 0)
    assert sum(one.entries for one in tide.buckets) == 30
    assert client.tide(lane.topic).entries == 30

    listed = list(client.waiting(lane.topic, "sub", page=4))
    assert [one.deliver_at_ms for one in listed] == [one.deliver_at_ms for one in sent]
    ids = [one.message_id for one in listed]
    assert {one.split(":")[2] for one in ids} == set("012")
    assert client.show(lane.topic, "sub", ids[0]).deliver_at_ms == sent[0].deliver_at_ms
    assert client.show(lane.topic, "sub", ids[1].rpartition(":")[0]).state == "waiting"
    with pytest.raises(TidegateError, match="which has 3"):
        client.cancel(lane.topic, "sub", ids=[ids[0], "1:1:3"])

    told = client.cancel(lane.topic, "sub", ids=[*ids[:3], ids[3].rpartition(":")[0], "987654321:1"])
    assert (told.done, told.unknown, told.undecided) == (4, 1, 0)
    assert client.cancel(lane.topic, "sub", ids=ids[:4]).acknowledged == 4
    later_ms = start_ms + 2 * MINUTES_10_MS
    moved = client.reschedule(lane.topic, "sub", at_ms=later_ms, due=f"..{sent[10].deliver_at_ms}")
    assert moved.done == 6
    assert client.reschedule(lane.topic, "sub", by_ms=1_000, ids=ids[4:6]).done == 2
    assert client.release(lane.topic, "sub", ids=ids[4:10]).done == 6
    wait_until(lambda: entries(client, lane) == 20, "what was released is acknowledged")

    there = (lane.topic, "sub", "--admin-url", cluster.broker.admin_url, "--json")
    paced = run("pace", *there, "--rate", "500")
    assert [one["rate"] for one in json.loads(paced.stdout)["subscriptions"]] == [500] * PARTITIONS
    assert run("resume", *there).returncode == 0
    page = run("list", *there, "--limit", "5")
    assert [json.loads(line)["message_id"] for line in page.stdout.splitlines()] == ids[10:15]
    rest = run("list", *there, "--after", page.stderr.split()[-1])
    assert [json.loads(line)["message_id"] for line in rest.stdout.splitlines()] == ids[15:]
    released = run("release", *there, "--all")
    assert (released.returncode, json.loads(released.stdout)["done"]) == (0, 20), released.stderr
    inbox.wait_for(sent[4:])
    assert_exactly(inbox.arrivals, sent[4:])


def test_partitions_that_never_had_a_delayed_message_are_empty(lane: Lane, client: Client) -> None:
    lane.subscribe(Inbox())
    producer = lane.client.create_producer(f"{lane.topic}-partition-1")
    sent = producer.send(b"", deliver_at=now_ms() + MINUTES_10_MS)
    wait_until(lambda: entries(client, lane) == 1, "its partition is in the index")
    tide = client.tide(lane.topic, "sub")
    assert (tide.entries, tide.subscriptions_away) == (1, 0)
    (listed,) = client.waiting(lane.topic, "sub")
    assert listed.message_id == f"{sent.ledger_id()}:{sent.entry_id()}:1"
    told = client.cancel(lane.topic, "sub", all=True)
    assert (told.done, told.all_done) == (1, True)


def test_a_client_of_an_event_loop_does_the_same(cluster: Cluster, lane: Lane, client: Client) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    lane.send_in(*[MINUTES_10_MS + 1_000 * at for at in range(12)])
    wait_until(lambda: entries(client, lane) == 12, "all partitions are in the index")

    async def work() -> None:
        async with AsyncClient(cluster.broker.admin_url) as opened:
            assert len([one async for one in opened.waiting(lane.topic, "sub", page=5)]) == 12
            assert (await opened.pause(lane.topic, "sub")).done
            assert (await opened.cancel(lane.topic, "sub", all=True)).done == 12

    asyncio.run(work())
    wait_until(lambda: entries(client, lane) == 0, "nothing is left")
