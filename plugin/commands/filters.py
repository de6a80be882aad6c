"""The choice of messages by key or property, and its cost, told before any message is read.

Invariant: with a filter the broker reads each waiting message of the range; nobody learns of that later.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from tidegate.plugin.api.changes import Query
from tidegate.plugin.api.fields import TIME_MAX
from tidegate.plugin.api.known_form import known_form
from tidegate.plugin.client.reaches import Reach
from tidegate.plugin.commands.moments import due_range
from tidegate.plugin.shared.counts import counted
from tidegate.plugin.shared.durations import in_words

_SAMPLE = 128
_KIB = 1_024
_BUCKETS = 250
"""Of the tide of a range: more cost the daemon more, fewer count more messages around the range."""


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

    asked: a query `waiting` with a filter; its first messages are read as a sample. Raises ``UserError``,
    ``typer.BadParameter``.
    """
    now_ms = time.time_ns() // 1_000_000
    from_ms, to_ms = (None, None) if asked.get("due") is None else due_range(asked["due"], now_ms)
    tide: Query = {"what": "tide", **{name: asked[name] for name in ("topic", "subscription")}}
    if to_ms is not None:
        span_ms = max(_BUCKETS, to_ms - now_ms)
        tide |= {"span_ms": span_ms, "step_ms": -(-span_ms // _BUCKETS)}
    with known_form():
        entries = entries_due(reach.ask(tide), from_ms, to_ms)
        began_s = time.monotonic()
        sample = reach.ask({**asked, "limit": _SAMPLE})
        took_s = time.monotonic() - began_s
        read, read_bytes = int(sample["read"]), int(sample["read_bytes"])
        entries = read if sample["next"] is None else max(read, entries)
    said = f"reads up to {counted(entries, 'message')}"
    if read:
        of_all = entries / read
        kib, time_ms = round(of_all * read_bytes / _KIB), round(of_all * took_s * 1_000)
        said += f", about {kib:,} KiB in {in_words(time_ms)}"
    print(f"tidegate: {said}", file=sys.stderr)


def entries_due(tide: Mapping[str, Any], from_ms: int | None, to_ms: int | None) -> int:
    """At most how many entries of a tide are due in [from_ms, to_ms): those of all buckets that it meets."""
    start_ms = tide["now_ms"] if from_ms is None else from_ms
    stop_ms = TIME_MAX if to_ms is None else to_ms
    buckets = tide["buckets"]
    inside = [one for one in buckets if one["from_ms"] < stop_ms and start_ms < one["until_ms"]]
    found = sum(one["entries"] for one in inside) + tide["inexact_entries"]
    if start_ms <= tide["now_ms"]:
        found += tide["overdue"]
    if not buckets or stop_ms > buckets[-1]["until_ms"]:
        found += tide["later"]
    return min(int(tide["entries"]), int(found))
