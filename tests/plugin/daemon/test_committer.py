"""When a group commit begins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from tidegate.index import (
    Catalog,
    IndexOptions,
    ManualClock,
    MemoryStore,
    PositionSet,
    StorageError,
    SubscriptionName,
)
from tidegate.index.errors import ClosedError
from tidegate.plugin.daemon.committer import Committer
from tidegate.plugin.daemon.durable_news import DurableNews

NAME = SubscriptionName("persistent://public/default/orders", "sub")
INTERVAL_S = 0.002


class Loop:
    """Notes the calls, and makes them when told."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, Callable[[], object]]] = []

    def call_later(
        self, delay_s: float, call: Callable[..., object], *arguments: object
    ) -> asyncio.TimerHandle:
        self.calls.append((delay_s, lambda: call(*arguments)))
        return cast(asyncio.TimerHandle, None)

    def call_soon(self, call: Callable[..., object], *arguments: object) -> asyncio.TimerHandle:
        return self.call_later(0.0, call, *arguments)

    def run(self) -> list[float]:
        """Make the calls; their delays."""
        calls, self.calls = self.calls, []
        for _, call in calls:
            call()
        return [delay_s for delay_s, _ in calls]


class Nobody:
    """Listens to nothing."""

    def __getattr__(self, _: str) -> Any:
        return lambda *_: None


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
def catalog(clock: ManualClock) -> Catalog:
    return Catalog.open(MemoryStore(), clock, IndexOptions())


def committer_of(catalog: Catalog, clock: ManualClock, loop: Loop) -> Committer:
    return Committer(
        catalog.journal,
        clock,
        cast(asyncio.AbstractEventLoop, loop),
        cast(DurableNews, Nobody()),
        executor=None,
        interval_s=INTERVAL_S,
        entries_max=1_000,
        retry_s=1.0,
    )


def test_after_a_while_a_change_waits_for_no_other(catalog: Catalog, clock: ManualClock) -> None:
    loop = Loop()
    committer = committer_of(catalog, clock, loop)
    index = catalog.subscription(NAME, bytes(16))
    told: list[StorageError | None] = []
    clock.advance(10)
    for number, (pause_ms, waits_s) in enumerate(((10, 0.0), (0, INTERVAL_S), (1, INTERVAL_S / 2), (5, 0.0))):
        clock.advance(pause_ms)
        committer.after(index.acknowledge(PositionSet.of([(1, number)])), told.append)
        assert loop.run() == pytest.approx([waits_s])
        assert told == [None] * (number + 1)


def test_nothing_is_written_once_the_catalog_is_closed(clock: ManualClock) -> None:
    store, loop = MemoryStore(), Loop()
    catalog = Catalog.open(store, clock, IndexOptions())
    committer = committer_of(catalog, clock, loop)
    index = catalog.subscription(NAME, bytes(16))
    catalog.close()
    told: list[StorageError | None] = []
    committer.after(index.acknowledge(PositionSet.of([(1, 1)])), told.append)
    with pytest.raises(ClosedError):
        loop.run()
    assert not told
    stored = Catalog.open(store.reopen(), clock, IndexOptions()).get(NAME)
    assert stored is not None
    assert not stored.state.acknowledged


def test_a_durable_change_needs_no_commit(catalog: Catalog, clock: ManualClock) -> None:
    loop = Loop()
    committer = committer_of(catalog, clock, loop)
    token = catalog.subscription(NAME, bytes(16)).acknowledge(PositionSet.of([(1, 1)]))
    catalog.commit()
    told: list[StorageError | None] = []
    committer.after(token, told.append)
    assert not told
    assert loop.run() == [0.0]
    assert told == [None]
