"""Delayed delivery policies, time to live, and the broker's own statistics."""

from __future__ import annotations

import re
from collections.abc import Callable

import pulsar
import pytest

from tests.support.cluster import Cluster
from tests.support.inbox import UID, Arrival, Inbox, Verdict, assert_exactly, assert_not_early
from tests.support.lane import LATER_MS, MINUTES_10_MS, OURS, YEARS_10_MS, Lane, now_ms
from tests.support.waiting import wait_until


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
    """A policy reaches the topic a moment later: send until a far one comes at once; returns how many were
    sent.
    """
    sent = 0

    def came() -> bool:
        nonlocal sent
        sent += 1
        lane.send_in(MINUTES_10_MS)
        return any(one.early_ms > 0 for one in inbox.arrivals)

    wait_until(came, "a delayed message comes at once where delayed delivery is off")
    return sent


def _send_until_held(lane: Lane) -> int:
    """Send until a far message is held; returns ``msgDelayed`` then."""

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
    # A new client: refused, the C++ client only logs why, connects again and tries for ever.
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


def test_maximum_delay_of_the_topic_refuses_what_is_further(make_lane: Callable[..., Lane]) -> None:
    lane, other, inbox = make_lane(), make_lane(), Inbox()
    lane.subscribe(inbox)
    lane.admin.set_delayed_delivery(lane.topic, active=True, max_delay_ms=45_000)
    accepted = _send_until_refused(lane, "Exceeds max allowed delivery delay of 45000")
    lane.wait_delayed(accepted)
    near = lane.send_in(*[500] * 20)
    lane.finish_partly(inbox, near, left=accepted)
    other.reserve()
    other.send_in(MINUTES_10_MS)
    assert other.stats().backlog == 1


@pytest.mark.parametrize("level", ["topic", "namespace"])
@pytest.mark.parametrize(
    "values",
    [
        {"tickTime": 0, "maxDeliveryDelayInMillis": -1},
        {"tickTime": -5, "maxDeliveryDelayInMillis": 0},
        {"tickTime": 60_000, "maxDeliveryDelayInMillis": YEARS_10_MS * 2},
        # Of PIP-437, in no Pulsar up to 5.0.1: accepted, and dropped.
        {"tickTime": 1, "maxDeliveryDelayInMillis": 0, "fixedDeliveryDelayInMillis": 60_000},
    ],
    ids=lambda values: "-".join(map(str, values.values())),
)
def test_every_value_that_the_broker_accepts(
    make_lane: Callable[..., Lane], level: str, values: dict[str, int]
) -> None:
    """A tick makes Pulsar's own trackers early, a negative one late; a largest delay above 0 refuses."""
    namespace = "public/" + re.sub(
        r"[^0-9a-z]+", "-", f"valued-{level}{list(values.values())}".lower()
    ).strip("-")
    lane, inbox = make_lane(namespace), Inbox()
    lane.admin.create_namespace(namespace)
    lane.reserve()
    lane.admin.set_delayed_delivery_values(lane.topic if level == "topic" else namespace, values)

    def applied() -> bool:
        document = lane.admin.applied_delayed_delivery(lane.topic)
        assert "fixedDeliveryDelayInMillis" not in document
        return all(document[name] == value for name, value in values.items() if name in document)

    wait_until(applied, "the broker shows the policy as the one in force")
    # A loaded topic follows a moment later; a newly loaded one begins with it.
    lane.admin.unload(lane.topic)
    lane.subscribe(inbox)
    sent = lane.send_in(500, 900, None, 1_300, YEARS_10_MS)
    inbox.wait_for(sent[:-1])
    lane.wait_stats(lambda now: now.backlog == now.delayed == 1, "only the far one is left")
    assert_exactly(inbox.arrivals, sent[:-1])
    tolerance_ms = 0.0 if lane.cluster.kind.strict else max(values["tickTime"], 0)
    assert_not_early(inbox.arrivals, tolerance_ms=tolerance_ms)
    plain = next(one for one in inbox.arrivals if one.deliver_at_ms is None)
    # With a tick of a minute Pulsar's own trackers deliver all at once.
    assert tolerance_ms > 500 or plain.received_ns < min(
        one.received_ns for one in inbox.arrivals if one is not plain
    )


def test_the_topic_s_policy_beats_the_namespace_s(make_lane: Callable[..., Lane], cluster: Cluster) -> None:
    namespace = "public/undelayed-but-one"
    cluster.admin.create_namespace(namespace)
    cluster.admin.set_namespace_delayed_delivery(namespace, active=False)
    lane, inbox = make_lane(namespace), Inbox()
    lane.subscribe(inbox)
    lane.admin.set_delayed_delivery(lane.topic, active=True)
    held = _send_until_held(lane)
    sent = lane.send_in(*[500] * 10)
    inbox.wait_for(sent)
    lane.wait_delayed(held)
    by_uid = {one.uid: one for one in inbox.arrivals}
    lane.not_early([by_uid[one.uid] for one in sent])


