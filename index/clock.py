"""Clocks, passed in: the index never reads one of its own, so that it runs in simulation."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The two times that the index needs."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since the epoch."""
        ...

    def monotonic_ns(self) -> int:
        """A clock that never goes back, in nanoseconds, for durations."""
        ...


class SystemClock:
    """The clock of the operating system."""

    def now_ms(self) -> int:
        """See `Clock`."""
        return time.time_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        """See `Clock`."""
        return time.monotonic_ns()


class ManualClock:
    """A clock that moves only when told to; for tests and simulation."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._monotonic_ns = 0

    def now_ms(self) -> int:
        """The time as set."""
        return self._now_ms

    def monotonic_ns(self) -> int:
        """Moves with `advance` and `work` only."""
        return self._monotonic_ns

    def advance(self, by_ms: int) -> None:
        """Move both clocks forward by `by_ms` milliseconds (0 or more)."""
        if by_ms < 0:
            raise ValueError(f"a clock advances by 0 or more milliseconds, not {by_ms}")
        self._now_ms += by_ms
        self._monotonic_ns += by_ms * 1_000_000

    def work(self, took_ns: int) -> None:
        """Move the monotonic clock only, by the duration of some work; the wall clock stays."""
        self._monotonic_ns += took_ns

    def set_ms(self, now_ms: int) -> None:
        """Set the wall clock, also backward, as an administrator may."""
        self._now_ms = now_ms
