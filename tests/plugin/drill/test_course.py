"""The course of a drill: how long is waited, and at which pace a burst is sent."""

from __future__ import annotations

import pytest

from tidegate.plugin.drill.course import faster_pace, given_up, slower_pace


def test_patience_begins_when_deliveries_are_possible_again() -> None:
    """A broker's start took 82 s on a busy machine, and the waiting messages passed for lost."""
    second = 1_000_000
    assert not given_up(90 * second, 3 * second, 10 * second, 85 * second)
    assert given_up(146 * second, 3 * second, 10 * second, 85 * second)


@pytest.mark.parametrize(
    ("share", "sent", "sends_per_s"),
    [
        (0.5, 50_000, None),
        (0.5, 41_000, None),
        (0.5, 30_000, 3_600),
        (1.0, 100_000, None),
        (1.0, 99_999, 5_999),
    ],
)
def test_a_burst_that_will_not_be_stored_in_time_is_given_a_slower_pace(
    share: float, sent: int, sends_per_s: int | None
) -> None:
    """Half-way it may be a little behind."""
    elapsed_ms = 10_000 * share
    assert slower_pace(sent, 100_000, elapsed_ms, 10_000, last=share == 1.0) == sends_per_s


def test_after_a_burst_that_was_stored_in_time_the_next_one_is_faster_up_to_the_most() -> None:
    paces = [6_000]
    while paces[-1] < 16_000:
        paces.append(faster_pace(paces[-1], 16_000))
    assert paces == [6_000, 7_500, 9_375, 11_718, 14_647, 16_000]
