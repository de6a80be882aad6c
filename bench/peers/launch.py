"""Starting peers: a `Launcher` for each kind, a `Session` for each process that it starts.

`PythonLauncher` starts `bench.peers.worker`. A peer in a JVM overrides `command`; one with a server overrides
`start_server` and `kill_server`, and kill -9 goes to that server. A process's figures are validated here: one
with others fails at once.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from pydantic import ValidationError

from bench.harness.errors import BenchError
from bench.harness.machine import ROOT
from bench.peers.base import Figures, PeerInfo

GRACE_S = 60.0
"""A process that has not answered this long after its budget is killed."""
FiguresT = TypeVar("FiguresT", bound=Figures)


class Launcher(ABC):
    """Starts one peer's processes. `info` describes the peer."""

    def __init__(self, info: PeerInfo) -> None:
        self.info = info

    def missing(self) -> str | None:
        """The reason why it cannot run here, with the remedy; None if it can."""
        return None

    def versions(self) -> dict[str, str]:
        """Versions of its parts besides the packages that every bench names."""
        return {}

    @abstractmethod
    def command(self, phase: str, folder: Path, workload: str, count: int) -> list[str]:
        """The command for a phase."""

    def environment(self) -> Mapping[str, str]:
        """Added to the process's environment."""
        return {}

    def start_server(self, folder: Path) -> int:  # noqa: ARG002
        """Start the server for the process, with its files in ``folder``; returns its pid, 0 without one."""
        return 0

    def kill_server(self) -> None:  # noqa: B027 most peers have no server
        """Kill -9 the server, if one runs."""

    def empty_bytes(self) -> int:
        """The initial size of a server's folder, which is subtracted. not counted for the entries."""
        return 0


class PythonLauncher(Launcher):
    """A peer in `bench.peers.roster`."""

    def command(self, phase: str, folder: Path, workload: str, count: int) -> list[str]:
        """The worker."""
        worker = [sys.executable, "-m", "bench.peers.worker"]
        return [*worker, self.info.name, phase, str(folder), workload, str(count)]


@dataclass(frozen=True)
class Budget:
    """The time after which a phase stops by itself, and the length of the lateness phase."""

    phase_s: float
    lateness_s: float


class Session:
    """One process of a peer, and its server: from a phase's start to kill -9. Use it with `with`."""

    def __init__(self, launcher: Launcher, folder: Path, workload: str, count: int, budget: Budget) -> None:
        self._launcher = launcher
        self._folder = folder
        self._workload = workload
        self._count = count
        self._budget = budget
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self, phase: str, expected: type[FiguresT], count: int | None = None) -> FiguresT:
        """Start server and process, and wait for the phase's figures; raises BenchError.

        ``count``: use only so many entries of the workload, since the fill was stopped after them.
        """
        started_ns = time.time_ns()
        data = self._folder / "data"
        data.mkdir(exist_ok=True)
        server_pid = self._launcher.start_server(data)
        environment = {
            **os.environ,
            **self._launcher.environment(),
            "BENCH_STARTED_NS": str(started_ns),
            "BENCH_BUDGET_S": str(self._budget.phase_s),
            "BENCH_LATENESS_S": str(self._budget.lateness_s),
            "BENCH_SERVER_PID": str(server_pid),
        }
        self._process = subprocess.Popen(
            self._launcher.command(phase, self._folder, self._workload, count or self._count),
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self._answer(phase, expected)

    def ask(self, request: str, expected: type[FiguresT]) -> FiguresT:
        """Send a line, and wait for its answer; raises BenchError."""
        self._send(request)
        return self._answer(request, expected)

    def settle(self) -> None:
        """Let background work finish; raises BenchError."""
        self._send("settle")
        self._line("settle")

    def kill(self) -> None:
        """Kill -9 the process and the server, and wait for their end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
            self._process = None
        self._launcher.kill_server()

    def _send(self, request: str) -> None:
        if self._process is None or self._process.stdin is None:
            raise BenchError(f"{self._launcher.info.name} does not run")
        try:
            self._process.stdin.write(f"{request}\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise BenchError(
                f"{self._launcher.info.name} ended before {request}; see its message above"
            ) from error

    def _answer(self, what: str, expected: type[FiguresT]) -> FiguresT:
        line = self._line(what)
        try:
            return expected.model_validate_json(line)
        except ValidationError as error:
            raise BenchError(
                f"{self._launcher.info.name} reports something else than {expected.__name__}: {line[:200]}"
            ) from error

    def _line(self, what: str) -> str:
        process = self._process
        if process is None or process.stdout is None:
            raise BenchError(f"{self._launcher.info.name} does not run")
        patience_s = self._budget.phase_s + self._budget.lateness_s + GRACE_S
        overdue = threading.Timer(patience_s, process.kill)
        overdue.start()
        began_s = time.monotonic()
        try:
            line = process.stdout.readline()
        finally:
            overdue.cancel()
        if not line:
            if time.monotonic() - began_s >= patience_s:
                raise BenchError(f"{self._launcher.info.name} did not end {what} within {patience_s:.0f} s")
            raise BenchError(
                f"{self._launcher.info.name} failed at {what} with code {process.wait()}; "
                "see its message above"
            )
        return line