def _send_until_refused(lane: Lane, reason: str) -> int:
    """A policy reaches the topic a moment later: send until a far one is refused; returns how many were
    stored.
    """
    # A new client: refused, the C++ client only logs why, connects again and tries for ever.
    client = pulsar.Client(lane.cluster.service_url)
    stored: list[pulsar.Result] = []
    log_path = lane.cluster.client_log_path
    begin = log_path.stat().st_size if log_path.exists() else 0
    sent = 0

    def refused() -> bool:
        nonlocal sent
        # One at a time: a message under way when the broker closes the connection might be stored
        # unconfirmed.
        if sent == len(stored):
            sent += 1
            producer.send_async(
                b"x",
                lambda result, _: stored.append(result),
                properties={UID: "far"},
                deliver_at=now_ms() + MINUTES_10_MS,
            )
        with log_path.open("rb") as log:
            log.seek(begin)
            return reason.encode() in log.read()

    try:
        producer = client.create_producer(lane.topic)
        wait_until(refused, "the broker refuses the message")
        assert sent == len(stored) + 1
        assert set(stored) <= {pulsar.Result.Ok}
    finally:
        client.shutdown()
    return sent - 1


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


def test_metrics_of_the_broker_count_what_is_delayed(lane: Lane) -> None:
    lane.subscribe(Inbox())
    lane.send_in(*[MINUTES_10_MS] * 30)
    lane.wait_delayed(30)
    # The page is made anew at most once a second.
    wait_until(
        lambda: lane.metrics("pulsar_subscription_").get("delayed") == 30.0,
        "the broker's metrics count 30 delayed messages",
    )


@pytest.mark.tidegate_only
def test_metrics_of_the_broker_show_the_tracker(lane: Lane) -> None:
    inbox = Inbox()
    lane.subscribe(inbox, lambda _: Verdict.KEEP)
    due = lane.send_in(*[300] * 10)
    lane.send_in(*[MINUTES_10_MS] * 30)
    inbox.wait_for(due)
    expected = {
        "connected": 1.0,
        "tracked_entries": 40.0,
        "near_entries": 0.0,
        "handed_out_entries": 10.0,
        "pending_entries": 0.0,
        "settling_entries": 0.0,
        "read_ahead_entries": 0.0,
        "prefetched_entries": 0.0,
        "paused": 0.0,
        "release_paused": 0.0,
        "release_rate": 0.0,
        "release_spread_seconds": 0.0,
        "held_back_entries": 0.0,
        "quota_entries": 0.0,
        "overrides_unread": 0.0,
        "overdue_seconds": 0.0,
        "early_entries": 0.0,
        "lateness_seconds_bucket": 10.0,
        "lateness_seconds_count": 10.0,
    }
    seen: dict[str, float] = {}

    def shown() -> bool:
        seen.update(lane.metrics(OURS))
        return (
            seen.keys() - {"reconnects", "lateness_seconds_sum"} == expected.keys()
            and expected.items() <= seen.items()
        )

    wait_until(shown, "the broker's metrics show what the tracker holds and that the daemon is there")
    assert seen["reconnects"] >= 0
    assert seen["lateness_seconds_sum"] >= 0
    bounds = re.findall(
        rf'^{OURS}lateness_seconds_bucket\{{[^}}]*{lane.topic}"[^}}]*subscription="sub"[^}}]*le="([^"]+)"',
        lane.admin.metrics(),
        re.MULTILINE,
    )
    assert sorted(bounds) == ["+Inf", "0.01", "0.1", "1.0", "10.0", "60.0"]


def test_expired_messages_do_not_come(lane: Lane) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    sent = lane.send_in(*[LATER_MS] * 50, *[MINUTES_10_MS] * 50)
    lane.wait_delayed(len(sent))
    published_ms = now_ms()
    wait_until(lambda: now_ms() - published_ms > 1200, "the messages are more than a second old")
    lane.admin.expire(lane.topic, "sub", 1)
    _wait_expired(lane)
    fresh = lane.send_in(LATER_MS, LATER_MS + 100, None)
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
    # Pulsar's own trackers count expired messages as delayed until their due time.
    strict = lane.cluster.kind.strict
    lane.wait_stats(lambda now: now.backlog == 0 and (now.delayed == 0 or not strict), "all has expired")


def _ack_even(arrival: Arrival) -> Verdict:
    return Verdict.KEEP if int(arrival.uid) % 2 else Verdict.ACK
