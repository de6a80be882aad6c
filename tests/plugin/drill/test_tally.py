"""What the drill waits for before it judges."""

from __future__ import annotations

import numpy as np

from tidegate.plugin.drill.clients import Tally
from tidegate.plugin.drill.plan import FAR_MS, Plan


def test_after_a_cursor_was_set_back_what_was_stored_before_is_waited_for_again() -> None:
    due_ms = np.array([10, 10, 10, FAR_MS], np.int64)
    plan = Plan(np.zeros(4, np.int64), due_ms, 0)
    tally = Tally(plan, start_us=0)
    for number in (0, 1, 3):
        tally.confirmed(number)
    tally.delivered(0, 11_000)
    assert tally.missing == 2
    tally.rewinding()
    assert tally.missing == 3, "number 0 comes again"
    for number in (0, 1, 2):
        tally.delivered(number, 12_000)
    assert tally.missing == 0
    tally.rewinding()
    assert tally.missing == 2, "number 2 was not known to be stored"
    assert (tally.received, tally.again) == (3, 1)
