"""Frames that are not whole: what they take of memory, while their connections last and after that."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.daemons import StartDaemon
from tests.support.shim_client import ShimClient
from tests.support.waiting import until
from tidegate.plugin.daemon import half_frames
from tidegate.plugin.daemon.half_frames import HalfFrames
from tidegate.plugin.errors import ErrorCode
from tidegate.plugin.wire.codec import decode, encode
from tidegate.plugin.wire.frames import VERSION_MAX, VERSION_MIN, FrameDecoder
from tidegate.plugin.wire.messages import Error, Hello, Role

MIB = 1 << 20


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[HalfFrames]:
    """The counters of daemons that are started from now on."""
    found: list[HalfFrames] = []
    begin = HalfFrames.__init__

    def begin_and_tell(self: HalfFrames) -> None:
        begin(self)
        found.append(self)

    monkeypatch.setattr(HalfFrames, "__init__", begin_and_tell)
    return found


@contextmanager
def no_collections() -> Iterator[None]:
    """Nothing is freed but what nobody refers to."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def half_a_frame(path: Path, name: str, role: Role, size_bytes: int) -> socket.socket:
    """A client that has said HELLO and all of a frame but its last byte."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, str(path))
    await loop.sock_sendall(client, encode(Hello(VERSION_MIN, VERSION_MAX, role, name, "a test")))
    await loop.sock_sendall(client, struct.pack("<I", size_bytes) + bytes(size_bytes - 1))
    return client


async def error_of(client: socket.socket) -> Error | None:
    """The error that a client gets before its connection is closed; None if it gets none."""
    loop, decoder = asyncio.get_running_loop(), FrameDecoder()
    while data := await loop.sock_recv(client, 128 * 1024):
        for frame in decoder.feed(data):
            message = decode(frame)
            if isinstance(message, Error):
                return message
    return None


async def test_half_frames_go_with_their_connections(
    start: StartDaemon, socket_path: Path, made: list[HalfFrames]
) -> None:
    """Not when garbage is collected, which was gigabytes later."""
    async with start():
        tracemalloc.start()
        try:
            with no_collections():
                before, _ = tracemalloc.get_traced_memory()
                for _ in range(3):
                    clients = [
                        await half_a_frame(socket_path, f"control-{number}", Role.CONTROL, 3 * MIB)
                        for number in range(8)
                    ]
                    await until(lambda: made[0].size_bytes > 24 * MIB - 1_000)
                    for client in clients:
                        client.close()
                    await until(lambda: not made[0].size_bytes)
                after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert after - before < 6 * MIB, "of 72 that came"


async def test_half_frames_of_all_connections_are_bounded(
    start: StartDaemon,
    socket_path: Path,
    made: list[HalfFrames],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One more ends the connection that has waited longest, brokers last. All others go on."""
    monkeypatch.setattr(half_frames, "MAX_BYTES", 4 * MIB)
    async with start(), await ShimClient.connect(socket_path, "whole") as whole:
        broker = await half_a_frame(socket_path, "broker-1", Role.BROKER, 2 * MIB)
        await until(lambda: made[0].size_bytes > 2 * MIB - 100)
        first = await half_a_frame(socket_path, "control-1", Role.CONTROL, MIB)
        await until(lambda: made[0].size_bytes > 3 * MIB - 100)
        second = await half_a_frame(socket_path, "control-2", Role.CONTROL, MIB // 2)
        await until(lambda: made[0].size_bytes > 3.5 * MIB - 100)
        third = await half_a_frame(socket_path, "control-3", Role.CONTROL, MIB)
        told = await error_of(first)
        assert told is not None
        assert told.code == ErrorCode.BUSY
        assert "half received" in told.message
        await until(lambda: made[0].size_bytes > 3.5 * MIB - 1_000)
        assert made[0].size_bytes <= 4 * MIB
        stream = await whole.open("persistent://public/default/orders")
        assert not stream.held
        for client in (broker, first, second, third):
            client.close()
        await until(lambda: not made[0].size_bytes)


class _Peer:
    def __init__(self, *, is_broker: bool = False) -> None:
        self.is_broker = is_broker
        self.ended = False

    def give_back(self, why: str) -> None:
        self.ended = True


def test_a_frame_that_goes_on_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_frames, "MAX_BYTES", 10)
    halves = HalfFrames()
    slow, quick, broker = peers = _Peer(), _Peer(), _Peer(is_broker=True)
    halves.note_half_frame(broker, 2, is_same=False)
    halves.note_half_frame(quick, 3, is_same=False)
    halves.note_half_frame(slow, 3, is_same=False)
    halves.note_half_frame(quick, 2, is_same=False)  # another frame of it began, after that of the slow one
    halves.note_half_frame(slow, 4, is_same=True)
    assert not any(peer.ended for peer in peers)
    halves.note_half_frame(quick, 5, is_same=True)
    assert [peer for peer in peers if peer.ended] == [slow]
    assert halves.size_bytes == 7
    halves.note_half_frame(quick, 0, is_same=False)
    assert not (quick.ended or broker.ended)
    halves.note_half_frame(broker, 11, is_same=True)
    assert broker.ended, "nobody else is left"
    assert not quick.ended
    assert halves.size_bytes == 0
    halves.forget(broker)
    assert halves.size_bytes == 0
