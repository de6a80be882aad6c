"""A stuck consumer stops no other: their due messages come before it moves.

Pulsar 4.0's Key_Shared dispatcher looks ahead after a replay that nobody could take, and waits at the topic's
end while more is due (apache/pulsar#26236). 15 of 16 messages are for the stuck consumer, so most batches of
ten have none for the free one: with a second's pause for each, the bound below is far away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pulsar
import pytest

from tests.support.inbox import Arrival, Inbox, Judge, Sent, Verdict, ack_all, assert_exactly, keep_all
from tests.support.lane import KEY_SHARED, Lane, now_ms
from tests.support.waiting import wait_until

PROBES = [f"k{number}" for number in range(64)]
ROUNDS = 30
"""Messages for the free consumer."""
DELAY_MS = 2500
BEFORE_IT_MOVES_S = 30.0
"""No speed: one pause of a later look for each batch would be several minutes."""

pytestmark = pytest.mark.tidegate_only


class Pair:
    """Two consumers of one Key_Shared subscription, one of which gets stuck."""

    def __init__(
        self,
        lane: Lane,
        judge: Judge = ack_all,
        *,
        queue: int = 10,
        stuck: dict[str, Any] | None = None,
        free: dict[str, Any] | None = None,
    ) -> None:
        self.lane = lane
        self.of_stuck, self.of_free = Inbox(), Inbox()
        probing = True

        def judge_later(arrival: Arrival) -> Verdict:
            return ack_all(arrival) if probing else judge(arrival)

        self.stuck = lane.subscribe(
            self.of_stuck,
            judge_later,
            kind=KEY_SHARED,
            receiver_queue_size=queue,
            **(stuck or {}),
        )
        self.free = lane.subscribe(self.of_free, kind=KEY_SHARED, receiver_queue_size=10, **(free or {}))
        self.probes = lane.send([None] * len(PROBES), keys=PROBES)
        both = {one.uid for one in self.probes}
        wait_until(lambda: both <= {*self.of_stuck.uids, *self.of_free.uids}, "all keys have a consumer")
        probing = False
        stuck_keys = [arrival.key for arrival in self.of_stuck.arrivals]
        free_key = self.of_free.arrivals[0].key
        assert len(stuck_keys) >= 15, "the hashes are shared by halves"
        self.keys = [*stuck_keys[:15], free_key]

    def send(self, delay_ms: int = DELAY_MS) -> tuple[list[Sent], list[Sent]]:
        """Messages due together; all of them, and those for the free consumer."""
        due_ms = now_ms() + delay_ms
        sent = self.lane.send([due_ms] * (16 * ROUNDS), keys=self.keys)
        return sent, [one for one in sent if one.key == self.keys[-1]]

    def expect_free(self, mine: list[Sent]) -> None:
        """The free consumer gets all of its own while the stuck one gets nothing more."""
        before = len(self.of_stuck.arrivals)
        self.of_free.wait_for(mine, timeout_s=BEFORE_IT_MOVES_S)
        assert len(self.of_stuck.arrivals) == before, "the stuck consumer has moved"

    def finish(self, sent: list[Sent]) -> None:
        """Everything comes, once, to either consumer."""
        uids = {one.uid for one in sent}
        wait_until(lambda: uids <= {*self.of_stuck.uids, *self.of_free.uids}, "all have come")
        self.lane.wait_drained()
        arrivals = self.of_stuck.arrivals + self.of_free.arrivals
        assert_exactly(arrivals, [*self.probes, *sent])
        self.lane.not_early(arrivals)


def paused(pair: Pair) -> None:
    """One consumer pauses before anything is due, and goes on when the other has all of its own."""
    pair.stuck.pause_message_listener()
    sent, mine = pair.send()
    pair.expect_free(mine)
    pair.stuck.resume_message_listener()
    pair.finish(sent)


def sticky(*ranges: tuple[int, int]) -> dict[str, Any]:
    """The options of a consumer of these hashes."""
    return {
        "key_shared_policy": pulsar.ConsumerKeySharedPolicy(
            key_shared_mode=pulsar.KeySharedMode.Sticky, sticky_ranges=list(ranges)
        )
    }


def set_policy(lane: Lane, name: str, value: object) -> None:
    """A policy of the lane's topic, until it holds."""
    path = f"/persistent/{lane.topic}/{name}"
    lane.admin.call("POST", path, value)
    wait_until(lambda: lane.admin.call("GET", f"{path}?applied=true") is not None, f"{name} is applied")


