"""What all subscriptions hold together, asked for a few at a time.

With thousands of subscriptions the walk takes most of a second, on the loop that serves the brokers.
Invariants:

- one turn of the loop gives it ``TURN_S`` and one subscription more; the files on the disk are looked at by
  another thread;
- who asks while a walk is on its way gets its result, and so does who asks soon after it (``lately``);
- what is removed meanwhile is left out; nothing is ever counted twice.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import NamedTuple, TypeVar

from tidegate.index import Catalog, CatalogStats, IndexStats, SubscriptionName
from tidegate.plugin.telemetry.lately import Lately

T = TypeVar("T")
TURN_S = 0.005
MOST_HELD = 1_000


class Survey(NamedTuple):
    """Sums over all subscriptions, and the names of those with most held, the fullest first.

    damaged_bytes: of what was moved away because it could not be read.
    """

    totals: CatalogStats
    most_held: list[SubscriptionName]
    damaged_bytes: int


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The items; the loop does other work after each ``TURN_S`` that the caller has spent on them."""
    began_s = time.perf_counter()
    for item in items:
        yield item
        if time.perf_counter() - began_s > TURN_S:
            await asyncio.sleep(0)
            began_s = time.perf_counter()


class Surveyor:
    """Walks over a catalog for whoever asks. damaged_bytes: asked in another thread."""

    def __init__(self, catalog: Catalog, damaged_bytes: Callable[[], int] = lambda: 0) -> None:
        self._catalog = catalog
        self._damaged_bytes = damaged_bytes
        self._latest = Lately(self._walk)

    async def survey(self) -> Survey:
        """The state of now, or of a moment ago."""
        return await self._latest.get()

    async def _walk(self) -> tuple[Survey, float]:
        # First: what is removed while it is waited for is left out.
        disk_bytes, damaged_bytes, took_s = await asyncio.to_thread(self._look_at_disk)
        each: list[IndexStats] = []
        async for index in in_turns(self._catalog):
            if self._catalog.get(index.name) is index:
                began_s = time.perf_counter()
                each.append(index.stats()._replace(slices=[]))
                took_s += time.perf_counter() - began_s
        fullest = heapq.nsmallest(MOST_HELD, each, key=lambda one: (-one.held, one.name))
        totals = self._catalog.stats(each, disk_bytes)
        return Survey(totals, [one.name for one in fullest], damaged_bytes), took_s

    def _look_at_disk(self) -> tuple[int, int, float]:
        """How many bytes are there, how many were moved away, and how many seconds it took to say so. In
        another thread."""
        began_s = time.perf_counter()
        disk_bytes, damaged_bytes = self._catalog.disk_bytes(), self._damaged_bytes()
        return disk_bytes, damaged_bytes, time.perf_counter() - began_s
