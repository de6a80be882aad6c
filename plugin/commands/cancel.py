"""``tidegate cancel``: takes messages back before they are delivered.

Invariants: every id is read and checked before anything is cancelled; a message is counted as done only after
the daemon has answered that it is durable; what is left when this ends early can be asked again.
"""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate.index import PositionSet
from tidegate.plugin.commands.moments import RANGE_HELP, due_range
from tidegate.plugin.commands.options import Json, Socket, Subscription, Topic
from tidegate.plugin.daemon.cancelling import NAMED_MAX, OUTCOMES, POSITIONS_MAX
from tidegate.plugin.daemon.selection import parse_id
from tidegate.plugin.environment import own_default_socket
from tidegate.plugin.errors import UserError
from tidegate.plugin.shown import one_line
from tidegate.plugin.wire.client import ask_socket

_SET_BYTES_MAX = 45_000  # in base64 a query's worth
_PAGE = 5_000
_TIMEOUT_S = 120.0
_PROGRESS_S = 1.0
Positions = dict[int | None, PositionSet]


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(epilog="Example: tidegate cancel orders billing --id 17:4711 --id 17:4712 --json")(cancel)


def cancel(  # noqa: PLR0917 the flags
    topic: Topic,
    subscription: Subscription,
    ids: Annotated[
        list[str] | None, typer.Option("--id", metavar="ID", help="A message, as in 17:4711; repeatable.")
    ] = None,
    ids_file: Annotated[
        Path | None, typer.Option("--ids", metavar="FILE", help="A file of ids, one a line; - is the input.")
    ] = None,
    due: Annotated[str | None, typer.Option(metavar="FROM..TO", help=RANGE_HELP)] = None,
    every: Annotated[bool, typer.Option("--all", help="All that wait.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count; nothing is cancelled.")] = False,
    socket: Socket = None,
    json_output: Json = False,
) -> None:
    """Take messages back before they are delivered.

    A cancelled message is acknowledged for this subscription. Exit code 1: not all were done, 3: no daemon
    answers.
    """
    asked: dict[str, Any] = {"topic": topic, "subscription": subscription}
    path = socket or own_default_socket()
    total = _Total(dry_run)
    try:
        for positions in _chosen(path, asked, ids, ids_file, due, every=every):
            for partition, some in positions.items():
                for part in _cut(some):
                    total.add(ask_socket(path, _request(asked, partition, part, dry_run), _TIMEOUT_S))
    except BaseException:
        if any(total.counts.values()):
            print(f"tidegate: ended early, after {total.text()}", file=sys.stderr)
        raise
    total.say(json_output=json_output)
    if any(total.counts[name] for name in OUTCOMES if name != "done"):
        raise typer.Exit(1)


def _chosen(
    path: Path,
    asked: dict[str, Any],
    ids: list[str] | None,
    ids_file: Path | None,
    due: str | None,
    *,
    every: bool,
) -> Iterable[Positions]:
    """Positions to cancel, a part at a time."""
    if sum((bool(ids), ids_file is not None, due is not None, every)) != 1:
        raise typer.BadParameter("give one of --id, --ids, --due and --all")
    if ids:
        return [_positions(enumerate(ids, start=1), "--id")]
    if ids_file is not None:
        return [_read(ids_file)]
    now_ms = time.time_ns() // 1_000_000
    return _waiting(path, asked, (None, None) if due is None else due_range(due, now_ms))


class _Total:
    """Counts and ids by outcome, over all requests."""

    def __init__(self, dry_run: bool) -> None:
        self.dry_run = dry_run
        self.counts = dict.fromkeys(OUTCOMES, 0)
        self.ids: dict[str, list[str]] = {}
        self.why = ""
        self._told_s = time.monotonic()

    def add(self, answer: dict[str, Any]) -> None:
        try:
            for name in OUTCOMES:
                self.counts[name] += answer[name]
            for name, named in answer["ids"].items():
                known = self.ids.setdefault(name, [])
                known += named[: NAMED_MAX - len(known)]
            self.why = answer.get("why", self.why)
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"the daemon answers in a form that this version does not know: {error}"
            ) from error
        if sys.stderr.isatty() and time.monotonic() - self._told_s > _PROGRESS_S:
            self._told_s = time.monotonic()
            print(self.text(), file=sys.stderr)

    def text(self) -> str:
        done = "would be cancelled" if self.dry_run else "cancelled"
        rest = [f"{self.counts[name]:,} {name.replace('_', ' ')}" for name in OUTCOMES[1:]]
        return ", ".join([f"{self.counts['done']:,} {done}", *rest])

    def say(self, *, json_output: bool) -> None:
        if json_output:
            print(json.dumps({"dry_run": self.dry_run, **self.counts, "ids": self.ids}))
        else:
            print(self.text())
            for name, named in self.ids.items():
                print(f"{name.replace('_', ' ')}: {' '.join(map(one_line, named))}")
        if self.why:
            print(f"tidegate: undecided: {one_line(self.why)}", file=sys.stderr)


def _request(
    asked: dict[str, Any], partition: int | None, positions: PositionSet, dry_run: bool
) -> dict[str, Any]:
    text = base64.b64encode(positions.serialize()).decode("ascii")
    return {"what": "cancel", **asked, "partition": partition, "positions": text, "dry_run": dry_run}


def _read(path: Path) -> Positions:
    """The ids of a file, none of which is used before all are read."""
    if str(path) == "-":
        return _positions(enumerate(sys.stdin, start=1), "the input")
    try:
        with path.open(encoding="utf-8") as lines:
            return _positions(enumerate(lines, start=1), str(path))
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no file of message ids: it is not text") from error


def _positions(lines: Iterable[tuple[int, str]], source: str) -> Positions:
    found: dict[int | None, dict[int, list[int]]] = {}
    for number, line in lines:
        text = line.strip()
        if not text:
            continue
        try:
            (ledger_id, entry_id), partition = parse_id(text)
        except UserError as error:
            raise UserError(f"{source}, line {number}: {error}; nothing was cancelled") from error
        found.setdefault(partition, {}).setdefault(ledger_id, []).append(entry_id)
    if not found:
        raise UserError(f"{source} has no message ids: nothing was cancelled")
    return {
        partition: PositionSet.of(
            (ledger_id, one) for ledger_id, entries in ledgers.items() for one in entries
        )
        for partition, ledgers in found.items()
    }


def _waiting(path: Path, asked: dict[str, Any], due: tuple[int | None, int | None]) -> Iterator[Positions]:
    """Messages due in the range, a page at a time."""
    cursor = None
    while True:
        request = {"what": "waiting", **asked, "from_ms": due[0], "to_ms": due[1], "after": cursor}
        answer = ask_socket(path, request | {"limit": _PAGE}, _TIMEOUT_S)
        names = [one["message_id"] for one in answer["entries"]]
        if names:
            yield _positions(enumerate(names, start=1), "the index")
        cursor = answer["next"]
        if cursor is None:
            return


def _cut(positions: PositionSet) -> Iterator[PositionSet]:
    """Parts that fit into a request."""
    part: list[tuple[int, int]] = []
    for position in positions:
        part.append(position)
        if len(part) == POSITIONS_MAX:
            yield from _small(part)
            part = []
    if part:
        yield from _small(part)


def _small(part: list[tuple[int, int]]) -> Iterator[PositionSet]:
    made = PositionSet.of(part)
    if len(made.serialize()) <= _SET_BYTES_MAX:
        yield made
        return
    half = len(part) // 2
    yield from _small(part[:half])
    yield from _small(part[half:])
