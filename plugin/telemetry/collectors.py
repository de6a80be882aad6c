"""Counters and histograms as cheap as the events they count: a hundred thousand frames a second.

Those of ``prometheus_client`` take a lock for each observation, and add a series with the creation time of
each. Invariants: one thread uses them; only the first scrape imports the library.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt
    from prometheus_client.core import Metric


class Collector(Protocol):
    """The interface that a registry of the library asks for."""

    def collect(self) -> Iterable[Metric]:
        """Called by a scrape."""
        ...


class Count:
    """A counter; the library appends ``_total`` to its name."""

    def __init__(self, name: str, documentation: str) -> None:
        self._name = name
        self._documentation = documentation
        self._count = 0.0

    def inc(self, by: float = 1) -> None:
        """Add ``by``."""
        self._count += by

    def collect(self) -> Iterable[Metric]:
        """Called by a scrape."""
        from prometheus_client.core import CounterMetricFamily  # noqa: PLC0415

        yield CounterMetricFamily(self._name, self._documentation, value=self._count)


class CountByLabel:
    """A counter with one label."""

    def __init__(self, name: str, documentation: str, label: str) -> None:
        self._name = name
        self._documentation = documentation
        self._label = label
        self._counts: dict[str, int] = {}

    def inc(self, value: str, by: int = 1) -> None:
        """Add ``by`` to the counter with this value of the label."""
        self._counts[value] = self._counts.get(value, 0) + by

    def collect(self) -> Iterable[Metric]:
        """Called by a scrape."""
        from prometheus_client.core import CounterMetricFamily  # noqa: PLC0415

        family = CounterMetricFamily(self._name, self._documentation, labels=[self._label])
        for value, count in self._counts.items():
            family.add_metric([value], count)
        yield family


class Distribution:
    """A histogram that takes single values or whole arrays: a DUE frame carries thousands."""

    def __init__(self, name: str, documentation: str, buckets: Sequence[float]) -> None:
        self._name = name
        self._documentation = documentation
        self._edges = list(buckets)
        self._counts = np.zeros(len(buckets) + 1, dtype=np.int64)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._edges, value)] += 1
        self._sum += value

    def observe_all(self, values: npt.NDArray[np.float64]) -> None:
        """Count every value of the array."""
        where = np.searchsorted(self._edges, values, side="left")
        self._counts += np.bincount(where, minlength=len(self._counts))
        self._sum += float(values.sum())

    def collect(self) -> Iterable[Metric]:
        """Called by a scrape."""
        from prometheus_client.core import HistogramMetricFamily  # noqa: PLC0415

        totals = np.cumsum(self._counts).tolist()
        bounds = [*map(str, self._edges), "+Inf"]
        yield HistogramMetricFamily(
            self._name,
            self._documentation,
            buckets=[(bound, float(total)) for bound, total in zip(bounds, totals, strict=True)],
            sum_value=self._sum,
        )
