"""``tidegate cancel``: takes messages back before they are delivered.

Invariant: a message is counted as done only after the daemon has answered that it is durable.
"""

from __future__ import annotations

import typer

from tidegate.plugin.api.changes import Total
from tidegate.plugin.commands.changes import DryRun, Due, Every, Ids, IdsFile, course_of, run_change
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


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(epilog="Example: tidegate cancel orders billing --id 17:4711 --id 17:4712 --json")(cancel)


def cancel(  # noqa: PLR0917 the flags
    context: typer.Context,
    topic: Topic,
    subscription: Subscription,
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
    """Take messages back before they are delivered.

    A cancelled message is acknowledged for this subscription. Exit code 1: not all were done, 3: no daemon
    answers.
    """
    reach = reach_of(context, socket, admin_url, token, token_file, tls_ca_file)
    query = {"what": "cancel", "topic": topic, "subscription": subscription, "dry_run": dry_run}
    total = Total(dry_run)
    course = course_of(reach, query, total, ids=ids, ids_file=ids_file, due=due, every=every)
    run_change(reach, course, total, "cancelled", json_output=json_output)
