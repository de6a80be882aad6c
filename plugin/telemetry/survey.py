"""The sums over all subscriptions, collected a few subscriptions at a time.

With thousands of them the walk takes most of a second, on the loop that serves the brokers. Invariants:

- one turn of the loop gives it ``TURN_S`` and one subscription more; another thread looks at files on disk;
- a caller during a walk, or soon after it (``lately``), gets its result;
- the result omits a subscription removed meanwhile, and counts none twice.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable
from enum import IntEnum
from typing import NamedTuple, TypeVar

from tidegate.index import Catalog, CatalogStats, IndexStats, SubscriptionName
from tidegate.plugin.shared.moments import AT_ONCE_MS, OVERDUE_MS
from tidegate.plugin.shared.scalable import scalable_of
from tidegate.plugin.telemetry.lately import Lately

T = TypeVar("T")
TURN_S = 0.005
MOST_HELD = 1_000


class Standing(IntEnum):
    """A subscription's role at this daemon, the noteworthy first."""

    PACED = 0  # late on purpose
    SERVED = 1
    UNSERVED = 2  # no broker has it open here


class ScalableSum(NamedTuple):
    """One subscription of a scalable topic: the sums over its segments here."""

    topic: str
    subscription: str
    segments: int
    held: int
    in_flight: int
    acknowledged: int
    next_due_ms: int | None


class Worst(NamedTuple):
    """The subscriptions that need attention, the worst first.

    overdue: served ones with an overdue message, overdue_ms: their longest time.
    """

    names: list[SubscriptionName]
    overdue: int
    overdue_ms: int


class Disk(NamedTuple):
    """Files other than the index's: bytes of unreadable files moved away, and free bytes."""

    damaged_bytes: int = 0
    free_bytes: int = 0


class Survey(NamedTuple):
    """Sums over all subscriptions, and lists of names: the fullest first, and the first due first.

    scalable: the fullest first.
    """

    totals: CatalogStats
    most_held: list[SubscriptionName]
    first_due: list[SubscriptionName]
    worst: Worst
    disk: Disk
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
    """Walks over a catalog for its callers.

    disk: runs in another thread. worst: chooses among all subscriptions.
    """

    def __init__(
        self,
        catalog: Catalog,
        disk: Callable[[], Disk] = Disk,
        worst: Callable[[Iterable[IndexStats]], Worst] = lambda _: Worst([], 0, 0),
    ) -> None:
        self._catalog = catalog
        self._disk = disk
        self._worst = worst
        self._latest = Lately(self._walk)

    async def survey(self) -> Survey:
        """The present state, or one a moment old."""
        return await self._latest.get()

    async def _walk(self) -> tuple[Survey, float]:
        # First: the result omits anything removed during this wait.
        disk_bytes, disk, took_s = await asyncio.to_thread(self._look_at_disk)
        each: list[IndexStats] = []
        async for index in in_turns(self._catalog):
            if self._catalog.get(index.name) is index:
                began_s = time.perf_counter()
                each.append(index.stats()._replace(slices=[]))
                took_s += time.perf_counter() - began_s
        totals = self._catalog.stats(each, disk_bytes)
        survey = Survey(totals, most_held(each), first_due(each), self._worst(each), disk, added_up(each))
        return survey, took_s

    def _look_at_disk(self) -> tuple[int, Disk, float]:
        """Bytes of the index, the other bytes, and the duration in seconds. Runs in another thread."""
        began_s = time.perf_counter()
        disk_bytes, disk = self._catalog.disk_bytes(), self._disk()
        return disk_bytes, disk, time.perf_counter() - began_s


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
    """Least for the longest overdue subscription; then the next due, then the fullest."""
    return math.inf if one.next_due_ms is None else one.next_due_ms, -one.held, one.name


def most_held(each: Iterable[IndexStats]) -> list[SubscriptionName]:
    """The fullest ones' names, at most ``MOST_HELD``."""
    return _names(heapq.nsmallest(MOST_HELD, each, key=lambda one: (-one.held, one.name)))


def first_due(each: Iterable[IndexStats]) -> list[SubscriptionName]:
    """The names of the first due, at most ``MOST_HELD``."""
    return _names(heapq.nsmallest(MOST_HELD, each, key=_urgency))


def worst(
    each: Iterable[IndexStats], now_ms: int, most: int, standing: Callable[[SubscriptionName], Standing]
) -> Worst:
    """At most ``most`` names: those overdue longest, then with a pace, then served, then others; the fullest.

    Healthy ones go by their fullness, which changes slowly, and so do a scrape's series.
    """
    ranked = []
    overdue = overdue_ms = 0
    for one in each:
        stands = standing(one.name)
        late_ms = overdue_by_ms(one.next_due_ms, now_ms) if stands is Standing.SERVED else 0
        overdue += late_ms > 0
        overdue_ms = max(overdue_ms, late_ms)
        ranked.append((not late_ms, stands, -late_ms, -one.held, one.name))
    return Worst([name for *_, name in heapq.nsmallest(most, ranked)], overdue, overdue_ms)


def overdue_by_ms(next_due_ms: int | None, now_ms: int) -> int:
    """The time since the first entry was due; 0 below ``OVERDUE_MS``, and for a released one."""
    if next_due_ms is None or next_due_ms == AT_ONCE_MS:
        return 0
    late_ms = now_ms - next_due_ms
    return late_ms if late_ms >= OVERDUE_MS else 0


def _names(each: Iterable[IndexStats]) -> list[SubscriptionName]:
    return [one.name for one in each]
