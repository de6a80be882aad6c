"""The metadata store stands still for half a minute, as in a change from ZooKeeper to Oxia."""

from __future__ import annotations

import threading
import time

from tests.support.inbox import Inbox, assert_exactly
from tests.support.lane import MINUTES_10_MS, Lane
from tests.support.two_brokers import TwoBrokers
from tests.support.waiting import wait_until

INDEX_LOG = "bookkeeper"
# Sessions outlive the standstill.
CONF = {"metadataStoreSessionTimeoutMillis": "60000"}
STILL_S = 30.0
_FAR = 500


def test_claims_and_seals_wait_for_the_metadata_and_deliveries_do_not(two: TwoBrokers, lane: Lane) -> None:
    """The first tracker of ``late`` claims its cursor meanwhile, and ``sub`` acknowledges out of order."""
    inbox, late = Inbox(), Inbox()
    two.move(lane.topic, two.a)
    lane.subscribe(inbox)
    lane.reserve("late")
    far = lane.send_in(*[MINUTES_10_MS] * _FAR)
    two.wait_logged(two.a, lane.topic, len(far))
    near = lane.send_in(*range(500, 40_000, 100))
    due_meanwhile = near[:250]
    claiming = threading.Thread(target=lambda: lane.subscribe(late, name="late"), daemon=True)
    with two.cluster.zookeeper.paused():
        claiming.start()
        until_s = time.monotonic() + STILL_S
        inbox.wait_for(due_meanwhile, timeout_s=STILL_S)
        time.sleep(max(0.0, until_s - time.monotonic()))
    claiming.join(60)
    assert not claiming.is_alive(), "the consumer of late is there"

    lane.finish_partly(inbox, near, left=len(far))
    lane.finish_partly(late, near, left=len(far), name="late")
    two.wait_logged(two.a, lane.topic, 2 * len(far))
    lane.disconnect()
    two.move(lane.topic, two.b)
    lane.admin = two.admin_of(two.b)
    after, late_after = Inbox(), Inbox()
    lane.subscribe(after)
    lane.subscribe(late_after, name="late")
    more = lane.send_in(None, 200)
    lane.finish_partly(after, more, left=len(far))
    lane.finish_partly(late_after, more, left=len(far), name="late")
    wait_until(lambda: two.held(two.b, lane.topic) == 2 * len(far), "daemon b holds the far ones of both")
    assert_exactly(inbox.arrivals, near)
