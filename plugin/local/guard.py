"""A process that outlives a demo killed with -9, to end the demo's processes.

Its standard input is a pipe from the demo: ``+ PID`` and ``- PID`` lines announce and withdraw processes. The
pipe ends with the demo, however that ends; the guard then kills the processes that still run. Invariants:
only announced process ids get signals; only the standard library is imported, so that the guard starts in an
instant.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self


def survivors(lines: Iterable[str]) -> set[int]:
    """The process ids announced and not withdrawn by the end of ``lines``."""
    running: set[int] = set()
    for line in lines:
        sign, _, number = line.strip().partition(" ")
        if number.isdecimal():
            (running.add if sign == "+" else running.discard)(int(number))
    return running


class Guard:
    """The demo's side of the pipe."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-I", str(Path(__file__).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def announce(self) -> None:
        """Ask to be killed if the demo dies. Called in a new process before its program.

        The demo would know its id later, and may die before. The process has inherited an end of the pipe,
        which stays open until its program runs.
        """
        if self._process.stdin is not None:
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)
            with contextlib.suppress(OSError):
                os.write(self._process.stdin.fileno(), f"+ {os.getpid()}\n".encode("ascii"))
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)

    def forget(self, pid: int) -> None:
        """Forget ``pid``, which has ended."""
        self._write(f"- {pid}\n")

    def close(self) -> None:
        """End the guard, which first kills every process not forgotten."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._process.wait()

    def _write(self, line: str) -> None:
        if self._process.stdin is not None:
            # Without its guard the demo still ends its processes, except after its own kill -9.
            with contextlib.suppress(OSError):
                self._process.stdin.write(line)
                self._process.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def main() -> None:
    """Wait for the end of the input, then kill."""
    for pid in survivors(sys.stdin):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
