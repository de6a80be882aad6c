"""Shared by the commands that change messages: the choice of messages, the counts by outcome, and the end.

Invariants: every id is checked before any change; a command that ends early can be repeated for the rest.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate.plugin.api.changes import OUTCOMES, Answer, Course, Query, Total, positions_of, run_blocking
from tidegate.plugin.client.reaches import Reach
from tidegate.plugin.commands.filters import Filter, tell_cost
from tidegate.plugin.commands.moments import RANGE_HELP, due_range
from tidegate.plugin.commands.options import Asked
from tidegate.plugin.errors import UserError
from tidegate.plugin.shared.shown import one_line

_PROGRESS_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The messages that a command changes: a group of ``groups``."""

    ids: Annotated[
        list[str] | None, typer.Option("--id", metavar="ID", help="A message, as in 17:4711; repeatable.")
    ] = None
    ids_file: Annotated[
        Path | None,
        typer.Option("--ids", metavar="FILE", help="A file of ids, one a line; - is the input."),
    ] = None
    due: Annotated[str | None, typer.Option(metavar="FROM..TO", help=RANGE_HELP)] = None
    every: Annotated[bool, typer.Option("--all", help="All that wait.")] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count; nothing is changed.")] = False

    def course(self, reach: Reach, query: Query, total: Total, kept: Query) -> Course:
        """The chosen course, with a filter. Raises ``UserError``, ``typer.BadParameter``."""
        named = bool(self.ids) or self.ids_file is not None
        if named and kept:
            raise typer.BadParameter("--key and --property go with --due or --all")
        every = self.every or bool(kept and self.due is None)
        if sum((bool(self.ids), self.ids_file is not None, self.due is not None, every)) != 1:
            raise typer.BadParameter("give one of --id, --ids, --due and --all")
        if self.ids:
            return reach.change(query, positions_of(enumerate(self.ids, start=1), "--id"), total)
        if self.ids_file is not None:
            return _of_file(reach, query, total, self.ids_file)
        if self.due is not None:
            due_range(self.due, time.time_ns() // 1_000_000)  # a mistake is one of usage
        if kept:
            names = {name: query[name] for name in ("topic", "subscription")}
            tell_cost(reach, {"what": "waiting", **names, "due": self.due, **kept})
        return reach.change_of_due(query | kept, self.due, total)


def change(asked: Asked, query: Query, choice: Choice, kept: Filter, done: str) -> None:
    """Ask `query` of the chosen messages; `done` names the outcome, as in ``cancelled``.

    Raises ``UserError``, ``typer.BadParameter``, and ``typer.Exit`` unless all were done.
    """
    reach = asked.reach()
    total = Total(choice.dry_run)
    course = choice.course(reach, query | {"dry_run": choice.dry_run}, total, kept.query)
    _run(reach, course, total, done, json_output=asked.json_output)


def _of_file(reach: Reach, query: Query, total: Total, path: Path) -> Course:
    is_input = str(path) == "-"
    source = "the input" if is_input else str(path)
    try:
        with contextlib.nullcontext(sys.stdin) if is_input else path.open(encoding="utf-8") as lines:
            positions = positions_of(enumerate(lines, start=1), source)
    except UnicodeDecodeError as error:
        raise UserError(f"{source} is no file of message ids: it is not text") from error
    return reach.change(query, positions, total)


def _run(reach: Reach, course: Course, total: Total, done: str, *, json_output: bool) -> None:
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
