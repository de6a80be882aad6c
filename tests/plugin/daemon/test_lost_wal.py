"""A killed daemon whose WAL is damaged before it is started again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.support.daemons import DaemonProcess
from tests.support.shim_client import ShimClient, entries
from tidegate.index.state.positions import PositionSet

TOPIC = "persistent://public/default/orders"
HOUR_MS = 3_600_000
POSITIONS = PositionSet.of((1, at) for at in range(50))


async def lost_commits(daemon: DaemonProcess) -> float:
    """The metric, as Prometheus reads it."""
    async with httpx.AsyncClient(base_url=await daemon.base_url()) as http:
        text = (await http.get("/metrics")).text
    (line,) = (line for line in text.splitlines() if line.startswith("tidegate_lost_commits "))
    return float(line.split()[1])


async def test_acknowledgements_that_were_taken_back_are_not_answered_after_damage(
    serve: Callable[..., DaemonProcess], socket_path: Path
) -> None:
    """Believed, the shim would delete these messages in the cursor."""
    arguments = ("--log-format", "json", "--http", "127.0.0.1:0")
    daemon = serve(*arguments)
    await daemon.ready()
    async with await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC)
        stream.add(entries(100, time.time_ns() // 1_000_000 + HOUR_MS))
        await stream.durable()
        stream.ack(POSITIONS)
        await stream.durable()
        (wal,) = daemon.data_dir.glob("*.log")
        before = wal.stat().st_size
        stream.unack(POSITIONS)
        await stream.durable()
        after = wal.stat().st_size
        daemon.kill()
    content = bytearray(wal.read_bytes())
    content[(before + after) // 2] ^= 1
    wal.write_bytes(content)

    daemon = serve(*arguments)
    await daemon.ready()
    async with await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC)
        assert not stream.acknowledged
        assert len(stream.held) == 50
        lines = [json.loads(line) for line in daemon.log().splitlines()]
        (said,) = (line for line in lines if "reported durable" in line["event"])
        assert said["level"] == "error"
        assert "read from the topics again" in said["event"]
        assert await lost_commits(daemon) == 1
    daemon.kill()

    daemon = serve(*arguments)
    await daemon.ready()
    async with await ShimClient.connect(socket_path) as client:
        assert not (await client.open(TOPIC)).acknowledged
        assert await lost_commits(daemon) == 0
