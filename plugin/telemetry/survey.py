"""The sums over all subscriptions, collected a few subscriptions at a time.

With thousands of subscriptions the walk takes most of a second, on the loop that serves the brokers.
Invariants:

- one turn of the loop gives it ``TURN_S`` and one subscription more; another thread looks at the files on
  disk;
- a caller who asks during a walk, or soon after it (``lately``), gets its result;
- the result leaves out a subscription removed meanwhile, and counts none twice.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import NamedTuple, TypeVar

from tidegate.index import Catalog, CatalogStats, IndexStats, SubscriptionName
from tidegate.plugin.shared.scalable import scalable_of
from tidegate.plugin.telemetry.lately import Lately

T = TypeVar("T")
TURN_S = 0.005
MOST_HELD = 1_000


class ScalableSum(NamedTuple):
    """One subscription of a scalable topic: the sums over the segments that are here."""

    topic: str
    subscription: str
    segments: int
    held: int
    in_flight: int
    acknowledged: int
    next_due_ms: int | None


class Survey(NamedTuple):
    """Sums over all subscriptions, and two lists of names: the fullest first, and the first due first.

    damaged_bytes: of files moved away because they could not be read. scalable: the fullest first.
    """

    totals: CatalogStats
    most_held: list[SubscriptionName]
    first_due: list[SubscriptionName]
    damaged_bytes: int
    scalable: list[ScalableSum]


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The items; the loop does other work after each ``TURN_S`` that the caller has spent on them."""
    began_s = time.perf_counter()
    for item in items:
        yield item
        if time.perf_counter() - began_s > TURN_S:
            await asyncio.sleep(0)
            began_s = time.perf_counter()


class Surveyor:
    """Walks over a catalog for its callers. damaged_bytes: called in another thread."""

    def __init__(self, catalog: Catalog, damaged_bytes: Callable[[], int] = lambda: 0) -> None:
        self._catalog = catalog
        self._damaged_bytes = damaged_bytes
        self._latest = Lately(self._walk)

    async def survey(self) -> Survey:
        """The state of now, or of a moment ago."""
        return await self._latest.get()

    async def _walk(self) -> tuple[Survey, float]:
        # First: the result leaves out anything removed during this wait.
        disk_bytes, damaged_bytes, took_s = await asyncio.to_thread(self._look_at_disk)
        each: list[IndexStats] = []
        async for index in in_turns(self._catalog):
            if self._catalog.get(index.name) is index:
                began_s = time.perf_counter()
                each.append(index.stats()._replace(slices=[]))
                took_s += time.perf_counter() - began_s
        totals = self._catalog.stats(each, disk_bytes)
        survey = Survey(totals, most_held(each), first_due(each), damaged_bytes, added_up(each))
        return survey, took_s

    def _look_at_disk(self) -> tuple[int, int, float]:
        """Bytes on disk, bytes moved away, and the seconds that the look took. Runs in another thread."""
        began_s = time.perf_counter()
        disk_bytes, damaged_bytes = self._catalog.disk_bytes(), self._damaged_bytes()
        return disk_bytes, damaged_bytes, time.perf_counter() - began_s


def added_up(each: Iterable[IndexStats]) -> list[ScalableSum]:
    """A sum for each subscription of a scalable topic, the fullest first."""
    sums: dict[SubscriptionName, ScalableSum] = {}
    for one in each:
        topic = scalable_of(one.name.topic)
        if topic is None:
            continue
        name = SubscriptionName(topic, one.name.subscription)
        so_far = sums.get(name) or ScalableSum(*name, 0, 0, 0, 0, None)
        dues = [due_ms for due_ms in (so_far.next_due_ms, one.next_due_ms) if due_ms is not None]
        sums[name] = ScalableSum(
            *name,
            so_far.segments + 1,
            so_far.held + one.held,
            so_far.in_flight + one.in_flight,
            so_far.acknowledged + one.acknowledged,
            min(dues, default=None),
        )
    return sorted(sums.values(), key=lambda one: (-one.held, one.topic, one.subscription))


def _urgency(one: IndexStats) -> tuple[float, int, SubscriptionName]:
    """Least for the subscription that is overdue longest; then the next due, then the fullest."""
    return math.inf if one.next_due_ms is None else one.next_due_ms, -one.held, one.name


def most_held(each: Iterable[IndexStats]) -> list[SubscriptionName]:
    """The names of the fullest, at most ``MOST_HELD``."""
    return _names(heapq.nsmallest(MOST_HELD, each, key=lambda one: (-one.held, one.name)))


def first_due(each: Iterable[IndexStats]) -> list[SubscriptionName]:
    """The names of the first due, at most ``MOST_HELD``."""
    return _names(heapq.nsmallest(MOST_HELD, each, key=_urgency))


def _names(each: Iterable[IndexStats]) -> list[SubscriptionName]:
    return [one.name for one in each]
