"""Runs one bench, a function of a ``Plan`` and a ``Recorder``, and turns its records into a result.

Peers run in turn within every round, in an order that shifts, so that a slow minute of the machine hits each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from bench.harness import machine
from bench.harness.errors import BenchError
from bench.harness.parts import pulsar_home
from bench.harness.results import Flame, Metric, Result, Series
from bench.harness.stats import Better
from bench.harness.trackers import OURS


@dataclass(frozen=True)
class Plan:
    """The user's choices."""

    quick: bool
    runs: int
    peers: tuple[str, ...]
    console: Console
    trace: Path | None = None
    entries: tuple[int, ...] = ()

    def rounds(self) -> Iterator[tuple[int, list[str]]]:
        """(round number from 0, the peers in this round's order)."""
        for number in range(self.runs):
            shift = number % len(self.peers)
            yield number, [*self.peers[shift:], *self.peers[:shift]]

    def say(self, text: str) -> None:
        """Tell the user the present step."""
        self.console.log(text, highlight=False)


@dataclass
class Recorder:
    """Collects a bench's measurements."""

    metrics: list[Metric] = field(default_factory=list)
    series: list[Series] = field(default_factory=list)
    flames: list[Flame] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    parameters: dict[str, str | int | float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    axis: str = ""
    positions: dict[str, float] = field(default_factory=dict)

    def metric(
        self,
        scenario: str,
        title: str,
        unit: str,
        *,
        better: Better = "lower",
        target: float | None = None,
        headline: bool = True,
    ) -> Metric:
        """The metric of that scenario and title, made at its first use."""
        for known in self.metrics:
            if (known.scenario, known.title) == (scenario, title):
                return known
        made = Metric(
            scenario=scenario, title=title, unit=unit, better=better, target=target, headline=headline
        )
        self.metrics.append(made)
        return made

    def curve(self, scenario: str, peer: str, unit: str, quantiles: list[float]) -> None:
        """Keep a quantile function for the plots."""
        self.series.append(Series(scenario=scenario, peer=peer, unit=unit, quantiles=quantiles))

    def note(self, text: str) -> None:
        """Keep a remark once."""
        if text not in self.notes:
            self.notes.append(text)


@dataclass(frozen=True)
class Bench:
    """One bench: its subject, duration, peers, and the function that runs it.

    ``more_peers`` run only where ``--only`` names them.
    """

    name: str
    measures: str
    takes: str
    takes_quick: str
    peers: tuple[str, ...]
    runs: int
    runs_quick: int
    run: Callable[[Plan, Recorder], None]
    more_peers: tuple[str, ...] = ()
    uses_pulsar: bool = True
    ours: str = OURS
    takes_trace: bool = False
    takes_entries: bool = False


def run(
    bench: Bench,
    *,
    quick: bool,
    runs: int | None,
    only: Sequence[str],
    console: Console,
    command: str,
    trace: Path | None = None,
    entries: Sequence[int] = (),
) -> Result:
    """Run a bench; raises BenchError for a missing part or a failure."""
    if entries and not bench.takes_entries:
        raise BenchError(f"{bench.name} has its own sizes: leave out --entries")
    if trace is not None and not bench.takes_trace:
        raise BenchError(f"{bench.name} has no use for a trace: leave out --trace")
    known = (*bench.peers, *bench.more_peers)
    unknown = set(only) - set(known)
    if unknown:
        raise BenchError(f"{bench.name} knows the peers {', '.join(known)}; not {', '.join(sorted(unknown))}")
    peers = tuple(peer for peer in known if peer in only) if only else bench.peers
    rounds = runs if runs is not None else bench.runs_quick if quick else bench.runs
    plan = Plan(quick, rounds, peers, console, trace, tuple(entries))
    recorder = Recorder()
    where = machine.machine()
    started_at = datetime.now(UTC).replace(microsecond=0).isoformat()
    began_s = time.monotonic()
    revision = machine.revision()
    bench.run(plan, recorder)
    return Result(
        bench=bench.name,
        summary=bench.measures,
        command=command,
        quick=quick,
        runs=rounds,
        started_at=started_at,
        duration_s=round(time.monotonic() - began_s, 1),
        revision=revision,
        machine=where,
        versions=machine.versions(pulsar_home() if bench.uses_pulsar else None) | recorder.versions,
        parameters=recorder.parameters,
        ours=bench.ours,
        peers=list(peers),
        metrics=recorder.metrics,
        series=recorder.series,
        flames=recorder.flames,
        notes=recorder.notes,
        axis=recorder.axis,
        positions=recorder.positions,
    )
