"""The index at 100 million entries, with 1,000 subscriptions, and in bursts; in one process, durable.

Every scenario is a process that drives the index as the daemon does (the harness's ``index_driver``) with the
daemon's defaults, and compares output with input. No peer takes part.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from bench.harness.driver import Bench, Plan, Recorder
from bench.harness.stats import Better
from bench.harness.trackers import OURS
from bench.harness.worker_process import measured
from bench.scale.worker import RATE, subscriptions_of

WORKER = "bench.scale.worker"
QUICK = 50  # times smaller


class Line(NamedTuple):
    """One metric of a scenario: the worker's name of it, and its title and unit."""

    figure: str
    title: str
    unit: str
    better: Better = "lower"
    target: float | None = None
    scale: float = 1.0
    headline: bool = True


def limited(lines: tuple[Line, ...], figure: str, target: float) -> tuple[Line, ...]:
    """The lines with a target for one of them."""
    return tuple(line._replace(target=target) if line.figure == figure else line for line in lines)


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
DISK = (
    Line("disk_bytes_an_entry", "all files", "B an entry"),
    Line("disk_tables", "… RocksDB's tables", "B an entry"),
    Line("disk_log", "… RocksDB's WAL", "B an entry"),
    Line("disk_other", "… other files", "B an entry"),
    Line("alive_blocks", "alive in them: packed blocks", "B an entry"),
    Line("alive_bitmaps", "alive in them: bitmaps", "B an entry"),
    Line("alive_journal", "alive in them: journal", "B an entry"),
    Line("first_disk_bytes_an_entry", "all files, before five quiet minutes", "B an entry", headline=False),
    Line("block_bytes_an_entry", "packed blocks, of the entries in them", "B an entry"),
)
FILL = (
    Line("adds_per_s", "adds, durable", "M/s", "higher", None, 1e-6),
    Line("adds_per_s_less_input", "adds, less the making of the input", "M/s", "higher", None, 1e-6, False),
    Line("cpu_ns", "processor time", "ns an entry"),
    Line("memory_mib", "peak memory", "MiB", target=512.0),
    Line("memory_first_mib", "peak memory up to the first 10 M", "MiB"),
    Line("memory_last_mib", "peak memory in the last 10 M", "MiB"),
    Line("staged_of_budget", "most staged or being spilled, of the budget", "times", headline=False),
    *PAUSES,
)
POPS = (
    Line("pops_per_s", "pops", "M/s", "higher", None, 1e-6),
    Line("pop_ack_per_s", "pops, acknowledged and durable", "M/s", "higher", None, 1e-6),
)
REOPEN = (
    Line("first_pop_s", "first due entry, from opening", "s", target=0.5),
    Line("first_pop_from_start_s", "first due entry, from the start of the process", "s"),
    Line("import_s", "… of which imports", "s"),
    *POPS,
    Line("memory_mib", "peak memory", "MiB", target=512.0),
    *PAUSES,
    *VERDICT,
)
BURST = (
    Line("slices", "slices", "count", target=1),
    Line("pops_per_s", "pops", "M/s", "higher", 5.0, 1e-6),
    Line("pop_ack_per_s", "pops, acknowledged and durable", "M/s", "higher", None, 1e-6),
    Line("memory_mib", "peak memory, popping", "MiB", target=512.0),
    Line("add_memory_mib", "peak memory, adding", "MiB", target=512.0),
    *PAUSES,
    Line("add_pause_ms", "longest pause, adding", "ms", target=50.0),
    *VERDICT,
)
MANY = (
    Line("cpu_ns", "processor time", "ns an entry"),
    Line("times_one_small", "… of one subscription's, same batches", "times", target=3.0),
    Line("times_one", "… of one subscription's, a batch a second", "times"),
    Line("staged_of_budget", "most staged or being spilled, of the budget", "times", target=1.25),
    Line("blocks_a_slice_mean", "blocks a slice, mean", "blocks"),
    Line("blocks_a_slice_max", "blocks a slice, most", "blocks", target=8),
    Line("entries_a_block", "entries a block, mean", "entries", "higher"),
    Line("disk_bytes_an_entry", "all files", "B an entry"),
    Line("memory_mib", "peak memory", "MiB", target=512.0),
    Line("entries_per_s", "arrived, of at most 0.2", "M/s", "higher", None, 1e-6, False),
    Line("persists", "persists", "count", headline=False),
    Line("pops_per_s", "pops", "M/s", "higher", None, 1e-6),
    *PAUSES,
    *VERDICT,
)
FIXED = (
    Line("adds_per_s", "adds, durable", "M/s", "higher", 3.0, 1e-6),
    *limited(DISK, "block_bytes_an_entry", 0.1),
    *POPS,
    *PAUSES,
    *VERDICT,
)
LOOKS = (
    Line("tide_ms", "tide, median", "ms", target=10.0),
    Line("tide_longest_ms", "tide, longest", "ms"),
    Line("tide_wrong", "messages that the tide misses or adds", "messages", target=0),
    Line("tide_inexact", "of all, in a bucket nearby perhaps", "of all"),
    Line("page_ms", "page of 1,000, median", "ms", target=50.0),
    Line("page_p99_ms", "page of 1,000, p99", "ms"),
    Line("page_short", "pages that are not full", "pages", target=0),
    Line("loop_ms", "longest pause of the loop", "ms", target=50.0),
    Line("loop_alone_ms", "… in a second before, without a question", "ms"),
)
MIXED = (
    Line("through_per_s", "added, popped and acknowledged", "M/s", "higher", None, 1e-6),
    Line("popped_while_adding", "popped while adding", "of all", "higher"),
    Line("persists", "persists", "count", "higher"),
    Line("staged_of_budget", "most staged or being spilled, of the budget", "times"),
    Line("memory_mib", "peak memory", "MiB", target=512.0),
    *PAUSES,
    *VERDICT,
)


