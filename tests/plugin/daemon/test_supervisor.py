"""News for systemd: nothing without it, READY when the daemon serves, signs of life, STOPPING."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemons import DaemonProcess
from tidegate.plugin.daemon.supervisor import Supervisor

WAIT_S = 60.0


class Systemd:
    """The side that listens."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(WAIT_S)
        self.socket.bind(address)

    def told(self) -> str:
        return self.socket.recv(1_000).decode()


@pytest.fixture
def systemd(short_dir: Path) -> Iterator[Systemd]:
    listening = Systemd(str(short_dir / "notify"))
    yield listening
    listening.socket.close()


@pytest.fixture
def address(short_dir: Path) -> str:
    return str(short_dir / "notify")


async def test_ready_signs_of_life_and_stopping(systemd: Systemd, address: str) -> None:
    supervisor = Supervisor({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "30000"}, os.getpid())
    assert supervisor.beat_s == 0.01
    supervisor.ready(asyncio.get_running_loop())
    assert systemd.told() == "READY=1"
    for _ in range(3):
        assert await asyncio.to_thread(systemd.told) == "WATCHDOG=1"
    supervisor.stopping()
    supervisor.end()
    while (told := systemd.told()) == "WATCHDOG=1":
        pass
    assert told == "STOPPING=1"


async def test_an_abstract_name_and_no_watchdog() -> None:
    name = f"tidegate-{secrets.token_hex(8)}"
    systemd = Systemd(f"\0{name}")
    with systemd.socket:
        Supervisor({"NOTIFY_SOCKET": f"@{name}"}, os.getpid()).ready(asyncio.get_running_loop())
        assert systemd.told() == "READY=1"
        systemd.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            systemd.told()


@pytest.mark.parametrize(
    ("environment", "beat_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "7"}, 1.0),
        ({"WATCHDOG_USEC": "3000000"}, 1.0),
    ],
)
def test_a_watchdog_is_for_this_process_or_for_none(
    environment: dict[str, str], beat_s: float | None
) -> None:
    assert Supervisor(environment | {"NOTIFY_SOCKET": "/run/notify"}, 7).beat_s == beat_s
    assert Supervisor(environment, 7).beat_s is None


@pytest.mark.parametrize("address", ["", "/nowhere/notify", "x" * 200, "a\0b"])
async def test_a_supervisor_that_cannot_be_told_disturbs_nothing(address: str) -> None:
    supervisor = Supervisor({"NOTIFY_SOCKET": address}, os.getpid())
    supervisor.ready(asyncio.get_running_loop())
    supervisor.stopping()
    supervisor.end()


class Notifying(DaemonProcess):
    """A daemon that systemd has started."""

    address = ""

    def _prepare(self) -> tuple[list[str], dict[str, str]]:
        command, environment = super()._prepare()
        return command, environment | {"NOTIFY_SOCKET": self.address}


def test_a_daemon_is_ready_when_it_serves(short_dir: Path, systemd: Systemd, address: str) -> None:
    daemon = Notifying(short_dir, socket_path=short_dir / "daemon.sock")
    daemon.address = address
    daemon.spawn()
    try:
        assert systemd.told() == "READY=1"
        assert (short_dir / "daemon.sock").exists()
        os.kill(daemon.pid, signal.SIGTERM)
        assert systemd.told() == "STOPPING=1"
    finally:
        daemon.kill()