def rate(messages: int) -> dict[str, object]:
    """So many messages a second."""
    return {
        "dispatchThrottlingRateInMsg": messages,
        "dispatchThrottlingRateInByte": -1,
        "ratePeriodInSecond": 1,
        "relativeToPublishRate": False,
    }


def test_a_paused_consumer(lane: Lane) -> None:
    paused(Pair(lane))


def test_sticky_ranges(lane: Lane) -> None:
    paused(Pair(lane, stuck=sticky((0, 40_000)), free=sticky((40_001, 65_535))))


def test_a_range_that_its_consumer_has_left(lane: Lane) -> None:
    pair = Pair(lane, stuck=sticky((0, 40_000)), free=sticky((40_001, 65_535)))
    pair.stuck.close()
    sent, mine = pair.send()
    pair.expect_free(mine)
    lane.subscribe(pair.of_stuck, kind=KEY_SHARED, **sticky((0, 40_000)))
    pair.finish(sent)


def test_a_consumer_that_leaves(lane: Lane) -> None:
    pair = Pair(lane)
    pair.stuck.pause_message_listener()
    sent, mine = pair.send()
    pair.expect_free(mine)
    pair.stuck.close()
    pair.of_free.wait_for(sent, timeout_s=BEFORE_IT_MOVES_S)
    pair.finish(sent)


def test_hashes_that_drain(lane: Lane) -> None:
    """One joins while the stuck one has its messages: only those of the same key wait for that."""
    pair = Pair(lane)
    pair.stuck.pause_message_listener()
    held = lane.send([None] * 5, keys=pair.keys[:5])
    lane.wait_stats(lambda now: now.unacknowledged == len(held), "the stuck consumer holds five")
    lane.subscribe(pair.of_free, kind=KEY_SHARED, receiver_queue_size=10, consumer_name="late")
    sent, mine = pair.send()
    pair.of_free.wait_for(mine, timeout_s=BEFORE_IT_MOVES_S)
    pair.stuck.resume_message_listener()
    pair.finish([*held, *sent])


def test_unacknowledged_messages_of_a_consumer(lane: Lane) -> None:
    lane.reserve()
    set_policy(lane, "maxUnackedMessagesOnConsumer", 10)
    pair = Pair(lane, keep_all, queue=100)
    sent, mine = pair.send()
    pair.of_free.wait_for(mine, timeout_s=BEFORE_IT_MOVES_S)
    kept = {arrival.uid for arrival in pair.of_stuck.arrivals} - {one.uid for one in pair.probes}
    assert 0 < len(kept) <= 20, "the limit holds, give or take a batch"
    pair.stuck.close()
    pair.of_free.wait_for(sent, timeout_s=BEFORE_IT_MOVES_S)
    lane.wait_drained()


def test_unacknowledged_messages_of_a_subscription(lane: Lane) -> None:
    lane.reserve()
    set_policy(lane, "maxUnackedMessagesOnSubscription", 20)
    paused(Pair(lane, queue=30))


@pytest.mark.parametrize("policy", ["subscriptionDispatchRate", "dispatchRate"])
def test_dispatch_throttling(lane: Lane, policy: str) -> None:
    lane.reserve()
    set_policy(lane, policy, rate(400))
    paused(Pair(lane))


def test_a_plain_shared_subscription(make_lane: Callable[..., Lane]) -> None:
    """Without keys the other consumer takes all messages beyond the paused one's permits."""
    lane = make_lane()
    of_stuck, of_free = Inbox(), Inbox()
    stuck = lane.subscribe(of_stuck, receiver_queue_size=10)
    lane.subscribe(of_free, receiver_queue_size=10)
    stuck.pause_message_listener()
    sent = lane.send_in(*[DELAY_MS] * 200)
    wait_until(lambda: len(of_free.arrivals) >= len(sent) - 20, "the free one has what the stuck one has not")
    assert not of_stuck.arrivals
    stuck.resume_message_listener()
    wait_until(lambda: len(of_stuck.arrivals) + len(of_free.arrivals) >= len(sent), "all have come")
    lane.wait_drained()
    assert_exactly(of_stuck.arrivals + of_free.arrivals, sent)
