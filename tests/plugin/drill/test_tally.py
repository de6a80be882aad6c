"""Live counts: what the drill waits for before it judges, and what the view shows."""

from __future__ import annotations

import numpy as np
import pytest

from tidegate.plugin.drill.plan import FAR_MS, UNDELAYED, Kind, Plan
from tidegate.plugin.drill.tally import Tally


def test_after_a_cursor_was_set_back_what_was_stored_before_is_waited_for_again() -> None:
    due_ms = np.array([10, 10, 10, FAR_MS], np.int64)
    plan = Plan(np.zeros(4, np.int64), due_ms, np.zeros(4, np.int8), 0)
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


def test_counts_while_it_runs() -> None:
    due_ms = np.array([500, 500, UNDELAYED, 99_000], np.int64)
    kind = np.array([Kind.RETRY, Kind.RETRY, Kind.PLAIN, Kind.RETRY], np.int8)
    tally = Tally(Plan(np.zeros(4, np.int64), due_ms, kind, 0), start_us=0)
    tally.confirmed(0)
    tally.begin(1_000_000)
    for number in (1, 2):
        tally.confirmed(number)
    for number, late_us in ((0, 10_000), (1, -10_000), (0, 100_000)):
        tally.delivered(number, 1_500_000 + late_us)
    tally.delivered(2, 1_001_000)
    assert (tally.sent, tally.due(2_000_000), tally.received, tally.undelayed) == (3, 2, 3, 1)
    assert (tally.delivered_due, tally.early, tally.again, tally.missing) == (2, 1, 1, 1)
    assert tally.worst_ms == [-10.0, 10.0]
    recent = tally.recent(2_000_000)
    assert recent.count == 2
    assert recent.max_ms == pytest.approx(10)
    assert tally.recent(60_000_000).count == 0
