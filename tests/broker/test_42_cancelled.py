"""Delayed messages that are acknowledged before they are due, by the ids that their producer got."""

from __future__ import annotations

import pytest

from tests.support.cancelling import cancel, send_with_ids
from tests.support.cluster import Cluster
from tests.support.inbox import Inbox
from tests.support.lane import LATER_MS, MINUTES_10_MS, Lane, now_ms
from tests.support.waiting import wait_until


def check_counts(lane: Lane, cluster: Cluster, left: int) -> None:
    """Broker and daemon count what is left, and nothing else."""
    lane.wait_stats(lambda now: now.delayed == now.backlog == left, f"{left} are left, all delayed")
    wait_until(lambda: cluster.held(lane.topic).get("sub") == left, f"the daemon holds {left}")


@pytest.mark.tidegate_only
@pytest.mark.parametrize("first", [0, 1], ids=["from the first", "beyond the first"])
def test_what_is_cancelled_is_neither_held_nor_counted(lane: Lane, cluster: Cluster, first: int) -> None:
    """From the first on the cursor's mark-delete position moves; beyond, there are ranges."""
    consumer = lane.subscribe(Inbox())
    ids = send_with_ids(lane, 400, now_ms() + MINUTES_10_MS)
    check_counts(lane, cluster, 400)
    cancel(consumer, ids[first:][:100] + ids[200::2])
    check_counts(lane, cluster, 200)
    lane.admin.unload(lane.topic)
    check_counts(lane, cluster, 200)


@pytest.mark.tidegate_only
def test_a_daemon_that_was_killed_knows_what_was_cancelled(
    lane: Lane, cluster: Cluster, repaired: None
) -> None:
    consumer = lane.subscribe(Inbox())
    ids = send_with_ids(lane, 100, now_ms() + MINUTES_10_MS)
    check_counts(lane, cluster, 100)
    cancel(consumer, ids[1::2])
    check_counts(lane, cluster, 50)
    cluster.daemon.kill()
    cluster.daemon.start()
    check_counts(lane, cluster, 50)


def test_what_is_cancelled_does_not_come(lane: Lane) -> None:
    inbox = Inbox()
    consumer = lane.subscribe(inbox)
    at = now_ms() + LATER_MS
    ids = send_with_ids(lane, 100, at)
    lane.wait_delayed(100)
    cancel(consumer, ids[1::2])
    # A client sends acknowledgements together, a moment later.
    lane.wait_stats(lambda now: now.backlog == 50, "half is acknowledged")
    lane.admin.unload(lane.topic)
    wait_until(lambda: len(inbox.arrivals) >= 50, "what was not cancelled comes")
    lane.wait_drained()
    assert sorted(int(arrival.payload) for arrival in inbox.arrivals) == list(range(0, 100, 2))


@pytest.mark.tidegate_only
def test_a_reset_brings_again_what_was_cancelled(lane: Lane, cluster: Cluster) -> None:
    consumer = lane.subscribe(Inbox())
    ids = send_with_ids(lane, 100, now_ms() + MINUTES_10_MS)
    check_counts(lane, cluster, 100)
    cancel(consumer, ids[1::2])
    check_counts(lane, cluster, 50)
    lane.admin.reset_to_position(lane.topic, "sub", (ids[0].ledger_id(), ids[0].entry_id()))
    check_counts(lane, cluster, 100)


@pytest.mark.tidegate_only
def test_what_is_skipped_or_cleared_is_not_held(lane: Lane, cluster: Cluster) -> None:
    lane.subscribe(Inbox())
    send_with_ids(lane, 3_000, now_ms() + MINUTES_10_MS)
    check_counts(lane, cluster, 3_000)
    # Pulsar stores a cursor once a second, and what comes within it up to a minute later.
    lane.admin.skip(lane.topic, "sub", 100)
    lane.admin.skip(lane.topic, "sub", 900)
    wait_until(lambda: cluster.held(lane.topic).get("sub") == 2_000, "2,000 are held", timeout_s=15.0)
    check_counts(lane, cluster, 2_000)
    lane.admin.clear_backlog(lane.topic, "sub")
    wait_until(lambda: not cluster.held(lane.topic).get("sub"), "nothing is held", timeout_s=15.0)
