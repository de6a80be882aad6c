"""Maintenance: persists follow one another, a failing part stops no other, and /readyz says what fails."""

from __future__ import annotations

import asyncio
import io
import time
from pathlib import Path

import pytest

from tests.support.daemons import StartDaemon
from tests.support.flaky_store import FlakyStore
from tests.support.shim_client import ShimClient, entries
from tests.support.stores import corrupt_blocks
from tests.support.waiting import until
from tidegate.index.clock import ManualClock
from tidegate.index.entries.entry import ENTRY_BYTES
from tidegate.index.errors import StorageError
from tidegate.index.format import keys
from tidegate.index.names import SubscriptionName
from tidegate.index.store import MemoryStore
from tidegate.plugin.daemon import maintenance
from tidegate.plugin.daemon.serve import RunningDaemon
from tidegate.plugin.daemon.unserved import Unserved

TOPIC = "persistent://public/default/orders"
HOUR_MS = 3_600_000
T0 = 1_800_000_000_000
BUDGET_BYTES = 65_536
ORDERS, PAYMENTS = (SubscriptionName(f"{TOPIC}-{number}", "sub") for number in range(2))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def staged_bytes(daemon: RunningDaemon) -> int:
    return daemon.engine.catalog.stats().staged * ENTRY_BYTES


async def test_persists_follow_one_another_without_waiting_for_a_tick(
    start: StartDaemon, socket_path: Path
) -> None:
    store = MemoryStore()
    async with start(store=store), await ShimClient.connect(socket_path) as client:
        for number in range(8):
            stream = await client.open(f"{TOPIC}-{number}")
            stream.add(entries(2_000, now_ms() + HOUR_MS))
            await stream.durable()
    store = store.reopen()
    async with start(store=store, staging_bytes=BUDGET_BYTES, maintain_interval_ms=60_000) as daemon:
        await until(lambda: staged_bytes(daemon) <= BUDGET_BYTES)
        assert daemon.engine.catalog.stats().persists > 5


async def test_not_ready_for_as_long_as_persists_fail(start: StartDaemon, socket_path: Path) -> None:
    store = FlakyStore()
    async with (
        start(
            store=store, staging_bytes=BUDGET_BYTES, storage_retry_ms=60, maintain_interval_ms=10
        ) as daemon,
        await ShimClient.connect(socket_path) as client,
    ):
        stream = await client.open(TOPIC)
        store.failing_persists = True
        stream.add(entries(5_000, now_ms() + HOUR_MS))
        await stream.durable()
        await until(lambda: not daemon.health.ready)
        ready: list[bool] = []

        def failed_often() -> bool:
            ready.append(daemon.health.ready)
            return daemon.engine.catalog.stats().persist_failures >= 5

        await until(failed_often)
        assert not any(ready)
        assert daemon.health.reasons() == [
            "entries cannot be moved from the journal to slices, trying again: no space left on the device"
        ]
        store.failing_persists = False
        await until(lambda: daemon.health.ready)


