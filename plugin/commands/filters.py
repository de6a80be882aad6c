"""The choice of messages by key or property, and its cost, told before any message is read.

Invariant: with a filter the broker reads each waiting message of the range; nobody learns of that later.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Annotated

import typer

from tidegate.plugin.api.changes import Query
from tidegate.plugin.api.known_form import known_form
from tidegate.plugin.client.reaches import Reach
from tidegate.plugin.shared.durations import in_words

_SAMPLE = 128
_KIB = 1_024


@dataclass(frozen=True, kw_only=True)
class Filter:
    """A further choice among the chosen messages: a group of ``groups``."""

    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Only messages with this key; the broker reads them.")
    ] = None
    of_property: Annotated[
        str | None,
        typer.Option(
            "--property",
            metavar="NAME=VALUE",
            help="Only messages with this property; the broker reads them.",
        ),
    ] = None

    @property
    def query(self) -> Query:
        """The part of a query. Raises ``typer.BadParameter``."""
        if self.key is not None and self.of_property is not None:
            raise typer.BadParameter("give one of --key and --property")
        if self.key is not None:
            return {"key": self.key}
        if self.of_property is None:
            return {}
        name, sign, _ = self.of_property.partition("=")
        if not name or not sign:
            raise typer.BadParameter("--property is NAME=VALUE, as in customer=4711")
        return {"property": self.of_property}


def tell_cost(reach: Reach, asked: Query) -> None:
    """Print on standard error at most how many messages `asked` reads, and how long that takes.

    asked: a query `waiting` with a filter; its first messages are read as a sample. Raises ``UserError``.
    """
    names = {name: asked[name] for name in ("topic", "subscription")}
    with known_form():
        entries = int(reach.ask({"what": "tide", **names})["entries"])
        began_s = time.monotonic()
        sample = reach.ask({**asked, "limit": _SAMPLE})
        took_s = time.monotonic() - began_s
        read, read_bytes = int(sample["read"]), int(sample["read_bytes"])
    said = f"reads up to {entries:,} messages"
    if read:
        of_all = entries / read
        kib, time_ms = round(of_all * read_bytes / _KIB), round(of_all * took_s * 1_000)
        said += f", about {kib:,} KiB in {in_words(time_ms)}"
    print(f"tidegate: {said}", file=sys.stderr)
