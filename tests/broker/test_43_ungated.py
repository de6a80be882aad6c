"""Subscriptions whose delayed messages are gated no more: of another type, or with the feature disabled."""

from __future__ import annotations

import pulsar
import pytest

from tests.support.cluster import Cluster
from tests.support.inbox import Inbox, Judge, Verdict
from tests.support.lane import LATER_MS, MINUTES_10_MS, SHARED, Lane, now_ms
from tests.support.waiting import wait_until

pytestmark = pytest.mark.tidegate_only


def wait_forgotten(lane: Lane, cluster: Cluster) -> None:
    """Wait until the daemon has no index of the subscription."""
    wait_until(
        lambda: "sub" not in cluster.held(lane.topic), "the daemon has forgotten the index", timeout_s=30.0
    )


def keep_all(*_: object) -> Verdict:
    """Acknowledge nothing."""
    return Verdict.KEEP


@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Failover, pulsar.ConsumerType.Exclusive], ids=str)
def test_a_subscription_of_another_type_has_no_index(
    lane: Lane, cluster: Cluster, kind: pulsar.ConsumerType
) -> None:
    consumer = lane.subscribe(Inbox())
    sent = lane.send_in(*[MINUTES_10_MS] * 40)
    lane.wait_indexed(40)
    consumer.close()
    inbox = Inbox()
    other = lane.subscribe(inbox, kind=kind)
    inbox.wait_for(sent)
    wait_forgotten(lane, cluster)
    lane.admin.unload(lane.topic)
    later = lane.send_in(*[MINUTES_10_MS] * 5)
    inbox.wait_for(later)
    lane.wait_drained()
    assert "sub" not in cluster.held(lane.topic)
    other.close()


def test_when_the_type_changes_back_what_is_left_is_gated_again(lane: Lane, cluster: Cluster) -> None:
    consumer = lane.subscribe(Inbox())
    sent = lane.send_in(*[LATER_MS * 4] * 40)
    lane.wait_indexed(40)
    consumer.close()
    some = Inbox()
    acknowledged: list[str] = []

    def every_other(*_: object) -> Verdict:
        acknowledged.append("x")
        return Verdict.ACK if len(acknowledged) % 2 else Verdict.KEEP

    judge: Judge = every_other
    failover = lane.subscribe(some, judge, kind=pulsar.ConsumerType.Failover)
    some.wait_for(sent)
    wait_forgotten(lane, cluster)
    failover.close()
    inbox = Inbox()
    lane.subscribe(inbox, kind=SHARED)
    lane.wait_delayed(20)
    wait_until(lambda: cluster.held(lane.topic).get("sub") == 20, "the daemon holds the other half")
    assert not inbox.arrivals
    wait_until(lambda: len(inbox.arrivals) == 20, "the other half comes when it is due")
    lane.wait_drained()
    lane.not_early(inbox.arrivals)
    assert now_ms() >= max(one.deliver_at_ms or 0 for one in sent)


def test_a_topic_whose_delayed_delivery_is_disabled_has_no_index(lane: Lane, cluster: Cluster) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    sent = lane.send_in(*[MINUTES_10_MS] * 40)
    lane.wait_indexed(40)
    lane.admin.set_delayed_delivery(lane.topic, active=False)
    wait_until(lambda: lane.admin.delayed_delivery(lane.topic) is not None, "the policy is stored")
    # The tracker that is there goes on gating what it has, as Pulsar's do; after an unload there is none.
    assert not inbox.arrivals
    assert cluster.held(lane.topic)["sub"] == 40
    lane.admin.unload(lane.topic)
    inbox.wait_for(sent)
    wait_forgotten(lane, cluster)
    lane.wait_drained()
    lane.admin.set_delayed_delivery(lane.topic, active=True)

    def held() -> bool:
        lane.send_in(MINUTES_10_MS)
        return lane.stats().delayed > 0

    wait_until(held, "a delayed message is held where delayed delivery is on again")
    wait_until(lambda: cluster.held(lane.topic).get("sub", 0) > 0, "the daemon has an index again")
