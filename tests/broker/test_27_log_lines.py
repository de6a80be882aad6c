"""Valid use leaves no warning or error in the broker's log, beyond what Pulsar's own trackers leave there."""

from __future__ import annotations

import time
from collections.abc import Callable

import pulsar
import pytest

from tests.support.cluster import Cluster
from tests.support.inbox import Inbox
from tests.support.lane import MINUTES_10_MS, SHARED, Lane

pytestmark = pytest.mark.tidegate_only


def lines(cluster: Cluster, topic: str, *words: str) -> list[str]:
    """The lines of the broker's log about ``topic`` that have all of ``words``."""
    name = topic.rsplit("/", 1)[-1]
    log = cluster.broker.log_path.read_text(errors="replace").splitlines()
    return [line for line in log if name in line and all(word in line for word in words)]


@pytest.mark.parametrize("away", [False, True], ids=["connected", "away"])
def test_a_terminated_topic(cluster: Cluster, lane: Lane, away: bool) -> None:
    """Pulsar reads at its end with each wake-up, in vain, and says so."""
    inbox = Inbox()
    lane.subscribe(inbox)
    sent = lane.send_in(*range(4000, 6000, 20))
    lane.admin.call("POST", f"/persistent/{lane.topic}/terminate")
    if away:
        lane.disconnect()
        lane.admin.unload(lane.topic)
        lane.subscribe(inbox)
    lane.finish(inbox, sent)
    errors = lines(cluster, lane.topic, " ERROR ", "Error reading entries")
    assert len(errors) <= 2, errors[:3]


def test_few_due_when_consumers_come_back(cluster: Cluster, lane: Lane) -> None:
    """The read position stands where the replay begins, for fewer messages than are worth a seek."""
    for _ in range(2):
        consumer = lane.subscribe(Inbox())
        sent = lane.send_in(*[2500] * 100)
        lane.wait_delayed(len(sent))
        consumer.close()
        time.sleep(max(0.0, (sent[0].deliver_at_ms or 0) / 1000 - time.time()) + 0.2)
        inbox = Inbox()
        consumer = lane.subscribe(inbox)
        lane.finish(inbox, sent)
        consumer.close()
    assert not lines(cluster, lane.topic, "replayPosition")


@pytest.mark.parametrize("delayed", [True, False], ids=["delayed", "plain"])
def test_clients_that_reconnect_in_a_loop(
    cluster: Cluster, make_lane: Callable[..., Lane], delayed: bool
) -> None:
    """A new subscription is claimed while somebody is connected, however short each stays."""
    lane = make_lane()
    for _ in range(25):
        lane.send([int(time.time() * 1000) + MINUTES_10_MS if delayed else None])
        consumer = lane.client.subscribe(
            lane.topic, "sub", SHARED, initial_position=pulsar.InitialPosition.Earliest
        )
        time.sleep(0.03)
        consumer.close()
        time.sleep(0.1)
    if delayed:
        lane.subscribe(Inbox())
        lane.wait_claimed()
        lane.wait_indexed(25)
    for words in ("epoch", "claimed again"), ("has not answered",):
        assert not lines(cluster, lane.topic, *words)


def test_a_topic_that_is_loaded_again_makes_one_tracker(cluster: Cluster, lane: Lane) -> None:
    """Pulsar's class, which ours extends, says once of each tracker that it has found no snapshots."""

    def made() -> int:
        return cluster.broker.log_path.read_text(errors="replace").count(
            "Recover delayed message index bucket snapshot finish"
        )

    inbox = Inbox()
    lane.subscribe(inbox)
    far = lane.send_in(*[MINUTES_10_MS] * 200)
    lane.wait_delayed(len(far))
    due = []
    for _ in range(3):
        before = made()
        lane.admin.unload(lane.topic)
        due += lane.send_in(200)
        lane.finish_partly(inbox, due, left=len(far))
        assert made() - before == 1
