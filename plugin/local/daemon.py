"""``tidegate serve`` as a process that can be killed; a restart keeps its data, socket and port."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tidegate.plugin.errors import UserError
from tidegate.plugin.local.guard import Guard
from tidegate.plugin.local.process import LOOPBACK, LocalProcess, Pause, free_ports
from tidegate.plugin.wire.client import ask_socket

_ASK_TIMEOUT_S = 2.0


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` without the daemon's settings, so that runs do not depend on the user's."""
    return {name: value for name, value in environment.items() if not name.startswith("TIDEGATE_")}


class Daemon(LocalProcess):
    """One daemon, with its data and log in ``work_dir``; ``http`` is the address of its metrics and status.

    ``settings`` by their names (``heartbeat_ms``), ``arguments`` as on the command line.
    """

    name = "daemon"
    program: Sequence[str] = ("-m", "tidegate.plugin.cli")
    """The arguments of Python."""

    def __init__(
        self,
        work_dir: Path,
        *,
        socket_path: Path | None = None,
        settings: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
        guard: Guard | None = None,
        pause: Pause = time.sleep,
    ) -> None:
        super().__init__(work_dir, guard, pause)
        self.data_dir = work_dir / "index"
        self.socket_path = socket_path or work_dir / "tidegate.sock"
        self.http = f"{LOOPBACK}:{free_ports(1)[0]}"
        self._settings = {f"TIDEGATE_{name.upper()}": value for name, value in (settings or {}).items()}
        self._arguments = list(arguments)

    @property
    def url(self) -> str:
        """The address of its metrics and status."""
        return f"http://{self.http}"

    def _prepare(self) -> tuple[list[str], dict[str, str]]:
        command = [
            sys.executable, *self.program, "serve",
            "--data", str(self.data_dir), "--socket", str(self.socket_path),
            *(["--http", self.http] if "--http" not in self._arguments else []), *self._arguments,
        ]  # fmt: skip
        return command, without_settings(os.environ) | self._settings

    def _probe(self, asking: contextlib.ExitStack) -> Callable[[], str | None]:  # noqa: ARG002
        return self._not_ready

    def _not_ready(self) -> str | None:
        try:
            answer = ask_socket(self.socket_path, {"what": "status", "subscriptions_max": 0}, _ASK_TIMEOUT_S)
        except UserError as error:
            return str(error)
        state = answer["daemon"]
        return None if state["ready"] else "; ".join(state["not_ready"])
