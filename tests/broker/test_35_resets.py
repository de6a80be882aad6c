"""A reset of the cursor takes acknowledgements back, whether or not the topic has a tracker that sees it."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.support.cluster import RETAINED, Cluster
from tests.support.inbox import Inbox
from tests.support.lane import Lane
from tests.support.resetting import RESETS, ResetLane, keep_only

# Pulsar writes a cursor once a second.
_STORED_AFTER_S = 2.5
EVERY_WAY = pytest.mark.parametrize("reset", RESETS)


@pytest.fixture
def one(make_lane: Callable[..., Lane], cluster: Cluster) -> ResetLane:
    """A topic that keeps what was acknowledged, so that one can seek back."""
    return ResetLane(make_lane(RETAINED), cluster)


@EVERY_WAY
def test_a_reset_under_the_eyes_of_the_tracker(one: ResetLane, reset: Callable[[ResetLane], None]) -> None:
    one.acknowledge_all_but_the_first()
    reset(one)
    one.check()


@EVERY_WAY
def test_a_reset_after_the_topic_was_unloaded(one: ResetLane, reset: Callable[[ResetLane], None]) -> None:
    one.acknowledge_all_but_the_first()
    one.lane.admin.unload(one.lane.topic)
    reset(one)
    one.check()


@EVERY_WAY
def test_a_reset_before_the_topic_is_unloaded(one: ResetLane, reset: Callable[[ResetLane], None]) -> None:
    one.acknowledge_all_but_the_first()
    one.lane.admin.unload(one.lane.topic)
    reset(one)
    one.lane.admin.unload(one.lane.topic)
    one.check(unloaded_since=True)


def test_two_resets_in_a_row(one: ResetLane) -> None:
    one.acknowledge_all_but_the_first()
    one.lane.admin.unload(one.lane.topic)
    ledger_id, entry_id = one.first_entry
    one.lane.admin.reset_to_position(one.lane.topic, "sub", (ledger_id, entry_id + 100))
    one.lane.admin.reset_to_position(one.lane.topic, "sub", (ledger_id, entry_id))
    one.lane.subscribe(one.after)
    one.check()


@pytest.mark.tidegate_only
@pytest.mark.parametrize("loaded_anew", [False, True], ids=["first-load", "loaded-anew"])
def test_a_reset_right_before_the_broker_is_killed(
    one: ResetLane, cluster: Cluster, loaded_anew: bool
) -> None:
    """Pulsar stores a reset with the acknowledgements that it takes back, and drops them at the next write:
    the next owner loads them. With Pulsar alone one of the 500 comes.
    """
    one.acknowledge_all_but_the_first()
    time.sleep(_STORED_AFTER_S)
    if loaded_anew:
        one.lane.admin.unload(one.lane.topic)
    one.lane.admin.reset_to_position(one.lane.topic, "sub", one.first_entry)
    cluster.broker.kill()
    one.lane.disconnect()
    cluster.start_broker()
    one.lane.subscribe(one.after)
    one.check(unloaded_since=True)


@pytest.mark.tidegate_only
def test_a_reset_of_what_is_acknowledged_to_the_end_outlives_a_kill(one: ResetLane, cluster: Cluster) -> None:
    """As loaded the cursor has no backlog then: everything behind its position is acknowledged."""
    one.acknowledge_all_but_the_first()
    time.sleep(_STORED_AFTER_S)
    one.lane.admin.unload(one.lane.topic)
    ledger_id, entry_id = one.first_entry
    one.lane.admin.reset_to_position(one.lane.topic, "sub", (ledger_id, entry_id + 1))
    cluster.broker.kill()
    one.lane.disconnect()
    cluster.start_broker()
    one.lane.subscribe(one.after)
    one.after.wait_for(one.sent[1:])
    one.lane.wait_drained()
    assert one.sent[0].uid not in one.after.uids


@pytest.mark.tidegate_only
def test_without_a_reset_a_killed_broker_keeps_what_is_acknowledged(one: ResetLane, cluster: Cluster) -> None:
    one.acknowledge_all_but_the_first()
    time.sleep(_STORED_AFTER_S)
    cluster.broker.kill()
    one.lane.disconnect()
    cluster.start_broker()
    one.lane.subscribe(one.after)
    one.after.wait_for(one.sent[:1])
    one.lane.wait_drained()
    assert one.after.uids == [one.sent[0].uid]


@pytest.mark.tidegate_only
def test_a_reset_before_the_second_load_has_a_tracker_outlives_a_kill(
    make_lane: Callable[..., Lane], cluster: Cluster
) -> None:
    """Acknowledged out of order before the first delayed message: the first claim knows of no seal yet."""
    lane = make_lane(RETAINED)
    before, after = Inbox(), Inbox()
    consumer = lane.subscribe(before, keep_only("000000"))
    plain = lane.send_in(*[None] * 20)
    before.wait_for(plain)
    lane.wait_stats(lambda now: now.backlog == 1, "all but one are acknowledged")
    sent = lane.send_in(*[200] * 200)
    before.wait_for(sent)
    lane.wait_stats(lambda now: now.backlog == 1, "all but one are acknowledged")
    time.sleep(_STORED_AFTER_S)
    consumer.close()
    lane.admin.unload(lane.topic)
    assert lane.stats().backlog == 1  # loads the topic; a reset at the same moment may be refused
    first = next(each.entry for each in before.arrivals if each.uid == plain[0].uid)
    lane.admin.reset_to_position(lane.topic, "sub", first)
    cluster.broker.kill()
    lane.disconnect()
    cluster.start_broker()
    lane.subscribe(after)
    after.wait_for(plain + sent)
