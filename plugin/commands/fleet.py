"""``tidegate fleet``: the daemons of all brokers of a cluster, a line each, asked through the brokers."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Annotated, Any

import typer

from tidegate.plugin.api.known_form import known_form
from tidegate.plugin.attach.way_back import ClusterAdmin
from tidegate.plugin.commands.cluster_options import ClusterOptions
from tidegate.plugin.commands.groups import with_groups
from tidegate.plugin.commands.options import JsonOutput
from tidegate.plugin.commands.status_rows import State, bypassed_names, log_is_behind, state_of
from tidegate.plugin.errors import UserError
from tidegate.plugin.shared.counts import counted
from tidegate.plugin.shared.durations import in_words
from tidegate.plugin.shared.rest import Answer, RestError
from tidegate.plugin.shared.shown import one_line

SCHEMA = 1
_COLUMNS = (
    "broker",
    "subscriptions",
    "held",
    "in flight",
    "overdue",
    "paused",
    "bypassed",
    "logs behind",
    "state",
)
_GAP = 2
_DETAIL_MAX = 200


@dataclass(frozen=True)
class Row:
    """A broker and the daemon beside it. Counts are None where no daemon answers.

    state: ``ready``, or the fault, as a line. daemon: its id. overdue: listed subscriptions that are.
    overdue_ms: the longest.
    """

    broker: str
    state: str
    daemon: str | None = None
    subscriptions: int | None = None
    held: int | None = None
    in_flight: int | None = None
    overdue: int | None = None
    overdue_ms: int | None = None
    paused: int | None = None
    bypassed: int | None = None
    logs_behind: int | None = None

    @property
    def well(self) -> bool:
        """True if it needs no attention."""
        return self.state == "ready" and not (self.overdue or self.bypassed or self.logs_behind)


@with_groups
def fleet(
    *,
    cluster: ClusterOptions,
    every: Annotated[
        bool, typer.Option("--all", help="Also show the brokers with which all is well.")
    ] = False,
    json_output: JsonOutput = False,
) -> None:
    """Show the daemons of all brokers of a cluster.

    Asks each active broker for the daemon beside it, by the servlet of tidegate attach. Exit code 0: all are
    well; 1: one is not; 3: no broker answers.
    """
    admin = cluster.admin()
    rows = [_row(admin, name) for name in admin.brokers()]
    if json_output:
        print(
            json.dumps(
                {"schema": SCHEMA, "brokers": [asdict(one) | {"well": one.well} for one in rows]}, indent=2
            )
        )
    else:
        for line in lines(rows, every=every):
            print(line)
    if not all(one.well for one in rows):
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(epilog="Example: tidegate fleet --admin-url http://broker-1:8080")(fleet)


def lines(rows: list[Row], *, every: bool) -> list[str]:
    """The rows as text, those with a fault first; a daemon of several brokers counts once in the sum."""
    daemons = {one.daemon: one for one in rows if one.daemon is not None}.values()
    held = sum(one.held or 0 for one in daemons)
    total = f"{counted(len(rows), 'broker')}, {counted(len(daemons), 'daemon')}, {held:,} held"
    shown = sorted((one for one in rows if every or not one.well), key=lambda one: (one.well, one.broker))
    if not shown:
        return [f"{total}: all are well"]
    cells = [_COLUMNS, *map(_cells, shown)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(_COLUMNS) - 1)]
    table = [
        (" " * _GAP).join(
            [
                row[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:], strict=True)),
                row[-1],
            ]
        )
        for row in cells
    ]
    left = len(rows) - len(shown)
    return [*table, f"{total}; {left:,} more are well" if left else total]


def _cells(row: Row) -> tuple[str, ...]:
    overdue = "" if row.overdue is None else f"{row.overdue:,}"
    if row.overdue and row.overdue_ms is not None:
        overdue += f" by {in_words(row.overdue_ms)}"
    counts = (row.subscriptions, row.held, row.in_flight)
    rest = (row.paused, row.bypassed, row.logs_behind)
    return (
        row.broker,
        *("" if one is None else f"{one:,}" for one in counts),
        overdue,
        *("" if one is None else f"{one:,}" for one in rest),
        row.state,
    )


def _row(admin: ClusterAdmin, name: str) -> Row:
    try:
        answer = admin.status(name)
    except RestError as error:
        return Row(name, f"no answer: {one_line(str(error))}")
    if answer.is_success:
        try:
            with known_form():
                return row_of(name, answer.json())
        except UserError as error:  # ask the others all the same
            return Row(name, one_line(str(error))[:_DETAIL_MAX])
    return Row(name, _refusal(answer))


def row_of(name: str, status: dict[str, Any]) -> Row:
    """The row of a broker whose daemon has answered."""
    daemon, totals = status["daemon"], status["totals"]
    bypassed = bypassed_names(status)
    overdue = [one for one in status["subscriptions"] if state_of(one, bypassed) is State.OVERDUE]
    return Row(
        broker=name,
        state="ready" if daemon["ready"] else one_line(f"NOT READY: {'; '.join(daemon['not_ready'])}"),
        daemon=str(daemon["id"]),
        subscriptions=totals["subscriptions"],
        held=totals["held"],
        in_flight=totals["in_flight"],
        overdue=len(overdue),
        overdue_ms=max((one["overdue_ms"] for one in overdue), default=0),
        paused=status["paced"]["paused"],
        bypassed=status["bypassed"]["dispatchers"],
        logs_behind=sum(log_is_behind(one["index_log"]) for one in status["subscriptions"]),
    )


def _refusal(answer: Answer) -> str:
    match answer.status:
        case HTTPStatus.NOT_FOUND:
            return "no servlet: the broker is not attached, or with --no-servlet"
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            return f"refused with {answer.status}: give --token-file with the token of a superuser"
        case HTTPStatus.SERVICE_UNAVAILABLE:
            return f"NO DAEMON: {_detail(answer)}"
    return f"answers with {answer.status}: {answer.reason}"


def _detail(answer: Answer) -> str:
    try:
        told = answer.json()
    except ValueError:
        told = None
    return (
        one_line(str(told["detail"]))[:_DETAIL_MAX]
        if isinstance(told, dict) and "detail" in told
        else answer.reason
    )
