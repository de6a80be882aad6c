"""The data directory is deleted under a running daemon: nothing is called durable, and it begins anew."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.daemons import DaemonProcess
from tests.support.shim_client import ShimClient, entries
from tests.support.waiting import until
from tidegate.index.log.memory_home import World
from tidegate.plugin.errors import ErrorCode

TOPIC = "persistent://public/default/orders"
HOUR_MS = 3_600_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


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
        shutil.rmtree(daemon.data_dir)
        stream.add(entries(5, now_ms() + HOUR_MS, ledger_id=2))
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
