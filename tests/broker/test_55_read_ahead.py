"""A backlog that no index has is read ahead of the dispatcher, which gets all that is not simply delayed."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pulsar
import pytest

from tests.support.cluster import RETAINED, Cluster
from tests.support.heap import live_objects
from tests.support.inbox import Inbox, assert_exactly
from tests.support.keys import key_pair
from tests.support.lane import MINUTES_10_MS, OURS, Lane
from tests.support.transactions import Transaction, send_in_transactions
from tests.support.waiting import wait_until
from tidegate.plugin.drill.stands.admin import StandAdmin

pytestmark = pytest.mark.tidegate_only

FAR = 15_000


def wait_read_ahead(lane: Lane, at_least: int) -> None:
    """Wait until the tracker has taken so many entries that were read ahead."""
    wait_until(
        lambda: lane.metrics(OURS).get("read_ahead_entries", 0.0) >= at_least,
        f"{at_least} entries were read ahead",
    )


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> pulsar.CryptoKeyReader:
    """What encrypts and decrypts."""
    return pulsar.CryptoKeyReader(*map(str, key_pair(tmp_path_factory.mktemp("keys"))))


def test_the_first_consumer_of_a_backlog(lane: Lane, keys: pulsar.CryptoKeyReader) -> None:
    lane.reserve()
    lane.send_in(*[MINUTES_10_MS] * FAR)
    packed = lane.producer(compression_type=pulsar.CompressionType.LZ4)
    lane.send_in(*[MINUTES_10_MS] * FAR, producer=packed)
    encrypting = lane.producer(encryption_key="key", crypto_key_reader=keys)
    lane.send_in(*[MINUTES_10_MS] * FAR, producer=encrypting)
    batching = lane.producer(batching_enabled=True, batching_max_messages=20)
    expected = lane.send_in(*[None] * 100, producer=batching)
    expected += lane.send_in(*[100] * 200)
    expected += lane.send_in(*[100, None] * 20, producer=encrypting)
    expected += send_in_transactions(
        lane,
        Transaction("commit", 100_000, 20, 1),
        Transaction("abort", 100_100, 20, 1),
        Transaction("commit", 100_200, 20, 0),
        Transaction("abort", 100_300, 20, MINUTES_10_MS),
    )
    committed = send_in_transactions(
        lane,
        Transaction("commit", 200_000, 20, MINUTES_10_MS),
        Transaction("open", 200_100, 20, MINUTES_10_MS),
    )
    lane.send_in(None, 1)
    inbox = Inbox()
    lane.subscribe(inbox, crypto_key_reader=keys)
    inbox.wait_for(expected)
    lane.wait_delayed(3 * FAR + len(committed))
    # More than any two of the three kinds: some of each.
    wait_read_ahead(lane, 2 * FAR + 1)
    read_ahead = int(lane.metrics(OURS)["read_ahead_entries"])
    asked = StandAdmin(lambda: lane.admin.base_url)
    try:
        name = "pulsar_delayed_tidegate_read_ahead_entries"
        assert asked.gauge(name, f"persistent://{lane.topic}") == read_ahead
    finally:
        asked.close()
    # What is behind the open transaction is not to be seen before that has timed out.
    assert_exactly(inbox.arrivals, expected)
    lane.not_early(inbox.arrivals)


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
    wait_read_ahead(lane, FAR // 2)
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
    wait_read_ahead(lane, FAR // 2)


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
    lane.admin.trim(lane.topic)
    wait_until(
        lambda: lane.admin.internal_stats(lane.topic)["ledgers"][0]["ledgerId"] > first_ledger,
        "ledgers are trimmed",
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
    during = live_objects(cluster.broker.pid, "tidegate.pulsar.")
    lane.close()

    def gone() -> bool:
        after = live_objects(cluster.broker.pid, "tidegate.pulsar.")
        # A tracker of a topic before this one may go meanwhile, too.
        return after["ScanPass"] == 0 and all(after[kind] <= during[kind] - len(names) for kind in kinds)

    wait_until(gone, f"all that the broker's memory had of the topic is gone; it was {during}")
