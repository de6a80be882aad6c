"""``tidegate status``: the state of a running daemon, as text for people and JSON for programs.

The JSON is the daemon's own answer (``report``, described in ``docs/operations.md``) plus ``attached`` for a
given Pulsar home. Invariant: the command presents nothing as known that the daemon did not say.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from tidegate.index import SubscriptionName
from tidegate.plugin.api.known_form import known_form
from tidegate.plugin.attach.attachment import inspect
from tidegate.plugin.client.calls import base_of
from tidegate.plugin.commands.options import JsonOutput, Socket, TlsCaFile, Token, TokenFile, rest_client
from tidegate.plugin.commands.status_quotas import add_quotas
from tidegate.plugin.commands.status_rows import Sort, bypassed_names, in_order
from tidegate.plugin.commands.status_view import View, attachment_line, render, say
from tidegate.plugin.daemon.glob import STAR
from tidegate.plugin.daemon.report import SCHEMA
from tidegate.plugin.daemon.selection import meaning
from tidegate.plugin.daemon.settings import read_token
from tidegate.plugin.doctor.broker import BrokerAdmin
from tidegate.plugin.errors import ConfigError, DaemonAwayError, UserError
from tidegate.plugin.shared.environment import own_default_socket
from tidegate.plugin.shared.shown import console as make_console
from tidegate.plugin.telemetry.client import ask_http
from tidegate.plugin.wire.client import ask_socket

if TYPE_CHECKING:
    from rich.console import Console

_QUOTAS_SPAN_S = 5.0
"""Longer no look at the daemon waits for a broker."""


def attachment(pulsar_home: Path) -> dict[str, Any]:
    """The attachment of a Pulsar installation, from its files. Raises ``UserError`` for any other folder."""
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
    app.command(epilog="Example: tidegate status 'orders*' --sort held --watch 2")(status)


def status(
    context: typer.Context,
    topic: Annotated[
        str,
        typer.Argument(
            metavar="[TOPIC]",
            help="persistent://public/default/ may be left out, * is anything; without: all topics.",
        ),
    ] = STAR,
    *,
    sort: Annotated[
        Sort | None, typer.Option(help="Order of the subscriptions [default: worst; with --json held].")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also show subscriptions that hold nothing, and all index logs.")
    ] = False,
    slices: Annotated[bool, typer.Option("--slices", help="Also show the slices.")] = False,
    watch_seconds: Annotated[
        float | None,
        typer.Option(
            "--watch", metavar="SECONDS", min=0.1, max=3600, help="Show it again so often; Ctrl-C ends it."
        ),
    ] = None,
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
    admin_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="TIDEGATE_ADMIN_URL",
            help="A broker's web service: also show the quotas of tidegate policy.",
        ),
    ] = None,
    token: Token = None,
    token_file: TokenFile = None,
    tls_ca_file: TlsCaFile = None,
    pulsar_home: Annotated[
        Path | None,
        typer.Option(readable=False, help="Also say whether this Pulsar installation is attached."),
    ] = None,
    json_output: JsonOutput = False,
) -> None:
    """Show what the daemon holds, the worst first.

    Exit code 3: no daemon answers.
    """
    if watch_seconds is not None and json_output:
        raise ConfigError("--watch is for people: ask again with --json as often as needed")
    files = None if pulsar_home is None else attachment(pulsar_home)
    order = sort or (Sort.HELD if json_output else Sort.WORST)
    console = make_console()
    known: dict[str, Any] = {} if files is None else {"attached": files}

    def ask() -> dict[str, Any]:
        by_due = order in {Sort.WORST, Sort.DUE}
        if http is not None:
            token = None if http_token_file is None else read_token(http_token_file)
            return ask_http(http, token, by_due=by_due) | known
        request = {"what": "status", "sort": "due" if by_due else "held"}
        if topic != STAR:
            request["topic"] = topic
        return ask_socket(socket or _attached_socket(files) or own_default_socket(), request) | known

    def show(answer: dict[str, Any]) -> None:
        with known_form():
            answer["subscriptions"] = _chosen(answer, topic, order)
            unknown = None
            if admin_url is not None:
                client = rest_client(context, token, token_file, tls_ca_file)
                admin = BrokerAdmin(
                    base_of(admin_url), client, _now_ms, time.monotonic, span_s=_QUOTAS_SPAN_S
                )
                unknown = add_quotas(answer["subscriptions"], admin)
                answer["subscriptions"] = in_order(answer["subscriptions"], order, bypassed_names(answer))
            if json_output:
                _print_json(answer)
            else:
                render(answer, console, View(order, everything, slices))
                if unknown is not None:
                    say(console, unknown)

    if watch_seconds is not None:
        _watch(console, lambda: show(ask()), watch_seconds)
    try:
        answer = ask()
    except UserError:
        if json_output:
            _print_json({"schema": SCHEMA, "daemon": None} | known)
        elif files is not None:
            say(console, attachment_line(files))
        raise
    show(answer)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _watch(console: Console, show: Callable[[], None], period_seconds: float) -> NoReturn:
    """Show it again and again, even while no daemon answers. SIGINT ends the process."""
    while True:
        console.clear()  # nothing without a terminal
        try:
            show()
        except DaemonAwayError as away:
            say(console, str(away))
        console.file.flush()
        time.sleep(period_seconds)


def _chosen(answer: dict[str, Any], topic: str, order: Sort) -> list[dict[str, Any]]:
    """The subscriptions to show, in order: HTTP and an older daemon choose none."""
    means = meaning(topic, STAR)
    each = [
        one for one in answer["subscriptions"] if means(SubscriptionName(one["topic"], one["subscription"]))
    ]
    return in_order(each, order, bypassed_names(answer))


def _print_json(answer: dict[str, Any]) -> None:
    print(json.dumps(answer, indent=2))


def _attached_socket(files: dict[str, Any] | None) -> Path | None:
    sockets = {conf["socket"] for conf in files["confs"] if conf["socket"]} if files else set()
    return Path(sockets.pop()) if len(sockets) == 1 else None
