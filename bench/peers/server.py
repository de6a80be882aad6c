"""A server under its own user, in its own folder, that can be killed -9 with all its children.

A server never runs as root: under a root bench it gets its package's user. It listens only on a Unix socket
in its folder.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import psutil

from bench.harness.errors import BenchError

START_TIMEOUT_S = 120.0
KILL_TIMEOUT_S = 30.0
INSTALL = "install it with: make bench-peers"


def user_for(*names: str) -> str | None:
    """The first of these users that exists, if we are root; None (ourselves) otherwise. Raises BenchError."""
    if os.geteuid() != 0:
        return None
    for name in names:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise BenchError(f"no user to run a server as: there is none of {', '.join(names)}")


def give_to(folder: Path, user: str | None) -> None:
    """Make a folder that only this user can access."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if user is not None:
        shutil.chown(folder, user, pwd.getpwnam(user).pw_gid)


def missing_package(name: str) -> str | None:
    """The remedy for a Python package that is not installed; None if it is."""
    return None if find_spec(name) else f"the Python package {name} is not installed; {INSTALL}"


class Server:
    """A running server. ``log`` takes its output."""

    def __init__(self, command: Sequence[str], *, user: str | None, folder: Path, log: Path) -> None:
        self._log = log
        try:
            with log.open("ab") as output:
                self._process = subprocess.Popen(
                    command,
                    cwd=folder,
                    user=user,
                    group=None if user is None else pwd.getpwnam(user).pw_gid,
                    extra_groups=None if user is None else [],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
        except OSError as error:
            raise BenchError(f"{command[0]} cannot be started: {error}") from error

    @property
    def pid(self) -> int:
        """The pid of its first process."""
        return self._process.pid

    def wait_ready(self, ready: Callable[[], bool]) -> None:
        """Return once ``ready``; raises BenchError with the server's last words at the deadline."""
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not ready():
            if self._process.poll() is not None:
                raise BenchError(f"the server ended while starting: {self.last_words()}")
            if time.monotonic() > deadline_s:
                raise BenchError(
                    f"the server was not ready within {START_TIMEOUT_S:.0f} s: {self.last_words()}"
                )
            time.sleep(0.005)  # a server started by somebody else's program notifies nobody

    def last_words(self) -> str:
        """The end of its log."""
        text = self._log.read_text(encoding="utf-8", errors="replace")
        return " / ".join(text.splitlines()[-5:])

    def kill(self) -> None:
        """Kill -9 it and all its children, and wait for their end."""
        try:
            first = psutil.Process(self._process.pid)
            family = [first, *first.children(recursive=True)]
        except psutil.NoSuchProcess:
            family = []
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        deadline_s = time.monotonic() + KILL_TIMEOUT_S
        while any(_lives(process) for process in family) and time.monotonic() < deadline_s:
            time.sleep(0.005)  # its children are not ours to wait for


def _lives(process: psutil.Process) -> bool:
    """True if it still runs. Zombie orphans hold no resources any more."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
