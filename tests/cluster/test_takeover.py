"""A topic moves, and its index with it: the new owner's daemon restores it from BookKeeper."""

from __future__ import annotations

import json
import shutil
from functools import partial
from typing import Any

from tests.support.daemons import run
from tests.support.inbox import Inbox, keep_all
from tests.support.killed_owner import READ_AHEAD, kill_owner
from tests.support.lane import MINUTES_10_MS, SHARED, Lane, now_ms
from tests.support.metadata import MetadataWriter
from tests.support.two_brokers import MOVING, TwoBrokers
from tests.support.waiting import wait_until
from tidegate.pipeline.rebuild.orphans import OVERRIDES, BookieLedgers, LogLedger, Named, find_orphans
from tidegate.pipeline.topic.access import Access
from tidegate.pipeline.topic.admin import Admin
from tidegate.pipeline.topic.names import TopicName
from tidegate.plugin.client.client import Client
from tidegate.plugin.daemon.homes.broker_home import BOOKKEEPER
from tidegate.plugin.local.cluster import Node

INDEX_LOG = "bookkeeper"
MESSAGES = 20_000
ADDED = "tidegate_entries_added_total"
REFUSED = "The cursor's metadata was written by somebody else at the same time"
REOPENED = "The cursor's metadata have been written behind this broker's back"


def test_who_gets_the_topic_gets_the_index(two: TwoBrokers, lane: Lane) -> None:
    inbox = Inbox()
    two.move(lane.topic, two.a)
    lane.subscribe(inbox)
    far = lane.send_in(*[MINUTES_10_MS] * MESSAGES)
    near = lane.send_in(*[25_000] * 200)
    lane.wait_delayed(len(far) + len(near))
    two.wait_logged(two.a, lane.topic, len(far) + len(near))
    before = two.counted(two.b, ADDED)
    two.move(lane.topic, two.b)
    wait_until(lambda: two.held(two.b, lane.topic) == len(far) + len(near), "daemon b holds all")
    # The daemon may answer with metrics of a moment ago.
    wait_until(lambda: two.counted(two.b, "tidegate_index_log_restored_total") >= 1, "from the log")
    inbox.wait_for(near)
    assert two.counted(two.b, ADDED) - before <= READ_AHEAD, "nothing is read again"
    lane.finish_partly(inbox, near + lane.send_in(100, None), left=len(far))


def test_the_index_is_there_before_anything_is_read(two: TwoBrokers, lane: Lane) -> None:
    """A consumer that asks for nothing yet has a tracker made: the first read skips what is held."""
    two.move(lane.topic, two.a)
    lane.subscribe(Inbox())
    far = lane.send_in(*[MINUTES_10_MS] * 2_000)
    lane.wait_delayed(len(far))
    two.wait_logged(two.a, lane.topic, len(far))
    lane.disconnect()
    before = two.counted(two.b, ADDED)
    two.move(lane.topic, two.b)
    idle = lane.client.subscribe(lane.topic, "sub", SHARED, receiver_queue_size=0)
    wait_until(lambda: two.held(two.b, lane.topic) == len(far), "daemon b holds all")
    lane.wait_delayed(len(far))
    idle.close()
    inbox = Inbox()
    lane.subscribe(inbox)
    near = lane.send_in(*[500] * 10)
    lane.finish_partly(inbox, near, left=len(far))
    assert two.counted(two.b, ADDED) - before <= len(near), "nothing is read again"


def test_broker_and_daemon_killed_together(two: TwoBrokers, lane: Lane) -> None:
    kill_owner(two, lane, far=MESSAGES)


