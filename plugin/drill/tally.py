"""Live counts of a round, for the view and for the course."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

import numpy as np

from tidegate.plugin.drill.plan import Plan

RECENT_US = 5_000_000
BUCKET_US = 500_000


@dataclass(frozen=True)
class Recent:
    """Lateness of the messages of the last ``RECENT_US``, in milliseconds; zeros without any."""

    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float


class Tally:
    """Any thread may call every method. The plan's times count from the last ``begin``.

    ``worst_ms``: the latest receipt in each ``BUCKET_US`` since the start, None without one.
    """

    def __init__(self, plan: Plan, start_us: int) -> None:
        self._plan = plan
        self._expected = bytes(plan.expected)
        self._seen = bytearray(len(plan))
        self._confirmed = bytearray(len(plan))
        self._again = bytearray(len(plan))
        self._missing = sum(self._expected)
        self._recent: deque[tuple[int, int]] = deque()
        self._lock = threading.Lock()
        self.sent = self.received = self.undelayed = self.early = self.again = self.receipts = 0
        self.worst_ms: list[float | None] = []
        self.begin(start_us)

    def begin(self, start_us: int) -> None:
        """The round starts at ``start_us``; messages may have been sent before."""
        plan = self._plan
        self._start_us = self.last_us = start_us
        self._due_us = start_us + plan.due_ms * 1000
        self._due_order = np.sort(self._due_us[plan.expected & plan.delayed])

    def confirmed(self, number: int) -> bool:
        """Note that the broker has stored message ``number``; True if that is news."""
        with self._lock:
            if self._confirmed[number]:
                return False
            self._confirmed[number] = 1
            self.sent += 1
            return True

    def is_confirmed(self, number: int) -> bool:
        """True if the broker has stored message ``number``."""
        return bool(self._confirmed[number])

    def delivered(self, number: int, at_us: int) -> None:
        """Note that a consumer received message ``number``."""
        with self._lock:
            self.receipts += 1
            self.last_us = at_us
            if self._expected[number] and (not self._seen[number] or self._again[number]):
                self._missing -= 1
            self._again[number] = 0
            if self._seen[number]:
                self.again += 1
                return
            self._seen[number] = 1
            self.received += 1
            if not self._plan.delayed.item(number):
                self.undelayed += 1
                return
            late_us = at_us - self._due_us.item(number)
            self.early += late_us < 0
            self._recent.append((at_us, late_us))
            self._forget(at_us)
            bucket = max((at_us - self._start_us) // BUCKET_US, 0)
            self.worst_ms.extend([None] * (bucket + 1 - len(self.worst_ms)))
            worst_ms = self.worst_ms[bucket]
            self.worst_ms[bucket] = late_us / 1000 if worst_ms is None else max(worst_ms, late_us / 1000)

    def rewinding(self) -> None:
        """Note that a reset of the cursor is about to begin: stored messages come again."""
        with self._lock:
            self._again = bytearray(self._confirmed)
            expected, seen, again = (
                np.frombuffer(one, np.uint8) != 0 for one in (self._expected, self._seen, self._again)
            )
            self._missing = int(np.count_nonzero(expected & (~seen | again)))

    def due(self, now_us: int) -> int:
        """The number of messages due at ``now_us``."""
        return int(np.searchsorted(self._due_order, now_us, side="right"))

    @property
    def delivered_due(self) -> int:
        """The number of delayed messages received."""
        return self.received - self.undelayed

    @property
    def missing(self) -> int:
        """The number of messages of the round that are missing, or missing again since the cursor's reset.

        Counted as receipts come: the drill asks all the time, and there may be millions.
        """
        return self._missing

    def recent(self, now_us: int) -> Recent:
        """The lateness of the last receipts."""
        with self._lock:
            self._forget(now_us)
            late_us = np.fromiter((one for _, one in self._recent), np.int64, len(self._recent))
        if not len(late_us):
            return Recent(0, 0.0, 0.0, 0.0)
        return Recent(len(late_us), *(np.percentile(late_us, (50, 99, 100)) / 1000).tolist())

    def _forget(self, now_us: int) -> None:
        while self._recent and self._recent[0][0] < now_us - RECENT_US:
            self._recent.popleft()
