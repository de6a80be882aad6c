"""A topic moves between two brokers whose daemons do not know of each other."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest

from tests.support import offloading
from tests.support.admin import AdminError
from tests.support.cancelling import cancel, send_with_ids
from tests.support.cluster import PULSAR_MAJOR
from tests.support.cursor_moves import STORED_AFTER_S, Moved, Moves
from tests.support.inbox import Arrival, Inbox, Sent, Verdict, assert_exactly, keep_all
from tests.support.keeper import Keeper
from tests.support.lane import MINUTES_10_MS, OURS, SHARED, Lane, now_ms
from tests.support.resetting import keep_only
from tests.support.servlets import Web
from tests.support.two_brokers import LEDGER_ENTRIES, MOVING, TwoBrokers
from tests.support.waiting import wait_until

INDEX_LOG = "none"
MESSAGES = 2_000


def ack_odd(arrival: Arrival) -> Verdict:
    """Every other one: as many holes as there are acknowledgements."""
    return Verdict.ACK if int(arrival.uid) % 2 else Verdict.KEEP


def odd(sent: list[Sent]) -> list[Sent]:
    """The messages with an odd uid."""
    return [one for one in sent if int(one.uid) % 2]


def even(sent: list[Sent]) -> list[Sent]:
    """The messages with an even uid."""
    return [one for one in sent if int(one.uid) % 2 == 0]


def test_a_reset_at_the_other_broker_is_not_undone_by_what_the_first_one_knows(
    two: TwoBrokers, lane: Lane
) -> None:
    at_a, at_b, at_a_again = Inbox(), Inbox(), Inbox()
    two.move(lane.topic, two.a)
    lane.subscribe(at_a, keep_only("000000"), receiver_queue_size=MESSAGES)
    sent = lane.send_in(*[200] * MESSAGES)
    at_a.wait_for(sent)
    wait_until(
        lambda: two.acknowledged(two.a, lane.topic) == MESSAGES - 1, "daemon a knows them acknowledged"
    )
    lane.disconnect()

    two.move(lane.topic, two.b)
    consumer = lane.subscribe(at_b, keep_all, receiver_queue_size=MESSAGES)
    consumer.seek(pulsar.MessageId.earliest)
    at_b.wait_for(sent)
    lane.disconnect()

    two.move(lane.topic, two.a)
    lane.subscribe(at_a_again)
    lane.finish(at_a_again, sent)


def test_without_a_reset_nothing_acknowledged_comes_again_however_often_it_moves(
    two: TwoBrokers, lane: Lane
) -> None:
    inbox = Inbox()
    two.move(lane.topic, two.a)
    lane.subscribe(inbox)
    far = lane.send_in(*[MINUTES_10_MS] * 200)
    sent: list[Sent] = []
    epoch = 0
    for node in (two.b, two.a, two.b, two.a):
        group = lane.send_in(*[300] * 100, *[None] * 5)
        inbox.wait_for(group)
        lane.wait_stats(lambda now: now.backlog == now.delayed == len(far), "only the far ones are left")
        two.move(lane.topic, node)
        lane.wait_delayed(len(far))
        sent += group
        former, epoch = epoch, two.epoch(lane.topic)
        assert epoch > former, "each owner counts further"
    assert_exactly(inbox.arrivals, sent)
    lane.not_early(inbox.arrivals)


def test_more_holes_than_the_cursor_keeps_survive_an_unload(two: TwoBrokers, lane: Lane) -> None:
    """Of 3,000 ranges the record has room for 500; the daemon knows the others."""
    before, after = Inbox(), Inbox()
    two.move(lane.topic, two.a)
    lane.subscribe(before, ack_odd, receiver_queue_size=10_000)
    sent = lane.send_in(*[500] * 6_000)
    before.wait_for(sent)
    wait_until(lambda: two.acknowledged(two.a, lane.topic) == 3_000, "daemon a knows them acknowledged")
    lane.disconnect()
    lane.admin.unload(lane.topic)
    two.move(lane.topic, two.a)
    lane.subscribe(after)
    lane.finish(after, even(sent))


def test_a_skip_before_the_daemon_has_answered_repeats_nothing(two: TwoBrokers, lane: Lane) -> None:
    """As above; an admin skips a message while the new owner waits for a daemon that stands still."""
    before, after = Inbox(), Inbox()
    two.move(lane.topic, two.a)
    lane.subscribe(before, ack_odd, receiver_queue_size=10_000)
    sent = lane.send_in(*[500] * 6_000)
    before.wait_for(sent)
    wait_until(lambda: two.acknowledged(two.a, lane.topic) == 3_000, "daemon a knows them acknowledged")
    lane.disconnect()
    lane.admin.unload(lane.topic)
    two.move(lane.topic, two.a)
    with two.a.daemon.paused():
        lane.subscribe(after)
        lane.wait_stats(lambda now: now.delayed > 0, "a tracker gates what it does not know")
        lane.admin.skip(lane.topic, "sub", 1)
    lane.finish(after, even(sent)[1:])


def test_messages_cancelled_before_the_dispatcher_reads_them_do_not_come(two: TwoBrokers, lane: Lane) -> None:
    """Of 1,000 ranges the record has room for 500. A tracker is there, and nobody takes messages."""
    cancelled = MESSAGES // 2
    two.move(lane.topic, two.a)
    lane.subscribe(Inbox())
    lane.send_in(MINUTES_10_MS)
    lane.wait_indexed(1)
    lane.disconnect()
    consumer = lane.client.subscribe(lane.topic, "sub", SHARED, receiver_queue_size=0)
    ids = send_with_ids(lane, MESSAGES, now_ms() + MINUTES_10_MS)
    cancel(consumer, ids[1::2])
    lane.wait_stats(lambda now: now.backlog == 1 + MESSAGES - cancelled, "half is cancelled")
    assert lane.stats().delayed <= 1, "no tracker has met them"
    lane.disconnect()
    lane.admin.unload(lane.topic)
    two.move(lane.topic, two.a)
    lane.subscribe(Inbox())
    left = 1 + MESSAGES - cancelled
    lane.wait_stats(lambda now: now.backlog == now.delayed == left, "nothing cancelled is back")


def test_what_is_acknowledged_beyond_a_forward_move_stays_so_at_the_next_owner(
    two: TwoBrokers, lane: Lane
) -> None:
    """There and back; at one broker: tests/broker/test_36_forward_moves.py."""
    two.move(lane.topic, two.a)
    kinds = [("skip", "shared"), ("skip", "key-shared"), ("skip", "failover"), ("cumulative", "exclusive")]
    moves = Moves(lane, [Moved(way, kind, connected) for way, kind in kinds for connected in (True, False)])
    moves.acknowledge_every_other()
    moves.move()
    time.sleep(STORED_AFTER_S)
    moves.settle()
    moves.leave()
    for node in (two.b, two.a):
        two.move(lane.topic, node)
        lane.admin = two.admin_of(node)
        moves.come_back()
        for one in moves.subscriptions:
            moves.check(one)
        moves.leave()


@pytest.fixture
def tiered(two: TwoBrokers, tmp_path: Path) -> Iterator[None]:
    """There is a tiered storage for topics that are made now."""
    two.admin.call("POST", f"/namespaces/{MOVING}/offloadPolicies", offloading.policies(tmp_path))
    yield
    two.admin.call("DELETE", f"/namespaces/{MOVING}/removeOffloadPolicies")


@pytest.mark.usefixtures("tiered")
@pytest.mark.skipif(
    PULSAR_MAJOR >= 5, reason="Central has no offloader of 5.0, and Hadoop in 4.0's does not start on its JDK"
)
def test_a_new_owner_reads_ahead_what_is_not_in_tiered_storage(two: TwoBrokers, lane: Lane) -> None:
    two.move(lane.topic, two.a)
    lane.reserve()
    delays = [MINUTES_10_MS] * (8 * LEDGER_ENTRIES)
    delays[::100] = [200] * len(delays[::100])
    sent = lane.send_in(*delays)
    ledgers = [one["ledgerId"] for one in lane.admin.internal_stats(lane.topic)["ledgers"]]
    offloaded = set(ledgers[:3])
    offloading.offload(lane.admin, lane.topic, before=ledgers[3])

    def trimmed() -> bool:
        # Pulsar has refused it once with 500, right after it had said that the offload was done.
        with contextlib.suppress(AdminError):
            lane.admin.trim(lane.topic)
        return not two.ledgers() & offloaded

    wait_until(trimmed, "they are not in BookKeeper any more")

    inbox = Inbox()
    two.move(lane.topic, two.b)
    lane.admin = two.admin_of(two.b)
    lane.subscribe(inbox)
    lane.finish_partly(inbox, sent[::100], left=len(sent) - len(sent[::100]))
    assert 0 < lane.metrics(OURS)["read_ahead_entries"] <= 5 * LEDGER_ENTRIES


def test_a_paused_owner_does_not_write_over_what_its_successor_knows(two: TwoBrokers, lane: Lane) -> None:
    """It hangs, loses its session, and comes back with acknowledgements to write.

    They come before its successor has written anything but its tracker's claim, which alone stops them.
    """
    # So few that the client sends their acknowledgements together: one write of the cursor for all.
    count = 800
    evens = set(range(0, count, 2))
    at_a, at_b = Keeper(lambda uid: uid % 2 == 1), Keeper(lambda uid: False)
    two.move(lane.topic, two.a)
    with two.client_of(two.a.broker.service_url) as old, two.client_of(two.b.broker.service_url) as new:
        consumer = old.subscribe(
            lane.topic, "sub", SHARED, message_listener=at_a.listener, receiver_queue_size=count
        )
        lane.send_in(*[300] * count)
        at_a.wait_for(evens)
        wait_until(lambda: two.acknowledged(two.a, lane.topic) == count // 2, "daemon a knows the odd ones")
        lane.disconnect()
        lane.admin = two.admin_of(two.b)
        with two.a.broker.paused():
            at_a.acknowledge(consumer, 40)
            wait_until(lambda: two.owner(lane.topic, two.b) == two.b.broker.service_url, "broker b has it")
            consumer = new.subscribe(
                lane.topic, "sub", SHARED, message_listener=at_b.listener, receiver_queue_size=count
            )
            at_b.wait_for(evens)
        two.wait_for_news(two.a, lane.topic, two.b)
        at_b.acknowledge(consumer)
        lane.wait_stats(lambda now: now.backlog == 0, "all are acknowledged at b")
        two.a.broker.stop()
    two.a.broker.start()

    lane.admin.unload(lane.topic)
    for node in (two.b, two.a):
        two.move(lane.topic, node)
        inbox = Inbox()
        lane.subscribe(inbox)
        lane.finish(inbox, lane.send_in(None, 200))
        lane.disconnect()


def test_each_broker_s_web_service_leads_to_the_owner(two: TwoBrokers, lane: Lane) -> None:
    two.move(lane.topic, two.a)
    lane.subscribe(Inbox(), keep_all)
    lane.send_in(*[MINUTES_10_MS] * 4)
    wait_until(lambda: two.held(two.a, lane.topic) == 4, "daemon a holds them")
    with contextlib.ExitStack() as opened:
        plain, other, owner = (
            Web(node.broker.admin_url, follow_redirects=follows)
            for node, follows in ((two.b, False), (two.b, True), (two.a, False))
        )
        for web in (plain, other, owner):
            opened.callback(web.close)
        answer = plain.get(lane.topic, "tide?step_ms=60000")
        assert answer.status_code == 307
        assert answer.headers["Location"] == (
            f"{two.a.broker.admin_url}/tidegate/v1/persistent/{lane.topic}/sub/tide"
            "?step_ms=60000&authoritative=false"
        )
        assert other.get(lane.topic, "tide?step_ms=60000").json()["entries"] == 4
        ids = [one["message_id"] for one in other.get(lane.topic, "waiting").json()["entries"]]
        assert other.post(lane.topic, "cancel", {"ids": ids[:1]}).json()["done"] == 1
        assert owner.get(lane.topic, "tide").json()["entries"] == 3
        two.move(lane.topic, two.b)
        answer = owner.get(lane.topic, "tide")
        assert (answer.status_code, answer.headers["Location"].startswith(two.b.broker.admin_url)) == (
            307,
            True,
        )
        wait_until(lambda: plain.get(lane.topic, "tide").is_success, "daemon b has the index")
