"""The bench of failovers: its schedule."""

from __future__ import annotations

from bench import failover


def test_the_due_messages_of_a_failover_follow_the_far_ones() -> None:
    rows = failover.due_schedule(first_sequence=500, deliver_at_ms=77)
    assert rows[:, 0].tolist() == list(range(500, 500 + failover.DUE))
    assert set(rows[:, 2].tolist()) == {77}
