"""Delayed delivery policies, time to live and what the broker says of itself."""

from __future__ import annotations

import re
from collections.abc import Callable

import pulsar
import pytest

from tests.broker.cluster import Cluster
from tests.broker.harness import MINUTES_10_MS, Lane, now_ms
from tests.broker.inbox import UID, Arrival, Inbox, Verdict, assert_exactly
from tests.broker.waiting import wait_until


def test_topic_policy_switches_delayed_delivery_off_and_on(lane: Lane) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    lane.admin.set_delayed_delivery(lane.topic, active=False)
    wait_until(lambda: lane.admin.delayed_delivery(lane.topic) is not None, "the policy is stored")
    at_once = _send_until_at_once(lane, inbox)
    lane.admin.set_delayed_delivery(lane.topic, active=True)
    held = _send_until_held(lane)
    later = lane.send_in(*[500] * 20)
    inbox.wait_for(later)
    lane.wait_delayed(held)
    by_uid = {arrival.uid: arrival for arrival in inbox.arrivals}
    lane.not_early([by_uid[one.uid] for one in later])
    assert at_once > 0


def _send_until_at_once(lane: Lane, inbox: Inbox) -> int:
    """A policy reaches the topic a moment later: send until a far one comes at once; how many were sent."""
    sent = 0

    def came() -> bool:
        nonlocal sent
        sent += 1
        lane.send_in(MINUTES_10_MS)
        return any(one.early_ms > 0 for one in inbox.arrivals)

    wait_until(came, "a delayed message comes at once where delayed delivery is off")
    return sent


def _send_until_held(lane: Lane) -> int:
    """Send until a far message is held; what ``msgDelayed`` is then."""

    def held() -> bool:
        before = lane.stats().delayed
        lane.send_in(MINUTES_10_MS)
        return lane.stats().delayed > before

    wait_until(held, "a delayed message is held where delayed delivery is on again")
    stats = lane.wait_stats(lambda now: now.backlog == now.delayed, "the rest has been delivered")
    return stats.delayed


def test_namespace_policy_switches_delayed_delivery_off(
    make_lane: Callable[..., Lane], cluster: Cluster
) -> None:
    namespace = "public/undelayed"
    cluster.admin.create_namespace(namespace)
    cluster.admin.set_namespace_delayed_delivery(namespace, active=False)
    lane, inbox = make_lane(namespace), Inbox()
    lane.subscribe(inbox)
    sent = lane.send_in(*[MINUTES_10_MS] * 50)
    inbox.wait_for(sent)
    lane.wait_drained()
    assert_exactly(inbox.arrivals, sent)


def test_maximum_delay_of_the_namespace_refuses_what_is_further(
    make_lane: Callable[..., Lane], cluster: Cluster
) -> None:
    namespace = "public/limited"
    cluster.admin.create_namespace(namespace)
    cluster.admin.set_namespace_delayed_delivery(namespace, active=True, max_delay_ms=60_000)
    lane, inbox = make_lane(namespace), Inbox()
    lane.subscribe(inbox)
    sent = lane.send_in(*[500] * 20)
    # A client of its own: refused, the C++ client only logs why, connects again and tries for ever.
    client = pulsar.Client(cluster.broker.service_url)
    try:
        producer = client.create_producer(lane.topic)
        producer.send_async(b"x", None, properties={UID: "far"}, deliver_at=now_ms() + MINUTES_10_MS)
        reason = "Exceeds max allowed delivery delay of 60000"
        wait_until(
            lambda: reason in cluster.client_log_path.read_text(encoding="utf-8"),
            "the broker refuses the message",
        )
    finally:
        client.shutdown()
    lane.finish(inbox, sent)


def test_stats_count_what_is_delayed(lane: Lane) -> None:
    inbox = Inbox()
    lane.subscribe(inbox, lambda _: Verdict.KEEP)
    lane.subscribe(Inbox(), name="other")
    sent = lane.send_in(*[MINUTES_10_MS] * 300, *[None] * 10, *[300] * 20)
    inbox.wait_for(sent[300:])
    for name in ("sub", "other"):
        stats = lane.wait_stats(lambda now: now.delayed == 300, "the far ones are delayed", name=name)
        assert stats.index_size_bytes > 0
    assert lane.stats().backlog == 330
    document = lane.admin.stats(lane.topic)
    per_subscription = [one["delayedMessageIndexSizeInBytes"] for one in document["subscriptions"].values()]
    assert document["delayedMessageIndexSizeInBytes"] == sum(per_subscription)


def test_stats_count_down_as_messages_are_delivered(lane: Lane) -> None:
    inbox = Inbox()
    lane.subscribe(inbox, lambda arrival: Verdict.KEEP if int(arrival.uid) < 10 else Verdict.ACK)
    sent = lane.send_in(*[300] * 50, *[1500] * 50)
    inbox.wait_for(sent)
    lane.wait_stats(
        lambda now: (now.delayed, now.backlog, now.unacknowledged) == (0, 10, 10),
        "nothing is delayed, the kept ones are counted as unacknowledged",
    )


@pytest.mark.tidegate_only
def test_metrics_of_the_broker_name_the_tracker(lane: Lane) -> None:
    lane.subscribe(Inbox())
    lane.send_in(*[MINUTES_10_MS] * 30)
    lane.wait_delayed(30)
    pattern = re.compile(
        rf"^pulsar_subscription_delayed\{{[^}}]*{re.escape(lane.topic)}[^}}]*\}} (\S+)", re.M
    )
    # The page is made anew at most once a second.
    wait_until(
        lambda: [float(value) for value in pattern.findall(lane.admin.metrics())] == [30.0],
        "the broker's metrics count 30 delayed messages",
    )


def test_expired_messages_do_not_come(lane: Lane) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    sent = lane.send_in(*[3000] * 50, *[MINUTES_10_MS] * 50)
    lane.wait_delayed(len(sent))
    published_ms = now_ms()
    wait_until(lambda: now_ms() - published_ms > 1200, "the messages are more than a second old")
    lane.admin.expire(lane.topic, "sub", 1)
    _wait_expired(lane)
    fresh = lane.send_in(2500, 2600, None)
    inbox.wait_for(fresh)
    _wait_expired(lane)
    assert_exactly(inbox.arrivals, fresh)
    lane.not_early(inbox.arrivals)


def test_messages_that_expire_after_acknowledgements_out_of_order(lane: Lane) -> None:
    inbox = Inbox()
    lane.subscribe(inbox, _ack_even)
    due = lane.send_in(*[300] * 100)
    lane.send_in(*[MINUTES_10_MS] * 100)
    inbox.wait_for(due)
    lane.wait_stats(lambda now: now.backlog == 150, "the acknowledgements are known")
    published_ms = now_ms()
    wait_until(lambda: now_ms() - published_ms > 1200, "the messages are more than a second old")
    lane.admin.expire(lane.topic, "sub", 1)
    _wait_expired(lane)
    assert_exactly(inbox.arrivals, due)


def _wait_expired(lane: Lane) -> None:
    # Pulsar's own trackers count what has expired as delayed until it would have been due.
    strict = lane.cluster.kind.strict
    lane.wait_stats(lambda now: now.backlog == 0 and (now.delayed == 0 or not strict), "all has expired")


def _ack_even(arrival: Arrival) -> Verdict:
    return Verdict.KEEP if int(arrival.uid) % 2 else Verdict.ACK
