"""A server of Oxia, Pulsar 5's metadata store, as a process on loopback.

``TIDEGATE_TEST_OXIA`` is the path of its program, ``oxia``, which package registries lack; without it the
tests skip.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

from tidegate.plugin.local.process import LOOPBACK, LocalProcess, free_ports

VARIABLE = "TIDEGATE_TEST_OXIA"
PROGRAM = os.environ.get(VARIABLE, "")
"""The path of the program; empty if it was not named."""
NOT_NAMED = f"{VARIABLE} names no program of Oxia"


class Oxia(LocalProcess):
    """``oxia standalone``; everything that it writes is below ``work_dir``."""

    name = "oxia"

    def __init__(self, work_dir: Path) -> None:
        super().__init__(work_dir, None, time.sleep)
        self._port, self._metrics_port = free_ports(2)
        self.url = f"oxia://{LOOPBACK}:{self._port}/default"
        """For Pulsar's conf files."""

    def _prepare(self) -> tuple[list[str], dict[str, str]]:
        command = [
            PROGRAM, "standalone",
            "--public-addr", f"{LOOPBACK}:{self._port}",
            "--metrics-addr", f"{LOOPBACK}:{self._metrics_port}",
            "--data-dir", str(self.work_dir / "db"),
            "--wal-dir", str(self.work_dir / "wal"),
        ]  # fmt: skip
        return command, dict(os.environ)

    def _probe(self, asking: contextlib.ExitStack) -> Callable[[], str | None]:
        return self._not_listening

    def _not_listening(self) -> str | None:
        with socket.socket() as probe:
            answers = probe.connect_ex((LOOPBACK, self._port)) == 0
        return None if answers else f"port {self._port} is not answered"
