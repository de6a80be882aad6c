"""Lateness: percentiles of the time from due to received."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidegate.plugin.checks.deliveries import Int64


def percentiles(values: Int64, counts: Int64 | None, wanted: Sequence[float]) -> npt.NDArray[np.float64]:
    """Percentiles (0 … 100) of ``values``, each repeated ``counts`` times (None: once).

    Interpolated between two values, as in NumPy; ``values`` must not be empty. O(n log n).
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order].astype(np.float64)
    ends = np.arange(1, len(values) + 1) if counts is None else np.cumsum(counts[order])
    at = np.asarray(wanted, np.float64) / 100 * (int(ends[-1]) - 1)
    low = ordered[np.searchsorted(ends, np.floor(at), side="right")]
    high = ordered[np.searchsorted(ends, np.ceil(at), side="right")]
    result: npt.NDArray[np.float64] = low + (high - low) * (at - np.floor(at))
    return result


@dataclass(frozen=True)
class Lateness:
    """Percentiles in milliseconds; all are zero when ``count`` is."""

    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, lateness: Int64, counts: Int64 | None = None, *, per_ms: int = 1000) -> Lateness:
        """From a sample with ``per_ms`` units to a millisecond, and ``counts`` as in ``percentiles``."""
        if len(lateness) == 0:
            return cls(0, 0.0, 0.0, 0.0)
        p50, p99, top = (percentiles(lateness, counts, (50, 99, 100)) / per_ms).tolist()
        return cls(len(lateness) if counts is None else int(counts.sum()), p50, p99, top)
