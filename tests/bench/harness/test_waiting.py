"""Waiting for an answer, and for a number that stays the same."""

from __future__ import annotations

import pytest

from bench.harness.errors import DeadlineError
from bench.harness.waiting import settled, until


def test_waiting_returns_the_first_true_answer_and_names_what_did_not_come() -> None:
    answers = iter([0, 0, 7])
    assert until("seven", lambda: next(answers), timeout_s=60, interval_s=0) == 7
    with pytest.raises(DeadlineError, match="the tide"):
        until("the tide", lambda: False, timeout_s=0, interval_s=0)


def test_a_number_is_settled_when_it_stays_the_same() -> None:
    answers = iter([1, 2, 3])
    assert settled("it", lambda: next(answers, 3), timeout_s=60, quiet_s=0.3) == 3
