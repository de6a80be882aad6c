"""A recent result, shared by all callers: even endless questions cost little.

Invariants:

- a caller during a search gets its result, and one that gives up does not end it for the others;
- a result is good for ``GOOD_FOR`` times its duration, at most ``GOOD_FOR_MAX_S``: exact where it is cheap.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")
GOOD_FOR = 10  # times its duration
GOOD_FOR_MAX_S = 1.0


class Lately(Generic[T]):
    """Asks ``find``, which returns its result and the seconds of its work."""

    def __init__(self, find: Callable[[], Awaitable[tuple[T, float]]]) -> None:
        self._find = find
        self._finding: asyncio.Task[T] | None = None
        self._latest: tuple[T] | None = None
        self._good_until_s = 0.0

    async def get(self) -> T:
        """The state now or a moment ago. Raises the errors of ``find``, without keeping them."""
        if self._latest is not None and time.perf_counter() < self._good_until_s:
            return self._latest[0]
        if self._finding is None:
            self._finding = asyncio.create_task(self._refresh())
            self._finding.add_done_callback(self._found)
        return await asyncio.shield(self._finding)

    def _found(self, finding: asyncio.Task[T]) -> None:
        self._finding = None
        if not finding.cancelled():
            finding.exception()  # the callers have seen it, or all have given up

    async def _refresh(self) -> T:
        found, took_s = await self._find()
        self._latest = (found,)
        self._good_until_s = time.perf_counter() + min(GOOD_FOR * took_s, GOOD_FOR_MAX_S)
        return found


def lately(find: Callable[[], Awaitable[T]]) -> Lately[T]:
    """The same for a ``find`` timed from outside, including the loop's other work meanwhile."""

    async def timed() -> tuple[T, float]:
        began_s = time.perf_counter()
        found = await find()
        return found, time.perf_counter() - began_s

    return Lately(timed)
