"""Tidegate's index beside other ways of keeping delayed messages, each the real thing, in one run.

Each peer runs in its own processes (`bench.peers`). Full measures on one workload: fill, kill -9, restart,
first due pop, drain; fill and drain on the others; fill, kill -9 and restart of a large backlog; lateness in
real time before a backlog. A phase beyond its budget stops, and a note has its entries; a peer that cannot
run here, or fails, has a note with the reason.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.harness import workloads
from bench.harness.driver import Bench, Plan, Recorder
from bench.harness.errors import BenchError
from bench.harness.workloads import Workload
from bench.peers import inputs, roster
from bench.peers.base import (
    DRAIN,
    FAST_TICK_MS,
    FILL,
    LATENESS,
    LATENESS_PER_S,
    RECOVER,
    DrainFigures,
    FillFigures,
    LatenessFigures,
    RecoverFigures,
)
from bench.peers.launch import Budget, Launcher, Session

SEED = 1
OTHERS = tuple(name for name in workloads.SHAPES if name != workloads.UNIFORM)
OTHERS_QUICK = ("levels", "tail")
FILLED, SETTLED = "files when filled", "files when settled"


@dataclass(frozen=True)
class Sizes:
    """The numbers of entries, and the budget of each phase."""

    full: int
    others: int
    large: int
    budget_s: float
    large_budget_s: float
    lateness_s: float
    shapes: tuple[str, ...]
    """The other workloads."""


FULL = Sizes(1_000_000, 100_000, 10_000_000, 8.0, 90.0, lateness_s=4.0, shapes=OTHERS)
# More than a ledger: Pulsar's Bucket tracker stores a bucket when the next ledger begins.
QUICK = Sizes(60_000, 20_000, 110_000, 2.0, 3.0, lateness_s=0.5, shapes=OTHERS_QUICK)


@dataclass
class Stops:
    """Phases stopped by their budget: reported once a peer and phase, with the range over the rounds."""

    _counts: dict[tuple[str, str, str, float], list[int]] = field(default_factory=dict)

    def add(self, peer: str, scenario: str, phase: str, budget_s: float, count: int) -> None:
        """A phase ended after ``count`` entries."""
        self._counts.setdefault((peer, scenario, phase, budget_s), []).append(count)

    def notes(self) -> Iterator[str]:
        """A sentence for each."""
        for (peer, scenario, phase, budget_s), counts in self._counts.items():
            low, high = min(counts), max(counts)
            many = f"{low:,}" if low == high else f"{low:,} … {high:,}"
            yield f"{peer}, {scenario}: {phase} was stopped after {many} entries in {budget_s:g} s"


@dataclass
class Measuring:
    """One run of the bench: the state that its steps share."""

    plan: Plan
    recorder: Recorder
    sizes: Sizes
    main: Workload
    others: list[Workload]
    large: Workload | None
    stops: Stops = field(default_factory=Stops)

    def add(
        self,
        peer: str,
        scenario: str,
        title: str,
        unit: str,
        value: float,
        *,
        higher: bool = False,
        target: float | None = None,
        headline: bool = True,
    ) -> None:
        """Record one round's figure."""
        metric = self.recorder.metric(
            scenario, title, unit, better="higher" if higher else "lower", target=target, headline=headline
        )
        metric.add(peer, round(value, 4))

    # ---- measurements of one peer in one round

    def measure(self, launcher: Launcher) -> None:
        """Everything, on one peer."""
        self.whole(launcher)
        for workload in self.others:
            self.fill_and_drain(launcher, workload)
        if self.large is not None and launcher.info.survives_kill:
            self.large_backlog(launcher, self.large)
        self.lateness(launcher)

    def whole(self, launcher: Launcher) -> None:
        """Fill, kill -9, restart, first due pop, settle, kill -9, drain; kills only if the peer survives."""
        peer, scenario = launcher.info.name, _scenario(self.main)
        budget = Budget(self.sizes.budget_s, self.sizes.lateness_s)
        with _session(launcher, self.main, budget) as (session, data):
            filled = session.start(FILL, FillFigures)
            self._filled(launcher, scenario, filled, data, whole=True)
            if not launcher.info.survives_kill:
                drained = session.ask(DRAIN, DrainFigures)
                self._lost(peer, f"kill -9, {scenario}", filled.added)
            else:
                session.kill()
                recovered = session.start(RECOVER, RecoverFigures, filled.added)
                session.settle()
                self._bytes(launcher, scenario, SETTLED, data, filled.added - recovered.popped)
                session.kill()
                drained = session.start(DRAIN, DrainFigures, filled.added)
                if not filled.stopped:
                    self._recovered(peer, f"kill -9, {scenario}", recovered)
                    known = drained.missing if not drained.stopped else filled.added - recovered.held_after
                    self._lost(peer, f"kill -9, {scenario}", known)
                    self.add(
                        peer,
                        f"kill -9, {scenario}",
                        "handed out again",
                        "entries",
                        drained.again,
                        headline=False,
                    )
        self._drained(peer, scenario, drained, whole=True)
        self.plan.say(
            f"{peer}, {scenario}: {filled.adds_per_s / 1e3:,.0f} k adds/s, "
            f"{drained.pops_per_s / 1e3:,.0f} k pops/s"
        )

    def fill_and_drain(self, launcher: Launcher, workload: Workload) -> None:
        """Adds, pops and bytes on another workload, in one process."""
        scenario = _scenario(workload)
        budget = Budget(self.sizes.budget_s, self.sizes.lateness_s)
        with _session(launcher, workload, budget) as (session, data):
            filled = session.start(FILL, FillFigures)
            self._filled(launcher, scenario, filled, data, whole=False)
            drained = session.ask(DRAIN, DrainFigures)
        self._drained(launcher.info.name, scenario, drained, whole=False)

    def large_backlog(self, launcher: Launcher, workload: Workload) -> None:
        """Fill, kill -9, restart, first due pop of a large backlog."""
        peer, scenario = launcher.info.name, f"kill -9, {_scenario(workload)}"
        budget = Budget(self.sizes.large_budget_s, self.sizes.lateness_s)
        with _session(launcher, workload, budget) as (session, _):
            filled = session.start(FILL, FillFigures)
            if filled.stopped:
                self.stops.add(peer, scenario, "the fill", budget.phase_s, filled.added)
                return
            self.add(peer, scenario, "adds before it", "k/s", filled.adds_per_s / 1e3, higher=True)
            session.kill()
            recovered = session.start(RECOVER, RecoverFigures)
        self._recovered(peer, scenario, recovered)
        self._lost(peer, scenario, filled.added - recovered.held_after)

    def lateness(self, launcher: Launcher) -> None:
        """The lateness of entries handed out before a waiting backlog."""
        peer = launcher.info.name
        scenario = f"{LATENESS_PER_S:,} due a second before a backlog of {len(self.main):,}"
        with _session(launcher, self.main, Budget(self.sizes.budget_s, self.sizes.lateness_s)) as (
            session,
            _,
        ):
            late = session.start(LATENESS, LatenessFigures)
        if late.stopped:
            self.stops.add(peer, scenario, "adding the backlog", self.sizes.budget_s, late.backlog)
        if late.handed_out:
            self.add(peer, scenario, "lateness p50", "ms", late.p50_ms)
            self.add(peer, scenario, "lateness p99", "ms", late.p99_ms)
            self.add(peer, scenario, "lateness max", "ms", late.max_ms)
            self.recorder.curve(scenario, peer, "ms", late.quantiles_ms)
        if late.fast is not None:
            name = f"p99 if it looked every {FAST_TICK_MS} ms"
            self.add(peer, scenario, name, "ms", late.fast.p99_ms)
        elif not launcher.info.tick_ms and late.handed_out:
            # More frequent looks gain nothing for a peer that looks when an entry is due.
            self.add(peer, scenario, f"p99 if it looked every {FAST_TICK_MS} ms", "ms", late.p99_ms)
        self.add(peer, scenario, "early", "entries", late.early, target=0)
        self.add(peer, scenario, "not handed out", "entries", late.missing, target=0, headline=False)
        if late.empty_look_us is not None:
            self.add(peer, scenario, "a look when nothing is due", "µs", late.empty_look_us)

    # ---- figures into metrics

    def _filled(
        self, launcher: Launcher, scenario: str, filled: FillFigures, data: Path, *, whole: bool
    ) -> None:
        peer = launcher.info.name
        if filled.stopped:
            self.stops.add(peer, scenario, "the fill", self.sizes.budget_s, filled.added)
        self.add(peer, scenario, "adds", "k/s", filled.adds_per_s / 1e3, higher=True)
        memory = max(0, filled.peak_rss_bytes - filled.rss_before_bytes) / filled.added
        self.add(peer, scenario, "memory, filling", "B an entry", memory, headline=whole)
        self._bytes(launcher, scenario, FILLED, data, filled.added)
        cpu_us = filled.cpu_s / filled.added * 1e6
        self.add(peer, scenario, "processor time of an add", "µs", cpu_us, headline=False)
        self.add(peer, scenario, "longest add of 10,000", "ms", filled.longest_pause_ms, headline=False)
        for title, value in filled.remarks.items():
            name, _, unit = title.removesuffix(")").rpartition(" (")
            self.add(peer, scenario, name, unit, value, headline=False)

    def _drained(self, peer: str, scenario: str, drained: DrainFigures, *, whole: bool) -> None:
        if drained.stopped:
            self.stops.add(peer, scenario, "the drain", self.sizes.budget_s, drained.popped)
        self.add(peer, scenario, "pops", "k/s", drained.pops_per_s / 1e3, higher=True)
        memory = max(0, drained.peak_rss_bytes - drained.rss_before_bytes) / max(1, drained.popped)
        self.add(peer, scenario, "memory, popping", "B an entry", memory, headline=False)
        self.add(peer, scenario, "longest pop", "ms", drained.longest_pause_ms, headline=whole)
        self.add(peer, scenario, "popped early", "entries", drained.early, target=0, headline=False)
        self.add(peer, scenario, "out of order", "entries", drained.out_of_order, headline=whole)
        cpu_us = drained.cpu_s / max(1, drained.popped) * 1e6
        self.add(peer, scenario, "processor time of a pop", "µs", cpu_us, headline=False)

    def _recovered(self, peer: str, scenario: str, recovered: RecoverFigures) -> None:
        if recovered.first_pop_s is not None:
            self.add(peer, scenario, "started again, first due pop", "s", recovered.first_pop_s)

    def _lost(self, peer: str, scenario: str, entries: int) -> None:
        self.add(peer, scenario, "lost", "entries", entries, target=0)

    def _bytes(self, launcher: Launcher, scenario: str, title: str, data: Path, entries: int) -> None:
        if not launcher.info.survives_kill:
            return  # an empty disk is no merit here
        size_bytes = max(0, disk_bytes(data) - launcher.empty_bytes())
        if entries > 0:
            self.add(launcher.info.name, scenario, title, "B an entry", size_bytes / entries)


