"""The reductions that the tables are made of."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.harness.stats import Spread, format_ratio, format_value, meets, quantiles, ratio, worst

finite = st.floats(min_value=-1e9, max_value=1e9, allow_nan=False)


def test_a_spread_is_the_order_statistics_of_its_samples() -> None:
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(1.0, 2.0, 3.0, 3)
    assert Spread.of([4.0, 1.0]).median == 2.5


@given(st.lists(finite, min_size=1))
def test_a_spread_is_ordered_and_does_not_depend_on_the_order_of_the_rounds(samples: list[float]) -> None:
    spread = Spread.of(samples)
    assert spread.minimum <= spread.median <= spread.maximum
    assert Spread.of(samples[::-1]) == spread


@pytest.mark.parametrize("samples", [[], [1.0, math.nan], [math.inf]])
def test_a_spread_of_nothing_or_of_no_number_is_refused(samples: list[float]) -> None:
    with pytest.raises(ValueError, match="sample"):
        Spread.of(samples)


def test_a_ratio_above_one_means_that_we_are_ahead_whichever_way_is_better() -> None:
    assert ratio(2.0, 10.0, "lower") == 5.0
    assert ratio(10.0, 2.0, "higher") == 5.0
    assert ratio(10.0, 2.0, "lower") == 0.2


@pytest.mark.parametrize(("ours", "peer"), [(0.0, 5.0), (0.0, 0.0), (-3.0, 5.0), (5.0, -650.0)])
def test_there_is_no_ratio_to_zero_or_of_negatives(ours: float, peer: float) -> None:
    assert ratio(ours, peer, "lower") is None


@given(st.floats(min_value=1e-6, max_value=1e6), st.floats(min_value=1e-6, max_value=1e6))
def test_swapping_the_sides_inverts_the_ratio(ours: float, peer: float) -> None:
    there, back = ratio(ours, peer, "lower"), ratio(peer, ours, "lower")
    assert there is not None
    assert back is not None
    assert there * back == pytest.approx(1.0)


def test_a_target_is_held_against_the_worst_round() -> None:
    spread = Spread.of([10.0, 15.0, 25.0])
    assert worst(spread, "lower") == 25.0
    assert worst(spread, "higher") == 10.0
    assert meets(20.0, 20.0, "lower")
    assert not meets(20.1, 20.0, "lower")
    assert meets(3.0, 2.5, "higher")
    assert not meets(2.0, 2.5, "higher")


@given(st.lists(finite, min_size=1, max_size=50))
def test_quantiles_go_from_the_minimum_to_the_maximum_and_never_down(values: list[float]) -> None:
    curve = quantiles(values, points=11)
    assert len(curve) == 11
    assert curve == sorted(curve)
    assert curve[0] == pytest.approx(min(values), abs=1e-3)
    assert curve[-1] == pytest.approx(max(values), abs=1e-3)


def test_quantiles_of_nothing_are_nothing() -> None:
    assert quantiles([]) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (42.0, "42"),
        (14_999.0, "14,999"),
        (0.4187, "0.419"),
        (12.34, "12.3"),
        (-653.9, "-654"),
        (999.9, "1,000"),
    ],
)
def test_values_are_shown_with_few_figures(value: float, text: str) -> None:
    assert format_value(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0.5, "0.50×"), (2.04, "2.0×"), (123.4, "123×"), (12_345.0, "12,345×")]
)
def test_ratios_are_shown_with_few_figures(value: float | None, text: str) -> None:
    assert format_ratio(value) == text
