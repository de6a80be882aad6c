"""Daemons in this process and as processes of their own, and the command line run to its end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from tidegate.plugin.daemon.serve import RunningDaemon

START_SECONDS = 30.0
StartDaemon = Callable[..., AbstractAsyncContextManager[RunningDaemon]]


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


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end."""
    return subprocess.run(
        [sys.executable, "-m", "tidegate.plugin.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
        env=clean_environment() | environment,
    )


def assert_one_line(done: subprocess.CompletedProcess[str], said: str, code: int) -> None:
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
