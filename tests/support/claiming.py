"""A topic's first claim, acknowledgements out of order, and a move, amid trouble with the metadata store."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from tests.support.inbox import Inbox, assert_exactly
from tests.support.lane import MINUTES_10_MS, Lane
from tests.support.two_brokers import TwoBrokers
from tests.support.waiting import wait_until

_MOVING_S = 8.0
_FAR = 500
_EVERY_MS = 100

Trouble = Callable[[], AbstractContextManager[object]]


def claim_and_move(
    two: TwoBrokers, lane: Lane, trouble: Trouble, *, for_s: float, moving: Trouble = contextlib.nullcontext
) -> None:
    """The first tracker of ``late`` claims its cursor amid ``trouble``; ``sub`` acknowledges out of order.

    Then the topic moves, amid ``moving`` for its first seconds.
    """
    inbox, late = Inbox(), Inbox()
    two.move(lane.topic, two.a)
    lane.subscribe(inbox)
    lane.reserve("late")
    far = lane.send_in(*[MINUTES_10_MS] * _FAR)
    two.wait_logged(two.a, lane.topic, len(far))
    near = lane.send_in(*range(500, int(for_s * 1000) + 10_000, _EVERY_MS))
    due_meanwhile = near[: int((for_s - 5) * 1000) // _EVERY_MS]
    claiming = threading.Thread(target=lambda: lane.subscribe(late, name="late"), daemon=True)
    with trouble():
        claiming.start()
        until_s = time.monotonic() + for_s
        inbox.wait_for(due_meanwhile, timeout_s=for_s)
        time.sleep(max(0.0, until_s - time.monotonic()))
    claiming.join(60)
    assert not claiming.is_alive(), "the consumer of late is there"

    lane.finish_partly(inbox, near, left=len(far))
    lane.finish_partly(late, near, left=len(far), name="late")
    two.wait_logged(two.a, lane.topic, 2 * len(far))
    lane.disconnect()
    move = threading.Thread(target=lambda: two.move(lane.topic, two.b), daemon=True)
    with moving():
        move.start()
        move.join(_MOVING_S)
    move.join(120)
    two.move(lane.topic, two.b)
    lane.admin = two.admin_of(two.b)
    after, late_after = Inbox(), Inbox()
    lane.subscribe(after)
    lane.subscribe(late_after, name="late")
    more = lane.send_in(None, 200)
    lane.finish_partly(after, more, left=len(far))
    lane.finish_partly(late_after, more, left=len(far), name="late")
    wait_until(lambda: two.held(two.b, lane.topic) == 2 * len(far), "daemon b holds the far ones of both")
    assert_exactly(inbox.arrivals, near)
