"""The data directory is deleted under a running daemon: nothing is called durable, and it begins anew."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.daemons import DaemonProcess, StartDaemon
from tests.support.shim_client import ShimClient, entries
from tests.support.waiting import until
from tidegate.index.log.memory_home import World
from tidegate.index.rocks.rocks import RocksStore
from tidegate.plugin.errors import ErrorCode

TOPIC = "persistent://public/default/orders"
HOUR_MS = 3_600_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def test_a_persist_that_notices_is_enough(
    start: StartDaemon, short_dir: Path, socket_path: Path
) -> None:
    """Of a quiet daemon nobody makes a commit, and what is due and not in memory cannot be read."""
    data = short_dir / "store"
    async with (
        start(store=RocksStore.open(data), maintain_interval_ms=10, storage_retry_ms=50) as daemon,
        await ShimClient.connect(socket_path) as client,
    ):
        stream = await client.open(TOPIC)
        stream.add(entries(100, now_ms() + HOUR_MS))
        await stream.durable()
        (index,) = daemon.engine.catalog
        shutil.rmtree(data)
        await until(lambda: daemon.engine.catalog.want_persist(index))
        await until(daemon.engine.lost.is_set)
        data.mkdir()  # for the end, which commits once more


async def test_it_begins_anew_with_what_the_index_log_has(
    serve: Callable[..., DaemonProcess], socket_path: Path
) -> None:
    daemon, world = serve(), World()
    await daemon.ready()
    async with await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC)
        stream.add(entries(100, now_ms() + HOUR_MS))
        await stream.durable()
        await until(lambda: world.pointer.startswith("1;1;"))
        with daemon.paused():  # else a persist may notice before there is anything to refuse
            shutil.rmtree(daemon.data_dir)
            stream.add(entries(5, now_ms() + HOUR_MS, ledger_id=2))
            await client.drain()
        error = await stream.ended()
        assert error is not None
        assert error.code == ErrorCode.STORAGE
        assert stream.durable_seq == 1, "what went into deleted files is not durable"
    await until(lambda: daemon.log().count('"serving"') == 2)
    async with await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=2)
        assert len(stream.held) == 100
        stream.add(entries(5, now_ms() + HOUR_MS, ledger_id=2))
        await stream.durable()
    lines = daemon.log().splitlines()
    assert sum("its directory was deleted or replaced" in line for line in lines) == 1
    assert sum("the index was restored from its log" in line for line in lines) == 1
    assert daemon.stop() == 0
