"""``tidegate list`` and ``tidegate show``: the waiting messages in due order; the state of one message.

Invariants: a page's lines are printed as soon as it arrives, and memory is bounded by a page; with ``--json``
standard output gets only objects, one a line.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Annotated, Any

import typer

from tidegate.plugin.commands.moments import RANGE_HELP, due_range, utc
from tidegate.plugin.commands.options import Json, Socket, Subscription, Topic
from tidegate.plugin.environment import own_default_socket
from tidegate.plugin.errors import UserError
from tidegate.plugin.shown import one_line
from tidegate.plugin.wire.client import ask_socket

_PAGE = 5_000
_LIMIT = 1_000
_TIMEOUT_S = 60.0


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command("list", epilog="Example: tidegate list orders billing --due 10m..1h --limit 100 --json")(
        list_waiting
    )
    app.command("show", epilog="Example: tidegate show orders billing 17:4711 --json")(show)


def list_waiting(  # noqa: PLR0917 the flags
    topic: Topic,
    subscription: Subscription,
    due: Annotated[str | None, typer.Option(metavar="FROM..TO", help=RANGE_HELP)] = None,
    limit: Annotated[int, typer.Option(min=1, help="Messages to print at most.")] = _LIMIT,
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Go on behind the page that ended with it.")
    ] = None,
    socket: Socket = None,
    json_output: Json = False,
) -> None:
    """List the messages that wait, in due order.

    Overdue ones come first. The last line, on standard error, says how to get the next page. Exit code 3: no
    daemon answers.
    """
    path = socket or own_default_socket()
    from_ms, to_ms = (None, None) if due is None else due_range(due, time.time_ns() // 1_000_000)
    request: dict[str, Any] = {"what": "waiting", "topic": topic, "subscription": subscription}
    request |= {"from_ms": from_ms, "to_ms": to_ms}
    cursor, left = after, limit
    try:
        while left:
            answer = ask_socket(path, request | {"after": cursor, "limit": min(left, _PAGE)}, _TIMEOUT_S)
            for one in answer["entries"]:
                print(json.dumps(one) if json_output else f"{utc(one['deliver_at_ms'])}  {one['message_id']}")
            left -= len(answer["entries"])
            cursor = answer["next"]
            if cursor is None:
                return
    except (KeyError, TypeError) as error:
        raise UserError(f"the daemon answers in a form that this version does not know: {error}") from error
    print(f"more: --after {one_line(cursor or '')}", file=sys.stderr)


def show(
    topic: Topic,
    subscription: Subscription,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="ledger:entry, as in 17:4711.")],
    socket: Socket = None,
    json_output: Json = False,
) -> None:
    """Show how one message stands.

    It is waiting, handed_out, acknowledged or unknown. Exit code 3: no daemon answers.
    """
    request = {"what": "show", "topic": topic, "subscription": subscription, "id": message_id}
    answer = ask_socket(socket or own_default_socket(), request, _TIMEOUT_S)
    if json_output:
        print(json.dumps(answer))
        return
    try:
        due = f", due {utc(answer['deliver_at_ms'])} UTC" if "deliver_at_ms" in answer else ""
        print(f"{one_line(answer['message_id'])}: {one_line(answer['state'])}{due}")
    except (KeyError, TypeError) as error:
        raise UserError(f"the daemon answers in a form that this version does not know: {error}") from error
