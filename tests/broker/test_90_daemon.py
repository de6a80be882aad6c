"""The daemon stops, is killed, hangs or loses its data while the broker runs."""

from __future__ import annotations

import random

import pytest

from tests.broker.cluster import Cluster
from tests.broker.harness import MINUTES_10_MS, Lane
from tests.broker.inbox import Inbox, Sent, assert_exactly

pytestmark = [pytest.mark.tidegate_only, pytest.mark.usefixtures("repaired")]


def send_some(lane: Lane, generator: random.Random, number: int = 40) -> list[Sent]:
    """Plain messages, some due at once, some within 2.5 s."""
    delays = [generator.choice([None, generator.randint(10, 500), generator.randint(500, 2500)])]
    delays += [generator.choice([None, generator.randint(10, 2500)]) for _ in range(number - 1)]
    return lane.send_in(*delays)


def test_daemon_killed_and_restarted_under_load(lane: Lane, cluster: Cluster) -> None:
    generator = random.Random(11)  # noqa: S311 - a test's data, not a secret
    inbox = Inbox()
    for _ in range(2):
        lane.subscribe(inbox)
    far = lane.send_in(*[MINUTES_10_MS] * 500)
    lane.wait_delayed(len(far))
    sent: list[Sent] = []
    for step in range(90):
        if step == 30:
            cluster.daemon.kill()
        if step == 60:
            cluster.daemon.start()
        sent += send_some(lane, generator)
    inbox.wait_for(sent)
    lane.wait_stats(lambda now: now.backlog == now.delayed == len(far), "the far ones are left")
    assert_exactly(inbox.arrivals, sent)
    lane.not_early(inbox.arrivals)


def test_daemon_killed_again_and_again(lane: Lane, cluster: Cluster) -> None:
    generator = random.Random(12)  # noqa: S311 - a test's data, not a secret
    inbox = Inbox()
    lane.subscribe(inbox)
    sent: list[Sent] = []
    for _ in range(5):
        for _ in range(10):
            sent += send_some(lane, generator)
        cluster.daemon.kill()
        sent += send_some(lane, generator)
        cluster.daemon.start()
    lane.finish(inbox, sent)


def test_daemon_stops_gracefully_and_comes_back(lane: Lane, cluster: Cluster) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    held = lane.send_in(*[4000] * 200, *[MINUTES_10_MS] * 200)
    lane.wait_delayed(len(held))
    assert cluster.daemon.stop() == 0
    while_away = lane.send_in(*[None] * 20, *[500] * 50, *[4000] * 50)
    inbox.wait_for(while_away[:70])
    cluster.daemon.start()
    expected = held[:200] + while_away
    inbox.wait_for(expected)
    lane.wait_stats(lambda now: now.backlog == now.delayed == 200, "the far ones are left")
    assert_exactly(inbox.arrivals, expected)
    lane.not_early(inbox.arrivals)


def test_daemon_data_wiped_while_the_broker_runs(lane: Lane, cluster: Cluster) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    # Further away than the horizon: the broker leaves these to the daemon.
    held = lane.send_in(*[8000] * 500, *[MINUTES_10_MS] * 500)
    done = lane.send_in(*[300] * 100)
    inbox.wait_for(done)
    lane.wait_stats(lambda now: now.backlog == now.delayed == len(held), "the rest is held")
    cluster.daemon.kill()
    cluster.daemon.wipe()
    cluster.daemon.start()
    expected = done + held[:500]
    inbox.wait_for(expected)
    lane.wait_stats(lambda now: now.backlog == now.delayed == 500, "the far ones are held again")
    assert_exactly(inbox.arrivals, expected)
    lane.not_early(inbox.arrivals)
    fresh = lane.send_in(*[500] * 20, *[2500] * 20)
    inbox.wait_for(fresh)
    assert_exactly(inbox.arrivals, expected + fresh)


def test_daemon_hangs_for_longer_than_the_heartbeat(lane: Lane, cluster: Cluster) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    held = lane.send_in(*[5000] * 200)
    with cluster.daemon.paused():
        # The broker gates these itself, and the plain ones do not wait for anybody. The last come after more
        # than three heartbeats.
        while_hanging = lane.send_in(*[None] * 20, *[500] * 100, *[4500] * 100)
        inbox.wait_for(while_hanging)
    lane.finish(inbox, held + while_hanging)
