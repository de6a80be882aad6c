"""Axes of plots: round times."""

from __future__ import annotations

import pytest

from tidegate.plugin.pages.plots import milliseconds_axis, round_times, svg
from tidegate.plugin.shared.durations import in_words


@pytest.mark.parametrize(
    ("low_ms", "high_ms", "labels"),
    [
        (800, 3e9, "1 s, 10 s, 1 min, 10 min, 1 h, 10 h, 1 d, 10 d"),
        (0.5, 60, "1 ms, 2 ms, 5 ms, 10 ms, 20 ms, 50 ms"),
        (3e5, 9e5, "5 min, 10 min"),
        (-200, 9_000, "-100 ms, -10 ms, 0 ms, 10 ms, 100 ms, 1 s"),
        (2.9, 3.1, ""),
    ],
)
def test_round_times(low_ms: float, high_ms: float, labels: str) -> None:
    assert ", ".join(map(in_words, round_times(low_ms, high_ms))) == labels


def test_an_axis_has_round_times() -> None:
    def draw(axes: object) -> None:
        axes.plot([1_000, 2.6e9], [1, 2])  # type: ignore[attr-defined]
        axes.set_xscale("log")  # type: ignore[attr-defined]
        milliseconds_axis(axes.xaxis)  # type: ignore[attr-defined]

    made = svg(draw)
    assert ">1 min<" in made and ">10 h<" in made
    assert "1.67" not in made


def test_times_with_no_round_one_between_them_have_ticks_all_the_same() -> None:
    def draw(axes: object) -> None:
        axes.plot([1, 2], [24, 50])  # type: ignore[attr-defined]
        axes.set_yscale("symlog", linthresh=10)  # type: ignore[attr-defined]
        milliseconds_axis(axes.yaxis)  # type: ignore[attr-defined]

    assert ">30 ms<" in svg(draw)
