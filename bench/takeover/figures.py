"""The figures of one peer: their titles, units and goals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bench.harness.driver import Recorder
from bench.takeover.backlog import Sample
from bench.takeover.faults import Fault
from bench.takeover.judge import Outcome
from bench.takeover.reads import read_again
from bench.takeover.stage import Stage
from bench.takeover.traffic import PER_S

GOAL_S = 0.5
LAG_GOAL_S = 0.1
UNDER_WAY = "repeated, acknowledged in the client's last 0.1 s"


class Figures:
    """Records a peer's figures."""

    def __init__(self, recorder: Recorder, peer: str) -> None:
        self._recorder = recorder
        self._peer = peer

    def add_fault(self, title: str, fault: Fault, stages: Sequence[Stage], outcome: Outcome) -> None:
        """Of one fault, by the worst of its stages."""
        worst = worst_of(stages)
        read, raw = read_again(worst.readings), worst.readings[-1]
        connected_s = max((one.connected_ns - one.begun_ns) / 1e9 for one in stages)
        first_s = max(one.first_s for one in stages)
        restored_s = [one.restored_s for one in stages if one.restored_s is not None]
        peak_mib = [one.peak_mib for one in stages if one.peak_mib is not None]
        if restored_s:
            self.add(title, "of which: the index restored from its log", "s", max(restored_s), headline=False)
        if peak_mib:
            self.add(title, "the owner's daemon, most memory so far", "MiB", max(peak_mib), headline=False)
        self.add(title, "consumer connected again", "s", connected_s, headline=False)
        self.add(title, "first due message after that", "s", first_s, GOAL_S)
        self.add(title, "entries read again", "entries", read, PER_S)
        self.add(title, "read from BookKeeper, all told", "entries", raw.read, headline=False)
        if raw.added is not None:
            self.add(title, "given to the daemon, all told", "entries", raw.added, headline=False)
        self.add(title, "published meanwhile", "messages", raw.stored, headline=False)
        self.add(title, "delivered meanwhile", "messages", raw.delivered, headline=False)
        self.add(title, "early", "messages", outcome.early, 0)
        self.add(title, "lost", "messages", outcome.lost, 0)
        self.add_repeats(title, outcome, target=0 if fault.is_planned else None)

    def add_repeats(self, title: str, outcome: Outcome, target: float | None) -> None:
        """The repeats; ``target``: the permitted number of those acknowledged just before."""
        self.add(title, "repeated, acknowledged 0.2 s before", "messages", outcome.repeated_old, 0)
        self.add(title, "repeated, acknowledged later", "messages", outcome.repeated_young, target)
        self.add(title, UNDER_WAY, "messages", outcome.repeated_under_way, target)
        self.add(title, "repeated, not acknowledged", "messages", outcome.repeated_in_flight, headline=False)

    def add_publishing(self, scenario: str, title: str, took_ms: NDArray[np.float64]) -> None:
        """The durations of confirmations; nothing without any."""
        if len(took_ms):
            self.add(scenario, f"{title}, median", "ms", float(np.median(took_ms)))
            self.add(scenario, f"{title}, 99th percentile", "ms", float(np.quantile(took_ms, 0.99)))

    def add_sample(self, title: str, due: int, found: Sample) -> None:
        """Of a sample of the backlog."""
        self.add(title, "due", "messages", due, better_high=True, headline=False)
        self.add(title, "of these, before the last move was done", "messages", found.before, headline=False)
        self.add(title, "lost", "messages", len(found.lost), 0)
        self.add(title, "early", "messages", found.early, 0)
        self.add(title, "twice", "messages", found.twice, 0)

    def add_moves(self, title: str, first_s: Sequence[float], outcomes: Sequence[Outcome]) -> None:
        """Of the consecutive moves; ``outcomes``: between one reset of the cursor and the next."""
        self.add(title, "moves done", "moves", len(first_s), headline=False, better_high=True)
        self.add(title, "first due message at the new owner, median", "s", float(np.median(first_s)), GOAL_S)
        self.add(title, "first due message at the new owner, longest", "s", max(first_s), GOAL_S)
        self.add(title, "early", "messages", sum(one.early for one in outcomes), 0)
        self.add(title, "lost", "messages", sum(one.lost for one in outcomes), 0)
        repeated = sum(one.repeated_old + one.repeated_young for one in outcomes)
        self.add(title, "repeated although acknowledged and not taken back", "messages", repeated, 0)
        oldest_ms = max(one.oldest_ms for one in outcomes)
        self.add(title, "the oldest of these, before its move", "ms", oldest_ms, headline=False)
        under_way = sum(one.repeated_under_way for one in outcomes)
        self.add(title, UNDER_WAY, "messages", under_way)

    def add(
        self,
        scenario: str,
        title: str,
        unit: str,
        value: float,
        target: float | None = None,
        *,
        headline: bool = True,
        better_high: bool = False,
    ) -> None:
        """One figure."""
        metric = self._recorder.metric(
            scenario,
            title,
            unit,
            target=target,
            headline=headline,
            better="higher" if better_high else "lower",
        )
        metric.add(self._peer, round(value, 3))


def worst_of(stages: Sequence[Stage]) -> Stage:
    """The one with the most repeated reads."""
    return max(stages, key=lambda stage: read_again(stage.readings))
