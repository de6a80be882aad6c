"""``tidegate drill``: faults done to a real broker and its daemon, and the fate of every message.

This module is the command line: flags, checks, signals, output. ``plugin.drill`` is the drills. Exit codes: 0
all passed, 1 a drill failed or could not be done, 2 a bad value or a missing part, 128 + n ended by signal n.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.plugin.commands.running import (
    check_home,
    check_jar,
    check_newer_home,
    leave_at_once,
    now_us,
    signals_stop,
)
from tidegate.plugin.errors import ConfigError, UserError
from tidegate.plugin.local import toolchain
from tidegate.plugin.shared.shown import one_line
from tidegate.plugin.shared.small_file import TOKEN_MAX_BYTES, read_text

if TYPE_CHECKING:
    from tidegate.plugin.drill.drill import Drill
    from tidegate.plugin.drill.session import Options, Result, Session
    from tidegate.plugin.drill.stands.own import Own

ROUNDS_MAX = 10_000
MESSAGES_MIN, MESSAGES_MAX = 10, 5_000_000
# The broker's own files take a quarter of a gigabyte; a message is in a journal and in a ledger.
_DISK_BASE_BYTES = 300 * 2**20
_DISK_MESSAGE_BYTES = 1_000
_OUT = Path("run/drill")
_FILE_WIDTH = 180
_TOPIC = re.compile(r"persistent://[^/\s]+/[^/\s]+/[^/\s]+")
# Characters that a header may contain: the token becomes part of one.
_TOKEN = re.compile(r"[!-~]+")

_app = typer.Typer(
    help="Inject faults into broker and daemon, and judge what came.\n\n"
    "Both are real, started for the drill or in your own cluster, with delayed messages due meanwhile.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@_app.command("list", epilog="Example: tidegate drill list --json")
def list_drills(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, an array.")] = False,
) -> None:
    """The drills, what each does and what it needs."""
    from tidegate.plugin.drill.catalogue import DRILLS  # noqa: PLC0415

    if as_json:
        shown = [{"name": one.name, "does": one.does, "needs": list(one.needs)} for one in DRILLS]
        typer.echo(json.dumps(shown, indent=2))
        return
    width = max(len(one.name) for one in DRILLS)
    for one in DRILLS:
        typer.echo(f"{one.name:{width}}  {one.does}")
        if one.needs:
            typer.echo(f"{'':{width}}  needs {', '.join(one.needs)}")


@_app.command("run", epilog="Example: tidegate drill run broker-killed daemon-killed --rounds 3")
def run(  # noqa: PLR0917 the flags
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Which; see drill list.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    rounds: Annotated[int, typer.Option(help="How often each is run.")] = 1,
    messages: Annotated[
        int | None, typer.Option(help="Messages that come due in a round [default: each drill's own].")
    ] = None,
    compare: Annotated[
        str, typer.Option(metavar="TRACKER,...", help="Others as well: in-memory, bucket, no-index-log.")
    ] = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object a drill on standard output, a line each.")
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(metavar="DIR", readable=False, help="Write an HTML report with plots there."),
    ] = None,
    out: Annotated[Path, typer.Option(readable=False, help="Where ledgers and working files go.")] = _OUT,
    pulsar_home: Annotated[
        Path | None,
        typer.Option(
            readable=False, help="An unpacked Pulsar [default: the one that tidegate setup fetched]."
        ),
    ] = None,
    newer_pulsar_home: Annotated[
        Path | None,
        typer.Option(
            readable=False,
            help="A newer one, for upgrades [default: the newest put together by tidegate setup --pulsar].",
        ),
    ] = None,
    service_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Drill on your own cluster instead: its service URL.")
    ] = None,
    admin_url: Annotated[str | None, typer.Option(metavar="URL", help="Its admin URL.")] = None,
    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="A topic of it that is for tests: persistent://…")
    ] = None,
    on_kill: Annotated[
        str | None,
        typer.Option(metavar="CMD", help="Does the kills there; called as CMD kill|start|… broker|daemon."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", readable=False, help="A file with the token to show there."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Makes the messages of the first round.")] = 1,
    key_shared: Annotated[
        bool, typer.Option("--key-shared", help="Key_Shared consumers: out_of_order then tells the order.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Lines instead of a live screen.")] = False,
) -> None:
    """Run drills: exit code 0 if all passed, 1 if one failed."""
    from tidegate.plugin.drill.session import Options  # noqa: PLC0415
    from tidegate.plugin.drill.stands.own import OWN  # noqa: PLC0415

    drills = _chosen(names or [], every=every)
    _check_values(rounds, messages, seed)
    own = _own(service_url, admin_url, topic, on_kill, token_file, compare)
    own = None if own is None else replace(own, key_shared=key_shared)
    trackers = _trackers(compare) if own is None else [OWN]
    options = Options(
        drills=drills,
        trackers=trackers,
        rounds=rounds,
        messages=messages,
        # On the user's own cluster nothing is started.
        pulsar_home=check_home(pulsar_home) if own is None else Path(),
        jar=check_jar() if own is None else None,
        out_dir=out.absolute(),
        seed=seed,
        own=own,
        key_shared=key_shared,
        newer_home=check_newer_home(newer_pulsar_home) if own is None else None,
    )
    _check_places(options, report)
    session = _session(options)
    try:
        try:
            results = _run(session, as_json=as_json, plain=plain)
        finally:
            for line in session.left:
                print(f"tidegate: left behind: {one_line(line)}", file=sys.stderr)
        _finish(results, options.out_dir, report, to_stderr=as_json)
    except UserError as error:
        if session.stuck:
            print(f"tidegate: {one_line(str(error))}", file=sys.stderr)
            leave_at_once(error.exit_code)
        raise
    exit_code = 0 if all(result.passed for result in results) else 1
    if session.stuck:
        leave_at_once(exit_code)
    raise typer.Exit(exit_code)


@_app.command("report", epilog="Example: tidegate drill report --report run/drill/report")
def report_of(
    out: Annotated[Path, typer.Option(readable=False, help="Where the run has left its ledgers.")] = _OUT,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object a drill on standard output, a line each.")
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(metavar="DIR", readable=False, help="Write an HTML report with plots there."),
    ] = None,
) -> None:
    """Judge again, from the ledgers of the last run.

    It may have been killed.
    """
    from tidegate.plugin.drill.catalogue import DRILLS  # noqa: PLC0415
    from tidegate.plugin.drill.session import ledgers_of, results_of  # noqa: PLC0415

    known = {one.name: one.does for one in DRILLS}
    ledgers = ledgers_of(out.absolute())
    if not ledgers:
        raise ConfigError(f"there are no ledgers in {out}: run `tidegate drill run`, or correct --out")
    results = results_of(ledgers, lambda name: known.get(name, ""))
    if as_json:
        _print_json(results)
    _finish(results, out.absolute(), report, to_stderr=as_json)
    raise typer.Exit(0 if all(result.passed for result in results) else 1)


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.add_typer(_app, name="drill", epilog="Example: tidegate drill list")


def _chosen(names: list[str], *, every: bool) -> list[Drill]:
    from tidegate.plugin.drill.catalogue import DRILLS, named  # noqa: PLC0415

    if every and names:
        raise ConfigError("name drills, or say --all, not both")
    if not every and not names:
        raise ConfigError("name a drill, or say --all; `tidegate drill list` lists them")
    return list(DRILLS) if every else [named(name) for name in dict.fromkeys(names)]


def _check_values(rounds: int, messages: int | None, seed: int) -> None:
    if not 1 <= rounds <= ROUNDS_MAX:
        raise ConfigError(f"--rounds must be between 1 and {ROUNDS_MAX:,}, it is {rounds}")
    if messages is not None and not MESSAGES_MIN <= messages <= MESSAGES_MAX:
        raise ConfigError(f"--messages must be between {MESSAGES_MIN} and {MESSAGES_MAX:,}, it is {messages}")
    if seed < 0:
        raise ConfigError(f"--seed must not be negative, it is {seed}")


def _trackers(compare: str) -> list[str]:
    from tidegate.plugin.drill.stands.trackers import COMPARED, OURS  # noqa: PLC0415

    asked = [name.strip() for name in compare.split(",") if name.strip()]
    for name in asked:
        if name not in COMPARED:
            raise ConfigError(f"--compare takes {', '.join(COMPARED)}, not {name}")
    return list(dict.fromkeys([OURS, *asked]))


def _own(  # noqa: PLR0917 the flags
    service_url: str | None,
    admin_url: str | None,
    topic: str | None,
    on_kill: str | None,
    token_file: Path | None,
    compare: str,
) -> Own | None:
    from tidegate.plugin.drill.stands.own import Own  # noqa: PLC0415

    if service_url is None:
        flags = {"--admin-url": admin_url, "--topic": topic, "--on-kill": on_kill, "--token-file": token_file}
        for flag, value in flags.items():
            if value is not None:
                raise ConfigError(f"{flag} is about a cluster of your own: give its --service-url as well")
        return None
    if topic is None or not _TOPIC.fullmatch(topic):
        raise ConfigError("--service-url needs --topic persistent://TENANT/NAMESPACE/NAME, one for tests")
    if not service_url.startswith(("pulsar://", "pulsar+ssl://")):
        raise ConfigError(f"--service-url begins with pulsar:// or pulsar+ssl://, not {service_url}")
    if admin_url is not None and not admin_url.startswith(("http://", "https://")):
        raise ConfigError(f"--admin-url begins with http:// or https://, not {admin_url}")
    if compare:
        raise ConfigError("--compare starts brokers of its own: leave it out with --service-url")
    try:
        hook = shlex.split(on_kill or "")
    except ValueError as error:
        raise ConfigError(f"--on-kill is no command: {error}") from error
    if on_kill is not None and not hook:
        raise ConfigError("--on-kill is empty: give a command, or leave it out")
    token = None if token_file is None else _token(token_file)
    return Own(service_url, admin_url.rstrip("/") if admin_url else None, topic, on_kill, token)


def _token(path: Path) -> str:
    try:
        token = read_text(path, TOKEN_MAX_BYTES).strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read --token-file {path}: {reason}") from error
    if not token:
        raise ConfigError(f"--token-file {path} is empty")
    if not _TOKEN.fullmatch(token):
        raise ConfigError(f"--token-file {path} holds no token: that is one word of ASCII")
    return token


def _check_places(options: Options, report: Path | None) -> None:
    for path, flag in ((options.pulsar_home, "--pulsar-home"), (options.out_dir, "--out")):
        if problem := toolchain.check_path(path, f"choose another {flag}"):
            raise ConfigError(problem.text)
    if report is not None:
        _check_report(report)
    sent = [options.messages or drill.load.messages for drill in options.drills]
    needed_bytes = _DISK_BASE_BYTES + 2 * max(sent) * _DISK_MESSAGE_BYTES
    if problem := toolchain.check_disk(options.out_dir, needed_bytes, "choose an --out on another disk"):
        raise UserError(problem.text)


def _check_report(report: Path) -> None:
    """Check that the report can be written, before hours of drills."""
    if report.exists() and not report.is_dir():
        raise ConfigError(f"--report {report} is not a directory: choose another one")
    made = [path for path in (report, *report.absolute().parents) if not path.exists()]
    try:
        report.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=report):
            pass
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"cannot write to --report {report}: {reason}; choose another one") from error
    finally:
        # The check must leave nothing behind.
        with contextlib.suppress(OSError):
            for path in made:
                path.rmdir()


def _session(options: Options) -> Session:
    from tidegate.plugin.drill.session import Session  # noqa: PLC0415
    from tidegate.plugin.shared.stop import Stop  # noqa: PLC0415

    return Session(options, Stop("the drills"), now_us)


def _run(session: Session, *, as_json: bool, plain: bool) -> list[Result]:
    from rich.console import Console  # noqa: PLC0415

    from tidegate.plugin.drill.view import live_view, plain_view  # noqa: PLC0415

    console = Console(stderr=as_json)
    lines = plain or not console.is_terminal
    progress = session.progress
    view = plain_view(progress, console, now_us) if lines else live_view(progress, console, now_us)
    results = []
    with signals_stop(session.stop), view:
        for result in session.run():
            results.append(result)
            if as_json:
                _print_json([result])
    return results


def _print_json(results: list[Result]) -> None:
    from tidegate.plugin.drill.report import as_json  # noqa: PLC0415

    for result in results:
        sys.stdout.write(json.dumps(as_json(result)) + "\n")
        sys.stdout.flush()


def _made(arguments: list[str]) -> str:
    """The version, the machine and the options, for the report; without hooks, which may have a secret."""
    from tidegate.plugin.daemon.serve import product_name  # noqa: PLC0415

    shown = [
        "…" if before == "--on-kill" else "--on-kill=…" if one.startswith("--on-kill=") else one
        for before, one in zip(["", *arguments], arguments, strict=False)
    ]
    machine = os.uname()
    return (
        f"{product_name()}, on {machine.sysname} {machine.release}, {machine.machine}, {os.cpu_count()} cores"
        f". tidegate {shlex.join(shown)}"
    )


def _finish(results: list[Result], out_dir: Path, report: Path | None, *, to_stderr: bool) -> None:
    from rich.console import Console  # noqa: PLC0415

    from tidegate.plugin.drill.report import as_table  # noqa: PLC0415

    console = Console(stderr=to_stderr)
    if not console.is_terminal:
        # A file or a pipe has no width: the report is not cut.
        console = Console(stderr=to_stderr, width=_FILE_WIDTH)
    console.print(as_table(results), highlight=False)
    if report is not None:
        from tidegate.plugin.drill.html import write_report  # noqa: PLC0415

        index = write_report(results, report.absolute(), _made(sys.argv[1:]))
        console.print(f"report: {index}", markup=False, highlight=False, soft_wrap=True)
    elif any(not one.passed for one in results):
        console.print(f"the ledgers: {out_dir}", markup=False, highlight=False, soft_wrap=True)
