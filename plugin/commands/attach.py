"""``tidegate attach`` and ``tidegate detach``: show and carry out the plans of ``plugin.attach.plan``."""

from __future__ import annotations

import contextlib
import difflib
import json
import stat
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from tidegate.plugin.api.known_form import known_form
from tidegate.plugin.attach import conf_file
from tidegate.plugin.attach.attachment import inspect, shim_jar
from tidegate.plugin.attach.broker_keys import Wanted
from tidegate.plugin.attach.plan import Change, Plan, carry_out, plan_attach, plan_detach
from tidegate.plugin.attach.pulsar_home import CONF_NAMES
from tidegate.plugin.commands.detach_plan import steps
from tidegate.plugin.commands.options import Socket
from tidegate.plugin.errors import ConfigError, DaemonAwayError
from tidegate.plugin.shared.environment import own_default_socket
from tidegate.plugin.shared.shown import one_line
from tidegate.plugin.shared.users import serving_user
from tidegate.plugin.wire.client import ask_socket

DAEMON_WAIT_S = 10
"""The shim's default."""
_DETACHED = "rescheduled messages come at their producers' times, and paused or paced ones when due"
_STYLES = {"+": "green", "-": "red", "@": "cyan"}


Home = Annotated[
    Path,
    typer.Argument(
        readable=False,
        metavar="PULSAR_HOME",
        envvar="PULSAR_HOME",
        help="The directory Pulsar was unpacked into.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the changes, and make none.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def attach(  # noqa: PLR0917 the flags
    pulsar_home: Home,
    socket: Socket = None,
    horizon_ms: Annotated[
        int | None,
        typer.Option(
            min=1, max=3_600_000, help="How far ahead due entries come to the broker [default: 2000]."
        ),
    ] = None,
    tune_acks: Annotated[
        bool | None,
        typer.Option(
            "--tune-acks/--no-tune-acks", help="Also set the cursor settings that keep acknowledgements."
        ),
    ] = None,
    allow_unknown_version: Annotated[
        bool | None,
        typer.Option(
            "--allow-unknown-version/--known-versions-only",
            help="Try a Pulsar that the shim does not know.",
        ),
    ] = None,
    index_log: Annotated[
        str | None,
        typer.Option(
            metavar="auto|bookkeeper|URL|none",
            help="Where each index is kept too, so that it goes where its topic goes: in BookKeeper, or at a "
            "URL such as s3://bucket/folder [default: auto, which is bookkeeper for a broker of a cluster].",
        ),
    ] = None,
    servlet: Annotated[
        bool | None,
        typer.Option(
            "--servlet/--no-servlet",
            help="Serve /tidegate/v1 on the broker's web port, as its admin interface is [default: servlet].",
        ),
    ] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Let the brokers of PULSAR_HOME use Tidegate.

    Puts the shim into lib, and its keys into the conf files. If attached already, only differing options
    change. Takes effect when the broker is restarted.
    """
    wanted = Wanted(socket, horizon_ms, tune_acks, allow_unknown_version, index_log, servlet)
    plan = plan_attach(pulsar_home.absolute(), wanted, shim_jar(), own_default_socket())
    _carry_out_and_show(plan, dry_run, as_json)


def detach(
    pulsar_home: Home,
    dry_run: DryRun = False,
    as_json: Json = False,
    roll: Annotated[
        bool,
        typer.Option("--plan", help="Print the way back of all brokers of the daemon, and change nothing."),
    ] = False,
) -> None:
    """Take Tidegate out of PULSAR_HOME.

    The conf files become byte for byte as they were, except for later edits, which stay. Takes effect when
    the broker is restarted.
    """
    home = pulsar_home.absolute()
    if not roll:
        _carry_out_and_show(plan_detach(home), dry_run, as_json)
        return
    if as_json:
        raise ConfigError("--plan is for people: give --dry-run --json for the changes of one broker")
    sockets = {conf.socket for conf in inspect(home).confs if conf.socket}
    socket = Path(sockets.pop()) if len(sockets) == 1 else own_default_socket()
    answer = None
    with contextlib.suppress(DaemonAwayError):
        answer = ask_socket(socket, {"what": "status"})
    with known_form():
        for line in steps(str(home), str(socket), answer):
            typer.echo(one_line(line))


def register(app: typer.Typer) -> None:
    """Add both commands to ``app``."""
    app.command(epilog="Example: tidegate attach /opt/pulsar --socket /run/tidegate/tidegate.sock --dry-run")(
        attach
    )
    app.command(epilog="Example: tidegate detach /opt/pulsar --dry-run")(detach)


def unified_diff(change: Change, name: str) -> list[str]:
    """The lines of a unified diff, without line endings; it shows a missing newline at the end of a file."""
    before, after = _diff_lines(change.before), _diff_lines(change.after)
    return list(difflib.unified_diff(before, after, f"a/{name}", f"b/{name}", lineterm=""))


def _diff_lines(content: bytes | None) -> list[str]:
    lines = conf_file.decode(content or b"").split("\n")
    if lines[-1]:
        lines[-1] += "\n\\ No newline at end of file"
        return lines
    return lines[:-1]


def _carry_out_and_show(plan: Plan, dry_run: bool, as_json: bool) -> None:
    if not dry_run:
        carry_out(plan)
    if as_json:
        typer.echo(json.dumps(_json(plan, dry_run), indent=2))
        return
    if dry_run:
        _show_diffs(plan)
    for line in _summary(plan, dry_run):
        typer.echo(one_line(line))


def _show_diffs(plan: Plan) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for change in plan.changes:
        name = _name(plan, change)
        if change.path.name not in CONF_NAMES or change.path.parent == plan.home.record_dir:
            verb = _verb(change)
            console.print(Text(f"{verb} {name}", style="bold"))
            continue
        for line in unified_diff(change, name):
            if not console.is_terminal:  # a file gets the patch, byte for byte
                typer.echo(conf_file.encode(line))
                continue
            printable = line.encode("utf-8", errors="replace").decode("utf-8")
            printable = "\t".join(one_line(part) for part in printable.split("\t"))
            console.print(Text(printable, style=_STYLES.get(line[:1], "")))


def _summary(plan: Plan, dry_run: bool) -> Iterator[str]:
    where = f"{plan.home.path} (Pulsar {plan.home.version})"
    attaching = plan.settings is not None
    if not plan.changes:
        yield f"{where} is {'attached already' if attaching else 'not attached'}: nothing to do"
    elif dry_run:
        yield f"{where} would be {'attached' if attaching else 'detached'}; nothing was changed"
    else:
        names = ", ".join(_name(plan, c) for c in plan.changes if c.path.parent != plan.home.record_dir)
        yield f"{'attached' if attaching else 'detached'} {where}" + (f": {names}" if names else "")
    for note in plan.notes:
        yield f"note: {note}"
    for line in plan.advice:
        yield f"advice: {line}"
    if plan.changes and not dry_run:
        if plan.settings is not None:
            yield f"originals: {plan.home.record_dir}"
            user = serving_user(plan.home.owner)
            closed = closed_to(plan.home.owner, Path(sys.executable))
            if closed is not None:
                yield (
                    f"note: {user} cannot enter {closed}, where this Tidegate's Python is: install Tidegate "
                    "for the daemon with one that all may run (/usr/bin/python3 -m venv /opt/tidegate)"
                )
            serve = f"tidegate serve --data DIR --socket {plan.settings.socket}"
            yield f"next: as {user}: {serve}, then restart the broker"
            yield (
                "a subscription that Tidegate has delayed before, opened while no daemon answers, "
                f"waits up to {DAEMON_WAIT_S} s (tidegateDaemonWaitMillis); "
                "messages due later wait for the daemon"
            )
        else:
            yield "next: restart the broker"
    if plan.changes and not attaching:
        yield f"then {_DETACHED}"


def closed_to(owner: int, program: Path) -> Path | None:
    """The first folder on the way to the program, links followed, that not everybody can enter.

    None if this user, or root, has nothing in the way.
    """
    if owner == 0:
        return None
    for folder in reversed(program.resolve().parents):
        status = folder.stat()
        if not status.st_mode & stat.S_IXOTH and status.st_uid != owner:
            return folder
    return None


def _json(plan: Plan, dry_run: bool) -> dict[str, Any]:
    return {
        "pulsar_home": str(plan.home.path),
        "pulsar_version": plan.home.version,
        "action": "detach" if plan.settings is None else "attach",
        "dry_run": dry_run,
        "changed": bool(plan.changes),
        "settings": None if plan.settings is None else asdict(plan.settings),
        "files": [{"path": _name(plan, change), "change": _verb(change)} for change in plan.changes],
        "notes": [*plan.notes, *([_DETACHED] if plan.changes and plan.settings is None else [])],
        "advice": list(plan.advice),
    }


def _verb(change: Change) -> str:
    if change.before is None:
        return "create"
    return "delete" if change.after is None else "replace"


def _name(plan: Plan, change: Change) -> str:
    return str(change.path.relative_to(plan.home.path))
