"""The daemon's only timer for due entries: the stream to look at next, and the time.

A heap holds the earliest instant at which each stream may have a due entry to hand out (its index's next due
time less its horizon). Another holds the paused streams: a pause is a duration, which no set clock changes.
Invariants:

- streams without credit, without an answer to OPEN, or on a busy connection are not in the heap: an undrained
  subscription costs nothing and hides no other;
- no look at a stream comes before its instant; only the stream's own events move the instant, not time;
- a wall clock that steps forward delays nothing by more than ``LOOK_AGAIN_MS`` beyond the step itself, and
  one that steps back prolongs no pause;
- a stream is in at most one of the heaps;
- one round takes at most ``budget_s``, then other work of the loop gets its turn;
- an exception from ``serve`` goes to the loop, and stops neither the others nor the stream for good.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from heapdict import heapdict

from tidegate.index import Clock

StreamT = TypeVar("StreamT")
BUG_AGAIN_MS = 1_000  # after an exception from ``serve``: the loop reports it, the stream stays
# Bounds how far ahead the loop's timer may fire: its clock neither follows a set wall clock nor runs in a
# suspend. A look costs 150 µs, once a second 0.02 % of a core.
LOOK_AGAIN_MS = 1_000
_NS_PER_MS = 1_000_000


class Pause(NamedTuple):
    """How long to leave a stream alone, unless it changes."""

    ms: int


class DueTimer(Generic[StreamT]):
    """Calls ``serve(stream, now_ms)`` when a stream's instant has come.

    ``serve`` returns the stream's next instant, in ms since the epoch, or a pause, or None when only an event
    can make the stream due.
    """

    def __init__(
        self,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        serve: Callable[[StreamT, int], int | Pause | None],
        budget_s: float,
    ) -> None:
        self._clock = clock
        self._loop = loop
        self._serve = serve
        self._budget_ns = int(budget_s * 1_000_000_000)
        self._heap: heapdict[StreamT, int] = heapdict()
        self._paused: heapdict[StreamT, int] = heapdict()  # by the monotonic clock, in ns
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._timer_at_ns: int | None = None

    def __len__(self) -> int:
        return len(self._heap) + len(self._paused)

    def look_at(self, stream: StreamT, at_ms: int | None) -> None:
        """Look at ``stream`` at ``at_ms``; None takes it out."""
        if at_ms is None:
            self.discard(stream)
            return
        self._paused.pop(stream, None)
        self._heap[stream] = at_ms
        self._arm()

    def discard(self, stream: StreamT) -> None:
        """Stop looking at ``stream``."""
        self._heap.pop(stream, None)
        self._paused.pop(stream, None)

    def stop(self) -> None:
        """Stop looking at anything."""
        self._heap.clear()
        self._paused.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        begin_ns = self._clock.monotonic_ns()
        delays_ms: list[float] = [LOOK_AGAIN_MS]
        if self._heap:
            delays_ms.append(self._heap.peekitem()[1] - self._clock.now_ms())
        if self._paused:
            delays_ms.append((self._paused.peekitem()[1] - begin_ns) / _NS_PER_MS)
        if len(delays_ms) == 1:
            return
        delay_ms = max(0.0, min(delays_ms))
        at_ns = begin_ns + int(delay_ms * _NS_PER_MS)
        if self._timer_at_ns is not None and self._timer_at_ns <= at_ns:
            return  # a timer that fires too early only reads the clock
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ns = at_ns
        if delay_ms <= 0:
            self._timer = self._loop.call_soon(self._run)
        else:
            self._timer = self._loop.call_later(delay_ms / 1_000, self._run)

    def _run(self) -> None:
        self._timer = None
        begin_ns = self._clock.monotonic_ns()
        now_ms = self._clock.now_ms()
        try:
            while self._serve_first(now_ms):
                if self._clock.monotonic_ns() - begin_ns > self._budget_ns:
                    break
        finally:
            self._timer_at_ns = None
            self._arm()

    def _serve_first(self, now_ms: int) -> bool:
        """Serve one due stream; False without any."""
        if self._heap and self._heap.peekitem()[1] <= now_ms:
            stream, _ = self._heap.popitem()
        elif self._paused and self._paused.peekitem()[1] <= self._clock.monotonic_ns():
            stream, _ = self._paused.popitem()
        else:
            return False
        again: int | Pause | None = Pause(BUG_AGAIN_MS)
        try:
            again = self._serve(stream, now_ms)
        finally:
            if isinstance(again, Pause):
                self._heap.pop(stream, None)
                self._paused[stream] = self._clock.monotonic_ns() + again.ms * _NS_PER_MS
            elif again is not None:
                self._paused.pop(stream, None)
                self._heap[stream] = again
        return True
