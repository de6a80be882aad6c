"""A backlog that no index has is read ahead of the dispatcher, which gets all that is not simply delayed."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.cluster import RETAINED, Cluster
from tests.support.heap import live_objects
from tests.support.inbox import Inbox
from tests.support.lane import MINUTES_10_MS, Lane
from tests.support.waiting import wait_until

pytestmark = pytest.mark.tidegate_only

FAR = 15_000


@pytest.mark.usefixtures("repaired")
def test_an_index_that_was_lost_is_made_again(lane: Lane, cluster: Cluster) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    delays = [MINUTES_10_MS] * FAR
    delays[::50] = [200] * len(delays[::50])
    sent = lane.send_in(*delays)
    done, left = sent[::50], FAR - len(sent[::50])
    lane.finish_partly(inbox, done, left=left)
    cluster.daemon.kill()
    shutil.rmtree(cluster.daemon.data_dir)
    cluster.daemon.start()
    lane.wait_read_ahead(FAR // 2)
    assert cluster.told_lost(lane.topic) == left, "and the broker's log says so"
    done += lane.send_in(*[100] * 20, None)
    lane.finish_partly(inbox, done, left=left)


def test_a_topic_that_is_moved_sought_and_deleted_meanwhile(make_lane: Callable[..., Lane]) -> None:
    lane = make_lane(RETAINED)
    lane.reserve("sub", "other")
    due = lane.send_in(*[100] * 100)
    lane.send_in(*[MINUTES_10_MS] * FAR)
    due += lane.send_in(*[100] * 100)
    other, inbox = Inbox(), Inbox()
    consumer = lane.subscribe(other, name="other")
    other.wait_for(due[:1])
    consumer.close()
    lane.admin.delete_subscription(lane.topic, "other")

    lane.subscribe(inbox)
    inbox.wait_for(due[:1])
    lane.admin.unload(lane.topic)
    inbox.wait_for(due)
    # A client holds acknowledgements back and sends them after a reset, too: those messages do not come then.
    lane.wait_stats(lambda now: now.backlog == FAR, "what has come is acknowledged")
    first = min(arrival.entry for arrival in inbox.arrivals)
    lane.admin.reset_to_position(lane.topic, "sub", first)
    inbox.wait_for(due, times=2)
    lane.wait_stats(lambda now: now.backlog == now.delayed == FAR, "all but the far ones have come")
    came = Counter(arrival.uid for arrival in inbox.arrivals)
    assert came.keys() == {one.uid for one in due}
    lane.not_early(inbox.arrivals + other.arrivals)


def test_what_is_sent_and_acknowledged_meanwhile(lane: Lane) -> None:
    lane.reserve()
    lane.send_in(*[MINUTES_10_MS] * FAR)
    inbox = Inbox()
    producer = lane.producer()
    with ThreadPoolExecutor() as pool:
        sending = pool.submit(lane.send_in, *[None, MINUTES_10_MS, 100] * 2_000, producer=producer)
        lane.subscribe(inbox)
        sent = sending.result()
    lane.finish_partly(inbox, sent[::3] + sent[2::3], left=FAR + 2_000)
    lane.wait_read_ahead(FAR // 2)


def test_what_is_skipped_and_trimmed(lane: Lane) -> None:
    lane.reserve()
    lane.send_in(*[MINUTES_10_MS] * FAR)
    first_ledger = lane.admin.internal_stats(lane.topic)["ledgers"][0]["ledgerId"]
    skipped = FAR * 2 // 3
    inbox = Inbox()
    lane.subscribe(inbox)
    # Not before: while the tracker claims the subscription, Pulsar may refuse to write the cursor once.
    lane.wait_claimed()
    lane.admin.skip(lane.topic, "sub", skipped)
    # Pulsar writes a cursor at most once in ten seconds. A skip sooner after the claim is written, and counts
    # for trimming, at Pulsar's next flush of its cursors: once a minute.
    lane.admin.trim(lane.topic)
    wait_until(
        lambda: lane.admin.internal_stats(lane.topic)["ledgers"][0]["ledgerId"] > first_ledger,
        "ledgers are trimmed",
        timeout_s=150,
    )
    due = lane.send_in(*[100] * 20)
    lane.finish_partly(inbox, due, left=FAR - skipped)


def test_many_subscriptions_at_once_and_nothing_stays_of_them(lane: Lane, cluster: Cluster) -> None:
    names = [f"sub-{number}" for number in range(6)]
    lane.reserve(*names)
    far = lane.send_in(*[MINUTES_10_MS] * (FAR // 3))
    due = lane.send_in(*[100] * 20)
    inboxes = {name: Inbox() for name in names}
    for name, inbox in inboxes.items():
        lane.subscribe(inbox, name=name)
    for name, inbox in inboxes.items():
        lane.finish_partly(inbox, due, left=len(far), name=name)
    kinds = ["TrackerCore", "LedgerReader"]
    during = live_objects(cluster.broker.pid, "tidegate.pulsar")
    assert all(during[kind] >= len(names) for kind in kinds), f"{during} lacks {kinds}"
    lane.close()

    def gone() -> bool:
        after = live_objects(cluster.broker.pid, "tidegate.pulsar")
        # A tracker of a topic before this one may go meanwhile, too.
        return after["ScanPass"] == 0 and all(after[kind] <= during[kind] - len(names) for kind in kinds)

    wait_until(gone, f"all that the broker's memory had of the topic is gone; it was {during}")
