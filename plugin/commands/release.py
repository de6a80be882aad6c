"""``tidegate release``: has messages delivered now.

Invariant: as of ``cancel``.
"""

from __future__ import annotations

import typer

from tidegate.plugin.commands.changes import Choice, change
from tidegate.plugin.commands.filters import Filter
from tidegate.plugin.commands.groups import with_groups
from tidegate.plugin.commands.options import Asked, Subscription, Topic


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(epilog="Example: tidegate release orders billing --due ..1h --json")(release)


@with_groups
def release(topic: Topic, subscription: Subscription, *, choice: Choice, kept: Filter, asked: Asked) -> None:
    """Have messages delivered now.

    They are due at once for this subscription, whatever their own times are; --due and --all leave alone
    messages that are due already. Exit code 1: not all were done, 3: no daemon answers.
    """
    change(asked, {"what": "release", "topic": topic, "subscription": subscription}, choice, kept, "released")
