"""Connected brokers, and the memory of former ones."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from tests.support.daemons import StartDaemon
from tests.support.shim_client import ShimClient
from tests.support.waiting import until
from tidegate.plugin.daemon import brokers, streams
from tidegate.plugin.errors import ErrorCode
from tidegate.plugin.wire.messages import NAME_BYTES_MAX

TOPIC = "persistent://public/default/orders"


async def test_what_is_remembered_of_brokers_is_bounded(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brokers, "REMEMBERED_MAX", 3)
    async with start() as daemon:
        for number in [0, *range(6), 5]:
            async with await ShimClient.connect(socket_path, f"broker-{number}"):
                assert list(daemon.engine.brokers) == [f"broker-{number}"]
            await until(lambda: not daemon.engine.brokers)
        assert list(daemon.engine._brokers._remembered) == ["broker-3", "broker-4", "broker-5"]
        assert b"tidegate_reconnects_total 2.0" in await daemon.exposition()


async def test_what_is_remembered_of_ended_streams_is_bounded(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "ENDED_MAX", 3)
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        refused = [client.begin_open("x" * (NAME_BYTES_MAX + 1)) for _ in range(5)]
        for stream in refused:
            await stream.ended()
        (connection,) = daemon.engine.brokers.values()
        assert list(connection._streams._ended) == [3, 4, 5]  # type: ignore[attr-defined]
        for stream in (refused[4], refused[0]):  # one that is remembered keeps quiet
            stream.error = None
            stream.mark_delete(1, 2)
        assert (await refused[0].ended()).code == ErrorCode.UNKNOWN_STREAM
        assert refused[4].error is None


@pytest.mark.parametrize(("closes", "level"), [(False, "warning"), (True, "info")])
async def test_a_broker_that_leaves_streams_open_was_killed(
    start: StartDaemon, socket_path: Path, log: io.StringIO, closes: bool, level: str
) -> None:
    async with start() as daemon:
        async with await ShimClient.connect(socket_path) as client:
            stream = await client.open(TOPIC)
            if closes:
                await stream.close()
        await until(lambda: not daemon.engine.brokers)
    (said,) = (one for one in map(json.loads, log.getvalue().splitlines()) if "disconnected" in one["event"])
    assert said["level"] == level
    assert said.get("unclosed_streams") == (None if closes else 1)


async def test_a_daemon_that_stops_warns_of_no_broker(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    async with start():
        client = await ShimClient.connect(socket_path)
        await client.open(TOPIC)
    await client.disconnect()
    assert not [one for one in map(json.loads, log.getvalue().splitlines()) if one["level"] == "warning"]
