"""``tidegate standalone``: a Pulsar broker and its daemon on this machine, to try programs on.

Invariants: everything listens on loopback; every process started here ends with the command, however it ends,
and its data with it. Exit codes: 0 ended by Ctrl-C or SIGTERM, 1 broker or daemon ended, 2 a bad value or a
missing part.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.plugin.commands.options import JsonOutput, Socket
from tidegate.plugin.commands.running import check_home, check_jar, signals_stop
from tidegate.plugin.errors import ConfigError, UserError
from tidegate.plugin.local import toolchain
from tidegate.plugin.local.toolchain import LOOPBACK
from tidegate.plugin.shared.environment import own_default_socket

if TYPE_CHECKING:
    from tidegate.plugin.local.guard import Guard
    from tidegate.plugin.shared.stop import Stop

PORT, WEB_PORT, PAGE_PORT = 6650, 8080, 8088
_PORT_MAX = 65_535
_DISK_BYTES = 500 * 2**20
_LOOK_S = 0.5
_OUT = Path("run/standalone")
_WORK = "work"


@dataclass(frozen=True)
class _Place:
    """The choices of the user, checked."""

    pulsar_home: Path
    jar: Path
    out_dir: Path
    socket: Path
    port: int
    web_port: int
    page_port: int

    def shown(self) -> dict[str, str]:
        """The addresses, by name."""
        return {
            "broker": f"pulsar://{LOOPBACK}:{self.port}",
            "admin": f"http://{LOOPBACK}:{self.web_port}",
            "page": f"http://{LOOPBACK}:{self.page_port}",
            "socket": str(self.socket),
        }


def standalone(  # noqa: PLR0917 the flags
    port: Annotated[int, typer.Option(help="Port for Pulsar's clients.")] = PORT,
    web_port: Annotated[int, typer.Option(help="Port of the broker's admin interface.")] = WEB_PORT,
    page_port: Annotated[int, typer.Option(help="Port of the daemon's page and metrics.")] = PAGE_PORT,
    socket: Socket = None,
    pulsar_home: Annotated[
        Path | None,
        typer.Option(
            readable=False, help="An unpacked Pulsar [default: the one that tidegate setup fetched]."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(readable=False, help="Where logs, index and topics go.")] = _OUT,
    json_output: JsonOutput = False,
) -> None:
    """Run a broker with Tidegate, to try programs on.

    It ends with Ctrl-C.

    It begins empty, and removes at its end what it has stored. Exit codes: 0 ended by Ctrl-C or SIGTERM, 1
    broker or daemon ended, 2 a bad value or a missing part.
    """
    _check_ports({"--port": port, "--web-port": web_port, "--page-port": page_port})
    place = _Place(
        check_home(pulsar_home),
        check_jar(),
        out.absolute(),
        (socket or own_default_socket()).absolute(),
        port,
        web_port,
        page_port,
    )
    for path, flag in ((place.pulsar_home, "--pulsar-home"), (place.out_dir, "--out")):
        if problem := toolchain.check_path(path, f"choose another {flag}"):
            raise ConfigError(problem.text)
    if problem := toolchain.check_disk(place.out_dir, _DISK_BYTES, "choose an --out on another disk"):
        raise UserError(problem.text)
    _run(place, json_output=json_output)


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(epilog="Example: tidegate standalone --port 16650 --web-port 18080")(standalone)


def _check_ports(ports: dict[str, int]) -> None:
    for flag, number in ports.items():
        if not 1 <= number <= _PORT_MAX:
            raise ConfigError(f"{flag} must be between 1 and {_PORT_MAX}, it is {number}")
        if list(ports.values()).count(number) > 1:
            raise ConfigError(f"{flag} and another have the same port, {number}: choose another {flag}")
        if toolchain.check_ports({flag: number}):
            raise UserError(f"port {number} is in use: stop what listens there, or choose another {flag}")


def _run(place: _Place, *, json_output: bool) -> None:
    # Imported here: they load slowly, and --help would wait for them.
    from tidegate.plugin.local.guard import Guard  # noqa: PLC0415
    from tidegate.plugin.local.workspace import workspace  # noqa: PLC0415
    from tidegate.plugin.shared.stop import InterruptedRunError, Stop  # noqa: PLC0415

    stop = Stop("tidegate standalone")
    alone = workspace(place.out_dir, (_WORK,), busy="another tidegate standalone works")
    with contextlib.suppress(InterruptedRunError), signals_stop(stop), alone, Guard() as guard:
        try:
            _serve(place, guard, stop, json_output=json_output)
        except InterruptedRunError:
            # After a failure the logs stay until the next start.
            shutil.rmtree(place.out_dir / _WORK, ignore_errors=True)


def _serve(place: _Place, guard: Guard, stop: Stop, *, json_output: bool) -> None:
    """Serve. Raises ``InterruptedRunError`` at a requested end, ``UserError`` if a process ended."""
    from tidegate.plugin.local.broker import Broker, BrokerPorts  # noqa: PLC0415
    from tidegate.plugin.local.daemon import Daemon  # noqa: PLC0415
    from tidegate.plugin.local.process import free_ports  # noqa: PLC0415
    from tidegate.plugin.local.trackers import tidegate_conf  # noqa: PLC0415

    daemon = Daemon(
        place.out_dir / _WORK / "daemon",
        socket_path=place.socket,
        arguments=["--http", f"{LOOPBACK}:{place.page_port}"],
        guard=guard,
        pause=stop.pause,
    )
    broker = Broker(
        place.pulsar_home,
        place.out_dir / _WORK / "broker",
        conf=tidegate_conf(place.socket, **_servlet_conf(place.out_dir / _WORK / "servlet")),
        extra_classpath=[place.jar],
        jvm_options=["-XX:TieredStopAtLevel=1"],
        ports=BrokerPorts(place.port, place.web_port, *free_ports(1)),
        guard=guard,
        pause=stop.pause,
    )
    with contextlib.ExitStack() as ends:
        for one in (daemon, broker):
            # Killed: their data is not needed again.
            ends.callback(one.kill)
            print(f"tidegate: starting the {one.name}", file=sys.stderr)
            one.start()
        _say(place.shown(), json_output=json_output)
        while True:
            for one in (daemon, broker):
                if not one.running:
                    raise UserError(f"the {one.name} has ended; its log says why: {one.log_path}")
            stop.pause(_LOOK_S)


def _servlet_conf(folder: Path) -> dict[str, str]:
    """The conf keys of a broker with Tidegate's servlet; its archive goes into ``folder``."""
    from tidegate.plugin.attach import unpacking  # noqa: PLC0415 as above
    from tidegate.plugin.attach.nar import NAME, SERVLET, servlet_nar  # noqa: PLC0415
    from tidegate.plugin.attach.servlets import DIRECTORY_KEY, SERVLETS_KEY  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    (folder / NAME).write_bytes(servlet_nar())
    # Pulsar itself unpacks into one directory in /tmp for everybody.
    return {SERVLETS_KEY: SERVLET, DIRECTORY_KEY: str(folder), unpacking.KEY: str(folder)}


def _say(shown: dict[str, str], *, json_output: bool) -> None:
    if json_output:
        print(json.dumps(shown), flush=True)
        return
    for name, address in shown.items():
        print(f"{name:8}{address}")
    print("Ctrl-C ends it, and removes its data.", flush=True)
