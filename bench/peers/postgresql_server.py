"""Starts PostgreSQL for `bench.peers.postgresql_client`: the real server on its own cluster.

initdb makes the cluster in the bench's folder, without a system service: every commit synced, 512 MiB of
shared buffers, else the defaults.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
from importlib import metadata
from pathlib import Path

from bench.harness.errors import BenchError
from bench.peers.base import PeerInfo
from bench.peers.launch import PythonLauncher
from bench.peers.server import INSTALL, Server, give_to, missing_package, user_for

CLUSTER, SOCKETS = "postgresql", "sockets"
USER = "bench"
PORT = 5432
PROGRAMS = Path("/usr/lib/postgresql")
"""Where Debian keeps them, a folder a version."""
INFO = PeerInfo(
    "postgresql",
    "a table with an index on the time, scanned with DELETE … FOR UPDATE SKIP LOCKED, a real server",
    "synced to disk at each commit",
    tick_ms=1_000,
    may_look_faster=True,
)


def programs() -> Path | None:
    """The folder of ``postgres`` and ``initdb``: the newest of Debian's, or what is on PATH."""
    installed = [path for path in PROGRAMS.glob("*/bin") if (path / "initdb").exists()]
    if installed:
        return max(installed, key=lambda path: float(path.parent.name))
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


def sockets_of(data: Path) -> Path:
    """The folder of the server's socket."""
    return data / CLUSTER / SOCKETS


class PostgresqlLauncher(PythonLauncher):
    """The worker as its client; the kill goes to the server."""

    def __init__(self) -> None:
        super().__init__(INFO)
        self._server: Server | None = None
        self._home: Path | None = None
        self._empty_bytes = 0

    def missing(self) -> str | None:
        """If the server or its client is missing."""
        if programs() is None:
            return f"postgresql is not installed; {INSTALL}"
        return missing_package("psycopg")

    def versions(self) -> dict[str, str]:
        """Of the server and the client."""
        found = programs()
        if found is None:
            return {}
        said = subprocess.run([found / "postgres", "--version"], check=False, capture_output=True, text=True)
        version = said.stdout.partition(") ")[2].split(" ")[0].strip()
        return {"postgresql": version or "unknown", "psycopg": metadata.version("psycopg")}

    def empty_bytes(self) -> int:
        """The size of a new cluster."""
        return self._empty_bytes

    def start_server(self, folder: Path) -> int:
        """Make the cluster if there is none, start it, and wait for its recovery."""
        found = programs()
        if found is None:
            raise BenchError("postgresql is not installed")
        user = user_for("postgres", "nobody")
        folder.chmod(0o711)
        home = self._home = folder / CLUSTER
        cluster, sockets = home / "cluster", home / SOCKETS
        give_to(home, user)
        fresh = not cluster.exists()
        if fresh:
            give_to(sockets, user)
            self._make(found, cluster, user)
            self._empty_bytes = sum(path.stat().st_size for path in cluster.rglob("*") if path.is_file())
        command = [
            str(found / "postgres"), "-D", str(cluster), "-c", "listen_addresses=",
            "-c", f"unix_socket_directories={sockets}", "-c", "unix_socket_permissions=0600",
            "-c", f"port={PORT}", "-c", "shared_buffers=512MB",
        ]  # fmt: skip
        self._server = Server(command, user=user, folder=home, log=folder.parent / "postgresql.log")
        self._server.wait_ready(lambda: is_ready(sockets, cluster))
        return self._server.pid

    def kill_server(self) -> None:
        """Kill -9, and release the shared memory segment, which otherwise only a graceful end does."""
        if self._server is None or self._home is None:
            return
        self._server.kill()
        self._server = None
        with contextlib.suppress(OSError, IndexError):
            lines = (self._home / "cluster" / "postmaster.pid").read_text(encoding="utf-8").splitlines()
            subprocess.run(["ipcrm", "-m", lines[6].split()[1]], check=False, capture_output=True)

    @staticmethod
    def _make(found: Path, cluster: Path, user: str | None) -> None:
        command = [
            str(found / "initdb"), "-D", str(cluster), "-U", USER, "--auth=trust", "--encoding=UTF8",
            "--locale=C",
        ]  # fmt: skip
        made = subprocess.run(
            command, check=False, capture_output=True, text=True, user=user, cwd=cluster.parent
        )
        if made.returncode:
            raise BenchError(f"initdb failed: {made.stderr.strip()[-500:]}")


def is_ready(sockets: Path, cluster: Path) -> bool:
    """True if connections are accepted: by the server's own word, and by a socket that answers."""
    try:
        lines = (cluster / "postmaster.pid").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    if len(lines) < 8 or lines[7].strip() != "ready":
        return False
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(sockets / f".s.PGSQL.{PORT}"))
    except OSError:
        return False
    return True
