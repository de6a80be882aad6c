"""The cost of a stretch of a run: counters of the cluster before and after it."""

from __future__ import annotations

import contextlib
import time
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bench.harness.errors import BenchError
from bench.takeover.place import Place
from bench.takeover.traffic import Traffic
from tidegate.plugin.shared.repeated import Repeated

_LAG_EVERY_S = 0.5


class Counters(NamedTuple):
    """The counters at one moment. Processor times are the topic owner's, in seconds since its start."""

    at_s: float
    metadata_writes: int
    bookie_bytes: float
    broker_s: float
    daemon_s: float
    confirmed: int

    @classmethod
    def of(cls, place: Place, traffic: Traffic) -> Self:
        """Their present values."""
        broker_s, daemon_s = place.processor_s()
        return cls(
            at_s=time.monotonic(),
            metadata_writes=place.stand.cluster.metadata_writes(),
            bookie_bytes=place.bookie_written(),
            broker_s=broker_s,
            daemon_s=daemon_s,
            confirmed=len(traffic.confirm_ns),
        )


def writes_a_minute(before: Counters, after: Counters) -> float:
    """Writes of the metadata store."""
    return (after.metadata_writes - before.metadata_writes) / (after.at_s - before.at_s) * 60


def publish_ms(traffic: Traffic, before: Counters, after: Counters) -> NDArray[np.float64]:
    """The duration of each confirmation in between."""
    return np.array(traffic.confirm_ns[before.confirmed : after.confirmed]) / 1e6


class LagWatch(Repeated):
    """Asks a daemon repeatedly how far its index logs are behind. A context manager."""

    def __init__(self, place: Place) -> None:
        super().__init__(self._look, _LAG_EVERY_S)
        self.longest_s = 0.0
        self._place = place
        self._node = place.owner()

    def _look(self) -> None:
        # While it is busy the next answer has its lag.
        with contextlib.suppress(BenchError):
            lag_s = self._place.counted(self._node, "tidegate_index_log_lag_seconds")
            self.longest_s = max(self.longest_s, lag_s)