def test_a_daemon_that_lost_its_data_gets_it_from_the_log(two: TwoBrokers, lane: Lane) -> None:
    inbox = Inbox()
    two.move(lane.topic, two.a)
    lane.subscribe(inbox)
    far = lane.send_in(*[MINUTES_10_MS] * MESSAGES)
    due = lane.send_in(*[20_000] * 100)
    lane.wait_delayed(len(far) + len(due))
    two.wait_logged(two.a, lane.topic, len(far) + len(due))
    two.a.daemon.kill()
    shutil.rmtree(two.a.daemon.data_dir)
    two.a.daemon.start()
    # On a busy machine some are due and delivered before it is asked.
    wait_until(lambda: two.held(two.a, lane.topic) >= len(far), "daemon a holds them again")
    assert two.counted(two.a, ADDED) <= READ_AHEAD
    assert two.said(two.a, lane.topic, "the index was restored from its log"), "and it says so"
    lane.finish_partly(inbox, due, left=len(far))


def test_moved_cancelled_and_paused_at_the_next_owner(two: TwoBrokers, lane: Lane) -> None:
    """After a graceful move, and after kill -9 of the broker and the daemon that had the topic then."""
    at_first, inbox, paused = Inbox(), Inbox(), Inbox()
    two.move(lane.topic, two.a)
    lane.subscribe(at_first, keep_all)
    lane.subscribe(paused, name="paused")
    start_ms = now_ms()
    at_ms = start_ms + 35_000
    soon = lane.send([start_ms + 20_000] * 20)
    far = lane.send([start_ms + MINUTES_10_MS] * 20)
    postponed, cancelled, advanced, released = soon[:10], soon[10:], far[:10], far[10:]

    def waiting(node: Node, name: str = "sub") -> dict[str, int]:
        with Client(socket=node.daemon.socket_path) as client:
            return {one.message_id: one.deliver_at_ms for one in client.waiting(lane.topic, name)}

    wait_until(lambda: two.held(two.a, lane.topic) == 80, "daemon a has them for both subscriptions")
    ids = list(waiting(two.a))  # by time, then as sent
    with Client(socket=two.a.daemon.socket_path) as client:
        assert client.pause(lane.topic, "paused").done
        assert client.reschedule(lane.topic, "sub", ids=[*ids[:10], *ids[20:30]], at_ms=at_ms).all_done
        assert client.cancel(lane.topic, "sub", ids=ids[10:20]).all_done
        assert client.release(lane.topic, "sub", ids=ids[30:]).all_done
        released_ms = now_ms()
    at_first.wait_for(released)

    two.move(lane.topic, two.b)
    at_first.wait_for(released, times=2)
    wait_until(lambda: two.held(two.b, lane.topic) >= 60, "daemon b has them")
    wait_until(lambda: len(waiting(two.b)) == 30, "all but the cancelled ones")
    found = waiting(two.b)
    assert {one for one, due_ms in found.items() if due_ms == at_ms} == {*ids[:10], *ids[20:30]}
    assert {one for one, due_ms in found.items() if due_ms <= released_ms} == set(ids[30:])
    with Client(socket=two.b.daemon.socket_path) as client:
        assert [one.paused for one in client.pace(lane.topic, "paused").subscriptions] == [True]
        assert client.cancel(lane.topic, "sub", ids=ids[20:25]).all_done

    two.b.daemon.kill()
    two.b.broker.kill()
    lane.disconnect()
    lane.admin = two.admin_of(two.a)
    lane.subscribe(inbox)
    lane.subscribe(paused, name="paused")
    inbox.wait_for([*postponed, *advanced[5:], *released])
    came = [*at_first.arrivals, *inbox.arrivals]
    moved = {one.uid for one in (*postponed, *advanced)}
    assert [one.told for one in came if one.uid in moved and one.received_ns / 1e6 < at_ms] == []
    assert paused.arrivals == [], "those due 15 s ago wait"
    with Client(socket=two.a.daemon.socket_path) as client:
        assert not client.resume(lane.topic, "paused").subscriptions[0].paused
    paused.wait_for(soon)
    lane.wait_stats(lambda now: now.backlog == now.delayed == 0, "the rest of sub is acknowledged")
    gone = {one.uid for one in cancelled}
    assert not gone & {one.uid for one in (*came, *inbox.arrivals)}
    assert not {one.uid for one in advanced[:5]} & set(inbox.uids), "those that were cancelled at b"
    two.b.daemon.start()
    two.b.broker.start()


