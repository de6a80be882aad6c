"""The parts of a start and their times: after a crash, users waiting for the daemon want the reason.

Invariant: the parts follow each other without a gap, from the start of the process until it serves brokers,
so that they add up to ``start_ms``.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from tidegate.index import Clock

_NS_PER_MS = 1_000_000
_NS_PER_S = 1_000_000_000
_STARTED_FIELD = 19
"""In ``/proc/PID/stat``, behind the name, which may hold spaces and brackets: clock ticks since the boot."""


def process_started_ns(stat: Path = Path("/proc/self/stat")) -> int | None:
    """The start of this process, by ``time.monotonic_ns``; None if unknown.

    As exact as the system's clock ticks, mostly 10 ms.
    """
    try:
        ticks = int(stat.read_bytes().rpartition(b")")[2].split()[_STARTED_FIELD])
        age_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ticks * _NS_PER_S // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
    return time.monotonic_ns() - age_ns if age_ns >= 0 else None


class StartTimes:
    """The parts of one start, told one after another."""

    def __init__(self, clock: Clock, began_ns: int | None = None) -> None:
        """``began_ns``: by the clock, when the start began; None: now."""
        self._clock = clock
        self._last_ns = clock.monotonic_ns() if began_ns is None else began_ns
        self._parts_ns: dict[str, int] = {}

    def done(self, part: str) -> None:
        """Add the time since the last call to ``part``."""
        now_ns = self._clock.monotonic_ns()
        self._parts_ns[part] = self._parts_ns.get(part, 0) + now_ns - self._last_ns
        self._last_ns = now_ns

    def fields(self) -> dict[str, int]:
        """Fields for the log: ``start_ms``, and the parts as in ``store_ms``."""
        parts = {f"{part}_ms": took_ns // _NS_PER_MS for part, took_ns in self._parts_ns.items()}
        return {"start_ms": sum(self._parts_ns.values()) // _NS_PER_MS} | parts
