"""Many subscriptions over one connection, a load with everything in it, and what took its time meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from tests.support.inbox import Arrival, Inbox, Verdict, assert_exactly
from tests.support.lane import KEY_SHARED, MINUTES_10_MS, SHARED, Expiring, Lane
from tests.support.waiting import wait_until


def test_200_subscriptions(make_lane: Callable[..., Lane]) -> None:
    lanes = [make_lane() for _ in range(4)]
    inboxes: list[tuple[Lane, Inbox]] = []
    for lane in lanes:
        for number in range(50):
            name, inbox = f"sub-{number}", Inbox()
            lane.subscribe(inbox, name=name, kind=KEY_SHARED if number % 2 else SHARED)
            inboxes.append((lane, inbox))
    far = {lane.topic: lane.send_in(*[MINUTES_10_MS] * 5, keys=["a", "b"]) for lane in lanes}
    near = {lane.topic: lane.send_in(*[800, 1000, None] * 5, keys=["a", "b"]) for lane in lanes}
    for lane, inbox in inboxes:
        inbox.wait_for(near[lane.topic])
        assert_exactly(inbox.arrivals, near[lane.topic])
        lane.not_early(inbox.arrivals)
    for lane in lanes:
        wait_until(
            partial(_all_hold, lane, len(far[lane.topic])),
            "every subscription holds its far messages, and only these",
        )


def _all_hold(lane: Lane, number: int) -> bool:
    subscriptions = lane.admin.stats(lane.topic)["subscriptions"].values()
    return all(one["msgDelayed"] == number == one["msgBacklog"] for one in subscriptions)


def test_a_mixed_load_is_delivered_exactly_once(make_lane: Callable[..., Lane]) -> None:
    generator = random.Random(7)  # noqa: S311 - a test's data, not a secret
    lane, inbox = make_lane(), Inbox()
    # Consumers that take few at once: the dispatcher must stop and go on for want of permits.
    for _ in range(3):
        lane.subscribe(inbox, receiver_queue_size=20)
    delays = [generator.choice([None, 10, generator.randint(300, 3000), 1500]) for _ in range(8000)]
    sent = lane.send_in(*delays)
    inbox.wait_for(sent)
    lane.finish(inbox, sent)


def test_a_mixed_load_with_some_refused(make_lane: Callable[..., Lane]) -> None:
    generator = random.Random(8)  # noqa: S311 - a test's data, not a secret
    lane, inbox = make_lane(), Inbox()

    # Remembered here: Pulsar's dispatcher now and then counts a redelivery late.
    refused: set[str] = set()

    def judge(arrival: Arrival) -> Verdict:
        if int(arrival.uid) % 10 or arrival.uid in refused:
            return Verdict.ACK
        refused.add(arrival.uid)
        return Verdict.NACK

    for _ in range(2):
        lane.subscribe(inbox, judge, negative_ack_redelivery_delay_ms=100, receiver_queue_size=50)
    sent = lane.send_in(*[generator.choice([None, generator.randint(300, 2000)]) for _ in range(2000)])
    again = [one for one in sent if int(one.uid) % 10 == 0]
    inbox.wait_for(sent)
    inbox.wait_for(again, times=2)
    lane.wait_drained()
    assert sorted(inbox.uids) == sorted(one.uid for one in sent + again)
    lane.not_early(inbox.arrivals)


def test_time_to_live_of_the_namespace(expiring: Expiring) -> None:
    lane = expiring.lane
    strict = lane.cluster.kind.strict
    # Pulsar's own trackers count what has expired as delayed until it would have been due.
    lane.wait_stats(
        lambda now: now.backlog == 0 and (now.delayed == 0 or not strict), "all has expired", timeout_s=130
    )
    assert expiring.inbox.arrivals == []
