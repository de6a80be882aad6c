"""``tidegate status``: the state of a running daemon, as text for people and JSON for programs.

The JSON is the daemon's own answer (``report``, described in ``docs/operations.md``) plus ``attached`` when a
Pulsar home was given. Invariant: the command prints nothing as known that the daemon did not say.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate.plugin.api.known_form import known_form
from tidegate.plugin.attach.attachment import inspect
from tidegate.plugin.commands.options import Socket
from tidegate.plugin.commands.status_view import attachment_line, render, say
from tidegate.plugin.daemon.report import SCHEMA
from tidegate.plugin.daemon.settings import read_token
from tidegate.plugin.errors import UserError
from tidegate.plugin.shared.environment import own_default_socket
from tidegate.plugin.shared.shown import console as make_console
from tidegate.plugin.telemetry.client import ask_http
from tidegate.plugin.wire.client import ask_socket


def attachment(pulsar_home: Path) -> dict[str, Any]:
    """The attachment of a Pulsar installation, from its files. Raises ``UserError`` if ``pulsar_home`` is
    none.
    """
    found = inspect(pulsar_home)
    return {
        "pulsar_home": str(found.home),
        "pulsar_version": found.pulsar_version,
        "attached": found.attached,
        "state": found.state,
        "jar": found.jar,
        "confs": [asdict(conf) for conf in found.confs],
    }


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(epilog="Example: tidegate status --socket /run/tidegate/tidegate.sock --json")(status)


def status(
    socket: Socket = None,
    http: Annotated[
        str | None, typer.Option(metavar="URL", help="Ask over HTTP instead, as in 127.0.0.1:8088.")
    ] = None,
    http_token_file: Annotated[
        Path | None,
        typer.Option(
            readable=False,
            help="File with the bearer token that --http needs.",
            envvar="TIDEGATE_HTTP_TOKEN_FILE",
        ),
    ] = None,
    pulsar_home: Annotated[
        Path | None,
        typer.Option(readable=False, help="Also say whether this Pulsar installation is attached."),
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show what the daemon holds.

    Exit code 3: no daemon answers.
    """
    files = None if pulsar_home is None else attachment(pulsar_home)
    console = make_console()
    known: dict[str, Any] = {} if files is None else {"attached": files}
    try:
        if http is not None:
            token = None if http_token_file is None else read_token(http_token_file)
            answer = ask_http(http, token) | known
        else:
            socket_path = socket or _attached_socket(files) or own_default_socket()
            answer = ask_socket(socket_path, {"what": "status"}) | known
    except UserError:
        if json_output:
            _print_json({"schema": SCHEMA, "daemon": None} | known)
        elif files is not None:
            say(console, attachment_line(files))
        raise
    if json_output:
        _print_json(answer)
        return
    with known_form():
        render(answer, console)


def _print_json(answer: dict[str, Any]) -> None:
    print(json.dumps(answer, indent=2))


def _attached_socket(files: dict[str, Any] | None) -> Path | None:
    sockets = {conf["socket"] for conf in files["confs"] if conf["socket"]} if files else set()
    return Path(sockets.pop()) if len(sockets) == 1 else None
