"""Ledgers of rounds made by hand: what verdict, report and page are tested with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from tidegate.plugin.drill.ledger import Forgets, Ledger, Record, Round, read_ledger
from tidegate.plugin.drill.plan import UNDELAYED, Kind, Plan
from tidegate.plugin.drill.repeats import Cause

START_US = 1_700_000_000_000_000
LEAD_MS = 1_000
LEDGER_ID = 7


def at_us(second: float) -> int:
    """Microseconds since the epoch of a second of the round."""
    return START_US + round(second * 1e6)


def round_of(drill: str = "broker-killed", tracker: str = "tidegate", number: int = 1) -> Round:
    """A round whose plan counts from ``START_US``."""
    allowed = tuple(cause.value for cause in (Cause.IN_FLIGHT, Cause.UNPERSISTED, Cause.PLAIN))
    return Round(drill, tracker, "standalone", number, 1, 99, START_US, allowed)


class HandMade:
    """A ledger under construction: every message due at ``due_s`` (None: without a delay) and sent at 0.

    ``kinds``: of each message; delayed ones, unless told otherwise.
    """

    def __init__(
        self,
        directory: Path,
        due_s: Sequence[float | None],
        of: Round | None = None,
        *,
        kinds: Sequence[Kind] | None = None,
    ) -> None:
        due_ms = np.array([UNDELAYED if one is None else round(one * 1000) for one in due_s], np.int64)
        if kinds is None:
            kinds = [Kind.PLAIN if one is None else Kind.DELAYED for one in due_s]
        self.directory = directory
        self._now_us = START_US
        plan = Plan(np.zeros(len(due_ms), np.int64), due_ms, np.array(kinds, np.int8), LEAD_MS)
        self.ledger = Ledger(directory, of or round_of(), plan, lambda: self._now_us)

    def at(self, second: float) -> Ledger:
        """The ledger, at that second."""
        self._now_us = at_us(second)
        return self.ledger

    def confirm(self, numbers: Sequence[int], second: float = 0.1) -> None:
        """The broker stored them."""
        for number in numbers:
            self.at(second).confirmed(number)

    def receive(
        self, number: int, second: float, *, acked_s: float | None = None, entry_id: int | None = None
    ) -> None:
        """A consumer got it, and acknowledged it at once unless told otherwise."""
        acked = second if acked_s is None else acked_s
        self.ledger.received(
            number,
            1,
            0,
            (LEDGER_ID, number if entry_id is None else entry_id),
            received_us=at_us(second),
            acked_us=-1 if acked < 0 else at_us(acked),
        )

    def strike(
        self,
        begin_s: float,
        back_s: float | None,
        *,
        forgets: Forgets = Forgets.UNSTORED,
        rewinds: bool = False,
        what: str = "kill -9 of the broker",
        done_s: float | None = None,
    ) -> None:
        """A fault, done at once unless told otherwise."""
        self.at(begin_s).event("strike", what=what, forgets=forgets, rewinds=rewinds)
        self.at(begin_s if done_s is None else done_s).event("done", evidence="the broker: gone")
        if back_s is not None:
            self.at(back_s).event("undo")
            self.at(back_s).event("back")

    def read(self, *, end: bool = True) -> Record:
        """The record that a reader finds."""
        if end:
            self.at(100.0).event("end")
        self.ledger.close()
        return read_ledger(self.directory)


def finished(
    directory: Path, of: Round | None = None, change: Callable[[HandMade], None] | None = None
) -> Record:
    """A round of 200 messages in ten seconds with a broker killed from 4 to 6 s."""
    due_s = [1.0 + number / 20 for number in range(200)]
    made = HandMade(directory, due_s, of)
    made.confirm(range(200))
    for number, second in enumerate(due_s):
        made.receive(number, 6.1 if 4.0 <= second < 6.1 else second + 0.002)
    made.strike(4.0, 6.0)
    if change is not None:
        change(made)
    return made.read()
