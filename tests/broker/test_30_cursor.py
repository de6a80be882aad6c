"""The cursor is moved by hand: seeks, skips, deletions, unloads. The tracker follows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pulsar
import pytest

from tests.support.cluster import RETAINED, Cluster
from tests.support.inbox import Inbox, Sent, ack_even, assert_exactly
from tests.support.lane import KEY_SHARED, LATER_MS, MINUTES_10_MS, SHARED, Lane, now_ms
from tests.support.waiting import wait_until

KINDS = pytest.mark.parametrize("kind", [SHARED, KEY_SHARED], ids=["shared", "key-shared"])


@pytest.fixture
def retained(make_lane: Callable[..., Lane]) -> Lane:
    """A topic that keeps what was acknowledged, so that one can seek back."""
    return make_lane(RETAINED)


def even(sent: list[Sent]) -> list[Sent]:
    """The messages with an even uid."""
    return [one for one in sent if int(one.uid) % 2 == 0]


def odd(sent: list[Sent]) -> list[Sent]:
    """The messages with an odd uid."""
    return [one for one in sent if int(one.uid) % 2]


@KINDS
def test_seek_to_earliest_brings_everything_again(retained: Lane, kind: pulsar.ConsumerType) -> None:
    lane, inbox = retained, Inbox()
    consumer = lane.subscribe(inbox, kind=kind)
    sent = lane.send_in(*[300] * 100, *[None] * 20, *[600] * 100, keys=["a", "b", "c"])
    lane.finish(inbox, sent)
    far = lane.send_in(*[MINUTES_10_MS] * 50)
    lane.wait_delayed(len(far))
    consumer.seek(pulsar.MessageId.earliest)
    inbox.wait_for(sent, times=2)
    lane.wait_stats(lambda now: now.backlog == now.delayed == len(far), "only the far ones are left")
    assert_exactly(inbox.arrivals, sent, times=2)
    lane.not_early(inbox.arrivals)


def test_seek_to_earliest_after_acknowledgements_out_of_order(retained: Lane) -> None:
    lane, first, second = retained, Inbox(), Inbox()
    consumer = lane.subscribe(first, ack_even)
    due, later = lane.send_in(*[300] * 300), lane.send_in(*[LATER_MS] * 100)
    first.wait_for(due)
    lane.wait_stats(lambda now: now.backlog == len(odd(due)) + 100, "the acknowledgements are known")
    consumer.close()
    lane.admin.reset_to_time(lane.topic, "sub", 0)
    lane.subscribe(second)
    lane.finish(second, due + later)
    assert_exactly(first.arrivals, due)


def test_seek_back_while_the_topic_has_no_tracker(retained: Lane) -> None:
    lane, first, second = retained, Inbox(), Inbox()
    done = lane.send_in(*[200] * 50)
    consumer = lane.subscribe(first)
    lane.finish(first, done)
    consumer.close()
    consumer = lane.subscribe(first, ack_even)
    due = lane.send_in(*[300] * 100)
    first.wait_for(due)
    lane.wait_stats(lambda now: now.backlog == len(odd(due)), "the acknowledgements are known")
    consumer.close()
    lane.admin.unload(lane.topic)
    lane.admin.reset_to_time(lane.topic, "sub", 0)
    lane.subscribe(second)
    lane.finish(second, done + due)


def test_seek_back_to_a_time(retained: Lane) -> None:
    lane, inbox, again = retained, Inbox(), Inbox()
    consumer = lane.subscribe(inbox)
    old = lane.send_in(*[300] * 50)
    border_ms = now_ms() + 1
    wait_until(lambda: now_ms() > border_ms, "the clock has moved on")
    new = lane.send_in(*[300] * 50)
    lane.finish(inbox, old + new)
    consumer.close()
    lane.admin.reset_to_time(lane.topic, "sub", border_ms)
    lane.subscribe(again)
    lane.finish(again, new)


def test_seek_back_to_a_position(retained: Lane) -> None:
    lane, inbox, again = retained, Inbox(), Inbox()
    consumer = lane.subscribe(inbox)
    sent = lane.send_in(*[300] * 100)
    lane.finish(inbox, sent)
    entries = {arrival.uid: arrival.entry for arrival in inbox.arrivals}
    consumer.close()
    lane.admin.reset_to_position(lane.topic, "sub", entries[sent[60].uid])
    lane.subscribe(again)
    lane.finish(again, sent[60:])


def test_seek_forward_drops_what_was_skipped(retained: Lane) -> None:
    lane, inbox = retained, Inbox()
    consumer = lane.subscribe(inbox)
    skipped = lane.send_in(*[LATER_MS] * 50, *[MINUTES_10_MS] * 50)
    lane.wait_delayed(len(skipped))
    border_ms = now_ms() + 1
    wait_until(lambda: now_ms() > border_ms, "the clock has moved on")
    kept = lane.send_in(*[LATER_MS] * 50)
    consumer.close()
    lane.admin.reset_to_time(lane.topic, "sub", border_ms)
    lane.subscribe(inbox)
    lane.finish(inbox, kept)


def test_seek_by_the_consumer_to_a_time_ahead(retained: Lane) -> None:
    lane, inbox = retained, Inbox()
    consumer = lane.subscribe(inbox)
    skipped = lane.send_in(*[MINUTES_10_MS] * 50)
    lane.wait_delayed(len(skipped))
    consumer.seek(now_ms() + 60_000)
    lane.wait_drained()
    kept = lane.send_in(*[500] * 50, *[None] * 5)
    lane.finish(inbox, kept)


def test_clear_backlog(lane: Lane) -> None:
    inbox = Inbox()
    lane.subscribe(inbox, ack_even)
    due = lane.send_in(*[300] * 50)
    held = lane.send_in(*[LATER_MS] * 100, *[MINUTES_10_MS] * 100)
    inbox.wait_for(due)
    lane.wait_delayed(len(held))
    lane.admin.clear_backlog(lane.topic, "sub")
    lane.wait_stats(lambda now: now.backlog == now.delayed == 0, "nothing is left")
    # Due after what was cleared: had any of that stayed, it would come first.
    fresh = lane.send_in(LATER_MS)
    inbox.wait_for(fresh)
    assert_exactly(inbox.arrivals, due + fresh)
    lane.not_early(inbox.arrivals)


def test_clear_backlog_without_a_consumer(lane: Lane) -> None:
    inbox = Inbox()
    consumer = lane.subscribe(inbox)
    held = lane.send_in(*[MINUTES_10_MS] * 100)
    lane.wait_delayed(len(held))
    consumer.close()
    lane.admin.clear_backlog(lane.topic, "sub")
    lane.wait_stats(lambda now: now.backlog == 0, "nothing is left")
    lane.subscribe(inbox)
    fresh = lane.send_in(*[300] * 20)
    lane.finish(inbox, fresh)


def test_unsubscribe_and_subscribe_again_from_the_earliest(retained: Lane) -> None:
    lane, first, second = retained, Inbox(), Inbox()
    consumer = lane.subscribe(first, ack_even)
    due, later = lane.send_in(*[300] * 100, *[None] * 10), lane.send_in(*[LATER_MS] * 100)
    first.wait_for(due)
    lane.wait_delayed(100)
    consumer.unsubscribe()
    assert "sub" not in lane.admin.stats(lane.topic)["subscriptions"]
    lane.subscribe(second)
    lane.finish(second, due + later)
    assert_exactly(first.arrivals, due)


def test_subscription_deleted_by_the_admin_and_made_again(retained: Lane) -> None:
    lane, first, second = retained, Inbox(), Inbox()
    consumer = lane.subscribe(first)
    sent = lane.send_in(*[300] * 50, *[MINUTES_10_MS] * 50)
    first.wait_for(sent[:50])
    lane.wait_delayed(50)
    consumer.close()
    lane.admin.delete_subscription(lane.topic, "sub")
    lane.subscribe(second)
    second.wait_for(sent[:50])
    lane.wait_stats(lambda now: now.backlog == now.delayed == 50, "the far ones are held again")
    assert_exactly(second.arrivals, sent[:50])


def test_subscription_deleted_while_its_topic_is_unloaded_has_no_tracker(retained: Lane) -> None:
    lane, first, second = retained, Inbox(), Inbox()
    consumer = lane.subscribe(first)
    sent = lane.send_in(*[300] * 50, *[MINUTES_10_MS] * 50)
    first.wait_for(sent[:50])
    lane.wait_delayed(50)
    consumer.close()
    lane.admin.unload(lane.topic)
    lane.admin.delete_subscription(lane.topic, "sub")
    lane.subscribe(second)
    second.wait_for(sent[:50])
    lane.wait_stats(lambda now: now.backlog == now.delayed == 50, "the far ones are held again")
    assert_exactly(second.arrivals, sent[:50])


def test_topic_deleted_and_made_again(lane: Lane) -> None:
    inbox, again = Inbox(), Inbox()
    consumer = lane.subscribe(inbox)
    old = lane.send_in(*[LATER_MS] * 50, *[MINUTES_10_MS] * 50)
    lane.wait_delayed(len(old))
    consumer.close()
    lane.admin.delete_topic(lane.topic)
    lane.subscribe(again)
    new = lane.send_in(*[LATER_MS] * 50, *[None] * 5)
    lane.finish(again, new)
    assert inbox.arrivals == []


def unsubscribe(_: Lane, consumer: pulsar.Consumer) -> None:
    """By the consumer."""
    consumer.unsubscribe()


def delete_subscription(lane: Lane, consumer: pulsar.Consumer) -> None:
    """By the admin."""
    consumer.close()
    lane.admin.delete_subscription(lane.topic, "sub")


def delete_subscription_unloaded(lane: Lane, consumer: pulsar.Consumer) -> None:
    """By the admin, after the tracker went with the topic."""
    consumer.close()
    lane.admin.unload(lane.topic)
    lane.admin.delete_subscription(lane.topic, "sub")


@pytest.mark.tidegate_only
@pytest.mark.parametrize("remove", [unsubscribe, delete_subscription, delete_subscription_unloaded])
def test_the_daemon_forgets_a_removed_subscription(
    lane: Lane, cluster: Cluster, remove: Callable[[Lane, pulsar.Consumer], None]
) -> None:
    consumer = lane.subscribe(Inbox())
    lane.subscribe(Inbox(), name="other")
    lane.send_in(*[MINUTES_10_MS] * 50)
    held = cluster.held
    wait_until(lambda: held(lane.topic) == {"sub": 50, "other": 50}, "the daemon holds both subscriptions")
    remove(lane, consumer)
    wait_until(lambda: held(lane.topic) == {"other": 50}, "the daemon has forgotten the one, and it alone")


@pytest.mark.tidegate_only
def test_the_daemon_forgets_a_deleted_topic(make_lane: Callable[..., Lane], cluster: Cluster) -> None:
    deleted, kept = make_lane(), make_lane()
    for lane in (deleted, kept):
        lane.subscribe(Inbox())
        lane.subscribe(Inbox(), name="other")
        lane.send_in(*[MINUTES_10_MS] * 50)
    held, both = cluster.held, {"sub": 50, "other": 50}
    wait_until(lambda: held(deleted.topic) == held(kept.topic) == both, "the daemon holds both topics")
    deleted.disconnect()
    deleted.admin.delete_topic(deleted.topic)
    wait_until(lambda: held(deleted.topic) == {}, "the daemon has forgotten the topic")
    assert held(kept.topic) == both


@KINDS
def test_topic_unloaded(lane: Lane, kind: pulsar.ConsumerType) -> None:
    inbox = Inbox()
    lane.subscribe(inbox, ack_even, kind=kind)
    due, future = (lane.send_in(*[ms] * 200, keys=["a", "b", "c"]) for ms in (300, LATER_MS))
    inbox.wait_for(due)
    lane.wait_stats(lambda now: now.backlog == 300, "the acknowledgements of the even ones are known")
    lane.admin.unload(lane.topic)
    # The client connects by itself; it gets the odd ones again, which nobody acknowledged.
    inbox.wait_for(odd(due), times=2)
    inbox.wait_for(future)
    lane.wait_stats(lambda now: now.delayed == 0 and now.backlog == 200, "the even ones are acknowledged")
    assert Counter(inbox.uids) == Counter(one.uid for one in due + future + odd(due))
    lane.not_early(inbox.arrivals)


def test_topic_unloaded_again_and_again(lane: Lane) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    far = lane.send_in(*[MINUTES_10_MS] * 100)
    sent: list[Sent] = []
    for _ in range(4):
        group = lane.send_in(*[400] * 50, *[None] * 5)
        inbox.wait_for(group)
        # Unloaded when nothing is under way: an acknowledgement that has not reached the broker when the
        # topic goes is repeated rightly.
        lane.wait_stats(lambda now: now.backlog == now.delayed == len(far), "only the far ones are left")
        lane.admin.unload(lane.topic)
        sent += group
    lane.wait_delayed(len(far))
    assert_exactly(inbox.arrivals, sent)
    lane.not_early(inbox.arrivals)