async def test_an_unforeseen_failure_of_persisting_stops_no_other_part(
    start: StartDaemon, socket_path: Path, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bug(now_ms: int) -> None:
        raise RuntimeError("a bug")

    store = MemoryStore()
    settings = {"staging_bytes": BUDGET_BYTES, "staging_bytes_max": 2 * BUDGET_BYTES}
    async with (
        start(store=store, maintain_interval_ms=20, **settings) as daemon,
        await ShimClient.connect(socket_path) as client,
    ):
        catalog = daemon.engine.catalog
        stream = await client.open(ORDERS.topic)
        other = await client.open(PAYMENTS.topic)
        stream.add(entries(500, now_ms() + HOUR_MS))
        await stream.durable()
        with monkeypatch.context() as patched:
            patched.setattr(catalog, "maintain", bug)
            catalog.persist(ORDERS)
            corrupt_blocks(store)
            index = catalog.get(ORDERS)
            assert index is not None
            index.timeline.pop_due(now_ms() + 2 * HOUR_MS, 1)
            catalog.persist(ORDERS)
            await stream.until(lambda: len(stream.unheld) == 500)
            other.add(entries(20_000, now_ms() + HOUR_MS))
            await until(lambda: "reading is held back" in log.getvalue())
            assert daemon.health.reasons() == [
                "a bug in the daemon's upkeep (maintain), trying again: RuntimeError('a bug'); "
                "report it with the log"
            ]
        await until(lambda: "reading goes on" in log.getvalue())
        assert not daemon.health.ready, "nothing tells that it is mended"
        monkeypatch.setattr(maintenance, "BUG_STANDS_MS", 0)
        await until(lambda: daemon.health.ready)
    assert log.getvalue().count("RuntimeError: a bug") == 1, "with its traceback, once"


async def test_one_subscription_that_can_be_read_does_not_hide_another_that_cannot(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch, log: io.StringIO
) -> None:
    def fail(now_ms: int, limit: int) -> None:
        raise StorageError("input/output error")

    async with start(storage_retry_ms=10) as daemon, await ShimClient.connect(socket_path) as client:
        bad = await client.open(ORDERS.topic)
        good = await client.open(PAYMENTS.topic)
        index = daemon.engine.catalog.get(ORDERS)
        assert index is not None
        monkeypatch.setattr(index.timeline, "pop_due", fail)
        bad.add(entries(1, now_ms()))
        await until(lambda: not daemon.health.ready)
        good.add(entries(1, now_ms()))
        await good.take_due(1)
        late = "cannot be read and come late: input/output error; look at the disk"
        assert daemon.health.reasons() == [f"due entries of {ORDERS} {late}"]
        worse = await client.open(ORDERS.topic, "another")
        another = daemon.engine.catalog.get(SubscriptionName(ORDERS.topic, "another"))
        assert another is not None
        monkeypatch.setattr(another.timeline, "pop_due", fail)
        worse.add(entries(1, now_ms()))
        both = [f"due entries of {ORDERS} and of 1 other subscriptions {late}"]
        await until(lambda: daemon.health.reasons() == both)
        await bad.close()
        await worse.close()
        assert daemon.health.ready
    assert log.getvalue().count("due entries cannot be read, trying again") == 1, "not once for each try"


async def test_a_stream_that_was_replaced_keeps_nobody_unready(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its successor can read the entries. The broker may close the former one much later."""

    def fail(now_ms: int, limit: int) -> None:
        raise StorageError("input/output error")

    async with start(storage_retry_ms=60_000) as daemon, await ShimClient.connect(socket_path) as client:
        former = await client.open(TOPIC, epoch=1)
        index = daemon.engine.catalog.get(SubscriptionName(TOPIC, "sub"))
        assert index is not None
        with monkeypatch.context() as patched:
            patched.setattr(index.timeline, "pop_due", fail)
            former.add(entries(1, now_ms()))
            await until(lambda: not daemon.health.ready)
        stream = await client.open(TOPIC, epoch=2)
        await stream.take_due(1)
        assert daemon.health.ready


async def test_what_a_persist_writes_of_a_subscription_that_is_gone_is_deleted_at_once(
    start: StartDaemon, socket_path: Path
) -> None:
    """Though nobody says anything any more."""

    def is_stored() -> bool:
        kinds = (keys.IDENTITY, *keys.SUBSCRIPTION_KINDS)
        return any(True for kind in kinds for _ in store.scan(*keys.kind_range(kind)))

    store = FlakyStore()
    async with (
        start(store=store, maintain_interval_ms=10, heartbeat_ms=600_000) as daemon,
        await ShimClient.connect(socket_path) as client,
    ):
        catalog = daemon.engine.catalog
        stream = await client.open(ORDERS.topic)
        stream.add(entries(5, now_ms() + HOUR_MS))
        await stream.durable()
        index = catalog.get(ORDERS)
        assert index is not None
        store.stick(persists_only=True)
        try:
            assert catalog.want_persist(index)
            await until(store.arrived.is_set)
            stream.clear()
            await stream.close()
            await until(lambda: catalog.get(ORDERS) is None)
            await until(lambda: catalog.journal.durable_token == catalog.stats().appended_token)
            assert not is_stored()
        finally:
            store.release()
        await until(lambda: catalog.background.running is None)
        await until(lambda: not is_stored())


async def test_nothing_is_looked_after_once_it_has_stopped(start: StartDaemon, socket_path: Path) -> None:
    """Nobody applies a finished persist then: the catalog may be closed."""
    store = FlakyStore()
    async with start(store=store), await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC)
        stream.add(entries(2 * BUDGET_BYTES // ENTRY_BYTES, now_ms() + HOUR_MS))
        await stream.durable()
    store.memory = store.memory.reopen()
    store.stick(persists_only=True)
    async with start(store=store, staging_bytes=BUDGET_BYTES, maintain_interval_ms=60_000) as daemon:
        catalog = daemon.engine.catalog
        try:
            await until(store.arrived.is_set)
            daemon.engine._maintenance.stop()
        finally:
            store.release()
        running = catalog.background.running
        assert running is not None
        await until(running.done)
        for _ in range(10):
            await asyncio.sleep(0.01)
        assert catalog.stats().persists == 0


# --- what nobody asks for any more ------------------------------------------------------------------------


def test_what_had_no_stream_for_too_long_expires_once() -> None:
    unserved = Unserved(keep_ns=100)
    unserved.begin(ORDERS, 0)
    unserved.begin(PAYMENTS, 10)
    assert unserved.take_expired(99) == []
    assert unserved.take_expired(100) == [ORDERS]
    assert unserved.take_expired(109) == []
    unserved.end(PAYMENTS)
    unserved.begin(PAYMENTS, 109)
    assert unserved.take_expired(208) == []
    assert unserved.take_expired(209) == [PAYMENTS]
    assert len(unserved) == 0


def test_losing_the_stream_again_starts_anew() -> None:
    unserved = Unserved(keep_ns=100)
    unserved.begin(ORDERS, 0)
    unserved.begin(PAYMENTS, 1)
    unserved.begin(ORDERS, 50)
    assert unserved.take_expired(149) == [PAYMENTS]


def test_zero_keeps_for_ever() -> None:
    unserved = Unserved(keep_ns=0)
    unserved.begin(ORDERS, 0)
    assert unserved.take_expired(1 << 62) == []


async def test_the_index_of_a_subscription_that_has_moved_away_is_removed(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    store, clock = MemoryStore(), ManualClock(T0)
    async with start(store=store), await ShimClient.connect(socket_path) as client:
        for name in (ORDERS, PAYMENTS):
            stream = await client.open(name.topic)
            stream.add(entries(5, T0 + HOUR_MS))
            await stream.close()
    kept_ms = 864_000
    settings = {"forget_days": kept_ms / 86_400_000, "heartbeat_ms": 600_000, "maintain_interval_ms": 10}
    store = store.reopen()
    async with start(store=store, clock=clock, **settings) as daemon:
        catalog = daemon.engine.catalog
        async with await ShimClient.connect(socket_path) as client:
            served = await client.open(ORDERS.topic)
            assert len(served.held) == 5
            clock.advance(kept_ms)
            await until(lambda: catalog.get(PAYMENTS) is None)
            assert catalog.get(ORDERS) is not None
            again = await client.open(PAYMENTS.topic)
            assert not again.held
            await served.close()
            await again.close()
    assert "its index is removed" in log.getvalue()
    async with start(store=store.reopen()) as daemon:
        assert [index.name for index in daemon.engine.catalog] == [ORDERS]
