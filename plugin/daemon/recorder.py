"""A trace of arriving entries, for tuning: for one control client at a time, sampled, and bounded in memory.

Invariants: nothing is kept unless a client records; every ``stride``-th entry is kept, with one stride from
the beginning to the end (when full, every second entry goes and the stride doubles), so a trace is as even as
its source; the recording ends with its connection.

Example, with room for 4: entries 0 1 2 3 fill it, so 1 and 3 go, and the stride is 2; then 4 and 6 fill it,
so 2 and 6 go, and the stride is 4.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from tidegate.index import Clock, Int64Array, SubscriptionName
from tidegate.plugin.errors import UserError

KEPT_MAX = 50_000
"""One answer holds this many with room to spare, and a tuning plays fewer."""


class Recorder:
    """The recording, if any; ``holder`` stands for a connection."""

    def __init__(self, clock: Clock, kept_max: int = KEPT_MAX) -> None:
        self._clock = clock
        self._kept_max = kept_max
        self._holder: object | None = None
        self._of: SubscriptionName | None = None
        self._begin()

    def ask(self, holder: object, request: dict[str, object]) -> dict[str, Any]:
        """The query `record`: begins a recording, or tells its state.

        Raises ``UserError`` if another client records.
        """
        of = _of(request)
        if self._holder is not None and self._holder is not holder:
            raise UserError("another recording is under way: wait for it, or end it")
        if self._holder is None or self._of != of:
            self._holder, self._of = holder, of
            self._begin()
        return {
            "seen": self._seen,
            "stride": self._stride,
            "entries": self._count,
            "arrival_ms": _text(self._arrival_ms[: self._count]),
            "deliver_at_ms": _text(self._deliver_at_ms[: self._count]),
        }

    def gone(self, holder: object) -> None:
        """End the recording of a closed connection."""
        if self._holder is holder:
            self._holder = None
            self._begin()

    def record_arrivals(self, name: SubscriptionName, deliver_at_ms: Int64Array) -> None:
        """Note arrivals of now, if a client records. O(kept) of a frame's entries."""
        if self._holder is None or (self._of is not None and self._of != name):
            return
        left = deliver_at_ms
        while len(left):
            skipped = -self._seen % self._stride
            room = (self._kept_max - self._count - 1) * self._stride + skipped + 1
            part = left[:room]
            kept = part[skipped :: self._stride]
            self._arrival_ms[self._count : self._count + len(kept)] = self._clock.now_ms()
            self._deliver_at_ms[self._count : self._count + len(kept)] = kept
            self._count += len(kept)
            self._seen += len(part)
            left = left[room:]
            if self._count == self._kept_max:
                self._thin()

    def _begin(self) -> None:
        size = self._kept_max if self._holder is not None else 0
        self._arrival_ms, self._deliver_at_ms = np.empty(size, np.int64), np.empty(size, np.int64)
        self._count, self._seen, self._stride = 0, 0, 1

    def _thin(self) -> None:
        self._count = -(-self._count // 2)
        for column in (self._arrival_ms, self._deliver_at_ms):
            column[: self._count] = column[::2].copy()
        self._stride *= 2


def _of(request: dict[str, object]) -> SubscriptionName | None:
    topic, subscription = request.get("topic"), request.get("subscription")
    if topic is None and subscription is None:
        return None
    if not isinstance(topic, str) or not isinstance(subscription, str):
        raise UserError("a recording is of one topic and subscription, or with neither of all")
    return SubscriptionName(topic, subscription)


def _text(values: Int64Array) -> str:
    return base64.b64encode(values.astype("<i8").tobytes()).decode("ascii")
