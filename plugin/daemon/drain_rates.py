"""The rate at which consumers take waiting messages, a second, at their fastest of the last day.

A minute with little due tells nothing of consumers, so the fastest one counts. Cancelled messages, which
nobody took, do not. Nothing here outlives the daemon, or an index replaced by another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tidegate.index import Clock, DelayIndex

MINUTE_NS = 60_000_000_000
HOUR_NS = 60 * MINUTE_NS
KEPT_HOURS = 24


class DrainRates:
    """The fastest minute of each hour: at most `KEPT_HOURS` + 1 numbers for each subscription with any."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._noted_ns = clock.monotonic_ns()
        self._taken: dict[DelayIndex, int] = {}
        self._fastest: dict[DelayIndex, deque[tuple[int, float]]] = {}  # hour, messages a second

    def note(self, indexes: Iterable[DelayIndex]) -> None:
        """Once a minute: note how many messages of each index consumers have taken so far. Call often.

        indexes: all present ones. The others are forgotten.
        """
        now_ns = self._clock.monotonic_ns()
        passed_ns = now_ns - self._noted_ns
        if passed_ns < MINUTE_NS:
            return
        self._noted_ns = now_ns
        hour = now_ns // HOUR_NS
        taken: dict[DelayIndex, int] = {}
        fastest: dict[DelayIndex, deque[tuple[int, float]]] = {}
        for index in indexes:
            taken[index] = index.state.taken()
            rates = self._fastest.get(index, deque())
            rate = (taken[index] - self._taken.get(index, 0)) / (passed_ns / 1e9)
            if rate > 0:
                if rates and rates[-1][0] == hour:
                    rate = max(rate, rates.pop()[1])
                rates.append((hour, rate))
            while rates and rates[0][0] < hour - KEPT_HOURS:
                rates.popleft()
            if rates:
                fastest[index] = rates
        self._taken, self._fastest = taken, fastest

    def per_second(self, indexes: Iterable[DelayIndex]) -> float | None:
        """The sum of the known rates; None without any."""
        known = [self._fastest[index] for index in indexes if index in self._fastest]
        return round(sum(max(rate for _, rate in rates) for rates in known), 3) if known else None