def test_a_log_that_cannot_be_read_costs_reading_the_topic(two: TwoBrokers, lane: Lane) -> None:
    inbox = Inbox()
    two.move(lane.topic, two.a)
    lane.subscribe(inbox)
    far = lane.send_in(*[MINUTES_10_MS] * 2_000)
    due = lane.send_in(*[20_000] * 100)
    lane.wait_delayed(len(far) + len(due))
    two.wait_logged(two.a, lane.topic, len(far) + len(due))
    two.delete_ledger(two.log(two.a, lane.topic)["ledger_id"])
    unreadable = two.counted(two.b, "tidegate_index_log_unreadable_total")
    two.move(lane.topic, two.b)
    lane.finish_partly(inbox, due, left=len(far))
    assert two.counted(two.b, "tidegate_index_log_unreadable_total") == unreadable + 1
    # It is whole again, for the next owner.
    two.wait_logged(two.b, lane.topic, len(far))
    two.move(lane.topic, two.a)
    lane.wait_delayed(len(far))


def test_who_is_locked_out_of_the_cursors_metadata_loads_the_topic_anew(two: TwoBrokers, lane: Lane) -> None:
    """Another writer changes them between the new owner's reading and its claim, as a paused owner may.

    Pulsar never learns their version from a refusal: it would refuse this owner's requests for ever.
    """
    inbox = Inbox()
    two.move(lane.topic, two.a)
    lane.subscribe(inbox)
    far = lane.send_in(*[MINUTES_10_MS] * 2_000)
    acknowledged = lane.send_in(*[300] * 100)
    inbox.wait_for(acknowledged)
    wait_until(lambda: two.acknowledged(two.a, lane.topic) == len(acknowledged), "daemon a knows it")
    log_path = two.b.broker.log_path
    before_bytes = log_path.stat().st_size

    def said(what: str) -> list[str]:
        lines = log_path.read_bytes()[before_bytes:].decode().splitlines()
        return [line for line in lines if what in line]

    with MetadataWriter(two.cluster.zookeeper_address, lane.topic, "sub", two.work_dir) as writer:
        due = lane.send_in(*[25_000] * 100)
        two.wait_logged(two.a, lane.topic, len(far) + len(due))
        with writer.writing():
            two.move(lane.topic, two.b)
            wait_until(lambda: said(REFUSED), "broker b's claim is refused")
        wait_until(lambda: two.held(two.b, lane.topic) >= len(far), "daemon b holds them all the same")
    assert [lane.topic in line for line in said(REOPENED)] == [True], "closed once, and it says why"
    lane.finish_partly(inbox, acknowledged + due, left=len(far))


def test_with_the_subscription_its_log_is_deleted(two: TwoBrokers, lane: Lane) -> None:
    two.move(lane.topic, two.a)
    for count, gone in ((100, "subscription"), (200, "topic")):
        # The second one begins with what the first one had, too.
        lane.subscribe(Inbox())
        lane.send_in(*[MINUTES_10_MS] * 100)
        lane.wait_delayed(count)
        two.wait_logged(two.a, lane.topic, count)
        ledger_id = two.log(two.a, lane.topic)["ledger_id"]
        assert ledger_id in two.ledgers()
        lane.disconnect()
        if gone == "topic":
            lane.admin.delete_topic(lane.topic)
        else:
            lane.admin.delete_subscription(lane.topic, "sub")
        wait_until(partial(_is_gone, two, ledger_id), "the log is deleted")


