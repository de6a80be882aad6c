"""``tidegate cancel``: takes messages back before they are delivered.

Invariant: a message counts as done only after the daemon has answered that it is durable.
"""

from __future__ import annotations

import typer

from tidegate.plugin.commands.changes import Choice, change
from tidegate.plugin.commands.filters import Filter
from tidegate.plugin.commands.groups import with_groups
from tidegate.plugin.commands.options import Asked, Subscription, Topic


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(epilog="Example: tidegate cancel orders billing --id 17:4711 --id 17:4712 --json")(cancel)


@with_groups
def cancel(topic: Topic, subscription: Subscription, *, choice: Choice, kept: Filter, asked: Asked) -> None:
    """Take messages back before they are delivered.

    A cancelled message is acknowledged for this subscription. Exit code 1: not all were done, 3: no daemon
    answers.
    """
    change(asked, {"what": "cancel", "topic": topic, "subscription": subscription}, choice, kept, "cancelled")
