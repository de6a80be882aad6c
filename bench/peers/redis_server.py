"""Starts Redis for `bench.peers.redis_client`: the real server, on a Unix socket in the bench's folder.

As common for important data: append-only file, synced every second; no snapshots, which would fork and copy
during the fill; else the defaults.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
from importlib import metadata
from pathlib import Path

from bench.peers.base import PeerInfo
from bench.peers.launch import PythonLauncher
from bench.peers.server import INSTALL, Server, give_to, missing_package, user_for

SOCKET = "redis.sock"
FOLDER = "redis"
INFO = PeerInfo(
    "redis",
    "a hash as message pool and 16 sorted sets by time, a real Redis server, pipelined",
    "append-only file, written at once, synced every second",
    tick_ms=1_000,
    may_look_faster=True,
)


def socket_path(data: Path) -> Path:
    """The server's address."""
    return data / FOLDER / SOCKET


def answers(path: Path) -> bool:
    """True if a server there answers PING, and so has loaded its data."""
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(30.0)
            client.connect(str(path))
            client.sendall(b"PING\r\n")
            return client.recv(64).startswith(b"+PONG")
    except OSError:
        return False


class RedisLauncher(PythonLauncher):
    """The worker as its client; the kill goes to the server."""

    def __init__(self) -> None:
        super().__init__(INFO)
        self._server: Server | None = None

    def missing(self) -> str | None:
        """If the server or its client is missing."""
        if shutil.which("redis-server") is None:
            return f"redis-server is not installed; {INSTALL}"
        return missing_package("redis") or missing_package("hiredis")

    def versions(self) -> dict[str, str]:
        """Of the server and the client."""
        said = subprocess.run(["redis-server", "--version"], check=False, capture_output=True, text=True)
        found = [word.removeprefix("v=") for word in said.stdout.split() if word.startswith("v=")]
        return {"redis-server": found[0] if found else "unknown", "redis-py": metadata.version("redis")}

    def start_server(self, folder: Path) -> int:
        """Start it on its folder's data, and wait until they are loaded."""
        user = user_for("redis", "nobody")
        folder.chmod(0o711)
        home = folder / FOLDER
        give_to(home, user)
        path = socket_path(folder)
        path.unlink(missing_ok=True)
        command = [
            "redis-server", "--dir", str(home), "--port", "0", "--unixsocket", str(path),
            "--unixsocketperm", "600", "--appendonly", "yes", "--appendfsync", "everysec", "--save", "",
            "--daemonize", "no",
        ]  # fmt: skip
        self._server = Server(command, user=user, folder=home, log=folder.parent / "redis.log")
        self._server.wait_ready(lambda: answers(path))
        return self._server.pid

    def kill_server(self) -> None:
        """Kill -9."""
        if self._server is not None:
            self._server.kill()
            self._server = None
