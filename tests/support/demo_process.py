"""Running ``tidegate demo`` as a user does, and looking for processes that it left behind."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import psutil


def start(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    """The demo as a process with its output in pipes."""
    return subprocess.Popen(
        [sys.executable, "-m", "tidegate.plugin.cli", "demo", *arguments],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def left_behind(out_dir: Path) -> list[str]:
    """Command lines of living processes that work below ``out_dir``, which is one test's own."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = " ".join(process.cmdline())
            if str(out_dir) in command and process.status() != psutil.STATUS_ZOMBIE:
                found.append(command)
    return found
