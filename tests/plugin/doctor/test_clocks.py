"""Clocks whose answers have a granularity: only what the bounds exclude is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.plugin.doctor.clocks import DATE_MS, Reading, skew_finding
from tidegate.plugin.doctor.finding import Verdict

AT = 1_000_000
DAEMON = Reading(AT, AT, AT)


@pytest.mark.parametrize(
    ("told_ms", "verdict", "said"),
    [
        (AT, Verdict.OK, "0 ms apart at least"),
        (AT - DATE_MS, Verdict.OK, "0 ms"),
        (AT + 500, Verdict.OK, "499 ms"),
        (AT + 1_500, Verdict.WARNING, "at least 1.5 s ahead of"),
        (AT - 2_000, Verdict.WARNING, "at least 1.0 s behind"),
        (AT + 5_001, Verdict.FAULT, "ahead of"),
        (AT - 9_000, Verdict.FAULT, "at least 8.0 s behind"),
    ],
)
def test_the_least_skew_decides(told_ms: int, verdict: Verdict, said: str) -> None:
    found = skew_finding(DAEMON, Reading(AT, AT, told_ms, DATE_MS))
    assert found.verdict is verdict
    assert said in found.says
    assert "exact to 1 s" in found.says


@given(
    skew_ms=st.integers(-100_000, 100_000),
    waits=st.tuples(*[st.integers(0, 3_000)] * 4),
    at_ms=st.integers(10**9, 10**13),
)
def test_what_is_said_is_never_more_than_the_skew(skew_ms: int, waits: tuple[int, ...], at_ms: int) -> None:
    before, after, later, last = waits
    daemon = Reading(at_ms - before, at_ms + after, at_ms)
    told = (at_ms + later + skew_ms) // DATE_MS * DATE_MS
    broker = Reading(at_ms, at_ms + later + last, told, DATE_MS)
    low = broker.ahead_ms[0] - daemon.ahead_ms[1]
    high = broker.ahead_ms[1] - daemon.ahead_ms[0]
    assert low <= skew_ms <= high
    if skew_finding(daemon, broker).verdict is not Verdict.OK:
        assert abs(skew_ms) >= 500