class Run:
    """One round: runs workers and records their figures."""

    def __init__(self, plan: Plan, recorder: Recorder) -> None:
        self.plan = plan
        self.recorder = recorder

    def worker(self, name: str, folder: Path, count: int) -> dict[str, Any]:
        """The figures of a scenario's worker."""
        began_s = time.perf_counter()
        figures = measured(WORKER, name, str(folder / "data"), str(count))
        self.plan.say(f"{name}, {count:,} entries: {time.perf_counter() - began_s:,.0f} s")
        return figures

    def alone(self, name: str, count: int) -> dict[str, Any]:
        """The same in a folder of its own."""
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
            return self.worker(name, Path(folder), count)

    def reopened(self, name: str, count: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """The figures of filling and, after kill -9, of the rest."""
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
            return (
                self.worker(name, Path(folder), count),
                self.worker(f"reopen-{name}", Path(folder), count),
            )

    def record(self, scenario: str, lines: tuple[Line, ...], figures: dict[str, Any]) -> None:
        """Keep the available figures."""
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
        """Over 7 days: filled, killed, reopened, drained."""
        filled, drained = self.reopened("uniform", count)
        marks = filled["memory_marks_mib"]
        filled |= {"memory_first_mib": marks[0], "memory_last_mib": marks[-1]}
        title = f"{count:,} entries over 7 days"
        lines = limited(limited((*FILL, *DISK), "disk_bytes_an_entry", 4.2), "adds_per_s", 3.0)
        self.record(title, lines, filled)
        for number, mark_mib in enumerate(marks, start=1):
            metric = self.recorder.metric(title, f"peak memory, part {number}", "MiB", headline=False)
            metric.add(OURS, mark_mib)
        self.record(f"{title}: kill -9, reopened, popped", REOPEN, drained)

    def ten_years(self, count: int) -> None:
        """The same over ten years."""
        filled, drained = self.reopened("ten-years", count)
        title = f"{count:,} entries over ten years"
        self.record(title, (*FILL, *DISK, Line("slices", "slices", "count")), filled)
        self.record(f"{title}: kill -9, reopened, popped", REOPEN, drained)

    def bursts(self, count: int) -> None:
        """Everything due in one slice, or at one instant."""
        for name, scenario in (("burst-slice", "due in one slice"), ("burst-instant", "due at one instant")):
            self.record(f"{count:,} entries {scenario}", BURST, self.alone(name, count))

    def many(self, count: int) -> None:
        """Many subscriptions beside one."""
        among = subscriptions_of(count)
        many, small, one = (self.alone(name, count) for name in ("many", "one-small", "one"))
        many["times_one_small"] = many["cpu_ns"] / small["cpu_ns"]
        many["times_one"] = many["cpu_ns"] / one["cpu_ns"]
        self.record(f"{among:,} subscriptions, {RATE} entries/s each, {count:,} in all", MANY, many)
        self.record("one subscription, the same small batches", MANY, small)
        self.record("one subscription, a batch a second", MANY, one)

    def looks(self, count: int) -> None:
        """The tide of a week, and pages of it."""
        self.record(f"{count:,} entries over 7 days, looked at", LOOKS, self.alone("looks", count))


def run(plan: Plan, recorder: Recorder) -> None:
    """All scenarios, in each round; at sizes of the user's only the looks."""
    if plan.entries:
        for _ in plan.rounds():
            for size in plan.entries:
                Run(plan, recorder).looks(size)
        return
    small = QUICK if plan.quick else 1
    counts = {
        "uniform": 100_000_000 // small,
        "many": 3_000_000 // small,
        "burst": 10_000_000 // small,
        "fixed": 10_000_000 // small,
        "mixed": 10_000_000 // min(small, 3),  # fewer would not spill
        "ten years": 1_000_000 // small,
        "looks": 100_000_000 // small,
    }
    recorder.parameters |= counts
    for _ in plan.rounds():
        one = Run(plan, recorder)
        one.uniform(counts["uniform"])
        one.many(counts["many"])
        one.bursts(counts["burst"])
        fixed = one.alone("fixed", counts["fixed"])
        one.record(f"{counts['fixed']:,} entries, all delayed by 30 min", FIXED, fixed)
        mixed = one.alone("mixed", counts["mixed"])
        one.record(f"{counts['mixed']:,} entries popped while others are added", MIXED, mixed)
        one.ten_years(counts["ten years"])
        one.looks(counts["looks"])


BENCH = Bench(
    name="scale",
    measures="the index at 100 M entries, with 1,000 subscriptions, in bursts: rates, memory, bytes, pauses",
    takes="11 min",
    takes_quick="1 min",
    peers=(OURS,),
    runs=1,
    runs_quick=1,
    run=run,
    uses_pulsar=False,
    takes_entries=True,
)
