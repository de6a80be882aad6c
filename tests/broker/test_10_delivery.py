"""Delayed messages come when due: never early, none lost, none twice, in order where that is promised."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import pulsar
import pytest

from tests.support.inbox import Inbox, assert_exactly
from tests.support.lane import (
    KEY_SHARED,
    LATER_MS,
    MINUTES_10_MS,
    SHARED,
    YEARS_10_MS,
    Lane,
    now_ms,
)
from tests.support.waiting import wait_until


def delays_ms(number: int, seed: int, longest_ms: int = 1500) -> list[int]:
    """Random delays in no order; the same for the same seed."""
    generator = random.Random(seed)  # noqa: S311 - a test's data, not a secret
    return [generator.randint(300, longest_ms) for _ in range(number)]


def _is_drained(lane: Lane, topic: str) -> bool:
    return lane.admin.subscription(topic, "sub").backlog == 0


def dispatched_together(uids: list[str]) -> list[list[str]]:
    """Messages due in one instant, as after a pause of the broker, come in the order of the topic."""
    rounds: list[list[str]] = []
    for uid in uids:
        if rounds and rounds[-1][-1] < uid:
            rounds[-1].append(uid)
        else:
            rounds.append([uid])
    return rounds


def test_shared(lane: Lane) -> None:
    inbox = Inbox()
    for _ in range(3):
        lane.subscribe(inbox)
    sent = lane.send_in(*delays_ms(600, seed=1))
    lane.finish(inbox, sent)
    assert len({arrival.consumer for arrival in inbox.arrivals}) == 3


def test_key_shared_keeps_the_order_of_a_key(lane: Lane) -> None:
    inboxes = [Inbox(), Inbox()]
    for inbox in inboxes:
        lane.subscribe(inbox, kind=KEY_SHARED)
    keys = [f"key-{number}" for number in range(10)]
    # All of them are read before they are due: one that is read later comes at once.
    sent = lane.send_in(*[LATER_MS] * 200, keys=keys)
    lane.wait_delayed(len(sent))
    wait_until(lambda: sum(len(inbox.uids) for inbox in inboxes) >= len(sent), "all have come")
    lane.wait_drained()
    both = [arrival for inbox in inboxes for arrival in inbox.arrivals]
    assert_exactly(both, sent)
    lane.not_early(both)
    order: dict[str, list[str]] = defaultdict(list)
    owners: dict[str, set[str]] = defaultdict(set)
    for arrival in sorted(both, key=lambda one: one.received_ns):
        order[arrival.key].append(arrival.uid)
        owners[arrival.key].add(arrival.consumer)
    assert all(uids == sorted(uids) for uids in order.values())
    assert all(len(consumers) == 1 for consumers in owners.values())


def test_several_subscriptions_each_get_everything(lane: Lane) -> None:
    inboxes = {name: Inbox() for name in ("one", "two", "three")}
    for name, inbox in inboxes.items():
        lane.subscribe(inbox, name=name, kind=KEY_SHARED if name == "three" else SHARED)
    sent = lane.send_in(*delays_ms(150, seed=2), keys=["a", "b", "c"])
    for name, inbox in inboxes.items():
        lane.finish(inbox, sent, name=name)


def test_partitioned_topic(lane: Lane) -> None:
    lane.admin.create_partitioned(lane.topic, 3)
    inbox = Inbox()
    lane.subscribe(inbox)
    sent = lane.send_in(*delays_ms(300, seed=3))
    inbox.wait_for(sent)
    for partition in range(3):
        topic = f"{lane.topic}-partition-{partition}"
        wait_until(partial(_is_drained, lane, topic), f"{topic} is drained")
    assert_exactly(inbox.arrivals, sent)
    lane.not_early(inbox.arrivals)


def test_plain_messages_do_not_wait_for_delayed_ones(lane: Lane) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    plans = [MINUTES_10_MS if number % 2 == 0 else None for number in range(200)]
    sent = lane.send_in(*plans)
    plain = [one for one in sent if one.deliver_at_ms is None]
    inbox.wait_for(plain)
    lane.wait_delayed(100)
    assert_exactly(inbox.arrivals, plain)


def test_plain_and_delayed_mixed(lane: Lane) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    lane.subscribe(inbox)
    sent = lane.send_in(*[delay if delay % 3 else None for delay in delays_ms(400, seed=4)])
    lane.finish(inbox, sent)


def test_deliver_at_in_the_past_comes_at_once(lane: Lane) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    held = lane.send_in(MINUTES_10_MS)
    sent = lane.send_in(*[-5000] * 20, *[-YEARS_10_MS] * 20, *[0] * 20)
    inbox.wait_for(sent)
    lane.wait_delayed(len(held))
    assert_exactly(inbox.arrivals, sent)


def test_deliver_at_in_10_ms(lane: Lane) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    producer = lane.producer()
    sent = [one for _ in range(50) for one in lane.send_in(10, producer=producer)]
    lane.finish(inbox, sent)


def test_deliver_at_in_10_years_stays_and_is_counted(lane: Lane) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    far = lane.send_in(*[YEARS_10_MS] * 30)
    near = lane.send_in(*[300] * 30)
    inbox.wait_for(near)
    stats = lane.wait_stats(
        lambda now: now.delayed == len(far) and now.backlog == len(far), "the far ones stay, and only these"
    )
    assert stats.index_size_bytes > 0
    assert_exactly(inbox.arrivals, near)
    lane.admin.clear_backlog(lane.topic, "sub")
    lane.wait_drained()
    again = lane.send_in(300, 400, None)
    lane.finish(inbox, near + again)


def test_equal_deliver_at_comes_in_publish_order(lane: Lane) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    # All of them are read before they are due: one that is read later comes at once.
    deliver_at_ms = now_ms() + LATER_MS
    sent = lane.send([deliver_at_ms] * 1000)
    lane.wait_delayed(len(sent))
    lane.finish(inbox, sent)
    assert inbox.uids == [one.uid for one in sent]


def test_earlier_deliver_at_comes_first(lane: Lane) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    # Published latest first, 50 ms apart: mostly longer than a dispatch takes, so that the order shows.
    sent = lane.send_in(*[LATER_MS - 50 * number for number in range(30)])
    lane.wait_delayed(len(sent))
    lane.finish(inbox, sent)
    if lane.cluster.kind.strict:
        rounds = dispatched_together(inbox.uids)
        assert all(min(before) > max(after) for before, after in pairwise(rounds)), rounds


@pytest.mark.parametrize("consumers", [1, 3])
def test_entries_over_several_ledgers(lane: Lane, consumers: int) -> None:
    inbox = Inbox()
    for _ in range(consumers):
        lane.subscribe(inbox)
    sent = lane.send_in(*delays_ms(1500, seed=5, longest_ms=2000))
    lane.finish(inbox, sent)
    ledgers = {arrival.entry[0] for arrival in inbox.arrivals}
    assert len(ledgers) >= 3


def test_a_consumer_that_comes_later_gets_what_is_due_and_the_rest_in_time(
    make_lane: Callable[..., Lane],
) -> None:
    lane = make_lane()
    lane.reserve()
    sent = lane.send_in(*[300] * 100, *[2500] * 100, *[None] * 10)
    inbox = Inbox()
    lane.subscribe(inbox)
    lane.finish(inbox, sent)


def test_exclusive_subscriptions_do_not_delay(lane: Lane) -> None:
    inbox = Inbox()
    lane.subscribe(inbox, kind=pulsar.ConsumerType.Exclusive)
    sent = lane.send_in(*[MINUTES_10_MS] * 20, None)
    inbox.wait_for(sent)
    lane.wait_drained()
    assert_exactly(inbox.arrivals, sent)
    assert inbox.uids == [one.uid for one in sent]
