"""How much a connection reads at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.daemons import StartDaemon
from tests.support.shim_client import ShimClient
from tidegate.plugin.daemon.connection import Connection
from tidegate.plugin.daemon.read_size import MAX_BYTES, MIN_BYTES, ReadSize

MS = 1_000_000


def test_it_is_small_at_first_and_after_a_slow_read() -> None:
    read = ReadSize()
    first = read.size_bytes
    for _ in range(10):
        read.note_read(1 * MS)
    assert first < read.size_bytes == MAX_BYTES
    read.note_read(10 * MS)
    assert read.size_bytes == MAX_BYTES, "neither fast nor slow"
    read.note_read(160 * MS)
    assert read.size_bytes == MAX_BYTES // 8
    read.note_read(60_000 * MS)
    assert read.size_bytes == MIN_BYTES


async def test_streams_are_opened_in_several_turns_of_the_loop(
    start: StartDaemon, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    updated = Connection.buffer_updated

    def buffer_updated(connection: Connection, nbytes: int) -> None:
        reads.append(nbytes)
        updated(connection, nbytes)

    monkeypatch.setattr(Connection, "buffer_updated", buffer_updated)
    name = "persistent://public/default/" + 1_000 * "x"
    async with start(), await ShimClient.connect(socket_path) as client:
        streams = [client.begin_open(f"{name}{number}") for number in range(200)]
        await client.until(lambda: all(stream.answered for stream in streams))
    hello, first, *_ = reads
    assert hello < first <= MAX_BYTES // 4
