"""Waiting for an answer, and for a number that stays the same."""

from __future__ import annotations

import pytest

from bench.harness.errors import DeadlineError
from bench.harness.waiting import at_least, settled, until


def test_waiting_returns_the_first_true_answer_and_names_what_did_not_come() -> None:
    answers = iter([0, 0, 7])
    assert until("seven", lambda: next(answers), timeout_s=60, interval_s=0) == 7
    with pytest.raises(DeadlineError, match="the tide"):
        until("the tide", lambda: False, timeout_s=0, interval_s=0)


def test_a_number_is_settled_when_it_stays_the_same() -> None:
    answers = iter([1, 2, 3])
    assert settled("it", lambda: next(answers, 3), timeout_s=60, quiet_s=0.3) == 3


def test_what_is_wanted_may_fall_while_it_is_waited_for() -> None:
    """A tracker that is behind when the sample becomes due never has what was wanted at first."""
    held, wanted = iter([7, 8, 8]), iter([10, 9, 8])
    at_least("the backlog", lambda: next(held), lambda: next(wanted), 1.0, interval_s=0.0)
    with pytest.raises(DeadlineError, match=r"waited 0 s for the backlog, in vain"):
        at_least("the backlog", lambda: 7, lambda: 8, 0.01, interval_s=0.001)
