"""Messages in transactions, by themselves and within a backlog of every kind that is read ahead."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pulsar
import pytest

from tests.support.cluster import Cluster
from tests.support.cursor_moves import STORED_AFTER_S, WRITTEN_AFTER_S, Moved, Moves
from tests.support.inbox import Inbox, assert_exactly
from tests.support.keys import key_pair
from tests.support.lane import MINUTES_10_MS, OURS, Lane, now_ms
from tests.support.transactions import (
    Transaction,
    acknowledge_in_transactions,
    send_in_transactions,
    transactions_enabled,
)
from tidegate.plugin.drill.stands.admin import StandAdmin

FAR = 15_000


@pytest.fixture(scope="module", autouse=True)
def transactions(cluster: Cluster) -> Iterator[None]:
    """A broker with transactions."""
    with transactions_enabled(cluster):
        yield


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> pulsar.CryptoKeyReader:
    """A reader of the keys that encrypt and decrypt."""
    return pulsar.CryptoKeyReader(*map(str, key_pair(tmp_path_factory.mktemp("keys"))))


def test_delayed_messages_in_transactions(lane: Lane) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    committed = send_in_transactions(
        lane,
        Transaction("commit", 0, 20, 6000),
        Transaction("abort", 100, 20, 6000),
        Transaction("commit", 200, 20, 0),
        Transaction("abort", 300, 20, 0),
        Transaction("commit", 400, 20, MINUTES_10_MS),
        Transaction("abort", 500, 20, MINUTES_10_MS),
        Transaction("commit", 600, 20, 1),
    )
    far = [one for one in committed if one.deliver_at_ms and one.deliver_at_ms > now_ms() + 60_000]
    expected = [one for one in committed if one not in far]
    inbox.wait_for(expected)
    lane.wait_stats(
        lambda now: now.delayed == len(far) and now.unacknowledged == 0, "the committed far ones are delayed"
    )
    assert_exactly(inbox.arrivals, expected)
    lane.not_early(inbox.arrivals)


@pytest.mark.parametrize("end", ["unloaded", "killed"])
def test_what_is_acknowledged_beyond_a_transaction_stays_so(
    lane: Lane, cluster: Cluster, repaired: None, end: str
) -> None:
    """Messages that only an aborted one has acknowledged come. The other moves: test_36_forward_moves.py."""
    highest = 10
    ways = [(outcome, how) for outcome in ("commit", "abort") for how in ("individual", "cumulative")]
    moves = Moves(lane, [Moved(f"{outcome}-{how}", "shared", False) for outcome, how in ways])
    moves.acknowledge_every_other()
    names = [one.name for one in moves.subscriptions]
    acks = [(*way, name) for way, name in zip(ways, names, strict=True)]
    with moves.moving():
        acknowledge_in_transactions(lane, highest, *acks)
    if end == "unloaded":
        time.sleep(STORED_AFTER_S)
        moves.settle()
        lane.admin.unload(lane.topic)
    else:
        time.sleep(WRITTEN_AFTER_S)
        moves.settle()
        cluster.broker.kill()
        moves.leave()
        cluster.start_broker()
    moves.leave()
    moves.come_back()
    for one in moves.subscriptions:
        moves.check(one)
        if one.move.startswith("commit"):
            assert not [uid for uid in one.after.uids if int(uid) <= highest], one.name


@pytest.mark.tidegate_only
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
    lane.wait_read_ahead(2 * FAR + 1)
    read_ahead = int(lane.metrics(OURS)["read_ahead_entries"])
    name = "pulsar_delayed_tidegate_read_ahead_entries"
    asked = StandAdmin(lambda: lane.admin.base_url)
    assert asked.gauge(name, f"persistent://{lane.topic}") == read_ahead
    # Messages behind the open transaction stay unseen until it has timed out.
    assert_exactly(inbox.arrivals, expected)
    lane.not_early(inbox.arrivals)
