"""What was found a moment ago, for all who ask: whoever asks without end costs little.

Invariants:

- who asks while it is being found gets what that finds, and one who gives up does not end it for the others;
- it is good for ``GOOD_FOR`` times as long as it took, for ``GOOD_FOR_MAX_S`` at most: exact where it is
  cheap.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")
GOOD_FOR = 10  # times as long as it took
GOOD_FOR_MAX_S = 1.0


class Lately(Generic[T]):
    """Asks ``find``, which says what it found and how many seconds of work that was."""

    def __init__(self, find: Callable[[], Awaitable[tuple[T, float]]]) -> None:
        self._find = find
        self._finding: asyncio.Task[T] | None = None
        self._latest: tuple[T] | None = None
        self._good_until_s = 0.0

    async def get(self) -> T:
        """What is so now, or was a moment ago. Raises what ``find`` raises; that is not kept."""
        if self._latest is not None and time.perf_counter() < self._good_until_s:
            return self._latest[0]
        if self._finding is None:
            self._finding = asyncio.create_task(self._refresh())
            self._finding.add_done_callback(self._found)
        return await asyncio.shield(self._finding)

    def _found(self, finding: asyncio.Task[T]) -> None:
        self._finding = None
        if not finding.cancelled():
            finding.exception()  # whoever has asked was told; if they have all given up, it is no news

    async def _refresh(self) -> T:
        found, took_s = await self._find()
        self._latest = (found,)
        self._good_until_s = time.perf_counter() + min(GOOD_FOR * took_s, GOOD_FOR_MAX_S)
        return found


def lately(find: Callable[[], Awaitable[T]]) -> Lately[T]:
    """The same for a ``find`` that is timed from outside, with all that the loop does meanwhile."""

    async def timed() -> tuple[T, float]:
        began_s = time.perf_counter()
        found = await find()
        return found, time.perf_counter() - began_s

    return Lately(timed)
