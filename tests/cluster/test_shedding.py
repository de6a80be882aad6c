"""AvgShedder, by default Pulsar 5.0's, moves a topic by itself while its delayed messages come due."""

from __future__ import annotations

import threading

import pytest

from tests.support.cluster import PULSAR_MAJOR
from tests.support.inbox import Inbox, Sent
from tests.support.lane import MINUTES_10_MS, Lane
from tests.support.two_brokers import BUNDLE, TwoBrokers
from tests.support.waiting import wait_until

# It looks once a minute at most, so that this takes minutes.
pytestmark = pytest.mark.skipif(PULSAR_MAJOR < 5, reason="AvgShedder is no default before 5.0")

INDEX_LOG = "bookkeeper"
_SHEDDER = "org.apache.pulsar.broker.loadbalance.impl.AvgShedder"
CONF = {
    "loadBalancerSheddingEnabled": "true",
    "loadBalancerLoadSheddingStrategy": _SHEDDER,
    "loadBalancerLoadPlacementStrategy": _SHEDDER,
    "loadBalancerSheddingGracePeriodMinutes": "0",
    "loadBalancerReportUpdateThresholdPercentage": "1",
    "loadBalancerReportUpdateMaxIntervalMinutes": "1",
    # One machine has both brokers: only direct memory tells them apart.
    "loadBalancerCPUResourceWeight": "0",
    "loadBalancerBandwidthInResourceWeight": "0",
    "loadBalancerBandwidthOutResourceWeight": "0",
    "loadBalancerDirectMemoryResourceWeight": "1",
    "loadBalancerAvgShedderLowThreshold": "1",
    "loadBalancerAvgShedderHitCountLowThreshold": "1",
    "maxUnloadPercentage": "1.0",
    "minUnloadMessage": "1",
    "minUnloadMessageThroughput": "1",
}
_OTHER = "public/other"
_FAR = 2_000
_PAYLOAD = b"x" * 100_000


def test_a_topic_that_is_shed_keeps_its_index(two: TwoBrokers, lane: Lane) -> None:
    two.admin.call("PUT", f"/namespaces/{_OTHER}", {"bundles": {"numBundles": 1, "boundaries": None}})
    two.move(lane.topic, two.a)
    two.admin.move(_OTHER, BUNDLE, two.a.broker.broker_id)
    inbox = Inbox()
    lane.subscribe(inbox)
    far = lane.send_in(*[MINUTES_10_MS] * _FAR)
    near: list[Sent] = []
    enough = threading.Event()
    # The heavier bundle, for AvgShedder moves none that has all of the traffic.
    other = lane.client.create_producer(f"{_OTHER}/plain", block_if_queue_full=True)

    def load() -> None:
        while not enough.wait(0.2):
            near.extend(lane.send_in(None, *range(3_000, 13_000, 500), payload=b"y" * 1_000))
            for _ in range(50):
                other.send_async(_PAYLOAD, None)
            other.flush()

    sender = threading.Thread(target=load, daemon=True)
    sender.start()
    try:
        wait_until(
            lambda: two.owner(lane.topic, two.b) == two.b.broker.service_url,
            "the topic was moved by AvgShedder",
            timeout_s=240,
        )
    finally:
        enough.set()
        sender.join()
    inbox.wait_for(near, timeout_s=120)
    lane.not_early(inbox.arrivals)
    assert not {one.uid for one in far} & set(inbox.uids)
    assert two.log(two.b, lane.topic), "daemon b has the index, and its log"
    lane.admin = two.admin_of(two.b)
    lane.wait_stats(lambda now: now.backlog == now.delayed == len(far), "only the far ones are left")
