"""``tidegate reschedule``: has messages delivered at another time.

Invariant: as of ``cancel``; the time or span is checked before anything is asked.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from tidegate.plugin.api.changes import Query, Total
from tidegate.plugin.commands.changes import DryRun, Due, Every, Ids, IdsFile, course_of, run_change
from tidegate.plugin.commands.moments import moment
from tidegate.plugin.commands.options import (
    AdminUrl,
    Json,
    Socket,
    Subscription,
    TlsCaFile,
    Token,
    TokenFile,
    Topic,
    reach_of,
)
from tidegate.plugin.durations import milliseconds
from tidegate.plugin.moments import AT_MS_MAX, checked_ms

At = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="2026-12-24T18:00:00Z, ms since 1970, or 10m (from now)."),
]
By = Annotated[str | None, typer.Option(metavar="SPAN", help="So much later than now; -10m is earlier.")]


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(epilog="Example: tidegate reschedule orders billing --id 17:4711 --by 30m --json")(reschedule)


def reschedule(  # noqa: PLR0917 the flags
    context: typer.Context,
    topic: Topic,
    subscription: Subscription,
    at: At = None,
    by: By = None,
    ids: Ids = None,
    ids_file: IdsFile = None,
    due: Due = None,
    every: Every = False,
    dry_run: DryRun = False,
    socket: Socket = None,
    admin_url: AdminUrl = None,
    token: Token = None,
    token_file: TokenFile = None,
    tls_ca_file: TlsCaFile = None,
    json_output: Json = False,
) -> None:
    """Have messages delivered at another time.

    The new time holds for this subscription until the message is acknowledged. Exit code 1: not all were
    done, 3: no daemon answers.
    """
    query: Query = {"what": "reschedule", "topic": topic, "subscription": subscription, "dry_run": dry_run}
    query |= _wanted(at, by)
    reach = reach_of(context, socket, admin_url, token, token_file, tls_ca_file)
    total = Total(dry_run)
    course = course_of(reach, query, total, ids=ids, ids_file=ids_file, due=due, every=every)
    run_change(reach, course, total, "rescheduled", json_output=json_output)


def _wanted(at: str | None, by: str | None) -> Query:
    """The new time, or the span, as a query has it. Raises ``typer.BadParameter``."""
    if (at is None) == (by is None):
        raise typer.BadParameter("give one of --at and --by")
    try:
        if at is not None:
            return {"at_ms": checked_ms(moment(at, time.time_ns() // 1_000_000))}
        text = (by or "").strip()
        by_ms = -milliseconds(text[1:]) if text.startswith("-") else milliseconds(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if abs(by_ms) > AT_MS_MAX:
        raise typer.BadParameter(f"{text!r} is longer than any message can wait")
    return {"by_ms": by_ms}
