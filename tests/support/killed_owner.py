"""Kill -9 of a topic's broker and of the daemon beside it."""

from __future__ import annotations

from tests.support.inbox import Inbox
from tests.support.lane import Lane
from tests.support.two_brokers import TwoBrokers
from tests.support.waiting import wait_until

READ_AHEAD = 300
"""The dispatcher's reads before the daemon has answered."""
_ADDED = "tidegate_entries_added_total"
_FAR_MS = 3_600_000


def kill_owner(two: TwoBrokers, lane: Lane, *, far: int, taken_within_s: float = 60.0) -> None:
    """Broker a and its daemon die; broker b takes over ``far`` messages due in an hour, and 200 due soon.

    Acknowledged messages stay away, and only changes on their way to the log are read again.
    """
    before, inbox = Inbox(), Inbox()
    two.move(lane.topic, two.a)
    lane.subscribe(before)
    held = lane.send_in(*[_FAR_MS] * far)
    acknowledged = lane.send_in(*[500] * 500)
    before.wait_for(acknowledged)
    due = lane.send_in(*[18_000 + after for after in range(0, 4_000, 20)])
    left = len(held) + len(due)
    lane.wait_stats(lambda now: now.backlog == now.delayed == left, "the others are acknowledged")
    wait_until(lambda: two.acknowledged(two.a, lane.topic) == len(acknowledged), "daemon a knows it")
    two.wait_logged(two.a, lane.topic, left)
    added = two.counted(two.b, _ADDED)
    two.a.daemon.kill()
    two.a.broker.kill()
    lane.disconnect()
    lane.admin = two.admin_of(two.b)
    wait_until(
        lambda: two.owner(lane.topic, two.b) == two.b.broker.service_url,
        "broker b has it",
        timeout_s=taken_within_s,
    )
    lane.subscribe(inbox)
    wait_until(lambda: two.held(two.b, lane.topic) >= len(held), "daemon b holds them")
    inbox.wait_for(due)
    assert two.counted(two.b, _ADDED) - added <= READ_AHEAD
    two.a.daemon.start()
    two.a.broker.start()
    lane.finish_partly(inbox, due, left=len(held))
