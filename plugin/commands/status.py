"""``tidegate status``: what a running daemon holds, for people as tables, for programs as JSON.

The JSON is the daemon's own answer (``report``, described in ``docs/operations.md``) plus ``attached`` when a
Pulsar home was given. Invariant: nothing is printed as known that the daemon did not say.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from tidegate.plugin.attach.plan import inspect
from tidegate.plugin.daemon.settings import read_token
from tidegate.plugin.durations import duration
from tidegate.plugin.environment import SOCKET_DEFAULT_HELP, own_default_socket
from tidegate.plugin.errors import UserError
from tidegate.plugin.shown import console as make_console
from tidegate.plugin.shown import one_line, shown
from tidegate.plugin.telemetry.client import ask_http
from tidegate.plugin.telemetry.report import SCHEMA
from tidegate.plugin.wire.client import ask_socket

if TYPE_CHECKING:
    from rich.console import Console


def attachment(pulsar_home: Path) -> dict[str, Any]:
    """What the files of a Pulsar installation say. Raises ``UserError`` if it is not one."""
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
    socket: Annotated[
        Path | None,
        typer.Option(
            envvar="TIDEGATE_SOCKET", help=f"The daemon's Unix socket [default: {SOCKET_DEFAULT_HELP}]."
        ),
    ] = None,
    http: Annotated[
        str | None, typer.Option(metavar="URL", help="Ask over HTTP instead, as in 127.0.0.1:8088.")
    ] = None,
    http_token_file: Annotated[
        Path | None,
        typer.Option(help="File with the bearer token that --http needs.", envvar="TIDEGATE_HTTP_TOKEN_FILE"),
    ] = None,
    pulsar_home: Annotated[
        Path | None, typer.Option(help="Also say whether this Pulsar installation is attached.")
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show what the daemon holds. Exit code 3: no daemon answers."""
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
            _say(console, _attachment_line(files))
        raise
    if json_output:
        _print_json(answer)
        return
    try:
        render(answer, console)
    except (KeyError, TypeError) as error:
        raise UserError(f"the daemon answers in a form that this version does not know: {error}") from error


def _print_json(answer: dict[str, Any]) -> None:
    print(json.dumps(answer, indent=2))


def render(answer: dict[str, Any], console: Console) -> None:
    """Print an answer as tables. Raises ``KeyError`` or ``TypeError`` if it does not follow the schema."""
    daemon, totals = answer["daemon"], answer["totals"]
    state = "ready" if daemon["ready"] else f"NOT READY: {'; '.join(daemon['not_ready'])}"
    _say(console, f"{daemon['product']}, up {_duration(daemon['uptime_seconds'])}, {state}")
    for broker in answer["brokers"]:
        _say(
            console,
            f"broker {shown(broker['name'])} ({broker['product']}) connected, {broker['streams']} streams",
        )
    if not answer["brokers"]:
        _say(console, "no broker is connected")
    if "attached" in answer:
        _say(console, _attachment_line(answer["attached"]))
    _say(
        console,
        f"{totals['held']:,} held, {totals['in_flight']:,} in flight, {totals['staged']:,} staged, "
        f"{totals['slices_in_memory']} slices in memory, {totals['slices_on_disk']} on disk, "
        f"{_size(totals['memory_bytes'])} memory, {_size(totals['disk_bytes'])} disk, "
        f"{totals['uncommitted_entries']:,} not durable yet",
    )
    if answer["subscriptions"]:
        console.print(_subscriptions(answer["subscriptions"], daemon["now_ms"]))
    if answer["subscriptions_omitted"]:
        _say(console, f"… and {answer['subscriptions_omitted']:,} subscriptions more")
    for one in answer["subscriptions"]:
        if one["slices"]:
            console.print(_slices(one))


def _say(console: Console, line: str) -> None:
    console.print(Text(one_line(line)))


def _subscriptions(subscriptions: list[dict[str, Any]], now_ms: int) -> Table:
    table = Table(title="Subscriptions", title_justify="left")
    table.add_column("topic", overflow="fold")
    table.add_column("subscription", overflow="fold")
    table.add_column("broker")
    for name in ("held", "in flight", "staged", "overdue", "next due", "slices"):
        table.add_column(name, justify="right")
    for one in subscriptions:
        table.add_row(
            Text(shown(one["topic"])),
            Text(shown(one["subscription"])),
            Text(shown(one["broker"] or "-")),
            f"{one['held']:,}",
            f"{one['in_flight']:,}",
            f"{one['staged']:,}",
            _duration(one["overdue_ms"] / 1_000) if one["overdue_ms"] else "-",
            _next_due(one["next_due_ms"], now_ms),
            _width(one),
        )
    return table


def _slices(one: dict[str, Any]) -> Table:
    title = f"Slices of {shown(one['topic'])} {shown(one['subscription'])}"
    table = Table(title=Text(title, style="table.title"), title_justify="left")
    table.add_column("from")
    for name in ("width", "entries"):
        table.add_column(name, justify="right")
    table.add_column("state")
    for part in one["slices"]:
        table.add_row(
            _instant(part["start_ms"]),
            _duration(part["width_ms"] / 1_000),
            f"{part['entries']:,}",
            one_line(part["state"]),
        )
    if one["slices_omitted"]:
        table.add_row(f"… {one['slices_omitted']} more", "", "", "")
    return table


def _attachment_line(files: dict[str, Any]) -> str:
    home = f"{files['pulsar_home']} (Pulsar {files['pulsar_version']})"
    if files["attached"]:
        return f"{home} is attached"
    how = "is not attached" if files["state"] == "detached" else "is attached in part only"
    return f"{home} {how}: run tidegate attach {files['pulsar_home']}"


def _attached_socket(files: dict[str, Any] | None) -> Path | None:
    sockets = {conf["socket"] for conf in files["confs"] if conf["socket"]} if files else set()
    return Path(sockets.pop()) if len(sockets) == 1 else None


def _instant(at_ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(at_ms // 1_000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):  # what a client may ask for ends long after the calendar
        return "beyond year 9999" if at_ms > 0 else "before year 1"


def _next_due(next_due_ms: int | None, now_ms: int) -> str:
    if next_due_ms is None:
        return "-"
    away_s = (next_due_ms - now_ms) / 1_000
    return f"in {_duration(away_s)}" if away_s > 0 else f"{_duration(-away_s)} ago"


def _width(one: dict[str, Any]) -> str:
    text = duration(one["slice_width_ms"])
    # An older daemon does not say.
    return f"{text} auto" if one.get("slice_width_auto") else text


def _duration(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"


def _size(size_bytes: int) -> str:
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
