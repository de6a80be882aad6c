"""``tidegate ledgers``: the ledgers of a topic, and the space that a few waiting messages keep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidegate.index import PositionSet, SubscriptionName
from tidegate.pipeline.commands import common
from tidegate.pipeline.pinned.ledger_use import SHARE_MAX, Cursor, LedgerUse, Saving, saving, uses
from tidegate.pipeline.topic.access import Access
from tidegate.pipeline.topic.admin import Admin
from tidegate.pipeline.topic.names import TopicName
from tidegate.pipeline.topic.state import TopicState, parse_state
from tidegate.plugin.commands.groups import with_groups
from tidegate.plugin.commands.options import Socket
from tidegate.plugin.shared.environment import own_default_socket
from tidegate.plugin.shared.shown import shown
from tidegate.plugin.shared.sizes import bytes_in_words
from tidegate.plugin.wire.session import DaemonSession

SCHEMA = 1
_ROWS_MAX = 20
_NAMES_MAX = 2
_BAR = 10


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(epilog="Example: tidegate ledgers orders --admin-url http://127.0.0.1:8080")(ledgers)


@dataclass(frozen=True)
class Account:
    """One topic or partition."""

    topic: str
    ledgers: list[LedgerUse]
    saving: Saving


@with_groups
def ledgers(  # noqa: PLR0917 the flags
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="persistent://public/default/ may be left out.")
    ],
    admin_url: Annotated[str, typer.Option(help="http://HOST:8080 or https://HOST:8443.")],
    socket: Socket = None,
    share: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="A ledger is kept by few if at most so large a share of it waits.",
            min=0,
            max=1,
        ),
    ] = SHARE_MAX,
    token_file: Annotated[Path | None, typer.Option(help="File with the token for the admin API.")] = None,
    tls_ca_file: Annotated[Path | None, typer.Option(help="Certificates to trust.")] = None,
    json_output: common.Json = False,
) -> None:
    """Show which ledgers waiting messages keep, and their space.

    Changes nothing. Ask on the machine of the topic's owner. Exit codes: 2 it could not be done, 3 no daemon
    answers.
    """
    name = TopicName.parse(topic)
    access = Access(token_file=_absolute(token_file), tls_ca_file=_absolute(tls_ca_file))
    with Admin(admin_url, access) as admin, DaemonSession(socket or own_default_socket()) as session:
        found = [
            account(parse_state(one, admin.internal_stats(one)), session, share)
            for one in name.partitions(admin.partitions(name))
        ]
    if json_output:
        common.print_json({"schema": SCHEMA, "share_max": share, "topics": [as_json(one) for one in found]})
        return
    for one in found:
        show(one, share)


def account(state: TopicState, session: DaemonSession, share_max: float) -> Account:
    """The account of one topic. Raises ``UserError``."""
    cursors = [_cursor(state, subscription, session) for subscription in state.subscriptions]
    open_ledger_id = max((one.ledger_id for one in state.ledgers), default=0)
    found = uses(state.ledgers, open_ledger_id, cursors)
    return Account(str(state.topic), found, saving(found, share_max))


def _cursor(state: TopicState, subscription: str, session: DaemonSession) -> Cursor:
    name = SubscriptionName(str(state.topic), subscription)
    held = session.positions(name)[0] if session.about(name)["known"] else PositionSet()
    return Cursor(subscription, state.acknowledged(subscription), held)


def as_json(one: Account) -> dict[str, Any]:
    """An account as JSON; within a ``schema`` number fields are only added."""
    return {
        "topic": one.topic,
        "ledgers": [asdict(each) | {"waiting_bytes": each.waiting_bytes} for each in one.ledgers],
        "saving": asdict(one.saving),
    }


def show(one: Account, share_max: float) -> None:
    """An account as a table, with its verdict."""
    console = Console(soft_wrap=True, highlight=False, markup=False)
    kept = [each for each in one.ledgers if each.needed]
    waiting = sum(each.waiting for each in one.ledgers)
    size_bytes = sum(each.size_bytes for each in one.ledgers)
    console.print(
        f"{shown(one.topic)}: ledgers {len(one.ledgers):,} ({bytes_in_words(size_bytes)}), "
        f"waiting messages {waiting:,}, in {sum(1 for each in one.ledgers if each.waiting):,} of the ledgers"
    )
    if kept:
        common.print_table(_table(kept[:_ROWS_MAX]))
    if len(kept) > _ROWS_MAX:
        console.print(f"and {len(kept) - _ROWS_MAX:,} more, which --json lists")
    for line in verdict(one, share_max):
        console.print(line)


def _table(kept: list[LedgerUse]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("ledger", justify="right")
    for name in ("entries", "size", "wait", "other"):
        table.add_column(name, justify="right")
    table.add_column("waiting share")
    table.add_column("kept for")
    for one in kept:
        share = one.waiting / max(1, one.entries)
        table.add_row(
            Text(f"{one.ledger_id}{' open' if one.is_open else ''}"),
            Text(f"{one.entries:,}"),
            Text(bytes_in_words(one.size_bytes)),
            Text(f"{one.waiting:,}"),
            Text(f"{one.other:,}"),
            Text(f"{'█' * round(share * _BAR):<{_BAR}} {share:.1%}"),
            Text(_names(one.subscriptions)),
        )
    return table


def _names(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    return ", ".join(shown(one) for one in names[:_NAMES_MAX]) + more


def verdict(one: Account, share_max: float) -> Iterator[str]:
    """The conclusion in words."""
    first = next((each for each in one.ledgers if each.needed), None)
    if first is None or first.is_open:
        yield "no closed ledger is kept for an unacknowledged message"
        return
    yield f"all ledgers from {first.ledger_id} on are kept for {_names(first.subscriptions)}"
    saved = one.saving
    if saved.waiting:
        few, space = bytes_in_words(saved.waiting_bytes), bytes_in_words(saved.free_bytes)
        yield (
            f"of them, the first {saved.ledgers:,} ({space}) are kept for few waiting messages: "
            f"{saved.waiting:,} ({few} or so)"
        )
    elif not first.kept_by_few(share_max):
        yield (
            f"ledger {first.ledger_id} is not kept by a few: {first.waiting:,} of its {first.entries:,} "
            f"entries wait, up to {first.other:,} others are not acknowledged"
        )


def _absolute(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())
