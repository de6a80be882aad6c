"""``tidegate demo``: delayed messages on a real Pulsar broker, through kill -9 of the broker and of the
daemon.

This module is the command line: flags, checks, signals, output. ``plugin.demo.course`` is the demo itself.
Exit codes: 0 nothing early or lost, 1 an early or lost message or a failed start, 2 a bad value or a missing
part, 128 + n ended by signal n.
"""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.plugin.commands.running import check_home, check_jar, leave_at_once, signals_stop
from tidegate.plugin.errors import ConfigError, UserError
from tidegate.plugin.local import toolchain
from tidegate.plugin.shown import one_line

if TYPE_CHECKING:
    from tidegate.plugin.demo.course import Demo
    from tidegate.plugin.demo.run import Options, Outcome

MESSAGES_MAX = 1_000_000
# The broker's own files take a quarter of a gigabyte; a message is in a journal and in a ledger.
DISK_BASE_BYTES = 300 * 2**20
DISK_MESSAGE_BYTES = 1_000
SECONDS_MIN, SECONDS_MAX = 5.0, 3_600.0
_TRACKERS = ("tidegate", "in-memory", "bucket")
_FORMER_NAMES = {"pulsar": "in-memory"}


def demo(  # noqa: PLR0917 the flags
    messages: Annotated[int, typer.Option(help="Messages that come due during the run.")] = 20_000,
    seconds: Annotated[float, typer.Option(help="How long to send and deliver.")] = 50.0,
    far: Annotated[
        int, typer.Option(help="Messages due tomorrow, which must stay where they are.")
    ] = 100_000,
    plain: Annotated[bool, typer.Option("--plain", help="A line a second instead of a live screen.")] = False,
    json_file: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE|-", help="Write the report as JSON; - is standard output."),
    ] = None,
    pulsar_home: Annotated[
        Path | None,
        typer.Option(
            readable=False, help="An unpacked Pulsar [default: the one that tidegate setup fetched]."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(readable=False, help="Where report, plot and working files go.")
    ] = Path("run/demo"),
    keep: Annotated[bool, typer.Option("--keep", help="Keep the working files: logs, index, topic.")] = False,
    tracker: Annotated[
        str, typer.Option(help="Who delays: tidegate, or for comparison Pulsar's own: in-memory, bucket.")
    ] = "tidegate",
) -> None:
    """Show that messages come when due, through two kill -9s.

    On a Pulsar broker that is started for it. Exit codes: 0 nothing was early or lost, 1 something was, or it
    could not be run, 2 a bad value or a missing part.
    """
    # Imported here: the client loads slowly, and every command would wait for it.
    from tidegate.plugin.demo.run import Options  # noqa: PLC0415

    tracker = _FORMER_NAMES.get(tracker, tracker)
    _check_values(messages, seconds, far, tracker)
    _check_json(json_file)
    options = Options(
        messages=messages,
        seconds=seconds,
        far=far,
        tracker=tracker,
        pulsar_home=check_home(pulsar_home),
        jar=check_jar() if tracker == "tidegate" else None,
        out_dir=out.absolute(),
        keep=keep,
    )
    _check_paths(options)
    _check_disk(options.out_dir, messages + far)
    course = _course(options)
    try:
        outcome = _run(course, plain=plain, json_to_stdout=json_file == "-")
        _report(outcome, json_file)
    except UserError as error:
        if course.stuck:
            print(f"tidegate: {one_line(str(error))}", file=sys.stderr)
            leave_at_once(error.exit_code)
        raise
    if keep:
        outcome.recorder.save(outcome.options.out_dir / "work" / "record.npz")
    exit_code = 0 if outcome.passed else 1
    if course.stuck:
        leave_at_once(exit_code)
    raise typer.Exit(exit_code)


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(epilog="Example: tidegate demo --seconds 30 --messages 5000 --far 10000 --plain")(demo)


def _check_values(messages: int, seconds: float, far: int, tracker: str) -> None:
    if not math.isfinite(seconds) or not SECONDS_MIN <= seconds <= SECONDS_MAX:
        raise ConfigError(
            f"--seconds must be between {SECONDS_MIN:.0f} and {SECONDS_MAX:.0f}, it is {seconds:g}"
        )
    if not 1 <= messages <= MESSAGES_MAX:
        raise ConfigError(f"--messages must be between 1 and {MESSAGES_MAX:,}, it is {messages}")
    if not 0 <= far <= MESSAGES_MAX:
        raise ConfigError(f"--far must be between 0 and {MESSAGES_MAX:,}, it is {far}")
    if tracker not in _TRACKERS:
        raise ConfigError(f"--tracker must be one of {', '.join(_TRACKERS)}, it is {tracker}")


def _check_json(json_file: str | None) -> None:
    """Before the run, not after it; opening nothing, which would disturb a pipe's reader."""
    if json_file is None or json_file == "-":
        return
    path = Path(json_file)
    if path.is_dir():
        reason = "it is a directory"
    elif not path.parent.is_dir():
        reason = f"there is no directory {path.parent}"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        reason = "no permission to write there"
    else:
        return
    raise ConfigError(f"cannot write the report to {path}: {reason}; choose another --json")


def _check_paths(options: Options) -> None:
    for path, flag in ((options.pulsar_home, "--pulsar-home"), (options.out_dir, "--out")):
        if problem := toolchain.check_path(path, f"choose another {flag}"):
            raise ConfigError(problem.text)


def _check_disk(out_dir: Path, messages: int) -> None:
    needed_bytes = DISK_BASE_BYTES + messages * DISK_MESSAGE_BYTES
    if problem := toolchain.check_disk(out_dir, needed_bytes, "choose an --out on another disk"):
        raise UserError(problem.text)


def _course(options: Options) -> Demo:
    from tidegate.plugin.demo.course import Demo  # noqa: PLC0415
    from tidegate.plugin.stop import Stop  # noqa: PLC0415

    return Demo(options, Stop("the demo"))


def _run(course: Demo, *, plain: bool, json_to_stdout: bool) -> Outcome:
    from rich.console import Console  # noqa: PLC0415

    from tidegate.plugin.demo.view import live_view, plain_view  # noqa: PLC0415

    console = Console(stderr=json_to_stdout)
    lines = plain or not console.is_terminal
    view = (plain_view if lines else live_view)(course.progress, console)
    with signals_stop(course.stop), view:
        return course.run()


def _report(outcome: Outcome, json_file: str | None) -> None:
    from rich.console import Console  # noqa: PLC0415

    from tidegate.plugin.demo.plot import write_plots  # noqa: PLC0415
    from tidegate.plugin.demo.report import as_json, as_text  # noqa: PLC0415

    plots = [_shown(path) for path in write_plots(outcome, outcome.options.out_dir)]
    report = json.dumps(as_json(outcome, plots), indent=2) + "\n"
    _write(outcome.options.out_dir / "report.json", report)
    if json_file == "-":
        sys.stdout.write(report)
    elif json_file is not None:
        _write(Path(json_file), report)
    console = Console(stderr=json_file == "-")
    # A file or a pipe has no width: the report is not cut.
    console.print(as_text(outcome, plots), width=None if console.is_terminal else 140, highlight=False)


def _shown(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write the report to {path}: {error.strerror or error}") from error
