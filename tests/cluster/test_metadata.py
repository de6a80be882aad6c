"""The metadata store stands still, or takes no write, as in a change from ZooKeeper to Oxia."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from tests.support.cluster import PULSAR_HOME, PULSAR_MAJOR
from tests.support.inbox import Inbox, assert_exactly
from tests.support.lane import MINUTES_10_MS, Lane
from tests.support.metadata import MetadataRefusal
from tests.support.two_brokers import TwoBrokers
from tests.support.waiting import wait_until

INDEX_LOG = "bookkeeper"
# Sessions outlive the standstill. The bookie's of 10 s did not always, and then no ledger could be created.
CONF = {"metadataStoreSessionTimeoutMillis": "60000"}
BOOKIE_CONF = {"zkTimeout": "60000"}
STILL_S, REFUSED_S, MOVING_S = 30.0, 15.0, 8.0
UNCLAIMED = "could not be written: epoch"
"""The broker's log says so of each claim that is refused."""
_FAR = 500
_EVERY_MS = 100

Trouble = Callable[[], AbstractContextManager[object]]


def claim_and_move(
    two: TwoBrokers, lane: Lane, trouble: Trouble, *, for_s: float, moving: Trouble = contextlib.nullcontext
) -> None:
    """The first tracker of ``late`` claims its cursor amid ``trouble``; ``sub`` acknowledges out of order.

    Then the topic moves, amid ``moving`` for its first seconds.
    """
    inbox, late = Inbox(), Inbox()
    two.move(lane.topic, two.a)
    lane.subscribe(inbox)
    lane.reserve("late")
    far = lane.send_in(*[MINUTES_10_MS] * _FAR)
    two.wait_logged(two.a, lane.topic, len(far))
    near = lane.send_in(*range(500, int(for_s * 1000) + 10_000, _EVERY_MS))
    due_meanwhile = near[: int((for_s - 5) * 1000) // _EVERY_MS]
    claiming = threading.Thread(target=lambda: lane.subscribe(late, name="late"), daemon=True)
    with trouble():
        claiming.start()
        until_s = time.monotonic() + for_s
        inbox.wait_for(due_meanwhile, timeout_s=for_s)
        time.sleep(max(0.0, until_s - time.monotonic()))
    claiming.join(60)
    assert not claiming.is_alive(), "the consumer of late is there"

    lane.finish_partly(inbox, near, left=len(far))
    lane.finish_partly(late, near, left=len(far), name="late")
    two.wait_logged(two.a, lane.topic, 2 * len(far))
    lane.disconnect()
    move = threading.Thread(target=lambda: two.move(lane.topic, two.b), daemon=True)
    with moving():
        move.start()
        move.join(MOVING_S)
    move.join(120)
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


def unclaimed(two: TwoBrokers, lane: Lane) -> int:
    """How many claims of the topic's cursors broker a says were refused."""
    log = two.a.broker.log_path.read_text(errors="replace").splitlines()
    return sum(lane.topic in line and UNCLAIMED in line for line in log)


def test_claims_and_seals_wait_for_the_metadata_and_deliveries_do_not(two: TwoBrokers, lane: Lane) -> None:
    claim_and_move(two, lane, two.cluster.zookeeper.paused, for_s=STILL_S)


def test_claims_and_seals_that_are_refused_are_written_later(two: TwoBrokers, lane: Lane) -> None:
    with MetadataRefusal(two.cluster.zookeeper_address, two.work_dir) as refusal:

        def refused() -> AbstractContextManager[None]:
            return refusal.of_cursors(lane.topic, "sub", "late")

        claim_and_move(two, lane, refused, for_s=REFUSED_S, moving=refused)
    assert unclaimed(two, lane), "a claim was refused"


@pytest.mark.skipif(PULSAR_MAJOR < 5, reason=f"{PULSAR_HOME.name} does not change its metadata store")
def test_a_change_of_the_metadata_store_that_is_given_up(two: TwoBrokers, lane: Lane) -> None:
    """Pulsar's own *read-only*, in which it takes no move, whatever the tracker."""
    with MetadataRefusal(two.cluster.zookeeper_address, two.work_dir) as refusal:
        claim_and_move(two, lane, refusal.of_all, for_s=REFUSED_S)
    assert unclaimed(two, lane), "a claim was refused"
