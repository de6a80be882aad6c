"""Durations as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.plugin.shared.durations import duration, in_words, milliseconds


@pytest.mark.parametrize(
    ("text", "value_ms"),
    [
        ("500ms", 500),
        ("1s", 1_000),
        ("90s", 90_000),
        ("10m", 600_000),
        (" 2 h ", 7_200_000),
        ("30d", 2_592_000_000),
        ("0s", 0),
    ],
)
def test_a_duration_is_read(text: str, value_ms: int) -> None:
    assert milliseconds(text) == value_ms


@pytest.mark.parametrize("text", ["", "10", "m", "1.5h", "-1s", "10min", "1h30m", "١s", "9" * 30 + "d"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration: .* as in 10m"):
        milliseconds(text)


@pytest.mark.parametrize(
    ("value_ms", "text"),
    [(86_400_000, "1d"), (129_600_000, "36h"), (5_400_000, "90m"), (1_500, "1500ms"), (0, "0s")],
)
def test_the_largest_unit_that_is_exact(value_ms: int, text: str) -> None:
    assert duration(value_ms) == text


@given(st.integers(0, 10**14))
def test_what_is_written_is_read(value_ms: int) -> None:
    assert milliseconds(duration(value_ms)) == value_ms


@pytest.mark.parametrize(
    ("value_ms", "text"),
    [
        (0, "0 ms"),
        (1.256, "1.26 ms"),
        (9.97, "9.97 ms"),
        (999.4, "999 ms"),
        (999.6, "1 s"),
        (-990, "-990 ms"),
        (59_990, "1 min"),
        (7_200_000, "2 h"),
        (86_400_000 * 1_234, "1,234 d"),
    ],
)
def test_a_measured_duration_has_three_digits(value_ms: float, text: str) -> None:
    assert in_words(value_ms) == text
