"""Daemons in this process and as processes of their own, and the command line run to its end."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from tests.support.waiting import until
from tidegate.plugin.daemon.serve import RunningDaemon
from tidegate.plugin.local.daemon import Daemon, without_settings

START_SECONDS = 120.0
StartDaemon = Callable[..., AbstractAsyncContextManager[RunningDaemon]]


class DaemonProcess(Daemon):
    """A real `tidegate serve`, for tests that run on an event loop.

    ``open_files``: as many as a login shell would let it have at most.
    """

    open_files: int | None = None
    _log_from = 0

    def _prepare(self) -> tuple[list[str], dict[str, str]]:
        # The log goes on with what earlier daemons of the same directory wrote.
        self._log_from = len(self.log()) if self.log_path.exists() else 0
        command, environment = super()._prepare()
        if self.open_files is not None:
            command = ["sh", "-c", f'ulimit -n {self.open_files}; exec "$@"', "sh", *command]
        return command, environment

    async def ready(self) -> None:
        """Wait until it says that it is."""
        await asyncio.to_thread(self.wait_ready, START_SECONDS)

    async def base_url(self) -> str:
        """Where HTTP is, of a daemon that logs JSON and was told port 0."""
        await until(lambda: '"serving"' in self.log()[self._log_from :])
        lines = map(json.loads, self.log()[self._log_from :].splitlines())
        (serving,) = (one for one in lines if one["event"] == "serving")
        return f"http://{serving['http']}"

    def log(self) -> str:
        return self.log_path.read_text("utf-8")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end."""
    return subprocess.run(
        [sys.executable, "-m", "tidegate.plugin.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
        env=without_settings(os.environ) | environment,
    )


def assert_one_line(done: subprocess.CompletedProcess[str], said: str, code: int) -> None:
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
