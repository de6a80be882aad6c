"""Pulsar 5 copies its metadata from ZooKeeper to Oxia while delayed messages come due, and ZooKeeper goes."""

from __future__ import annotations

import threading

import pytest

from tests.support.cluster import PULSAR_HOME, PULSAR_MAJOR
from tests.support.inbox import Inbox
from tests.support.killed_owner import kill_owner
from tests.support.lane import Lane
from tests.support.oxia import NOT_NAMED, PROGRAM, Oxia
from tests.support.two_brokers import TwoBrokers
from tests.support.waiting import wait_until
from tidegate.plugin.local.cluster import bookie_metadata_conf, metadata_conf

pytestmark = [
    pytest.mark.skipif(not PROGRAM, reason=NOT_NAMED),
    pytest.mark.skipif(PULSAR_MAJOR < 5, reason=f"{PULSAR_HOME.name} does not change its metadata store"),
]

INDEX_LOG = "bookkeeper"
_FAR_MS = 3_600_000
_FAR = 2_000


def test_claims_and_seals_through_the_change(two: TwoBrokers, lane: Lane, oxia: Oxia) -> None:
    """The first tracker of ``late`` claims its cursor amid it.

    The topic does not move afterwards: 5.0.1 numbers its next ledger from 1 again, before the former ones.
    """
    inbox, late = Inbox(), Inbox()
    two.move(lane.topic, two.a)
    lane.subscribe(inbox)
    lane.reserve("late")
    far = lane.send_in(*[_FAR_MS] * _FAR)
    two.wait_logged(two.a, lane.topic, len(far))
    near = lane.send_in(*range(500, 40_500, 100))
    claiming = threading.Thread(target=lambda: lane.subscribe(late, name="late"), daemon=True)
    two.admin.call("POST", f"/metadata/migration/start?target={oxia.url}")
    claiming.start()
    wait_until(lambda: _phase(two) == "COMPLETED", "the metadata are in Oxia", timeout_s=120.0)
    claiming.join(60)
    assert not claiming.is_alive(), "the consumer of late is there"
    lane.finish_partly(inbox, near, left=len(far))
    lane.finish_partly(late, near, left=len(far), name="late")
    two.wait_logged(two.a, lane.topic, 2 * len(far))


def test_without_zookeeper(two: TwoBrokers, lane: Lane, oxia: Oxia) -> None:
    """Each part is restarted with Oxia in its conf file; then a broker and its daemon die."""
    if _phase(two) != "COMPLETED":
        pytest.fail("the metadata are not in Oxia: run the whole file")
    two.cluster.bookie.configure(bookie_metadata_conf(oxia.url))
    for node in (two.a, two.b):
        node.broker.configure(metadata_conf(oxia.url))
    for part in (two.cluster.bookie, two.b.broker, two.a.broker):
        part.stop()
        part.start()
    two.cluster.zookeeper.kill()
    kill_owner(two, lane, far=_FAR)


def _phase(two: TwoBrokers) -> str:
    return str(two.admin.call("GET", "/metadata/migration/status")["phase"])
