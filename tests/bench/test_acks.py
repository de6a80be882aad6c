"""The bench of acknowledgements: its schedules, and what counts as repeated or lost."""

from __future__ import annotations

import numpy as np

from bench import acks
from tests.support.receipts import received


def test_a_repeat_is_what_was_acknowledged_before_the_kill_and_came_again() -> None:
    killed_at_ns = 1_000_000_000
    before = received(
        (0, 0, 1, 100_000_000),  # acknowledged, comes again
        (1, 0, 1, 950_000_000),  # acknowledged, comes again
        (2, 0, 1, 990_000_000),  # acknowledged, stays away
        (3, 0, 1, 0),  # never acknowledged, comes again
        (4, 0, 1, 1_000_000_001),  # acknowledged after the kill, comes again
    )
    after = received((0, 0, 2, 0), (1, 0, 2, 0), (3, 0, 2, 0), (4, 0, 2, 0), (5, 0, 2, 0))
    assert acks.repeats(before, after, killed_at_ns).tolist() == [900.0, 50.0]
    assert acks.lost(6, before, after) == 0
    assert acks.lost(8, before, after) == 2


def test_messages_to_acknowledge_fall_due_at_the_rate_in_random_order() -> None:
    rows = acks.kill_schedule(10_000, start_ms=5_000, seed=1)
    assert np.bincount(rows[:, 2] - 5_000).tolist() == [5] * 2_000
    assert (np.diff(rows[:, 2]) < 0).sum() > 4_000


def test_every_other_message_of_the_graceful_restart_is_far() -> None:
    rows = acks.alternate_schedule(6, soon_ms=10, far_ms=99)
    assert rows[:, 2].tolist() == [10, 99, 10, 99, 10, 99]
