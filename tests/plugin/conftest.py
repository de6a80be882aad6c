"""Daemons in this process and as processes of their own, each with its own socket and data directory."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tidegate.index.clock import Clock
from tidegate.index.store import MemoryStore, Store
from tidegate.plugin.config import Settings, load_settings
from tidegate.plugin.daemon import RunningDaemon, running_daemon
from tidegate.plugin.logs import make_logger

START_SECONDS = 30.0
StartDaemon = Callable[..., AbstractAsyncContextManager[RunningDaemon]]


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
    """What the daemon of `start` logs, JSON lines."""
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


class DaemonProcess:
    """A real `tidegate serve`."""

    def __init__(self, data: Path, socket: Path, *arguments: str) -> None:
        self.data = data
        self.socket = socket
        self._log_path = data.parent / "serve.log"
        command = [sys.executable, "-m", "tidegate.plugin.cli", "serve", "--data", str(data)]
        with self._log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--socket", str(socket), *arguments],
                stderr=log,
                stdout=log,
                env=clean_environment(),
            )

    async def ready(self) -> None:
        """Wait until it answers on its socket."""
        async with asyncio.timeout(START_SECONDS):
            while True:
                assert self.process.poll() is None, self.log()
                try:
                    _, writer = await asyncio.open_unix_connection(str(self.socket))
                except OSError:
                    await asyncio.sleep(0.02)
                else:
                    writer.close()
                    return

    def log(self) -> str:
        return self._log_path.read_text("utf-8")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(START_SECONDS)

    def terminate(self) -> int:
        """SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(START_SECONDS)


def clean_environment() -> dict[str, str]:
    """This process's environment without settings of the daemon."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}


@pytest.fixture
def serve(short_dir: Path, socket_path: Path) -> Iterator[Callable[..., DaemonProcess]]:
    """Start `tidegate serve` on the same data directory and socket each time; all are gone after the test."""
    started: list[DaemonProcess] = []

    def starter(*arguments: str) -> DaemonProcess:
        started.append(DaemonProcess(short_dir / "data", socket_path, *arguments))
        return started[-1]

    yield starter
    for one in started:
        if one.process.poll() is None:
            one.kill()
