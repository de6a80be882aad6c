"""Daemons in this process and as processes of their own, and the command line run to its end."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from tidegate.plugin.daemon.serve import RunningDaemon
from tidegate.plugin.local.daemon import Daemon, without_settings

START_SECONDS = 30.0
StartDaemon = Callable[..., AbstractAsyncContextManager[RunningDaemon]]


class DaemonProcess(Daemon):
    """A real `tidegate serve`, for tests that run on an event loop."""

    async def ready(self) -> None:
        """Wait until it says that it is."""
        await asyncio.to_thread(self.wait_ready, START_SECONDS)

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
