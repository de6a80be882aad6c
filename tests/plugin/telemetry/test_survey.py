"""The walk over all subscriptions: in turns, once for all who ask, and right."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from unittest.mock import patch

import pytest

from tests.support.daemons import StartDaemon
from tests.support.shim_client import entries
from tidegate.index.catalog.catalog import Catalog
from tidegate.index.clock import ManualClock
from tidegate.index.names import SubscriptionName
from tidegate.index.stats import IndexStats
from tidegate.index.store import MemoryStore
from tidegate.index.subscription.delay_index import DelayIndex
from tidegate.plugin.daemon import report
from tidegate.plugin.daemon.gauges import gauges
from tidegate.plugin.daemon.report import with_subscriptions
from tidegate.plugin.telemetry import lately, survey
from tidegate.plugin.telemetry.survey import Surveyor, in_turns
from tidegate.plugin.wire.frames import LENGTH_MAX

COUNT = 60


def name(number: int) -> SubscriptionName:
    return SubscriptionName("persistent://public/default/orders", f"s{number:03}")


@pytest.fixture
def catalog() -> Iterator[Catalog]:
    """Subscription n holds n entries."""
    catalog = Catalog.open(MemoryStore(), ManualClock(0))
    for number in range(COUNT):
        index = catalog.subscription(name(number), bytes(16))
        index.add(entries(number, 10_000_000))
    catalog.commit()
    yield catalog
    catalog.close()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[SubscriptionName]:
    """How often each subscription was asked for its numbers."""
    counts: Counter[SubscriptionName] = Counter()
    real = DelayIndex.stats

    def stats(self: DelayIndex) -> IndexStats:
        counts[self.name] += 1
        return real(self)

    monkeypatch.setattr(DelayIndex, "stats", stats)
    return counts


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every subscription is a turn of its own."""
    monkeypatch.setattr(survey, "TURN_S", 0.0)


async def test_it_says_what_the_catalog_says(catalog: Catalog) -> None:
    found = await Surveyor(catalog).survey()
    assert found.totals == catalog.stats()
    assert found.totals.held == sum(range(COUNT))
    assert found.most_held == [name(number) for number in reversed(range(COUNT))]


@pytest.mark.usefixtures("short_turns")
async def test_other_work_has_its_turns_meanwhile(catalog: Catalog) -> None:
    turns = 0

    async def work() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    working = asyncio.create_task(work())
    await Surveyor(catalog).survey()
    working.cancel()
    assert turns >= COUNT


async def test_the_loop_does_not_wait_for_the_disk() -> None:
    answers = threading.Event()

    class SlowDisk(MemoryStore):
        def disk_bytes(self) -> int:
            assert answers.wait(10), "the loop that lets it answer stands still"
            return 4_711

    catalog = Catalog.open(SlowDisk(), ManualClock(0))
    surveying = asyncio.create_task(Surveyor(catalog).survey())
    await asyncio.sleep(0.01)
    assert not surveying.done()
    answers.set()
    assert (await surveying).totals.disk_bytes == 4_711
    catalog.close()


@pytest.mark.usefixtures("short_turns")
async def test_who_asks_together_shares_a_walk(catalog: Catalog, asked: Counter[SubscriptionName]) -> None:
    surveyor = Surveyor(catalog)
    first = asyncio.create_task(surveyor.survey())
    await asyncio.sleep(0)
    given_up = asyncio.create_task(surveyor.survey())
    second = asyncio.create_task(surveyor.survey())
    await asyncio.sleep(0)
    given_up.cancel()
    assert await first is await second
    assert set(asked.values()) == {1}
    assert len(asked) == COUNT


async def test_a_dear_walk_is_good_for_a_while_and_a_cheap_one_is_not(
    catalog: Catalog, asked: Counter[SubscriptionName], monkeypatch: pytest.MonkeyPatch
) -> None:
    surveyor = Surveyor(catalog)
    monkeypatch.setattr(lately, "GOOD_FOR", 0.0)
    await surveyor.survey()
    await surveyor.survey()
    assert set(asked.values()) == {2}
    monkeypatch.setattr(lately, "GOOD_FOR", 1e9)
    monkeypatch.setattr(lately, "GOOD_FOR_MAX_S", 1e9)
    await surveyor.survey()
    await surveyor.survey()
    assert set(asked.values()) == {3}


@pytest.mark.usefixtures("short_turns")
async def test_what_is_removed_meanwhile_is_left_out(
    catalog: Catalog, asked: Counter[SubscriptionName]
) -> None:
    walking = asyncio.create_task(Surveyor(catalog).survey())
    while not asked:
        await asyncio.sleep(0)
    catalog.remove(name(COUNT - 1))
    catalog.subscription(name(COUNT), bytes(16))
    found = await walking
    assert found.totals.held == sum(range(COUNT - 1))
    assert found.totals.subscriptions == COUNT - 1


async def test_what_was_forgotten_since_it_was_counted_is_not_said_to_be_left_out(catalog: Catalog) -> None:
    names = [name(number) for number in range(COUNT)]
    catalog.remove(name(3))
    catalog.remove(name(COUNT - 1))
    shown = (catalog.get(one) for one in names[: COUNT - 10])
    answer = json.loads(
        await with_subscriptions({"schema": 1}, shown, lambda index: {"held": index.stats().held}, COUNT)
    )
    assert len(answer["subscriptions"]) == COUNT - 11
    assert answer["subscriptions_omitted"] == 10


@pytest.mark.parametrize(("longer_bytes", "omitted"), [(0, 0), (1, 1)])
async def test_a_status_with_a_long_head_has_room_for_fewer_subscriptions(
    catalog: Catalog, longer_bytes: int, omitted: int
) -> None:
    """All but 64 KiB of a frame: 192 KiB of it for the head."""
    head_bytes, room_bytes = 192 * 1_024, LENGTH_MAX - 256 * 1_024
    around_bytes, count = len('{"a":""}'), 64
    answer = {"a": "h" * (head_bytes + longer_bytes - around_bytes + 1)}  # but for the last brace
    part = "s" * (room_bytes // count - around_bytes - 1)
    indexes = [catalog.get(name(0))] * count

    whole = await with_subscriptions(answer, indexes, lambda _: {"a": part}, count)

    told = json.loads(whole)
    assert (len(told["subscriptions"]), told["subscriptions_omitted"]) == (count - omitted, omitted)
    assert len(whole) < LENGTH_MAX - 64 * 1_024 + 50


@pytest.mark.usefixtures("short_turns")
async def test_a_walk_that_nobody_wants_to_the_end() -> None:
    """A coroutine left unawaited, or raising as it closes, is a warning, and those are errors here."""
    async for item in in_turns(range(10)):
        if item == 5:
            break


@pytest.mark.parametrize("step_ms", [-3_600_000, 1_700_000_000_000])
async def test_a_clock_that_is_set_changes_no_uptime(start: StartDaemon, step_ms: int) -> None:
    """As on a machine that starts in 1970, and hears of the time later."""
    async with start() as daemon:
        now_ms = daemon.engine.clock.now_ms() + step_ms
        with patch.object(daemon.engine.clock, "now_ms", lambda: now_ms):
            told = json.loads(await report.status(daemon.engine, 1))["daemon"]
            scraped = await gauges(daemon.engine)
        assert 0 <= told["uptime_seconds"] <= scraped.uptime_seconds < 3_600
