"""A fill at full speed keeps notes for the bench `takeover`."""

from __future__ import annotations

import numpy as np

from bench.takeover import backlog, flood

SOON_MS = 1_000_000


def test_what_was_confirmed_by_a_moment_is_what_was_noted_last() -> None:
    notes = np.array([[100, 1], [200, 120], [300, 250]], np.int64)
    assert [flood.confirmed_by(notes, at_ns) for at_ns in (99, 100, 250, 300, 999)] == [0, 1, 120, 250, 250]
    assert flood.confirmed_by(notes[:0], 999) == 0


def test_every_fiftieth_is_due_soon_and_only_the_confirmed_are_waited_for() -> None:
    due = flood.soon(101, SOON_MS)
    assert list(due) == [flood.FIRST, flood.FIRST + 50, flood.FIRST + 100]
    assert all(SOON_MS <= at_ms < SOON_MS + backlog.SPREAD_MS for at_ms in due.values())
    assert len(flood.soon(100, SOON_MS)) == 2
    later = [flood.deliver_at_ms(place, SOON_MS) for place in range(1_000) if place % flood.SOON_EVERY]
    assert min(later) >= SOON_MS + backlog.FAR_MS[0]
    assert max(later) < SOON_MS + backlog.FAR_MS[1]
