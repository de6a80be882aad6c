"""Ways to reset a cursor, and a topic where that matters: the daemon knows its acknowledgements.

The first message is never acknowledged, so that the mark-delete position does not show the reset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pulsar

from tests.support.cluster import Cluster
from tests.support.inbox import Arrival, Inbox, Judge, Sent, Verdict
from tests.support.lane import Lane
from tests.support.waiting import wait_until

MESSAGES = 500


def keep_only(uid: str) -> Judge:
    """Acknowledge all but one."""

    def judge(arrival: Arrival) -> Verdict:
        return Verdict.KEEP if arrival.uid == uid else Verdict.ACK

    return judge


class ResetLane:
    """A topic with all but the first message delivered and acknowledged, as the daemon knows."""

    def __init__(self, lane: Lane, cluster: Cluster) -> None:
        self.lane = lane
        self.sent: list[Sent] = []
        self.before, self.after = Inbox(), Inbox()
        self._cluster = cluster

    def acknowledge_all_but_the_first(self) -> None:
        """Afterwards nobody is connected."""
        consumer = self.lane.subscribe(self.before, keep_only("000000"))
        self.sent = self.lane.send_in(*[200] * MESSAGES)
        self.before.wait_for(self.sent)
        self.lane.wait_stats(lambda now: now.backlog == 1, "all but one are acknowledged")
        if self._cluster.kind.strict:
            known = self._cluster.acknowledged
            wait_until(lambda: known(self.lane.topic) == {"sub": MESSAGES - 1}, "the daemon knows them")
        consumer.close()

    @property
    def first_entry(self) -> tuple[int, int]:
        """The first message's ledger and entry."""
        first = self.sent[0].uid
        return next(arrival.entry for arrival in self.before.arrivals if arrival.uid == first)

    def check(self, *, unloaded_since: bool = False) -> None:
        """Everything has come again, and once; the first one may have come before the reset, too.

        unloaded_since: a consumer was connected at an unload after the reset: messages on their way to it, or
        with their acknowledgements, come again.
        """
        self.after.wait_for(self.sent)
        self.lane.wait_drained()
        counts = Counter(set(self.after.uids) if unloaded_since else self.after.uids)
        counts[self.sent[0].uid] = 1
        assert counts == Counter(one.uid for one in self.sent)
        self.lane.not_early(self.after.arrivals)


def seek(consumer: pulsar.Consumer, to: pulsar.MessageId | int) -> None:
    """Again where Pulsar refuses it, as it meets an owner's first write of the cursor: docs/failover.md.

    A refusal lasts a moment: twice at most. The consumer connects anew after that.
    """
    refused = 0

    def done() -> bool:
        nonlocal refused
        try:
            consumer.seek(to)
        except pulsar.UnknownError:
            refused += 1
            if refused > 2:
                raise
            return False
        except pulsar.NotConnected:
            if refused == 0:
                raise
            return False
        return True

    wait_until(done, "a seek is not refused", timeout_s=10.0)


def seek_to_the_earliest(one: ResetLane) -> None:
    """By a consumer."""
    seek(one.lane.subscribe(one.after), pulsar.MessageId.earliest)


def seek_to_a_time(one: ResetLane) -> None:
    """By a consumer."""
    seek(one.lane.subscribe(one.after), 1)


def reset_to_a_time(one: ResetLane) -> None:
    """By the admin, while nobody is connected."""
    one.lane.admin.reset_to_time(one.lane.topic, "sub", 1)
    one.lane.subscribe(one.after)


def reset_to_a_position(one: ResetLane) -> None:
    """By the admin, while nobody is connected."""
    one.lane.admin.reset_to_position(one.lane.topic, "sub", one.first_entry)
    one.lane.subscribe(one.after)


RESETS: list[Callable[[ResetLane], None]] = [
    seek_to_the_earliest,
    seek_to_a_time,
    reset_to_a_time,
    reset_to_a_position,
]
