"""A full disk: nothing is called durable that is not, what is held still comes, and it goes on by itself."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.support.daemons import StartDaemon
from tests.support.flaky_store import FlakyStore
from tests.support.shim_client import ShimClient, entries
from tests.support.waiting import until
from tidegate.index.state.positions import PositionSet
from tidegate.plugin.errors import ErrorCode, StopError
from tidegate.plugin.wire.messages import Close, Ping, Pong

TOPIC = "persistent://public/default/orders"
HOUR_MS = 3_600_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def store() -> FlakyStore:
    return FlakyStore()


async def test_a_full_disk_and_its_end(start: StartDaemon, socket_path: Path, store: FlakyStore) -> None:
    async with (
        start(store=store, storage_retry_ms=50) as daemon,
        await ShimClient.connect(socket_path) as client,
    ):
        due_soon = now_ms() + 400
        stream = await client.open(TOPIC)
        stream.add(entries(2, due_soon))
        await stream.durable()

        store.failing = True
        stream.add(entries(3, now_ms() + HOUR_MS, ledger_id=2))
        assert (await stream.ended()).code == ErrorCode.STORAGE
        assert stream.durable_seq == 1
        assert not daemon.health.ready
        assert "no space left" in daemon.health.reasons()[0]
        assert b'tidegate_commits_total{result="failed"}' in await daemon.exposition()

        again = await client.open(TOPIC)
        assert len(await again.take_due(2)) == 2, "what is held is still handed out"
        again.add(entries(3, now_ms() + HOUR_MS, ledger_id=2))
        assert (await again.ended()).code == ErrorCode.STORAGE

        store.failing = False
        await until(lambda: daemon.health.ready)
        last = await client.open(TOPIC)
        last.add(entries(3, now_ms() + HOUR_MS, ledger_id=2))
        last.ack(PositionSet.of([(1, 0), (1, 1)]))
        await last.durable()
    async with start(store=store.memory.reopen()), await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC)
        assert list(stream.held) == [(2, 0), (2, 1), (2, 2)]
        assert list(stream.acknowledged) == [(1, 0), (1, 1)]


async def test_streams_without_a_change_do_not_notice(
    start: StartDaemon, socket_path: Path, store: FlakyStore
) -> None:
    async with (
        start(store=store, storage_retry_ms=20) as daemon,
        await ShimClient.connect(socket_path) as client,
    ):
        quiet = await client.open(f"{TOPIC}-quiet")
        quiet.add(entries(1, now_ms() + 300))
        await quiet.durable()
        busy = await client.open(TOPIC)
        store.failing = True
        busy.add(entries(1, now_ms() + HOUR_MS))
        assert (await busy.ended()).code == ErrorCode.STORAGE
        assert len(await quiet.take_due(1)) == 1
        assert quiet.error is None
        refused = store.refused_writes
        await until(lambda: store.refused_writes > refused + 2)
        store.failing = False
        await until(lambda: daemon.health.ready)


async def test_stopping_with_a_full_disk_calls_nothing_durable(
    start: StartDaemon, socket_path: Path, store: FlakyStore
) -> None:
    with pytest.raises(StopError, match="no space left"):
        async with start(store=store, storage_retry_ms=600_000):
            client = await ShimClient.connect(socket_path)
            stream = await client.open(TOPIC)
            store.failing = True
            stream.add(entries(1, now_ms() + HOUR_MS))
            assert (await stream.ended()).code == ErrorCode.STORAGE
    await client.ended()
    assert stream.durable_seq == 0
    await client.disconnect()


async def test_a_slow_disk_holds_up_durable_and_nothing_else(
    start: StartDaemon, socket_path: Path, store: FlakyStore
) -> None:
    async with start(store=store) as daemon, await ShimClient.connect(socket_path) as client:
        waits = await client.open(TOPIC)
        other = await client.open(f"{TOPIC}-2")
        other.add(entries(5, now_ms() + 200))
        await other.durable()
        store.stick()
        waits.add(entries(1, now_ms() + HOUR_MS))
        await until(store.arrived.is_set)
        assert len(await other.take_due(5)) == 5
        waits.add(entries(1, now_ms() + HOUR_MS, ledger_id=2))
        waits.change(Close())
        await client.open(f"{TOPIC}-3")
        assert waits.durable_seq == 0
        assert b"tidegate_uncommitted_entries 3.0" in await daemon.exposition()
        store.release()
        await waits.durable(3)
        await waits.until(lambda: waits.closed)
        assert b"tidegate_uncommitted_entries 0.0" in await daemon.exposition()


async def test_stopping_while_a_commit_is_being_written(
    start: StartDaemon, socket_path: Path, store: FlakyStore
) -> None:
    async with start(store=store):
        client = await ShimClient.connect(socket_path)
        stream = await client.open(TOPIC)
        store.stick()
        stream.add(entries(1, now_ms() + HOUR_MS))
        await until(store.arrived.is_set)
        stream.add(entries(1, now_ms() + HOUR_MS, ledger_id=2))
        client.send(Ping(), 0, 1)
        await client.until(lambda: (Pong(), 1) in client.received)
        threading.Timer(0.1, store.release).start()
    await client.ended()
    assert stream.durable_seq == 2
    await client.disconnect()
    async with start(store=store.memory.reopen()), await ShimClient.connect(socket_path) as client:
        assert len((await client.open(TOPIC)).held) == 2


async def test_an_unforeseen_failure_is_never_taken_for_success(
    start: StartDaemon, socket_path: Path, store: FlakyStore
) -> None:
    async with start(store=store, storage_retry_ms=20), await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC)
        store.failure, store.failing = RuntimeError("a bug"), True
        stream.add(entries(1, now_ms() + HOUR_MS))
        assert (await stream.ended()).code == ErrorCode.STORAGE
        assert stream.durable_seq == 0
        store.failing = False
        await until(lambda: store.memory.disk_bytes() > 0)


async def test_memory_that_is_full_because_nothing_can_be_spilled_holds_up_nothing_but_adds(
    start: StartDaemon, socket_path: Path, store: FlakyStore
) -> None:
    """Nothing was read any more, so no credit and no acknowledgement came for what was held already."""
    async with (
        start(
            store=store,
            staging_bytes=65_536,
            staging_bytes_max=131_072,
            maintain_interval_ms=10,
            storage_retry_ms=20,
        ) as daemon,
        await ShimClient.connect(socket_path) as client,
    ):
        held = await client.open(f"{TOPIC}-held", credit=1)
        held.add(entries(3, now_ms()))
        await held.take_due(1)
        store.failing_persists = True
        far = await client.open(TOPIC)
        far.add(entries(20_000, now_ms() + HOUR_MS))
        await far.durable()
        await until(lambda: daemon.engine.catalog.background.failure is not None)
        far.add(entries(1, now_ms() + HOUR_MS, ledger_id=2))
        assert (await far.ended()).code == ErrorCode.STORAGE
        held.give_credit(2)
        assert len(await held.take_due(2)) == 2
        held.ack(PositionSet.of([(1, 0)]))
        await held.durable()

        store.failing_persists = False
        await until(lambda: daemon.health.ready)
        last = await client.open(TOPIC)
        assert len(last.held) == 20_000
        last.add(entries(1, now_ms() + HOUR_MS, ledger_id=2))
        await last.durable()
