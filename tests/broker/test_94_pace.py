"""Subscriptions are paused and released at a pace, on a real broker."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.support.daemons import run
from tests.support.inbox import Inbox, assert_exactly, assert_not_early, keep_all
from tests.support.lane import Lane
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.tidegate_only, pytest.mark.usefixtures("repaired")]
QUIET_S = 3.0


def tell(cluster: Cluster, lane: Lane, command: str, *options: str) -> dict[str, Any]:
    """The answer of a command that succeeds, of the one subscription."""
    done = run(command, lane.topic, "sub", *options, "--json", "--socket", str(cluster.daemon.socket_path))
    assert done.returncode == 0, (done.stdout, done.stderr)
    answer = json.loads(done.stdout)
    assert answer["done"]
    (one,) = answer["subscriptions"]
    return dict(one)


def held_back(cluster: Cluster, lane: Lane, count: int) -> None:
    wait_until(lambda: tell(cluster, lane, "pace")["held_back"] == count, f"{count} are held back")


def test_paused_through_kill_9_of_both_and_an_unload(lane: Lane, cluster: Cluster) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    sent = lane.send_in(*[4_000] * 100)
    lane.wait_delayed(100)
    assert tell(cluster, lane, "pause")["paused"]
    cluster.broker.kill()
    cluster.daemon.kill()
    lane.disconnect()
    cluster.daemon.start()
    cluster.start_broker()
    lane.subscribe(inbox)
    held_back(cluster, lane, 100)
    sent += lane.send_in(*[1_000] * 20)
    plain = lane.send_in(*[None] * 5)
    inbox.wait_for(plain)
    held_back(cluster, lane, 120)
    lane.admin.unload(lane.topic)
    held_back(cluster, lane, 120)
    time.sleep(QUIET_S)
    assert_exactly(inbox.arrivals, plain)
    status = run("status", "--socket", str(cluster.daemon.socket_path)).stdout
    assert f"{lane.topic}:sub: nothing leaves until tidegate resume" in status
    assert not tell(cluster, lane, "resume")["paused"]
    inbox.wait_for(sent)
    lane.wait_stats(lambda now: now.backlog == 0, "all is acknowledged")
    assert_exactly(inbox.arrivals, plain + sent)


def test_what_the_last_consumer_had_waits_with_the_rest(lane: Lane, cluster: Cluster) -> None:
    inbox = Inbox()
    lane.subscribe(inbox, keep_all)
    first = lane.send_in(*[500] * 3)
    inbox.wait_for(first)
    tell(cluster, lane, "pause")
    later = lane.send_in(*[500] * 10)
    held_back(cluster, lane, 10)
    lane.disconnect()
    lane.subscribe(inbox)
    held_back(cluster, lane, 13)
    time.sleep(QUIET_S)
    assert not {one.uid for one in inbox.arrivals} & {one.uid for one in later}
    tell(cluster, lane, "resume")
    inbox.wait_for(later)
    lane.wait_stats(lambda now: now.backlog == 0, "all is acknowledged")


def test_a_rate_is_kept_and_everything_comes_once(lane: Lane, cluster: Cluster) -> None:
    """By counts: so many have come after a while, and never more."""
    inbox = Inbox()
    lane.subscribe(inbox)
    due_s = time.time() + 8.0
    sent = lane.send_in(*[8_000] * 400)
    lane.wait_delayed(400)
    assert tell(cluster, lane, "pace", "--rate", "50")["rate"] == 50
    while time.time() < due_s + 4.0:
        before_s = max(0.0, time.time() - due_s)
        came = len(inbox.arrivals)
        after_s = max(0.0, time.time() - due_s)
        assert came <= 50 * after_s + 5, (came, before_s, after_s)
        time.sleep(0.2)
    assert came >= 50, f"{came} have come in 4 s at 50 a second"
    inbox.wait_for(sent)
    lane.wait_stats(lambda now: now.backlog == 0, "all is acknowledged")
    assert_exactly(inbox.arrivals, sent)


def test_a_burst_is_spread_evenly_and_everything_comes_once(lane: Lane, cluster: Cluster) -> None:
    """By counts: at each moment no more have come than the share of the spread that is over."""
    count, spread_s = 400, 8
    inbox = Inbox()
    lane.subscribe(inbox)
    sent = lane.send_in(*[8_000] * count)
    lane.wait_delayed(count)
    assert tell(cluster, lane, "pace", "--spread", f"{spread_s}s")["spread_ms"] == spread_s * 1_000
    status = run("status", "--socket", str(cluster.daemon.socket_path)).stdout
    assert f"{lane.topic}:sub: a burst is spread over {spread_s}s" in status
    inbox.wait_for(sent)
    lane.wait_stats(lambda now: now.backlog == 0, "all is acknowledged")
    assert_exactly(inbox.arrivals, sent)
    assert_not_early(inbox.arrivals)
    after_s = sorted(-one.early_ms / 1_000 for one in inbox.arrivals)
    for number, at_s in enumerate(after_s, start=1):
        assert number <= count * at_s / spread_s + 10, f"{number} have come {at_s:.2f} s after they were due"
    within = sum(at_s <= spread_s for at_s in after_s)
    assert within >= count // 4, f"{within} have come within the spread"