def test_who_looks_for_orphans_at_a_bookie_sees_whose_a_log_is(two: TwoBrokers, lane: Lane) -> None:
    two.move(lane.topic, two.a)
    lane.subscribe(Inbox())
    lane.send_in(*[MINUTES_10_MS] * 100)
    lane.wait_delayed(100)
    two.wait_logged(two.a, lane.topic, 100)
    ledger_id = two.log(two.a, lane.topic)["ledger_id"]
    bookie = BookieLedgers(two.cluster.bookie_url)
    found = [one for one in bookie.list() if one.ledger_id == ledger_id]
    topic = TopicName.parse(f"persistent://{lane.topic}")
    assert found == [LogLedger(BOOKKEEPER, ledger_id, str(topic), "sub")]
    with Admin(two.a.broker.admin_url, Access()) as admin:
        named = partial(Named, admin, two.a.daemon.socket_path)
        assert find_orphans(named, [bookie], topic, "sub", lambda _: None) == []
    bookie.remove(found[0])
    assert _is_gone(two, ledger_id)


def test_a_log_that_is_left_behind_is_named_by_verify(two: TwoBrokers, lane: Lane) -> None:
    """Pulsar asks no tracker when a subscription is deleted while delayed delivery is off for its topic."""
    two.move(lane.topic, two.a)
    lane.subscribe(Inbox())
    lane.send_in(*[MINUTES_10_MS] * 100)
    lane.wait_delayed(100)
    two.wait_logged(two.a, lane.topic, 100)
    with Client(socket=two.a.daemon.socket_path) as client:
        ids = [one.message_id for one in client.waiting(lane.topic, "sub")][:10]
        assert client.reschedule(lane.topic, "sub", ids=ids, at_ms=now_ms() + 2 * MINUTES_10_MS).all_done
    ledger_id = two.log(two.a, lane.topic)["ledger_id"]
    lane.disconnect()
    assert _look_for_orphans(two, lane) == (0, [])
    lane.admin.set_namespace_delayed_delivery(MOVING, active=False)
    try:
        lane.admin.unload(lane.topic)  # who loads it knows that
        (times_id,) = [one.ledger_id for one in _ledgers_of(two, lane) if one.component == OVERRIDES]
        assert _look_for_orphans(two, lane) == (0, [])
        lane.admin.delete_subscription(lane.topic, "sub")
    finally:
        lane.admin.call("DELETE", f"/namespaces/{MOVING}/delayedDelivery")
    left = [
        {
            "home": BOOKKEEPER,
            "ledger_id": one,
            "topic": f"persistent://{lane.topic}",
            "subscription": "sub",
            "component": component,
        }
        for one, component in ((ledger_id, "index-log"), (times_id, OVERRIDES))
    ]
    assert _look_for_orphans(two, lane) == (1, left)
    assert _look_for_orphans(two, lane, "--repair") == (0, left)
    assert _is_gone(two, ledger_id)
    assert _is_gone(two, times_id)


def test_a_bookie_that_was_killed_is_there_again(two: TwoBrokers, lane: Lane) -> None:
    two.move(lane.topic, two.a)
    inbox = Inbox()
    lane.subscribe(inbox)
    sent = lane.send_in(*[20_000] * 100)
    lane.wait_delayed(100)
    two.cluster.bookie.kill()
    two.cluster.bookie.start()  # while ZooKeeper still believes that the former one is there
    sent += lane.send_in(*[2_000] * 100)
    lane.finish(inbox, sent)


def _ledgers_of(two: TwoBrokers, lane: Lane) -> list[LogLedger]:
    return [one for one in BookieLedgers(two.cluster.bookie_url).list() if one.topic.endswith(lane.topic)]


def _is_gone(two: TwoBrokers, ledger_id: int) -> bool:
    return ledger_id not in two.ledgers()


def _look_for_orphans(two: TwoBrokers, lane: Lane, *more: str) -> tuple[int, list[dict[str, Any]]]:
    """The findings of ``tidegate verify`` about the topic at the bookie, and its exit code."""
    where = ["--admin-url", two.a.broker.admin_url, "--bookie-url", two.cluster.bookie_url]
    where += ["--socket", str(two.a.daemon.socket_path)]
    done = run("verify", f"persistent://{lane.topic}", "*", "--logs", *where, "--json", *more)
    assert done.returncode in {0, 1}, done.stderr
    return done.returncode, json.loads(done.stdout)["orphans"]
