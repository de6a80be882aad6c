"""A demo's result made by hand: what its report, its picture and its exit code are tested with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.support.ledgers import HandMade, at_us, round_of
from tidegate.plugin.drill.ledger import Forgets
from tidegate.plugin.drill.plan import Kind
from tidegate.plugin.drill.session import Result
from tidegate.plugin.drill.verdict import judge
from tidegate.plugin.drill.watch import IndexState

KINDS = (Kind.RETRY, Kind.TIMEOUT, Kind.BURST, Kind.PLAIN)
MESSAGES = 400
BURST_S = 36.0
BROKER_S, DAEMON_S = (13.0, 22.0), (27.0, 28.0)

Change = Callable[[dict[int, float]], None]


def demo_result(
    directory: Path, change: Change = lambda _: None, *, tracker: str = "tidegate", kills: bool = True
) -> Result:
    """A run of 40 s: each message comes 2 ms late, but for what ``change`` does to their receipts.

    change: called with the second at which each message comes.
    """
    kinds = [KINDS[number % len(KINDS)] for number in range(MESSAGES)]
    due_s = [1.0 + number * 0.08 for number in range(MESSAGES)]
    planned = [
        None if kind is Kind.PLAIN else BURST_S if kind is Kind.BURST else second
        for kind, second in zip(kinds, due_s, strict=True)
    ]
    made = HandMade(directory, planned, replace(round_of("demo", tracker)), kinds=kinds)
    made.confirm(range(MESSAGES))
    comes_s = {
        number: (second if due is None else due) + 0.002
        for number, (second, due) in enumerate(zip(due_s, planned, strict=True))
    }
    change(comes_s)
    if kills:
        made.strike(*BROKER_S)
        made.strike(*DAEMON_S, forgets=Forgets.NOTHING, what="kill -9 of the daemon")
    for number, second in comes_s.items():
        made.receive(number, second)
    return Result("demo", "kills", tracker, [judge(made.read())])


def index_history() -> list[IndexState]:
    """The daemon's answers, one a second."""
    return [IndexState(at_us(second), 100, 10, 90, 0, 4096, 8192) for second in range(40)]
