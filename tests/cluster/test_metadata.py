"""The metadata store stands still, or takes no write, as in a change from ZooKeeper to Oxia."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest

from tests.support.claiming import claim_and_move
from tests.support.cluster import PULSAR_HOME, PULSAR_MAJOR
from tests.support.lane import Lane
from tests.support.metadata import MetadataRefusal
from tests.support.two_brokers import TwoBrokers

INDEX_LOG = "bookkeeper"
# Sessions outlive the standstill. The bookie's of 10 s did not always, and then no ledger could be created.
CONF = {"metadataStoreSessionTimeoutMillis": "60000"}
BOOKIE_CONF = {"zkTimeout": "60000"}
STILL_S, REFUSED_S = 30.0, 15.0
UNCLAIMED = "could not be written: epoch"
"""The broker's log says so of each claim that is refused."""


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
