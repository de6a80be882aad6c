"""``tidegate list`` and ``tidegate show``: the waiting messages in due order; the state of one message.

Invariants: each page's lines appear as soon as it arrives, and a page bounds the memory; with ``--json``
standard output gets only objects, one a line.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Annotated, Any

import typer

from tidegate.plugin.api.known_form import known_form
from tidegate.plugin.commands.filters import Filter, tell_cost
from tidegate.plugin.commands.groups import with_groups
from tidegate.plugin.commands.moments import RANGE_HELP, due_utc, fixed_range
from tidegate.plugin.commands.options import Asked, Subscription, Topic
from tidegate.plugin.shared.message_ids import cursor_of, parse_id
from tidegate.plugin.shared.shown import one_line

_PAGE = 5_000
_LIMIT = 1_000


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command("list", epilog="Example: tidegate list orders billing --due 10m..1h --limit 100 --json")(
        list_waiting
    )
    app.command("show", epilog="Example: tidegate show orders billing 17:4711 --json")(show)


@with_groups
def list_waiting(
    topic: Topic,
    subscription: Subscription,
    due: Annotated[str | None, typer.Option(metavar="FROM..TO", help=RANGE_HELP)] = None,
    limit: Annotated[int, typer.Option(min=1, help="Messages to print at most.")] = _LIMIT,
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Go on behind the page that ended with it.")
    ] = None,
    *,
    kept: Filter,
    asked: Asked,
) -> None:
    """List the messages that wait, in due order.

    Overdue ones come first. The last line, on standard error, says how to get the next page. Exit code 3: no
    daemon answers.
    """
    if due is not None:
        due = fixed_range(due, time.time_ns() // 1_000_000)  # the same times for all pages
    reach = asked.reach()
    request: dict[str, Any] = {"what": "waiting", "topic": topic, "subscription": subscription, "due": due}
    request |= kept.query
    if kept.query:
        tell_cost(reach, request)
    cursor, left = after, limit
    with known_form():
        while left:
            page = _PAGE if kept.query else min(left, _PAGE)  # a filter leaves few of a page
            answer = reach.ask(request | {"after": cursor, "limit": page})
            for one in answer["entries"][:left]:
                line = f"{due_utc(one['deliver_at_ms']):19}  {one_line(one['message_id'])}"
                print(json.dumps(one) if asked.json_output else line)
            cursor = answer["next"]
            if len(answer["entries"]) > left:
                cursor = cursor_of(answer["entries"][left - 1])
            left = max(0, left - len(answer["entries"]))
            if cursor is None:
                return
    print(f"more: --after {one_line(cursor or '')}", file=sys.stderr)


@with_groups
def show(
    topic: Topic,
    subscription: Subscription,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="ledger:entry, as in 17:4711.")],
    *,
    asked: Asked,
) -> None:
    """Show the state of one message.

    It is waiting, handed_out, acknowledged or unknown. Exit code 3: no daemon answers.
    """
    parse_id(message_id)
    request = {"what": "show", "topic": topic, "subscription": subscription, "id": message_id}
    answer = asked.reach().ask(request)
    if asked.json_output:
        print(json.dumps(answer))
        return
    with known_form():
        due = f", due {due_utc(answer['deliver_at_ms'], ' UTC')}" if "deliver_at_ms" in answer else ""
        own = f", moved from {due_utc(answer['moved_from_ms'], ' UTC')}" if "moved_from_ms" in answer else ""
        print(f"{one_line(answer['message_id'])}: {one_line(answer['state'])}{due}{own}")
        if "size_bytes" in answer:
            key = f", key {one_line(answer['key'])}" if "key" in answer else ""
            print(f"{answer['size_bytes']:,} bytes{key}")
            for name, value in answer.get("properties", {}).items():
                print(f"{one_line(name)}={one_line(value)}")
