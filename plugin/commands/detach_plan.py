"""The way from Tidegate back to Pulsar's own tracker, broker by broker, as steps to type. Pure.

Tidegate stops and starts no broker: the steps tell an operator when to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidegate.plugin.shared.shown import shown


def steps(home: str, socket: str, answer: dict[str, Any] | None) -> Iterator[str]:
    """The plan as lines. ``answer``: the daemon's status; None if no daemon answers on ``socket``."""
    yield "Nothing was changed. No message is lost on this way; a message may come a second early, or again."
    if answer is None:
        yield f"No daemon answers on {socket}: each broker that it served takes the steps below."
        names = ["each broker"]
    else:
        yield from _before(answer)
        names = [shown(one["name"]) for one in answer["brokers"]] or ["each broker"]
    for number, name in enumerate(names, start=1):
        yield f"{number}. {name}, on its machine:"
        yield "   stop the broker; another one takes its topics"
        yield f"   tidegate detach {home}"
        yield "   start the broker"
        yield "   pulsar-admin brokers healthcheck     # go on when it says ok"
        yield f"   tidegate status --socket {socket}     # names this broker no more"
    yield f"{len(names) + 1}. Stop the daemon when its status says: no broker is connected."
    yield f"{len(names) + 2}. Done when msgDelayed of pulsar-admin topics stats rises no more."


def _before(answer: dict[str, Any]) -> Iterator[str]:
    held, paced = answer["totals"]["held"], answer.get("paced")  # absent from an older daemon
    yield (
        f"{held:,} delayed messages: Pulsar's tracker reads their topics again, a million in about a minute; "
        "due ones wait meanwhile."
    )
    if paced and paced["subscriptions"]:
        yield (
            f"{paced['subscriptions']:,} subscriptions are paused or paced: without Tidegate their due "
            "messages leave at once."
        )
    yield "Rescheduled messages come at the times of their producers; cancelled ones stay away."
    if len(answer["brokers"]) > 1:
        yield "Topics that move to a broker still attached are delayed by Tidegate, the others by Pulsar."
