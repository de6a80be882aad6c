"""``tidegate width``: show and change the slice width of a subscription while the daemon runs.

Invariant: a change is reported only after the daemon has answered that it is durable.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from tidegate.plugin.api.known_form import known_form
from tidegate.plugin.commands.options import Socket
from tidegate.plugin.daemon.width import checked_width_ms
from tidegate.plugin.errors import UserError
from tidegate.plugin.shared.counts import counted
from tidegate.plugin.shared.durations import duration, milliseconds
from tidegate.plugin.shared.environment import own_default_socket
from tidegate.plugin.shared.shown import one_line, shown
from tidegate.plugin.wire.client import ask_socket

AUTO = "auto"


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(epilog="Example: tidegate width persistent://public/default/orders:billing 10m")(width)


def width(
    subscription: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC:SUBSCRIPTION",
            help="As in tidegate status; persistent://public/default/ may be left out, * is anything.",
        ),
    ],
    new_width: Annotated[
        str | None,
        typer.Argument(metavar="WIDTH|auto", help="1s to 3660d, as in 30s, 10m, 6h, 7d. Without: show it."),
    ] = None,
    socket: Socket = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Show or set the width of a subscription's slices.

    Slices that exist keep theirs. Exit code 3: no daemon answers.
    """
    request = {"what": "width", "subscription": subscription} | _wish(new_width)
    answer = ask_socket(socket or own_default_socket(), request)
    if json_output:
        print(json.dumps(answer, indent=2))
        return
    with known_form():
        for line in lines(answer):
            print(line)


def _wish(new_width: str | None) -> dict[str, Any]:
    if new_width is None:
        return {}
    if new_width == AUTO:
        return {"auto": True}
    try:
        return {"width_ms": checked_width_ms(milliseconds(new_width))}
    except (ValueError, UserError) as error:
        raise typer.BadParameter(
            f"{error}, or auto" if isinstance(error, ValueError) else str(error)
        ) from error


def lines(answer: dict[str, Any]) -> list[str]:
    """An answer as text, a line or two for each subscription.

    Raises ``KeyError`` or ``TypeError`` if it breaks the schema.
    """
    said = []
    for one in answer["subscriptions"]:
        how = "auto" if one["slice_width_auto"] else "fixed"
        now = " from now on" if answer["changed"] else ""
        name = f"{shown(one['topic'])}:{shown(one['subscription'])}"
        said.append(f"{name}  {duration(one['slice_width_ms'])}, {how}{now}")
        if one["slice_width_auto"]:
            said.append(f"  {one_line(one['slice_width_reason'])}")
        if one["slices_of_other_widths"]:
            others = one["slices_of_other_widths"]
            have = "has" if others == 1 else "have"
            said.append(f"  {others:,} of {counted(one['slices'], 'slice')} {have} another width")
    if answer["subscriptions_omitted"]:
        said.append(f"… and {counted(answer['subscriptions_omitted'], 'subscription')} more")
    return said
