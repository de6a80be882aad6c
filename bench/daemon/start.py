"""The start-up times of commands, beside the import of NumPy, which all pay for somewhere.

Each is a process timed by its parent; the least of some rounds, since disturbances only add.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from bench.harness.waiting import until
from tidegate.plugin.local.daemon import Daemon

ROUNDS = 9
START_S = 60.0
NUMPY = (sys.executable, "-c", "import numpy")
HELP = (sys.executable, "-m", "tidegate.plugin.cli", "--help")


def starts(folder: Path) -> dict[str, float]:
    """Seconds: NumPy's import, ``tidegate --help``, an empty ``tidegate serve`` until it listens."""
    numpy_s, help_s, serve_s = [], [], []
    for _ in range(ROUNDS):
        numpy_s.append(took_s(*NUMPY))
        help_s.append(took_s(*HELP))
        serve_s.append(listens_s(folder))
    least = {"numpy_s": min(numpy_s), "help_s": min(help_s), "serve_s": min(serve_s)}
    return least | {
        "help_of_numpy": least["help_s"] / least["numpy_s"],
        "serve_of_numpy": least["serve_s"] / least["numpy_s"],
    }


def took_s(*command: str) -> float:
    """A process's time from its start to its end. Raises CalledProcessError if it fails."""
    began_s = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began_s


def listens_s(folder: Path) -> float:
    """The time until an empty daemon has its socket."""
    daemon = Daemon(folder)
    began_s = time.perf_counter()
    daemon.spawn()
    try:
        until(
            "the daemon's socket", lambda: daemon.socket_path.is_socket() or None, START_S, interval_s=0.001
        )
        return time.perf_counter() - began_s
    finally:
        daemon.stop()
