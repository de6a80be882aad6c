"""The rate at which entries come in while spilling is behind: smooth, so that no reader waits long.

The *level* is the memory of entries in no slice yet. Below the soft bound everything is read at once. Above,
reading is paced to the drain rate: twice the rate at the soft bound, the rate half-way, nothing at the hard
bound. So the level settles between the bounds, and a broker sees a slower daemon instead of a stopped one.
Reads are paid from a token bucket, which fills at this changing rate.

Pure: the caller gives the level and the time, and makes the pauses. Invariants: a pause is at most
``PAUSE_MAX_S``, after which the caller asks again; at the hard bound nothing passes, whatever was measured;
no pause makes a later one longer.
"""

from __future__ import annotations

import math

PAUSE_MIN_S = 0.002  # less is not worth a timer: the next pause includes it
PAUSE_MAX_S = 0.020
SLACK_S = 0.020  # timers come late: at most so much lateness is recovered
SMOOTHING_S = 1.0
DRAIN_FIRST_BYTES_PER_S = 24e6  # before the first measurement
DRAIN_MIN_BYTES_PER_S = 240e3  # so that no crawl follows a long stop
_NS = 1_000_000_000


class Admission:
    """The level, the drain rate, and the resulting pause of the readers. Times are monotonic."""

    def __init__(self, spill_bytes: int, hard_bytes: int) -> None:
        """Spilling begins with ``spill_bytes`` staged: the soft bound is somewhat above it.

        Raises ``ValueError`` unless the soft bound is below the hard one.
        """
        if not 0 <= spill_bytes < hard_bytes:
            raise ValueError(
                f"the hard bound {hard_bytes} must be above {spill_bytes}, where spilling begins"
            )
        self._soft_bytes = spill_bytes + (hard_bytes - spill_bytes) // 4
        self._hard_bytes = hard_bytes
        self.level_bytes = 0
        """Bytes in memory: the last level, and the bytes taken in since."""
        self._told_bytes = 0
        self._told_ns: int | None = None
        self._credit_bytes = 0.0
        self._asked_ns = 0
        self.drain_bytes_per_s = DRAIN_FIRST_BYTES_PER_S

    @property
    def stopped(self) -> bool:
        """True while nothing may pass."""
        return self.level_bytes >= self._hard_bytes

    def tell(self, level_bytes: int, now_ns: int) -> None:
        """Set the level, which also shows the drain rate. Call often."""
        if self._told_ns is not None and self._told_bytes >= self._soft_bytes and now_ns > self._told_ns:
            passed_s = (now_ns - self._told_ns) / _NS
            drained = max(0, self.level_bytes - level_bytes) / passed_s
            weight = 1.0 - math.exp(-passed_s / SMOOTHING_S)
            drain = self.drain_bytes_per_s + weight * (drained - self.drain_bytes_per_s)
            self.drain_bytes_per_s = max(drain, DRAIN_MIN_BYTES_PER_S)
        self.level_bytes = self._told_bytes = level_bytes
        self._told_ns = now_ns

    def count_read(self, size_bytes: int) -> None:
        """Count ``size_bytes`` as read."""
        self.level_bytes += size_bytes
        self._credit_bytes -= size_bytes

    def pause_s(self, now_ns: int) -> float:
        """The wait before the next read, 0 for none. Then ask again."""
        passed_s = max(0, now_ns - self._asked_ns) / _NS
        self._asked_ns = now_ns
        if self.level_bytes < self._soft_bytes:
            self._credit_bytes = 0.0
            return 0.0
        room = max(0, self._hard_bytes - self.level_bytes) / (self._hard_bytes - self._soft_bytes)
        rate = 2.0 * self.drain_bytes_per_s * room  # in bytes a second
        if not rate:
            return PAUSE_MAX_S
        self._credit_bytes = min(self._credit_bytes + rate * passed_s, rate * SLACK_S)
        wait_s = -self._credit_bytes / rate
        return 0.0 if wait_s < PAUSE_MIN_S else min(wait_s, PAUSE_MAX_S)
