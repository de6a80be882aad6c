"""Machines with a broker each, as ``tidegate detach-all`` meets them: HTTP on loopback, and programs in place
of ssh, sudo and systemctl that work on folders.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tidegate.plugin.attach import conf_file
from tidegate.plugin.attach.broker_keys import TRACKER_KEY, Wanted
from tidegate.plugin.attach.plan import carry_out, plan_attach

UNIT = "pulsar-broker"
_SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
export MACHINE="$(dirname "$0")/../$2"
if [ -e "$MACHINE/unreachable" ]; then echo "ssh: $2: No route to host" >&2; exit 255; fi
exec sh -c "$3"
"""
_SUDO = """#!/bin/sh
shift
if [ "$1" = -l ]; then echo "may $*"; else exec "$@"; fi
"""
_SYSTEMCTL = f"""#!/bin/sh
if [ "$2" != {UNIT} ]; then echo "No files found for $2." >&2; exit 1; fi
if [ "$1" = restart ]; then
    echo begun >> "$MACHINE/restarts"
    while [ -e "$MACHINE/held-up" ]; do sleep 0.05; done
    if [ -e "$MACHINE/ill" ]; then touch "$MACHINE/sick"; fi
    rm -f "$MACHINE/down"
    if [ ! -e "$MACHINE/other-home" ]; then cp "$MACHINE/pulsar/conf/broker.conf" "$MACHINE/running.conf"; fi
fi
"""
_TIDEGATE = f"""#!/bin/sh
verb=$1; shift 2
exec {sys.executable} -m tidegate.plugin.cli "$verb" "$MACHINE/pulsar" "$@"
"""
_HOOK = """#!/bin/sh
export MACHINE="$(dirname "$0")/../${2%:*}"
case $1 in
check) test -d "$MACHINE" ;;
detach) "$(dirname "$0")/tidegate" detach /opt/pulsar ;;
restart)
    PATH="$(dirname "$0"):$PATH" systemctl restart pulsar-broker
    # As a start script does: a broker in the background, with the script's own output.
    if [ -e "$MACHINE/background" ]; then sleep 90 & echo $! > "$MACHINE/background"; fi ;;
esac
"""


class Machine:
    """A folder with a Pulsar home, and the answers of its broker."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder = folder
        self.host = folder.name
        folder.mkdir()
        shutil.copytree(home, folder / "pulsar")
        self.plain = self.conf.read_bytes()
        wanted = Wanted(socket=folder / "t.sock")
        carry_out(plan_attach(folder / "pulsar", wanted, b"the shim", folder / "t.sock"))
        shutil.copy(self.conf, folder / "running.conf")
        self._server = ThreadingHTTPServer((self.host, 0), _handler(self))
        self.name = f"{self.host}:{self._server.server_port}"
        self.all: list[Machine] = []
        self.refuses = False
        self.status: tuple[int, Any] = (404, {"reason": "there is no servlet"})

    @property
    def conf(self) -> Path:
        """The conf file that the broker starts from."""
        return self.folder / "pulsar/conf/broker.conf"

    @property
    def restarts(self) -> int:
        """How often a restart has begun."""
        path = self.folder / "restarts"
        return len(path.read_text().splitlines()) if path.exists() else 0

    @property
    def tracker(self) -> str:
        """The tracker of the running broker."""
        text = conf_file.decode((self.folder / "running.conf").read_bytes())
        return conf_file.values(text)[TRACKER_KEY]

    def is_now(self, name: str) -> bool:
        """True if the machine is in that state."""
        return (self.folder / name).exists()

    def become(self, name: str) -> None:
        """Bring it into a state.

        ``down``, ``silent`` (active, without an answer), ``ill``, ``sick``, ``held-up``, ``other-home``,
        ``unreachable``, ``background`` (its start leaves a process there, and its id in that file).
        """
        (self.folder / name).touch()

    def answer(self, path: str) -> tuple[int, Any]:
        """The broker's answer."""
        if self.is_now("down") or self.is_now("silent"):
            return 503, {"reason": "it starts"}
        if self.refuses:
            return 401, {"reason": "no token"}
        if path == "/tidegate/v1/status":
            return self.status
        match path.removeprefix("/admin/v2/brokers"):
            case "":
                return 200, [one.name for one in self.all if not one.is_now("down")]
            case "/configuration/runtime":
                return 200, {TRACKER_KEY: self.tracker}
            case "/health" if not self.is_now("sick"):
                return 200, "ok"
        return 500, {"reason": "it is ill"}

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Answer meanwhile."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            self._server.shutdown()
            self._server.server_close()


class Machines:
    """Three of them, attached and running."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        programs = {"ssh": _SSH, "sudo": _SUDO, "systemctl": _SYSTEMCTL, "tidegate": _TIDEGATE, "hook": _HOOK}
        for name, text in programs.items():
            program = self.bin / name
            program.write_text(text)
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.all = [Machine(folder / f"127.0.0.{number}", home) for number in (1, 2, 3)]
        for one in self.all:
            one.all = self.all

    @property
    def url(self) -> str:
        """The web service of the first broker."""
        return f"http://{self.all[0].name}"

    @property
    def environment(self) -> dict[str, str]:
        """For a command that finds the programs."""
        return {"PATH": f"{self.bin}:{os.environ['PATH']}", "TIDEGATE_ADMIN_URL": self.url}

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Answer meanwhile."""
        with contextlib.ExitStack() as stack:
            for one in self.all:
                stack.enter_context(one.serving())
            yield


def _handler(machine: Machine) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, document = machine.answer(self.path)
            body = (document if isinstance(document, str) else json.dumps(document)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
