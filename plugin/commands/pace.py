"""``tidegate pause``, ``resume`` and ``pace``: the pace at which the messages of a subscription leave.

Invariant: it counts as set only if the broker of every partition has answered that it is in force.
"""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from tidegate.plugin.api.known_form import known_form
from tidegate.plugin.commands.groups import with_groups
from tidegate.plugin.commands.options import Asked, Subscription, Topic
from tidegate.plugin.shared.durations import duration, milliseconds
from tidegate.plugin.shared.shown import one_line
from tidegate.plugin.wire.release_pace import RATE_MAX, SPREAD_MS_MAX, SPREAD_MS_MIN


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command(epilog="Example: tidegate pause orders billing --json")(pause)
    app.command(epilog="Example: tidegate resume orders billing")(resume)
    app.command(epilog="Example: tidegate pace orders billing --rate 500")(pace)


@with_groups
def pause(topic: Topic, subscription: Subscription, *, asked: Asked) -> None:
    """Let no delayed message leave until tidegate resume.

    Everything is kept, through restarts of broker and daemon. Exit code 1: it is not paused, 3: no daemon
    answers.
    """
    _ask(asked, topic, subscription, {"kind": "paused"})


@with_groups
def resume(topic: Topic, subscription: Subscription, *, asked: Asked) -> None:
    """Let messages leave as they come due again.

    It ends a pause, and any other pace. Everything that has waited leaves at once, the oldest first. Exit
    code 1: it is not resumed, 3: no daemon answers.
    """
    _ask(asked, topic, subscription, {"kind": "none"})


@with_groups
def pace(
    topic: Topic,
    subscription: Subscription,
    rate: Annotated[
        str | None,
        typer.Option(metavar="N", help="Let at most N messages leave a second, the oldest first."),
    ] = None,
    spread: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Spread a burst evenly over this time, as in 10m."),
    ] = None,
    *,
    asked: Asked,
) -> None:
    """Show or set the pace at which delayed messages leave.

    It ends a pause; tidegate resume ends it. Exit code 1: it is not set, 3: no daemon answers.
    """
    if rate is not None and spread is not None:
        raise typer.BadParameter("give --rate or --spread, not both")
    wanted: dict[str, Any] = {}
    if rate is not None:
        wanted = {"kind": "rate", "amount": _rate(rate)}
    elif spread is not None:
        wanted = {"kind": "spread", "amount": _spread(spread)}
    _ask(asked, topic, subscription, wanted)


def _rate(text: str) -> int:
    try:
        rate = int(text)
    except ValueError:
        rate = 0
    if not 1 <= rate <= RATE_MAX:
        raise typer.BadParameter(
            f"a rate is a whole number of messages a second, 1 to {RATE_MAX}; "
            "to hold everything back use tidegate pause"
        )
    return rate


def _spread(text: str) -> int:
    try:
        spread_ms = milliseconds(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if not SPREAD_MS_MIN <= spread_ms <= SPREAD_MS_MAX:
        raise typer.BadParameter(
            f"a spread is {duration(SPREAD_MS_MIN)} to {duration(SPREAD_MS_MAX)}, not {text}"
        )
    return spread_ms


def _ask(asked: Asked, topic: str, subscription: str, wanted: dict[str, Any]) -> None:
    request = {"what": "pace", "topic": topic, "subscription": subscription, **wanted}
    answer = asked.reach().ask(request)
    with known_form():
        _say(answer, json_output=asked.json_output)
        done = bool(answer["done"])
    if not done:
        raise typer.Exit(1)


def _say(answer: dict[str, Any], *, json_output: bool) -> None:
    if json_output:
        print(json.dumps({name: value for name, value in answer.items() if name != "schema"}))
    for one in answer["subscriptions"]:
        name = one_line(f"{one['topic']}:{one['subscription']}")
        if not json_output and "paused" in one:
            print(f"{name}: {pace_text(one)}{_held_back(one)}")
        if "why" in one:
            print(f"tidegate: {name}: {one_line(one['why'])}", file=sys.stderr)


def pace_text(one: dict[str, Any]) -> str:
    """A pace in a daemon's answer, in words."""
    if one["paused"]:
        return "PAUSED, nothing leaves"
    if one["rate"] is not None:
        return f"at most {one['rate']:,} a second leave"
    if one["spread_ms"] is not None:
        return f"a burst is spread over {duration(one['spread_ms'])}"
    return "messages leave as they come due"


def _held_back(one: dict[str, Any]) -> str:
    return f", {one['held_back']:,} held back" if one["held_back"] else ""
