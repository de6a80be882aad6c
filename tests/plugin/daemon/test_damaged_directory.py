"""A flipped byte where RocksDB cannot go on: the daemon starts all the same, and says what it has done."""

from __future__ import annotations

import asyncio
import io
import resource
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.plugin.commands.test_status import shown
from tests.support.daemons import DaemonProcess
from tests.support.shim_client import ShimClient, entries
from tests.support.waiting import until
from tidegate.index.format import keys
from tidegate.index.log.memory_home import World
from tidegate.index.rocks.directory import ASIDE_NAME
from tidegate.index.rocks.rocks import RocksStore
from tidegate.index.store import Batch
from tidegate.plugin.daemon.logs import make_logger
from tidegate.plugin.daemon.serve import running_daemon
from tidegate.plugin.daemon.settings import load_settings
from tidegate.plugin.errors import ErrorCode
from tidegate.plugin.telemetry.lately import GOOD_FOR_MAX_S
from tidegate.plugin.wire.client import ask_socket

TOPIC = "persistent://public/default/orders"
HOUR_MS = 3_600_000
MOVED = "the data directory is damaged: its content is moved away"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def flip(path: Path, at: int) -> None:
    """One bit."""
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(content)


@pytest.mark.parametrize("pattern", ["CURRENT", "MANIFEST-*", "*.sst"])
async def test_it_begins_anew_with_what_the_index_log_has(
    pattern: str, serve: Callable[..., DaemonProcess], socket_path: Path
) -> None:
    daemon, world = serve(), World()
    await daemon.ready()
    async with await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC)
        stream.add(entries(100, now_ms() + HOUR_MS))
        await stream.close()
    assert daemon.stop() == 0
    for damaged in daemon.data_dir.glob(pattern):
        flip(damaged, 2 if pattern == "CURRENT" else damaged.stat().st_size // 2)
    again = serve()
    await again.ready()
    async with await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=2)
        assert len(stream.held) == 100
        stream.add(entries(5, now_ms() + HOUR_MS, ledger_id=2))
        await stream.close()
    assert again.stop() == 0
    log = again.log()
    assert log.count(MOVED) == log.count("the index was restored from its log") == 1
    assert (again.data_dir / ASIDE_NAME / "CURRENT").exists()
    third = serve()
    await third.ready()
    assert third.log().count(MOVED) == 1
    answer = await asyncio.to_thread(ask_socket, socket_path, {"what": "status"})
    aside = again.data_dir / ASIDE_NAME
    assert answer["totals"]["damaged_bytes"] == sum(each.stat().st_size for each in aside.iterdir()) > 0
    assert "could not be read, and was begun anew" in shown(answer)
    shutil.rmtree(aside)
    await asyncio.sleep(GOOD_FOR_MAX_S)
    answer = await asyncio.to_thread(ask_socket, socket_path, {"what": "status"})
    assert answer["totals"]["damaged_bytes"] == 0
    assert "DAMAGE" not in shown(answer)
    await until(lambda: '"entries_held": 105' in third.log())


async def test_so_it_does_while_it_runs_if_a_failed_store_cannot_be_opened_again(
    serve: Callable[..., DaemonProcess], socket_path: Path
) -> None:
    """A restart would do nothing else: nobody has to think of it."""
    daemon, world = serve(), World()
    await daemon.ready()
    async with await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC)
        stream.add(entries(100, now_ms() + HOUR_MS))
        await stream.durable()
        await until(lambda: world.pointer.startswith("1;1;"))
        _, hard = resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (100_000, hard))
        stream.add(entries(100_000, now_ms() + HOUR_MS, ledger_id=2))
        error = await stream.ended()
        assert error is not None and error.code == ErrorCode.STORAGE
        flip(daemon.data_dir / "CURRENT", 2)
        resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (hard, hard))
    await until(lambda: daemon.log().count('"serving"') == 2)
    async with await ShimClient.connect(socket_path) as client:
        client.offer_logs(world)
        stream = await client.open(TOPIC, epoch=2)
        assert len(stream.held) == 100
        stream.add(entries(5, now_ms() + HOUR_MS, ledger_id=2))
        await stream.durable()
    assert daemon.log().count(MOVED) == 1
    assert daemon.stop() == 0


@pytest.mark.parametrize("value", [None, b"", b"garbage", bytes(16)])
async def test_so_it_does_if_its_format_record_is_damaged_or_missing(
    value: bytes | None, short_dir: Path, socket_path: Path, log: io.StringIO
) -> None:
    store, batch = RocksStore.open(short_dir / "data"), Batch()
    if value is None:
        batch.put(keys.STATE + bytes(8), b"what is left")
    else:
        batch.put(keys.FORMAT_KEY, value)
    store.write(batch, sync=True)
    store.close()
    settings = load_settings({"data": short_dir / "data", "socket": socket_path})
    async with running_daemon(settings, make_logger("json", "info", log)) as daemon:
        assert daemon.health.ready
    assert log.getvalue().count(MOVED) == 1
    assert str(short_dir / "data" / ASIDE_NAME) in log.getvalue()
