"""A real daemon, and more connections than it may have files: who works with it does not notice."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import resource
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.daemons import DaemonProcess, run
from tests.support.shim_client import ClientStream, ShimClient, entries
from tests.support.waiting import until
from tidegate.index.rocks import families
from tidegate.plugin.daemon import descriptors
from tidegate.plugin.daemon.descriptors import BROKERS_MAX
from tidegate.plugin.errors import ErrorCode
from tidegate.plugin.local.process import LocalProcessError
from tidegate.plugin.wire.frames import VERSION_MAX, VERSION_MIN
from tidegate.plugin.wire.messages import Hello, Role

TOPIC = "persistent://public/default/orders"
HOUR_MS = 3_600_000
OPEN_FILES = 1_024
FLOOD = 1_100
LOG_BYTES_MAX = 16_384
Serve = Callable[..., DaemonProcess]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture(autouse=True)
def _files_enough() -> None:
    """This process opens as many as it floods with."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2 * FLOOD:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4 * FLOOD), hard))


@asynccontextmanager
async def flood(
    family: socket.AddressFamily, address: str | tuple[str, int], said: bytes
) -> AsyncIterator[list[socket.socket]]:
    """So many connections that say this and nothing more."""
    loop = asyncio.get_running_loop()
    opened: list[socket.socket] = []

    async def one() -> None:
        sock = socket.socket(family)
        sock.setblocking(False)
        opened.append(sock)
        while True:
            try:
                await loop.sock_connect(sock, address)
            except BlockingIOError:  # the daemon's queue is full
                await asyncio.sleep(0.01)
            else:
                break
        await loop.sock_sendall(sock, said)

    try:
        async with asyncio.timeout(120):
            for _ in range(FLOOD // 50):
                await asyncio.gather(*(one() for _ in range(50)), return_exceptions=True)
        yield opened
    finally:
        for sock in opened:
            sock.close()


async def still_served(daemon: DaemonProcess, base: str, stream: ClientStream) -> None:
    """The established broker, a new one, `tidegate status` and `/readyz`."""
    stream.add(entries(10, now_ms() + HOUR_MS, ledger_id=2))
    await stream.durable()
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        assert (await client.get(f"{base}/readyz")).text == "ready\n"
        assert "tidegate_entries_held 20.0" in (await client.get(f"{base}/metrics")).text
    shown = await asyncio.to_thread(run, "status", "--socket", str(daemon.socket_path))
    assert shown.returncode == 0, shown.stderr
    async with await ShimClient.connect(daemon.socket_path, "broker-2") as late:
        assert len((await late.open(f"{TOPIC}-2")).held) == 0
    assert len(daemon.log().encode()) < LOG_BYTES_MAX


@asynccontextmanager
async def working(serve: Serve) -> AsyncIterator[tuple[DaemonProcess, str, ClientStream]]:
    """A daemon of few files, and a broker that is connected to it."""
    daemon = serve("--log-format", "json", "--http", "127.0.0.1:0", open_files=OPEN_FILES)
    base = await daemon.base_url()
    async with await ShimClient.connect(daemon.socket_path) as client:
        stream = await client.open(TOPIC)
        stream.add(entries(10, now_ms() + HOUR_MS))
        await stream.durable()
        yield daemon, base, stream


def http_address(base: str) -> tuple[str, int]:
    host, _, port = base.removeprefix("http://").partition(":")
    return host, int(port)


@pytest.mark.parametrize(
    "said",
    [b"", b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n", b"\0\r\n\r\n", b"GET /healthz HTTP/1.1\r\n\r\n"],
    ids=["nothing", "half a header", "garbage", "a whole request"],
)
async def test_a_flood_over_http(serve: Serve, said: bytes) -> None:
    async with working(serve) as (daemon, base, stream):
        async with flood(socket.AF_INET, http_address(base), said):
            await still_served(daemon, base, stream)
        assert len(daemon.log().encode()) < LOG_BYTES_MAX


async def test_a_flood_over_the_socket(serve: Serve) -> None:
    async with working(serve) as (daemon, base, stream), flood(socket.AF_UNIX, str(daemon.socket_path), b""):
        await still_served(daemon, base, stream)


async def test_control_clients_that_never_leave(serve: Serve) -> None:
    async with working(serve) as (daemon, base, stream):
        clients = [
            await ShimClient.connect(daemon.socket_path, f"control-{number}", Role.CONTROL)
            for number in range(200)
        ]
        try:
            await still_served(daemon, base, stream)
            assert any(client.closed for client in clients)
        finally:
            for client in clients:
                await client.disconnect()


async def test_more_brokers_than_anybody_has(serve: Serve) -> None:
    async with working(serve) as (daemon, _base, stream):
        clients = [await ShimClient.raw(daemon.socket_path) for _ in range(BROKERS_MAX)]
        try:
            for number, client in enumerate(clients):
                client.send(Hello(VERSION_MIN, VERSION_MAX, Role.BROKER, f"many-{number}", "pulsar 4.0.8"))
            for client in clients[:-1]:
                await until(functools.partial(lambda one: one.welcome is not None, client))
            error = await clients[-1].ended()
            assert error is not None
            assert error.code == ErrorCode.BUSY
            assert "64 brokers are connected" in error.message
            stream.add(entries(10, now_ms() + HOUR_MS, ledger_id=2))
            await stream.durable()
            shown = await asyncio.to_thread(run, "status", "--socket", str(daemon.socket_path))
            assert shown.returncode == 0, shown.stderr
        finally:
            for client in clients:
                await client.disconnect()


async def test_a_connection_that_says_nothing_is_cut_off(serve: Serve) -> None:
    async with working(serve) as (_, base, _stream):
        reader, writer = await asyncio.open_connection(*http_address(base))
        writer.write(b"GET /metrics HTTP/1.1\r\n")
        async with asyncio.timeout(120):
            assert await reader.read() == b""
        writer.close()


async def test_no_descriptor_left_is_said_once_and_does_not_spin(serve: Serve) -> None:
    async with working(serve) as (daemon, base, stream):
        pid = daemon.pid
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        used = max(int(one.name) for one in Path(f"/proc/{pid}/fd").iterdir()) + 1
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used, hard))
        before_s = cpu_seconds(pid)
        waiting = [await asyncio.open_connection(*http_address(base)) for _ in range(5)]
        await until(lambda: "EMFILE" in daemon.log() or "Too many open files" in daemon.log())
        begin = time.monotonic()
        while (passed_s := time.monotonic() - begin) < 3:
            stream.add(entries(1, now_ms() + HOUR_MS, ledger_id=2))
            await stream.durable()
            await asyncio.sleep(0.1)
        assert cpu_seconds(pid) - before_s < passed_s / 2, "it looks again and again"
        assert daemon.log().count("Too many open files") == 1
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard, hard))
        for reader, writer in waiting:
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert b"200 OK" in await reader.read()
            writer.close()
        for line in daemon.log().splitlines():
            assert "exception" not in json.loads(line)


def test_what_is_reserved_is_what_the_store_may_open() -> None:
    assert families._OPEN_FILES_MAX < descriptors._STORE
    assert descriptors.NEEDED <= OPEN_FILES


def test_too_few_files_are_said_at_the_start(serve: Serve) -> None:
    daemon = serve(open_files=256)
    with pytest.raises(LocalProcessError, match="ended while starting"):
        daemon.wait_ready()
    assert daemon.stop() == 1
    assert daemon.log().count("\n") == 1
    assert f"at most 256 files may be open and the daemon needs {descriptors.NEEDED}: raise" in daemon.log()


async def test_the_limit_is_raised_as_far_as_it_goes(serve: Serve) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, hard))
    try:
        daemon = serve()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    await daemon.ready()
    assert resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE) == (hard, hard)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
