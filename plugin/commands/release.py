"""``tidegate release``: has messages delivered now.

Invariant: as of ``cancel``.
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
    app.command(epilog="Example: tidegate release orders billing --due ..1h --json")(release)


def release(  # noqa: PLR0917 the flags
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
    """Have messages delivered now.

    They are due at once for this subscription, whatever their own times are; --due and --all leave alone
    what is due already. Exit code 1: not all were done, 3: no daemon answers.
    """
    reach = reach_of(context, socket, admin_url, token, token_file, tls_ca_file)
    query = {"what": "release", "topic": topic, "subscription": subscription, "dry_run": dry_run}
    total = Total(dry_run)
    course = course_of(reach, query, total, ids=ids, ids_file=ids_file, due=due, every=every)
    run_change(reach, course, total, "released", json_output=json_output)
