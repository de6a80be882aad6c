"""``tidegate serve`` as a process that one can kill, with its data below a work directory."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx

from bench.harness.errors import BenchError
from bench.harness.waiting import until

LOOPBACK = "127.0.0.1"


class Daemon:
    """One daemon; a restart keeps its data, socket and port."""

    def __init__(self, work_dir: Path) -> None:
        self.work_dir = work_dir
        self.socket_path = work_dir / "tidegate.sock"
        self.log_path = work_dir / "daemon.log"
        with socket.socket() as probe:
            probe.bind((LOOPBACK, 0))
            self._port: int = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, timeout_s: float = 30.0) -> None:
        """Start it and wait until it says that it is ready."""
        self.spawn()
        self.wait_ready(timeout_s)

    def spawn(self) -> None:
        """Start it without waiting."""
        self.work_dir.mkdir(parents=True, exist_ok=True)
        command = [
            str(Path(sys.executable).parent / "tidegate"), "serve",
            "--data", str(self.work_dir / "data"),
            "--socket", str(self.socket_path),
            "--http", f"{LOOPBACK}:{self._port}",
        ]  # fmt: skip
        with self.log_path.open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
            except OSError as error:
                raise BenchError(
                    f"the daemon cannot be started: {error}; install with pip install -e ."
                ) from error

    def wait_ready(self, timeout_s: float = 30.0) -> None:
        """Return once ``/readyz`` answers 200."""

        def ready() -> bool:
            if self._process is None or self._process.poll() is not None:
                raise BenchError(f"the daemon ended while starting: {self.last_words()}")
            with contextlib.suppress(httpx.HTTPError):
                return client.get("/readyz").status_code == httpx.codes.OK
            return False

        with httpx.Client(base_url=f"http://{LOOPBACK}:{self._port}", timeout=5.0, trust_env=False) as client:
            until(f"the daemon to be ready (log: {self.log_path})", ready, timeout_s)

    @property
    def pid(self) -> int:
        """The process id; raises BenchError when it does not run."""
        if self._process is None:
            raise BenchError("the daemon does not run")
        return self._process.pid

    def kill(self) -> None:
        """Kill -9 and wait for the process to be gone."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop gracefully (SIGTERM)."""
        self._end(signal.SIGTERM)

    def metrics(self) -> str:
        """The daemon's Prometheus text."""
        url = f"http://{LOOPBACK}:{self._port}/metrics"
        return httpx.get(url, timeout=5.0, trust_env=False).text

    def last_words(self) -> str:
        """The end of its log."""
        text = self.log_path.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-5:])

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            os.kill(self._process.pid, how)
            try:
                self._process.wait(30.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10.0)
        self._process = None