def disk_bytes(folder: Path) -> int:
    """Bytes of all files below a folder, which may change meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def _scenario(workload: Workload) -> str:
    return f"{len(workload):,} {workload.title}"


@contextmanager
def _session(launcher: Launcher, workload: Workload, budget: Budget) -> Iterator[tuple[Session, Path]]:
    """A folder with the workload and a session; both go at the end.

    With TIDEGATE_BENCH_KEEP in the environment a failed peer's folder stays, with its logs.
    """
    folder = Path(tempfile.mkdtemp(prefix="tidegate-bench-"))
    # A server's own user needs access to its files below.
    folder.chmod(0o711)
    keep = False
    try:
        inputs.write(folder, workload)
        with Session(launcher, folder, workload.name, len(workload), budget) as session:
            yield session, folder / inputs.DATA
    except BenchError:
        keep = "TIDEGATE_BENCH_KEEP" in os.environ
        raise
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def chosen(plan: Plan, sizes: Sizes) -> tuple[Workload, list[Workload], Workload | None]:
    """(the workload with full measures, the others, the large one): only the trace if there is one."""
    if plan.trace is not None:
        return workloads.from_trace(plan.trace), [], None
    main = workloads.seeded(workloads.UNIFORM, sizes.full, SEED)
    others = [workloads.seeded(name, sizes.others, SEED) for name in sizes.shapes]
    return main, others, workloads.seeded(workloads.UNIFORM, sizes.large, SEED)


def present(plan: Plan, recorder: Recorder) -> dict[str, Launcher]:
    """The launchers of peers that can run here, with a note for each other one.

    Raises BenchError if none can.
    """
    found = {}
    for name in plan.peers:
        launcher = roster.launcher(name)
        reason = launcher.missing()
        if reason is not None:
            recorder.note(f"{name} was skipped: {reason}")
            plan.say(f"{name} is skipped: {reason}")
            continue
        info = launcher.info
        looks = f"looks every {info.tick_ms:,} ms" if info.tick_ms else "waits for the earliest entry's time"
        recorder.note(f"{name}: {info.scheme}; durability: {info.durability}; {looks}")
        recorder.versions |= launcher.versions()
        found[name] = launcher
    if not found:
        raise BenchError("none of the peers asked for can run here; install servers with: make bench-peers")
    return found


def run(plan: Plan, recorder: Recorder) -> None:
    """Every peer, every workload, in each round; a peer that fails takes no further part."""
    sizes = QUICK if plan.quick else FULL
    main, others, large = chosen(plan, sizes)
    recorder.parameters |= {
        "entries": len(main),
        "entries_of_other_workloads": sizes.others if others else 0,
        "entries_of_the_large_backlog": len(large) if large is not None else 0,
        "phase_budget_s": sizes.budget_s,
        "large_fill_budget_s": sizes.large_budget_s,
        "seed": SEED,
    }
    launchers = present(plan, recorder)
    if others and sizes.shapes != OTHERS:
        recorder.note(
            f"--quick leaves out the workloads {', '.join(sorted(set(OTHERS) - set(sizes.shapes)))}"
        )
    measuring = Measuring(plan, recorder, sizes, main, others, large)
    for _, order in plan.rounds():
        for name in order:
            if name not in launchers:
                continue
            try:
                measuring.measure(launchers[name])
            except BenchError as error:
                recorder.note(f"{name} failed and was left out from then on: {error}")
                plan.say(f"{name} failed: {error}")
                del launchers[name]
    for note in measuring.stops.notes():
        recorder.note(note)
    if not launchers:
        raise BenchError("every peer failed, see above")


BENCH = Bench(
    name="peers",
    measures="the index beside other schemes and servers: adds, pops, bytes, recovery, lateness",
    takes="25 min",
    takes_quick="90 s",
    peers=roster.NAMES,
    runs=3,
    runs_quick=1,
    run=run,
    uses_pulsar=False,
    takes_trace=True,
)
