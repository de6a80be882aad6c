"""An upgrade broker by broker: one daemon serves shims of all its versions."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.daemons import StartDaemon
from tests.support.shim_client import ShimClient, entries
from tests.support.waiting import until
from tidegate.index.state.positions import PositionSet
from tidegate.index.store import MemoryStore
from tidegate.plugin.wire.frames import VERSION_MAX, VERSION_MIN

TOPIC = "persistent://public/default/orders"
HOUR_MS = 3_600_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.parametrize("version", range(VERSION_MIN, VERSION_MAX))
async def test_a_topic_moves_from_an_older_shim_to_a_new_one_and_back(
    version: int, start: StartDaemon, socket_path: Path
) -> None:
    async with (
        start(),
        await ShimClient.connect(socket_path, "broker-1", version=version) as old,
        await ShimClient.connect(socket_path, "broker-2") as new,
    ):
        assert old.welcome is not None
        assert new.welcome is not None
        assert (old.welcome.version, new.welcome.version) == (version, VERSION_MAX)
        first_ms = now_ms() + HOUR_MS
        stream = await old.open(TOPIC)
        stream.add(entries(5, first_ms))
        await stream.durable()
        for epoch, client in ((2, new), (3, old), (4, new)):
            stream = await client.open(TOPIC, epoch=epoch)
            assert len(stream.held) == 5 + epoch - 2, "nothing is read again"
            stream.add(entries(1, first_ms, ledger_id=epoch))
            stream.add(entries(1, now_ms() - 1, ledger_id=100 + epoch))
            due = await stream.take_due(1)
            assert due.ledger_id.tolist() == [100 + epoch]
            stream.ack(PositionSet.of_entries(due))
            await stream.durable()
        assert len((await old.open(TOPIC, epoch=5)).held) == 8


async def test_a_new_daemon_goes_on_for_an_older_shim(start: StartDaemon, socket_path: Path) -> None:
    """The daemon is replaced first: the broker that stays connects again, and has what it had."""
    store = MemoryStore()
    async with start(store=store) as daemon:
        async with await ShimClient.connect(socket_path, version=VERSION_MIN) as old:
            stream = await old.open(TOPIC)
            stream.add(entries(5, now_ms() + HOUR_MS))
            await stream.durable()
        await until(lambda: not daemon.engine.brokers)
    async with (
        start(store=store.reopen()),
        await ShimClient.connect(socket_path, version=VERSION_MIN) as old,
    ):
        assert len((await old.open(TOPIC)).held) == 5
