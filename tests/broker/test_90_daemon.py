"""The daemon stops, is killed, hangs or loses its data while the broker runs."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pulsar
import pytest

from tests.support.cluster import RETAINED, Cluster
from tests.support.impostor import Impostor
from tests.support.inbox import Arrival, Inbox, Sent, Verdict, assert_exactly, keep_all
from tests.support.lane import LATER_MS, MINUTES_10_MS, Lane
from tests.support.resetting import ResetLane

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
    lane.finish_partly(inbox, sent, left=len(far))


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
    held = lane.send_in(*[LATER_MS] * 200, *[MINUTES_10_MS] * 200)
    lane.wait_delayed(len(held))
    lane.wait_claimed()
    assert cluster.daemon.stop() == 0
    while_away = lane.send_in(*[None] * 20, *[500] * 50, *[4000] * 50)
    inbox.wait_for(while_away[:70])
    cluster.daemon.start()
    lane.finish_partly(inbox, held[:200] + while_away, left=200)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_a_process_of_another_user_listens_where_the_daemon_did(lane: Lane, cluster: Cluster) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    held = lane.send_in(*[LATER_MS] * 100)
    lane.wait_indexed(len(held))
    assert cluster.daemon.stop() == 0
    with Impostor(cluster.daemon.socket_path) as impostor:
        assert [impostor.next_told(), impostor.next_told()] == ["b''", "b''"], "it is told nothing"
    log = cluster.broker.log_path.read_text(encoding="utf-8", errors="replace")
    assert log.count("is not the Tidegate daemon: the process there is of the user nobody") == 1
    cluster.daemon.start()
    lane.finish(inbox, held)


def keep_plain(arrival: Arrival) -> Verdict:
    """Acknowledge what had a delivery time, keep the rest in hand."""
    return Verdict.KEEP if arrival.deliver_at_ms is None else Verdict.ACK


def test_daemon_data_wiped_while_the_broker_runs(lane: Lane, cluster: Cluster) -> None:
    """Lost entries are read again, and no others: consumers stay, and keep the messages in their hands."""
    before, after = Inbox(), Inbox()
    consumer = lane.subscribe(before, keep_plain)
    # Further away than the horizon: the broker leaves these to the daemon.
    held = lane.send_in(*[8000] * 500, *[MINUTES_10_MS] * 500)
    done, in_hand = lane.send_in(*[300] * 100), lane.send_in(*[None] * 20)
    before.wait_for(done + in_hand)
    # Entries that are not durable yet would be sent again, and not be lost.
    lane.wait_indexed(len(held))
    cluster.daemon.kill()
    shutil.rmtree(cluster.daemon.data_dir)
    cluster.daemon.start()
    before.wait_for(held[:500])
    lane.wait_delayed(500)
    assert 500 <= cluster.told_lost(lane.topic) <= len(held), "and the broker's log says so"
    assert_exactly(before.arrivals, done + in_hand + held[:500])
    lane.not_early(before.arrivals)

    consumer.close()
    lane.subscribe(after)
    fresh = lane.send_in(*[500] * 20, *[2500] * 20)
    lane.finish_partly(after, in_hand + fresh, left=500)


def test_daemon_starts_on_an_old_copy_of_its_data(lane: Lane, cluster: Cluster, tmp_path: Path) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    far = lane.send_in(*[MINUTES_10_MS] * 300)
    soon, later = lane.send_in(*[1000] * 300), lane.send_in(*[28_000] * 300)
    lane.wait_delayed(len(far) + len(later))
    cluster.daemon.stop()
    shutil.copytree(cluster.daemon.data_dir, tmp_path / "copy")
    cluster.daemon.start()
    # The copy knows neither these messages nor that those it holds have come and are acknowledged.
    unknown_far, unknown = lane.send_in(*[MINUTES_10_MS] * 200), lane.send_in(*[500] * 200, *[28_000] * 200)
    inbox.wait_for(soon + unknown[:200])
    lane.wait_delayed(len(far) + len(unknown_far) + len(later) + 200)

    cluster.daemon.stop()
    shutil.rmtree(cluster.daemon.data_dir)
    shutil.copytree(tmp_path / "copy", cluster.daemon.data_dir)
    cluster.daemon.start()
    newest = lane.send_in(*[500] * 100, None)
    lane.finish_partly(inbox, soon + later + unknown + newest, left=len(far) + len(unknown_far))


def test_daemon_loses_the_part_of_its_log_in_which_the_cursor_was_reset(
    make_lane: Callable[..., Lane], cluster: Cluster
) -> None:
    """The rest of the log knows the acknowledgements, and not that a reset revoked them."""
    one = ResetLane(make_lane(RETAINED), cluster)
    one.acknowledge_all_but_the_first()
    sizes = {log: log.stat().st_size for log in cluster.daemon.data_dir.glob("*.log")}
    one.lane.admin.unload(one.lane.topic)
    in_between = Inbox()
    consumer = one.lane.subscribe(in_between, keep_all, receiver_queue_size=len(one.sent))
    consumer.seek(pulsar.MessageId.earliest)
    in_between.wait_for(one.sent)
    consumer.close()

    cluster.daemon.kill()
    for log, size in sizes.items():
        assert log.stat().st_size > size, "nothing was written since"
        os.truncate(log, size)
    cluster.daemon.start()
    one.lane.subscribe(one.after)
    one.check()
    assert "had been reported durable" in cluster.daemon.log_path.read_text(encoding="utf-8")


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


def test_cursors_are_moved_while_the_daemon_is_away(make_lane: Callable[..., Lane], cluster: Cluster) -> None:
    cleared, removed, unloaded, sought = make_lane(), make_lane(), make_lane(), make_lane(RETAINED)
    lanes = [cleared, removed, unloaded, sought]
    inboxes = {lane.topic: Inbox() for lane in lanes}
    consumers = {lane.topic: lane.subscribe(inboxes[lane.topic]) for lane in lanes}
    done = {lane.topic: lane.send_in(*[300] * 50) for lane in lanes}
    # Further away than the horizon: the broker leaves these to the daemon.
    held = {lane.topic: lane.send_in(*[22_000] * 100) for lane in lanes}
    for lane in lanes:
        lane.finish_partly(inboxes[lane.topic], done[lane.topic], left=100)

    cluster.daemon.kill()
    cleared.admin.clear_backlog(cleared.topic, "sub")
    cleared.wait_stats(lambda now: now.backlog == 0, "nothing is left")
    consumers[removed.topic].close()
    removed.admin.delete_subscription(removed.topic, "sub")
    removed_inbox = Inbox()
    removed.subscribe(removed_inbox)
    unloaded.admin.unload(unloaded.topic)
    consumers[sought.topic].seek(pulsar.MessageId.earliest)
    fresh = {lane.topic: lane.send_in(*[1000] * 20, None) for lane in lanes}
    cluster.daemon.start()

    def expected(lane: Lane) -> list[Sent]:
        return done[lane.topic] + held[lane.topic] + fresh[lane.topic]

    cleared.finish(inboxes[cleared.topic], done[cleared.topic] + fresh[cleared.topic])
    unloaded.finish(inboxes[unloaded.topic], expected(unloaded))
    again = expected(sought)
    inboxes[sought.topic].wait_for(done[sought.topic], times=2)
    inboxes[sought.topic].wait_for(again)
    sought.wait_drained()
    assert Counter(inboxes[sought.topic].uids) == Counter(one.uid for one in again + done[sought.topic])
    # Acknowledged messages may be gone from the topic, the others come to the new subscription.
    removed_inbox.wait_for(held[removed.topic] + fresh[removed.topic])
    removed.wait_drained()
    assert max(Counter(removed_inbox.uids).values()) == 1
    removed.not_early(removed_inbox.arrivals)
