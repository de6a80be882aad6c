"""An index puts itself in order when nobody tells it anything for a while."""

from __future__ import annotations

import pytest

from tests.support.catalogs import INCARNATION, NAME, START_MS, drained, spread
from tidegate.index.catalog.catalog import Catalog
from tidegate.index.clock import ManualClock
from tidegate.index.names import SubscriptionName
from tidegate.index.options import IndexOptions
from tidegate.index.store import MemoryStore
from tidegate.index.subscription.delay_index import DelayIndex
from tidegate.index.subscription.upkeep import Upkeep

OPTIONS = IndexOptions(carry_ms=0)
DAY_MS = 86_400_000
MANY = 150_000
"""Entries whose journal is in the way of tidying up, and that fit into the staging budget."""


class TidiedStore(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.tidied = 0

    def tidy(self) -> None:
        self.tidied += 1


class World:
    def __init__(self) -> None:
        self.clock = ManualClock(START_MS)
        self.store = TidiedStore()
        self.catalog = Catalog.open(self.store, self.clock, OPTIONS)
        self._entries = 0

    def subscription(self, number: int = 0) -> DelayIndex:
        name = SubscriptionName(NAME.topic, f"sub-{number}")
        index = self.catalog.get(name) or self.catalog.subscription(name, INCARNATION)
        self.catalog.commit()
        return index

    def add(self, index: DelayIndex, count: int) -> None:
        self._entries += 1
        index.add(spread(count, DAY_MS, ledger_id=self._entries))
        self.catalog.commit()

    def passes(self, milliseconds: int) -> None:
        """Upkeep each 100 ms, as the daemon does it."""
        for _ in range(milliseconds // 100):
            self.clock.advance(100)
            self.catalog.maintain(self.clock.now_ms())


def test_what_is_staged_is_persisted_once_nothing_more_comes() -> None:
    world = World()
    index = world.subscription()
    world.add(index, MANY)
    for _ in range(20):  # something comes each second
        world.passes(1_000)
        world.add(index, 1)
    assert index.stats().slices_on_disk == 0
    world.passes(3_000)
    stats = index.stats()
    assert (stats.staged, stats.journal_bytes) == (0, 0)
    assert stats.slices_on_disk > 0
    assert world.store.tidied == 1
    persists = world.catalog.stats().persists
    world.passes(10_000)
    assert world.catalog.stats().persists == persists, "there is nothing more to do"
    assert len(drained(index)) == MANY + 20


def test_little_is_left_staged() -> None:
    world = World()
    index = world.subscription()
    world.add(index, 1_000)
    world.passes(10_000)
    assert index.stats().staged == 1_000


def test_many_short_journals_are_tidied_up_where_they_are() -> None:
    """A persist for each of them would scatter a few entries over all of its slices."""
    world = World()
    indexes = [world.subscription(number) for number in range(20)]
    for index in indexes:
        world.add(index, MANY // 10)
    world.catalog.persist(indexes[0].name)
    world.passes(1_000)
    assert world.store.tidied == 0
    world.passes(2_000)
    assert world.store.tidied == 1
    assert sum(index.stats().staged for index in indexes) == 19 * MANY // 10


def test_a_clock_that_is_set_back_delays_nothing() -> None:
    world = World()
    index = world.subscription()
    world.add(index, MANY)
    world.passes(1_000)
    world.clock.set_ms(START_MS - DAY_MS)
    world.passes(1_000)
    assert index.stats().staged == MANY
    world.passes(1_000)
    assert index.stats().staged == 0


def test_while_nothing_happens_nobody_is_asked_again_until_something_is_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With thousands of subscriptions each look at all of them is a pause."""
    world = World()
    index = world.subscription()
    world.add(index, 10)
    asked: list[Upkeep[DelayIndex]] = []
    known = vars(Upkeep)["oldest_change_ms"]

    def noted(each: Upkeep[DelayIndex]) -> object:
        asked.append(each)
        return known.fget(each)

    monkeypatch.setattr(Upkeep, "oldest_change_ms", property(noted))
    world.passes(OPTIONS.persist_age_ms - 100)
    assert index.stats().slices_on_disk == 0
    assert len(asked) <= 2, "at first, and once it was quiet"
    world.passes(200)
    assert index.stats().slices_on_disk > 0
