"""The broker stops or is killed: acknowledged messages stay so, delayed ones come in time and once.

Each test restarts the broker, in some ten seconds, so it tests several things.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import httpx
import pytest

from tests.support.cluster import RETAINED, Cluster
from tests.support.inbox import Inbox, Sent, ack_even, assert_exactly, keep_all
from tests.support.lane import KEY_SHARED, MINUTES_10_MS, SHARED, Lane
from tests.support.lost_ledgers import lose_ledger
from tests.support.resetting import RESETS, ResetLane
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("repaired")
COMMITS, UNCOMMITTED = 'tidegate_commits_total{result="ok"} ', "tidegate_uncommitted_entries "


@pytest.fixture
def skipping_lost_data(cluster: Cluster) -> Iterator[None]:
    """Lost data is skipped, also by a restarted broker."""
    cluster.admin.set_dynamic("autoSkipNonRecoverableData", "true")
    yield
    cluster.repair()
    cluster.admin.set_dynamic("autoSkipNonRecoverableData", "false")
    cluster.admin.unset_dynamic("autoSkipNonRecoverableData")


@pytest.mark.tidegate_only
def test_graceful_restart_repeats_nothing(make_lane: Callable[..., Lane], cluster: Cluster) -> None:
    holes, keyed = make_lane(), make_lane()
    holes_before, holes_after, keyed_before, keyed_after = Inbox(), Inbox(), Inbox(), Inbox()
    holes.subscribe(holes_before, ack_even, receiver_queue_size=10_000)
    keyed.subscribe(keyed_before, kind=KEY_SHARED)
    far = holes.send_in(*[MINUTES_10_MS] * 500)
    due = holes.send_in(*[500] * 10_000)
    keyed_due = keyed.send_in(*[300] * 200, keys=["a", "b", "c"])
    holes_before.wait_for(due)
    keyed_before.wait_for(keyed_due)
    # Due while the broker is down, and after it is back.
    future = holes.send_in(*[12_000] * 300, *[25_000] * 300)
    keyed_future = keyed.send_in(*[25_000] * 200, keys=["a", "b", "c"])
    # 5,000 acknowledgements out of order, all at the broker.
    unacknowledged = [one for one in due if int(one.uid) % 2]
    left = len(far) + len(unacknowledged) + len(future)
    holes.wait_stats(lambda now: now.backlog == left, f"{left} are left")
    keyed.wait_stats(lambda now: now.backlog == len(keyed_future), "the future ones are left")

    cluster.broker.stop()
    holes.disconnect()
    keyed.disconnect()
    cluster.start_broker()

    holes.subscribe(holes_after)
    keyed.subscribe(keyed_after, kind=KEY_SHARED)
    holes_after.wait_for(unacknowledged + future)
    keyed.finish(keyed_after, keyed_future)
    holes.wait_stats(lambda now: now.backlog == now.delayed == len(far), "the far ones are left")
    assert_exactly(holes_before.arrivals, due)
    assert_exactly(holes_after.arrivals, unacknowledged + future)
    assert_exactly(keyed_before.arrivals, keyed_due)
    holes.not_early(holes_after.arrivals)


@pytest.mark.tidegate_only
def test_a_reset_after_a_restart_brings_everything_again(
    make_lane: Callable[..., Lane], cluster: Cluster
) -> None:
    ones = [ResetLane(make_lane(RETAINED), cluster) for _ in RESETS]
    for one in ones:
        one.acknowledge_all_but_the_first()

    cluster.broker.stop()
    for one in ones:
        one.lane.disconnect()
    cluster.start_broker()

    for one, reset in zip(ones, RESETS, strict=True):
        reset(one)
    for one in ones:
        one.check()


@pytest.mark.tidegate_only
@pytest.mark.parametrize("with_the_daemon", [False, True], ids=["broker", "broker-and-daemon"])
def test_kill_repeats_only_what_was_acknowledged_just_before(
    lane: Lane, cluster: Cluster, with_the_daemon: bool
) -> None:
    before, after = Inbox(), Inbox()
    lane.subscribe(before)
    far = lane.send_in(*[MINUTES_10_MS] * 1000)
    # 500 due a second, in no order of the topic, over 16 seconds: the kill comes in the middle.
    sent = lane.send_in(*[500 + 2 * (number * 7919 % 8000) for number in range(8000)])
    some = sorted(sent, key=lambda one: one.deliver_at_ms or 0)[:2000]
    before.wait_for(some)

    known = _known_acknowledged(lane, cluster)
    cluster.broker.kill()
    if with_the_daemon:
        cluster.daemon.kill()
        cluster.daemon.start()
    lane.disconnect()
    cluster.start_broker()

    lane.subscribe(after)
    came = {arrival.uid for arrival in before.arrivals}
    acknowledged = before.acknowledged_ns.keys()
    after.wait_for([one for one in sent if one.uid not in came])
    lane.wait_stats(lambda now: now.backlog == now.delayed == len(far), "the far ones are left")
    again = Counter(after.uids)
    assert set(again) | came == {one.uid for one in sent}
    assert max(again.values(), default=1) == 1, "after the restart too, nothing comes twice"
    repeated = len(again.keys() & acknowledged)
    assert repeated <= len(acknowledged) - known, f"{repeated} came again, the daemon knew {known}"
    lane.not_early(before.arrivals + after.arrivals)


@pytest.mark.tidegate_only
def test_a_lost_ledger_holds_nothing_else_up(
    make_lane: Callable[..., Lane], cluster: Cluster, skipping_lost_data: None
) -> None:
    due, later = make_lane(), make_lane()
    before, due_after, later_after = Inbox(), Inbox(), Inbox()
    sent: dict[Lane, list[list[Sent]]] = {due: [], later: []}
    for lane, delay_ms in ((due, 3_000), (later, MINUTES_10_MS)):
        lane.subscribe(before, keep_all)
        # The first ledger makes the tracker; the second is lost.
        for _ in range(3):
            sent[lane].append(lane.send_in(*[delay_ms] * 20))
            lane.admin.unload(lane.topic)
    wait_until(lambda: all(cluster.held(one.topic) == {"sub": 60} for one in sent), "the daemon holds them")
    ledgers = {lane: lane.admin.internal_stats(lane.topic)["ledgers"] for lane in sent}

    cluster.broker.stop()
    due.disconnect()
    later.disconnect()
    for of_lane in ledgers.values():
        lose_ledger(cluster.broker.metadata_dir, of_lane[1]["ledgerId"])
    cluster.start_broker()

    # Everything there is due by now and read first: the lost ones, too.
    due.subscribe(due_after)
    plain = due.send_in(None)
    due.finish(due_after, [*sent[due][0], *sent[due][2], *plain])
    # Nothing is due: a normal read skips the lost ledger.
    later.subscribe(later_after)
    later.wait_stats(lambda now: now.backlog == 40, "the lost ones are skipped")
    wait_until(lambda: cluster.held(due.topic) == {"sub": 0}, "the daemon knows the lost ones acknowledged")


def _known_acknowledged(lane: Lane, cluster: Cluster) -> int:
    """Acknowledgements on the daemon's disk: some of the consumer's, at least.

    `python -m bench run acks` measures their time: here they only have to arrive.
    """

    def told(name: str) -> float:
        text = httpx.get(f"{cluster.daemon.url}/metrics", timeout=60.0, trust_env=False).text
        return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(name))

    def known() -> int:
        return cluster.acknowledged(lane.topic)["sub"]

    wait_until(lambda: known() > 1000, "the daemon knows them acknowledged")
    count, begun = known(), told(COMMITS)
    # The first commit may have been under way already; without further changes there is none.
    wait_until(lambda: told(COMMITS) >= begun + 2 or not told(UNCOMMITTED), "what it knows is on its disk")
    return count


@pytest.mark.tidegate_only
def test_daemon_absent_when_the_broker_starts(make_lane: Callable[..., Lane], cluster: Cluster) -> None:
    known, late, never = make_lane(), make_lane(), make_lane()
    known_before, known_after, late_inbox, never_inbox = Inbox(), Inbox(), Inbox(), Inbox()
    known.subscribe(known_before)
    known_due = known.send_in(*[300] * 100)
    known_future = known.send_in(*[MINUTES_10_MS] * 100, *[15_000] * 100)
    known.finish_partly(known_before, known_due, left=len(known_future))

    cluster.broker.stop()
    known.disconnect()
    cluster.daemon.kill()
    cluster.start_broker()

    # Nobody answers, and nobody can know more of this one than its broker.
    never.subscribe(never_inbox)
    never_plain = never.send_in(*[None] * 50)
    never_delayed = never.send_in(*[500] * 50, *[1500] * 50)
    never_inbox.wait_for(never_plain)
    never_inbox.wait_for(never_delayed)
    # The daemon comes within the wait of the one that it knows from before.
    late.subscribe(late_inbox, kind=SHARED)
    late_plain = late.send_in(*[None] * 50)
    late_delayed = late.send_in(*[500] * 50)
    late_inbox.wait_for(late_plain)
    known.subscribe(known_after)
    assert cluster.log_has(rf"{never.topic}\b.* No daemon answers for the new subscription")
    assert not cluster.log_has(rf"({never.topic}|{known.topic})\b.* The daemon has not answered for")
    cluster.daemon.start()
    late.finish(late_inbox, late_plain + late_delayed)
    known_after.wait_for(known_future[100:])
    known.wait_stats(lambda now: now.backlog == now.delayed == 100, "the far ones are left")
    assert_exactly(known_after.arrivals, known_future[100:])
    known.not_early(known_after.arrivals)
    # And the first one goes on with it.
    more = never.send_in(*[500] * 50, *[2500] * 50, None)
    never.finish(never_inbox, never_plain + never_delayed + more)
