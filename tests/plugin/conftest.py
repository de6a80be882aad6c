"""Daemons in this process and as processes of their own, each with its own socket and data directory."""

from __future__ import annotations

import io
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemons import DaemonProcess, StartDaemon
from tests.support.served import Served, serving, write_token
from tidegate.index.clock import Clock
from tidegate.index.store import MemoryStore, Store
from tidegate.plugin.daemon.logs import make_logger
from tidegate.plugin.daemon.serve import RunningDaemon, running_daemon
from tidegate.plugin.daemon.settings import Settings, load_settings


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory with a short path: a socket's may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="tg-") as directory:
        yield Path(directory)


@pytest.fixture
def socket_path(short_dir: Path) -> Path:
    return short_dir / "daemon.sock"


@pytest.fixture
def log() -> io.StringIO:
    """The log of the daemon of `start`, JSON lines."""
    return io.StringIO()


@pytest.fixture
def start(short_dir: Path, socket_path: Path, log: io.StringIO) -> StartDaemon:
    """Start a daemon in this process: `async with start(heartbeat_ms=100) as daemon`.

    It has a store in memory unless `store` is given.
    """

    @asynccontextmanager
    async def starter(
        *, store: Store | None = None, clock: Clock | None = None, **settings: Any
    ) -> AsyncIterator[RunningDaemon]:
        kept: Store = MemoryStore() if store is None else store
        loaded: Settings = load_settings({"data": short_dir / "data", "socket": socket_path, **settings})
        async with running_daemon(
            loaded, make_logger("json", "debug", log), clock=clock, store_factory=lambda _: kept
        ) as daemon:
            yield daemon

    return starter


@pytest.fixture
def serve(short_dir: Path, socket_path: Path) -> Iterator[Callable[..., DaemonProcess]]:
    """Start `tidegate serve` on the same data directory and socket each time; all end with the test."""
    started: list[DaemonProcess] = []

    def starter(*arguments: str, open_files: int | None = None) -> DaemonProcess:
        started.append(DaemonProcess(short_dir, socket_path=socket_path, arguments=arguments))
        started[-1].open_files = open_files
        started[-1].spawn()
        return started[-1]

    yield starter
    for one in started:
        one.kill()


@pytest.fixture
def token_file(short_dir: Path) -> Path:
    return write_token(short_dir)


@pytest.fixture
async def served(start: StartDaemon, socket_path: Path, token_file: Path) -> AsyncIterator[Served]:
    """A daemon with HTTP and a token."""
    async with serving(start, socket_path, token_file) as parts:
        yield parts
