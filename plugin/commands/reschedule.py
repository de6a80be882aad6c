"""``tidegate reschedule``: has messages delivered at another time.

Invariant: as of ``cancel``; the time or span is checked before any request.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from tidegate.plugin.api.changes import Query
from tidegate.plugin.commands.changes import Choice, change
from tidegate.plugin.commands.filters import Filter
from tidegate.plugin.commands.groups import with_groups
from tidegate.plugin.commands.moments import moment
from tidegate.plugin.commands.options import Asked, Subscription, Topic
from tidegate.plugin.shared.durations import milliseconds
from tidegate.plugin.shared.moments import AT_MS_MAX, checked_ms

At = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="2026-12-24T18:00:00Z, ms since 1970, or 10m (from now)."),
]
By = Annotated[str | None, typer.Option(metavar="SPAN", help="So much later than due now; -10m is earlier.")]


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(epilog="Example: tidegate reschedule orders billing --id 17:4711 --by 30m --json")(reschedule)


@with_groups
def reschedule(
    topic: Topic,
    subscription: Subscription,
    at: At = None,
    by: By = None,
    *,
    choice: Choice,
    kept: Filter,
    asked: Asked,
) -> None:
    """Have messages delivered at another time.

    The new time holds for this subscription until the message is acknowledged. Exit code 1: not all were
    done, 3: no daemon answers.
    """
    query: Query = {"what": "reschedule", "topic": topic, "subscription": subscription}
    query |= _wanted(at, by)
    change(asked, query, choice, kept, "rescheduled")


def _wanted(at: str | None, by: str | None) -> Query:
    """The new time, or the span, for a query. Raises ``typer.BadParameter``."""
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
