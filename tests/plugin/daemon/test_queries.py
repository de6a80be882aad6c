"""The cost of a control client that asks and does not read."""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.support.daemons import StartDaemon
from tests.support.shim_client import READ_BYTES, ShimClient
from tests.support.waiting import until
from tidegate.index import Entries
from tidegate.plugin.daemon.connection import Connection
from tidegate.plugin.daemon.serve import RunningDaemon
from tidegate.plugin.wire.codec import decode, encode
from tidegate.plugin.wire.control_messages import Query, Reply, json_body
from tidegate.plugin.wire.frames import VERSION_MAX, VERSION_MIN, FrameDecoder
from tidegate.plugin.wire.messages import Hello, Role

TOPIC = "persistent://public/default/orders"
ASKED = 300
FAR_MS = 4_000_000_000_000
BOUND_BYTES = 4 * 1024 * 1024
"""An answer of 1.1 MB, the daemon's buffer and the kernel's, with room to spare."""


class SlowReader:
    """A control client that takes nothing unless `reply` is called: its buffer is small."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = FrameDecoder()
        self._replies: deque[tuple[int, dict[str, object]]] = deque()
        self.sent_bytes = 0

    def ask(self, numbers: Iterable[int], what: str) -> None:
        """In one write, so that the daemon reads all of it together."""
        query = Query(json_body({"what": what, "topic": TOPIC, "subscription": "sub"}))
        self.send(b"".join(encode(query, seq=number) for number in numbers))

    def send(self, data: bytes) -> None:
        self._writer.write(data)
        self.sent_bytes += len(data)

    async def reply(self) -> tuple[int, dict[str, object]]:
        while not self._replies:
            data = await self._reader.read(READ_BYTES)
            assert data, "the daemon has closed the connection"
            for frame in self._decoder.feed(data):
                message = decode(frame)
                if isinstance(message, Reply):
                    self._replies.append((frame.seq, message.answer()))
        return self._replies.popleft()


@asynccontextmanager
async def connected(path: Path) -> AsyncIterator[SlowReader]:
    reader, writer = await asyncio.open_unix_connection(str(path), limit=4_096)
    try:
        client = SlowReader(reader, writer)
        client.send(encode(Hello(VERSION_MIN, VERSION_MAX, Role.CONTROL, "slow", "test")))
        yield client
    finally:
        writer.close()


async def sample(daemon: RunningDaemon, name: str) -> float:
    for line in (await daemon.exposition()).decode().splitlines():
        if line.startswith(f"{name} "):
            return float(line.split()[1])
    raise AssertionError(f"no {name}")


def spread(ledgers: int, each: int) -> Entries:
    """Every second entry of each ledger, so that no bitmap gets small."""
    return Entries.of(
        (FAR_MS, ledger_id, 2 * number) for ledger_id in range(1, ledgers + 1) for number in range(each)
    )


@pytest.mark.parametrize("what", ["record", "positions"])
async def test_who_asks_and_does_not_read_costs_little_memory(
    start: StartDaemon, socket_path: Path, what: str
) -> None:
    async with (
        start(write_buffer_bytes=65_536) as daemon,
        await ShimClient.connect(socket_path) as broker,
        connected(socket_path) as client,
    ):
        stream = await broker.open(TOPIC)
        client.ask([1], "record")
        await client.reply()
        stream.add(spread(500, 100))
        await stream.durable()
        client.ask(range(2, ASKED), what)
        told = broker.sent_bytes + client.sent_bytes

        async def arrived() -> bool:
            return await sample(daemon, "tidegate_bytes_received_total") >= told

        while not await arrived():
            await asyncio.sleep(0.01)
        assert await sample(daemon, "tidegate_bytes_sent_total") < BOUND_BYTES
        answered: dict[int, dict[str, object]] = {}
        while len(answered) < ASKED - 2:
            number, answer = await client.reply()
            if answer.get("last", True):
                answered[number] = answer
        refused = [one for one in answered.values() if "wait for the answers" in str(one.get("error"))]
        assert 0 < len(refused) < ASKED - 2
        assert "error" not in answered[2]
        client.ask([ASKED], "status")
        assert "error" not in (await client.reply())[1]


async def test_who_goes_without_reading_leaves_nothing(start: StartDaemon, socket_path: Path) -> None:
    async with start(write_buffer_bytes=65_536) as daemon, await ShimClient.connect(socket_path) as broker:
        stream = await broker.open(TOPIC)
        async with connected(socket_path) as client:
            client.ask([1], "record")
            await client.reply()
            stream.add(spread(500, 100))
            await stream.durable()
            client.ask(range(2, 10), "record")
            queries = daemon.engine.queries
            await until(lambda: bool(queries._room))
        await until(lambda: not queries._tasks)
        assert not queries._room
        assert queries.recorder.ask(object(), {})["seen"] == 0, "another may record"


async def test_who_asks_and_goes_leaves_nothing(start: StartDaemon, socket_path: Path) -> None:
    others = links()  # of tests before
    async with start():
        async with connected(socket_path) as client:
            client.ask(range(1, 4), "status")
            for _ in range(3):
                await client.reply()
        await until(lambda: all(one in others for one in links()))


def links() -> list[Connection]:
    """Connections in memory."""
    gc.collect()
    return [one for one in gc.get_objects() if isinstance(one, Connection)]


async def test_who_goes_without_reading_before_its_change_is_durable_leaves_nothing(
    start: StartDaemon, socket_path: Path
) -> None:
    durable: list[Callable[[None], None]] = []
    async with start() as daemon, await ShimClient.connect(socket_path) as broker:
        await broker.open(TOPIC)
        queries = daemon.engine.queries
        with patch.object(daemon.engine._committer, "after", lambda _, tell: durable.append(tell)):
            async with connected(socket_path) as client:
                width = {"what": "width", "subscription": f"{TOPIC}:sub", "width_ms": 600_000}
                client.send(encode(Query(json_body(width)), seq=1))
                await until(lambda: bool(durable))
                (link,) = queries._unanswered
                assert isinstance(link, Connection)
                link.pause_writing()
            await link.lost
        durable[0](None)
        await until(lambda: not queries._tasks)
        assert not queries._room
        assert not queries._unanswered
