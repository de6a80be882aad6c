"""Shared by the commands that change messages: their choice, the counts of what became of them, and the end.

Invariants: every id is read and checked before anything is changed; what is left when a command ends early
can be asked again.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate.plugin.api.changes import OUTCOMES, Answer, Course, Query, Total, positions_of, run_blocking
from tidegate.plugin.client.reaches import Reach
from tidegate.plugin.commands.moments import RANGE_HELP, due_range
from tidegate.plugin.errors import UserError
from tidegate.plugin.shown import one_line

_PROGRESS_S = 1.0
Ids = Annotated[
    list[str] | None, typer.Option("--id", metavar="ID", help="A message, as in 17:4711; repeatable.")
]
IdsFile = Annotated[
    Path | None, typer.Option("--ids", metavar="FILE", help="A file of ids, one a line; - is the input.")
]
Due = Annotated[str | None, typer.Option(metavar="FROM..TO", help=RANGE_HELP)]
Every = Annotated[bool, typer.Option("--all", help="All that wait.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count; nothing is changed.")]


def course_of(
    reach: Reach,
    query: Query,
    total: Total,
    *,
    ids: list[str] | None,
    ids_file: Path | None,
    due: str | None,
    every: bool,
) -> Course:
    """The course that the options choose. Raises ``UserError`` and ``typer.BadParameter``."""
    if sum((bool(ids), ids_file is not None, due is not None, every)) != 1:
        raise typer.BadParameter("give one of --id, --ids, --due and --all")
    if ids:
        return reach.change(query, positions_of(enumerate(ids, start=1), "--id"), total)
    if ids_file is not None:
        return _of_file(reach, query, total, ids_file)
    if due is not None:
        due_range(due, time.time_ns() // 1_000_000)  # a mistake is one of usage
    return reach.change_of_due(query, due, total)


def _of_file(reach: Reach, query: Query, total: Total, path: Path) -> Course:
    is_input = str(path) == "-"
    source = "the input" if is_input else str(path)
    try:
        with contextlib.nullcontext(sys.stdin) if is_input else path.open(encoding="utf-8") as lines:
            positions = positions_of(enumerate(lines, start=1), source)
    except UnicodeDecodeError as error:
        raise UserError(f"{source} is no file of message ids: it is not text") from error
    return reach.change(query, positions, total)


def run_change(reach: Reach, course: Course, total: Total, done: str, *, json_output: bool) -> None:
    """Run a course to its end and print its counts; `done` says what happened, as in ``cancelled``.

    Raises ``typer.Exit`` unless all were done.
    """
    told_s = time.monotonic()

    def ask(query: Query) -> Answer:
        nonlocal told_s
        if sys.stderr.isatty() and time.monotonic() - told_s > _PROGRESS_S:
            told_s = time.monotonic()
            print(_text(total, done), file=sys.stderr)
        return reach.ask(query)

    try:
        run_blocking(course, ask)
    except BaseException:
        if any(total.counts.values()):
            print(f"tidegate: ended early, after {_text(total, done)}", file=sys.stderr)
        raise
    if json_output:
        print(json.dumps(dict(_shown(total))))
    else:
        print(_text(total, done))
        for name, named in total.ids.items():
            print(f"{name.replace('_', ' ')}: {' '.join(map(one_line, named))}")
    if total.why:
        ended = "ended early, more may wait" if total.stopped else "undecided"
        print(f"tidegate: {ended}: {one_line(total.why)}", file=sys.stderr)
    if total.stopped or any(total.counts[name] for name in OUTCOMES if name != "done"):
        raise typer.Exit(1)


def _shown(total: Total) -> Iterable[tuple[str, Any]]:
    stopped = [("stopped", True)] if total.stopped else []
    return [("dry_run", total.dry_run), *total.counts.items(), ("ids", total.ids), *stopped]


def _text(total: Total, done: str) -> str:
    said = f"would be {done}" if total.dry_run else done
    rest = [f"{total.counts[name]:,} {name.replace('_', ' ')}" for name in OUTCOMES[1:]]
    return ", ".join([f"{total.counts['done']:,} {said}", *rest])
