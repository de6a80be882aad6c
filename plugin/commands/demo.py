"""``tidegate demo``: delayed messages on a real Pulsar broker, through kill -9 of the broker and of the
daemon.

This module is the command line: flags, checks, signals, output. The demo is a preset of the drills.
Exit codes: 0 nothing early or lost, 1 an early or lost message or a failed start, 2 a bad value or a missing
part, 128 + n ended by signal n.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.plugin.commands.running import check_home, check_jar, leave_at_once, now_us, signals_stop
from tidegate.plugin.errors import ConfigError, UserError
from tidegate.plugin.local import toolchain
from tidegate.plugin.shared.shown import one_line

if TYPE_CHECKING:
    from tidegate.plugin.drill.session import Options, Result, Session

MESSAGES_MAX = 1_000_000
# The broker's own files take a quarter of a gigabyte; a message is in a journal and in a ledger.
DISK_BASE_BYTES = 300 * 2**20
DISK_MESSAGE_BYTES = 1_000
_FILE_WIDTH = 140
SECONDS_MIN, SECONDS_MAX = 5.0, 3_600.0
_TRACKERS = ("tidegate", "in-memory", "bucket")
_FORMER_NAMES = {"pulsar": "in-memory"}


@dataclass(frozen=True)
class _Output:
    """The places of the report, besides the screen."""

    json_file: str | None
    plain: bool

    @property
    def json_to_stdout(self) -> bool:
        """True if everything else goes to standard error."""
        return self.json_file == "-"


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
    from tidegate.plugin.demo.preset import demo_drill  # noqa: PLC0415
    from tidegate.plugin.drill.session import Options  # noqa: PLC0415

    tracker = _FORMER_NAMES.get(tracker, tracker)
    _check_values(messages, seconds, far, tracker)
    _check_json(json_file)
    options = Options(
        drills=[demo_drill(messages, seconds, far, tracker)],
        trackers=[tracker],
        rounds=1,
        messages=None,
        pulsar_home=check_home(pulsar_home),
        jar=check_jar() if tracker == "tidegate" else None,
        out_dir=out.absolute(),
        seed=1,
        watched=True,
    )
    _check_paths(options)
    _check_disk(options.out_dir, messages + far)
    output = _Output(json_file, plain)
    session = _session(options)
    try:
        began_s = time.monotonic()
        result = _run(session, output)
        _report(result, session, options.out_dir, output, time.monotonic() - began_s)
    except UserError as error:
        if session.stuck:
            print(f"tidegate: {one_line(str(error))}", file=sys.stderr)
            leave_at_once(error.exit_code)
        raise
    if result.passed and not keep:
        # After a failure the logs stay until the next run.
        shutil.rmtree(options.out_dir / "work", ignore_errors=True)
    exit_code = 0 if result.passed else 1
    if session.stuck:
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
    """Check before the run; opens nothing, which would disturb a pipe's reader."""
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


def _session(options: Options) -> Session:
    from tidegate.plugin.drill.session import Session  # noqa: PLC0415
    from tidegate.plugin.shared.stop import Stop  # noqa: PLC0415

    return Session(options, Stop("the demo"), now_us)


def _run(session: Session, output: _Output) -> Result:
    """The result of the one drill. Raises ``UserError`` if it could not begin."""
    from rich.console import Console  # noqa: PLC0415

    from tidegate.plugin.drill.view import live_view, plain_view  # noqa: PLC0415

    console = Console(stderr=output.json_to_stdout)
    lines = output.plain or not console.is_terminal
    progress = session.progress
    view = (
        plain_view(progress, console, now_us, every_s=1)
        if lines
        else live_view(progress, console, now_us, transient=False)
    )
    with signals_stop(session.stop), view:
        (result,) = session.run()
    if not result.verdicts:
        raise UserError("; ".join(result.failures))
    return result


def _report(result: Result, session: Session, out_dir: Path, output: _Output, total_s: float) -> None:
    from rich.console import Console  # noqa: PLC0415

    from tidegate.plugin.demo.picture import write_pictures  # noqa: PLC0415
    from tidegate.plugin.demo.report import as_text  # noqa: PLC0415
    from tidegate.plugin.drill.report import as_json  # noqa: PLC0415

    watch = session.progress.watch
    plots = [_shown(path) for path in write_pictures(result, [] if watch is None else watch.history, out_dir)]
    run = {"total_seconds": round(total_s, 3), "plots": [str(path) for path in plots]}
    report = json.dumps(as_json(result) | run, indent=2) + "\n"
    _write(out_dir / "report.json", report)
    if output.json_to_stdout:
        sys.stdout.write(report)
    elif output.json_file is not None:
        _write(Path(output.json_file), report)
    console = Console(stderr=output.json_to_stdout)
    if not console.is_terminal:
        # A file or a pipe has no width: the report is not cut.
        console = Console(stderr=output.json_to_stdout, width=_FILE_WIDTH)
    console.print(as_text(result, plots, total_s), highlight=False)


def _shown(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write the report to {path}: {error.strerror or error}") from error
