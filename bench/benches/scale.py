"""The index at 100 million entries, with 1,000 subscriptions, and in bursts; in one process, durable.

Every scenario is a process of its own that drives the index as the daemon does (``bench.index_driver``) with
the daemon's defaults, and holds what comes out against what went in. No peer takes part.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from bench.driver import Bench, Plan, Recorder
from bench.peers.trackers import OURS
from bench.stats import Better
from bench.worker_process import measured

WORKER = "bench.scale_worker"
QUICK = 50  # times smaller


class Line(NamedTuple):
    """One metric of a scenario: the worker's name of it, and how it is told."""

    figure: str
    title: str
    unit: str
    better: Better = "lower"
    target: float | None = None
    scale: float = 1.0
    headline: bool = True


VERDICT = (
    Line("missing", "missing", "entries", target=0),
    Line("wrong", "wrong time or repeated", "entries", target=0),
    Line("early", "early", "entries", target=0),
    Line("out_of_order", "out of order", "entries", target=0),
)
PAUSES = (
    Line("pause_ms", "longest pause", "ms", target=50.0),
    Line("pause_p999_ms", "p99.9 of the pauses", "ms"),
)
FILL = (
    Line("adds_per_s", "adds, durable", "M/s", "higher", 3.0, 1e-6),
    Line("adds_per_s_less_input", "adds, less the making of the input", "M/s", "higher", None, 1e-6, False),
    Line("cpu_ns", "processor time", "ns an entry"),
    Line("disk_bytes_an_entry", "all files", "B an entry", target=4.2),
    Line("disk_blocks", "… packed blocks", "B an entry"),
    Line("disk_log", "… RocksDB's log", "B an entry"),
    Line("disk_rest", "… the rest (bitmaps, journal, not compacted yet)", "B an entry"),
    Line("first_disk_bytes_an_entry", "all files, before five quiet minutes", "B an entry", headline=False),
    Line("memory_mib", "peak memory", "MiB", target=512.0),
    Line("memory_first_mib", "peak memory up to the first 10 M", "MiB"),
    Line("memory_last_mib", "peak memory in the last 10 M", "MiB"),
    *PAUSES,
)
REOPEN = (
    Line("first_pop_s", "first due entry, from opening", "s", target=0.5),
    Line("first_pop_from_start_s", "first due entry, from the start of the process", "s"),
    Line("import_s", "… of which imports", "s"),
    Line("pops_per_s", "pops", "M/s", "higher", None, 1e-6),
    Line("pop_ack_per_s", "pops, acknowledged and durable", "M/s", "higher", None, 1e-6),
    Line("memory_mib", "peak memory", "MiB", target=512.0),
    *PAUSES,
    *VERDICT,
)
BURST = (
    Line("pops_per_s", "pops", "M/s", "higher", 5.0, 1e-6),
    Line("pop_ack_per_s", "pops, acknowledged and durable", "M/s", "higher", None, 1e-6),
    Line("memory_mib", "peak memory, popping", "MiB", target=512.0),
    Line("add_memory_mib", "peak memory, adding", "MiB", target=512.0),
    *PAUSES,
    *VERDICT,
)
MANY = (
    Line("cpu_ns", "processor time", "ns an entry"),
    Line("times_single", "processor time, of one subscription's", "times", target=3.0),
    Line("staged_of_budget", "most staged, of the budget", "times", target=1.25),
    Line("blocks_a_slice_mean", "blocks a slice, mean", "blocks"),
    Line("blocks_a_slice_max", "blocks a slice, most", "blocks"),
    Line("entries_a_block", "entries a block, mean", "entries", "higher"),
    Line("disk_bytes_an_entry", "all files", "B an entry"),
    Line("memory_mib", "peak memory", "MiB", target=512.0),
    *PAUSES,
    Line("missing", "missing", "entries", target=0),
)


class Run:
    """One round: runs workers and records their figures."""

    def __init__(self, plan: Plan, recorder: Recorder) -> None:
        self.plan = plan
        self.recorder = recorder

    def worker(self, name: str, folder: Path, count: int) -> dict[str, Any]:
        """The figures of a scenario's worker."""
        figures = measured(WORKER, name, str(folder / "data"), str(count))
        self.plan.say(f"{name}, {count:,} entries: done")
        return figures

    def alone(self, name: str, count: int) -> dict[str, Any]:
        """The same in a folder of its own."""
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
            return self.worker(name, Path(folder), count)

    def record(self, scenario: str, lines: tuple[Line, ...], figures: dict[str, Any]) -> None:
        """Keep those of the figures that are there."""
        for line in lines:
            if line.figure in figures:
                metric = self.recorder.metric(
                    scenario,
                    line.title,
                    line.unit,
                    better=line.better,
                    target=line.target,
                    headline=line.headline,
                )
                metric.add(OURS, round(figures[line.figure] * line.scale, 4))
        for kind, longest_ms in figures.get("pauses_ms", {}).items():
            metric = self.recorder.metric(scenario, f"longest: {kind}", "ms", headline=False)
            metric.add(OURS, round(longest_ms, 3))

    def uniform(self, count: int) -> None:
        """Fill, kill -9, reopen, drain."""
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
            filled = self.worker("uniform", Path(folder), count)
            drained = self.worker("reopen", Path(folder), count)
        marks = filled["memory_marks_mib"]
        filled |= {"memory_first_mib": marks[0], "memory_last_mib": marks[-1]}
        self.record(f"{count:,} entries over 7 days", FILL, filled)
        self.record(f"{count:,} entries: kill -9, reopened, popped", REOPEN, drained)

    def bursts(self, count: int) -> None:
        """Everything due in one slice, or at one instant."""
        for name, scenario in (("burst-slice", "due in one slice"), ("burst-instant", "due at one instant")):
            self.record(f"{count:,} entries {scenario}", BURST, self.alone(name, count))

    def many(self, count: int) -> None:
        """1,000 subscriptions beside one."""
        many, single = self.alone("many", count), self.alone("single", count)
        many["times_single"] = many["cpu_ns"] / single["cpu_ns"]
        self.record(f"1,000 subscriptions, {count:,} entries", MANY, many)
        self.record(f"one subscription, {count:,} entries at the same rate", MANY, single)


def run(plan: Plan, recorder: Recorder) -> None:
    """All scenarios, in each round."""
    small = QUICK if plan.quick else 1
    recorder.parameters |= {"uniform": 100_000_000 // small, "burst": 10_000_000 // small}
    for _ in plan.rounds():
        one = Run(plan, recorder)
        one.uniform(100_000_000 // small)
        one.many(6_000_000 // small)
        one.bursts(10_000_000 // small)


BENCH = Bench(
    name="scale",
    measures="the index at 100 M entries, with 1,000 subscriptions, in bursts: rates, memory, bytes, pauses",
    takes="8 min",
    takes_quick="1 min",
    peers=(OURS,),
    runs=1,
    runs_quick=1,
    run=run,
    uses_pulsar=False,
)
