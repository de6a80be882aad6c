"""Reductions of samples for tables. Pure functions.

A sample is one round's figure. Medians are used throughout: the machine has other work to do, and one
disturbed round must not decide a ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Better = Literal["lower", "higher"]


@dataclass(frozen=True)
class Spread:
    """Minimum, median and maximum of one metric's samples."""

    minimum: float
    median: float
    maximum: float
    count: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """Reduce at least one finite sample; raises ValueError otherwise."""
        if not samples:
            raise ValueError("a spread needs at least one sample")
        if not all(math.isfinite(sample) for sample in samples):
            raise ValueError(f"samples must be finite: {list(samples)}")
        return cls(min(samples), float(np.median(samples)), max(samples), len(samples))


def ratio(ours: float, peer: float, better: Better) -> float | None:
    """How many times better than the peer we are: above 1 is ahead, below 1 is behind.

    None if undefined: both are zero, or a ratio with zero would be infinite.
    """
    if ours < 0 or peer < 0:
        return None
    numerator, denominator = (peer, ours) if better == "lower" else (ours, peer)
    return None if denominator == 0 else numerator / denominator


def meets(value: float, target: float, better: Better) -> bool:
    """True if a value is on the right side of its target (the target itself passes)."""
    return value <= target if better == "lower" else value >= target


def worst(spread: Spread, better: Better) -> float:
    """The end of the spread to compare with a target."""
    return spread.maximum if better == "lower" else spread.minimum


def quantiles(values: ArrayLike, points: int = 201) -> list[float]:
    """The quantile function at ``points`` evenly spaced probabilities 0 … 1; [] without values."""
    array: NDArray[np.float64] = np.asarray(values, dtype=np.float64)
    if not array.size:
        return []
    return [round(float(value), 3) for value in np.quantile(array, np.linspace(0.0, 1.0, points))]


def format_value(value: float) -> str:
    """At most four significant figures, with thousands separated; an integer stays one."""
    if value == 0:
        return "0"
    magnitude = abs(value)
    if magnitude >= 1000 or float(value).is_integer():
        return f"{value:,.0f}"
    if magnitude >= 100:
        return f"{value:,.0f}"
    if magnitude >= 10:
        return f"{value:.1f}"
    return f"{value:.3g}"


def format_ratio(value: float | None) -> str:
    """A ratio in the form of a table: ``12×``, ``0.8×``, or ``–`` for none."""
    if value is None:
        return "–"
    if value >= 100:
        return f"{value:,.0f}×"
    return f"{value:.1f}×" if value >= 1 else f"{value:.2f}×"
