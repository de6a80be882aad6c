"""The daemon through its socket, at full speed: the time until DURABLE, its cost, and its start.

The peer is the index in one process with the same entries: the limit, if sockets, frames and the event loop
cost nothing. A start's peer is the import of NumPy.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from bench.daemon.start import starts
from bench.daemon.worker import FEW
from bench.harness.driver import Bench, Plan, Recorder
from bench.harness.trackers import OURS
from bench.harness.worker_process import measured
from bench.scale.bench import Line
from bench.scale.steps import BATCH

WORKER = "bench.daemon.worker"
IN_PROCESS = "in one process"
QUICK = 50  # times smaller

FILL = (
    Line("adds_per_s", "adds, durable", "M/s", "higher", None, 1e-6),
    Line(
        "in_process_times", "… of which the index in one process has so many times more", "times", target=2.0
    ),
    Line("slowest_part_per_s", "adds, the slowest 10 M", "M/s", "higher", None, 1e-6, headline=False),
    Line("durable_p50_ms", "until DURABLE, median", "ms"),
    Line("durable_p99_ms", "until DURABLE, 99 %", "ms"),
    Line("durable_p999_ms", "until DURABLE, 99.9 %", "ms", target=250.0),
    Line("durable_max_ms", "until DURABLE, longest", "ms", target=500.0),
    Line("held_back_s", "reading held back, together", "s"),
    Line("cpu_ns", "processor time", "ns an entry"),
    Line("memory_mib", "peak memory", "MiB", target=380.0),
    Line("first_disk_bytes_an_entry", "all files, when all is durable", "B an entry"),
    Line("disk_bytes_an_entry", "all files, when nothing is left to do", "B an entry", target=3.9),
    Line("idle_s", "until nothing is left to do", "s", headline=False),
)
PEER = (
    FILL[0],
    Line("cpu_ns", "processor time", "ns an entry"),
    Line("memory_mib", "peak memory", "MiB", target=380.0),
)
KILLED = (
    Line("accepted_s", "the socket accepts, from the start of the process", "s"),
    Line("first_due_s", "first due entry, from the start of the process", "s"),
    Line("import_s", "imports alone", "s"),
    Line("loading_s", "… Python and its imports, as the daemon says", "s", headline=False),
    Line("claiming_s", "… the socket, as it says", "s", headline=False),
    Line("store_s", "… opening RocksDB, as it says", "s"),
    Line("indexes_s", "… reading the indexes, as it says", "s"),
    Line("accepting_s", "… the rest until brokers are served, as it says", "s", headline=False),
    Line("first_due_beyond_imports_s", "first due entry, beyond the imports", "s", target=0.5),
)
SMALL = (
    Line("few_per_s", f"adds, in frames of {FEW}", "M/s", "higher", None, 1e-6),
    Line("batch_per_s", f"adds, in frames of {BATCH:,}", "M/s", "higher", None, 1e-6),
    Line("few_cpu_ns", f"processor time, in frames of {FEW}", "ns an entry"),
    Line("batch_cpu_ns", f"processor time, in frames of {BATCH:,}", "ns an entry"),
    Line("times_batch", "… the one of the other", "times", target=5.0),
)
START = (
    Line("numpy_s", 'python -c "import numpy"', "s"),
    Line("help_s", "tidegate --help", "s"),
    Line("help_of_numpy", "tidegate --help, of NumPy's import", "times", target=2.5),
    Line("serve_s", "an empty tidegate serve listens", "s"),
    Line("serve_of_numpy", "an empty tidegate serve, of NumPy's import", "times", target=2.5),
)


class Run:
    """One round."""

    def __init__(self, plan: Plan, recorder: Recorder) -> None:
        self._plan = plan
        self._recorder = recorder

    def worker(self, name: str, count: int, subscriptions: int) -> dict[str, Any]:
        """The figures of a scenario, in a folder of its own."""
        began_s = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
            figures = measured(WORKER, name, str(Path(folder) / "run"), str(count), str(subscriptions))
        took_s = time.perf_counter() - began_s
        self._plan.say(f"{name}, {count:,} entries, {subscriptions:,} subscriptions: {took_s:,.0f} s")
        return figures

    def record(
        self, scenario: str, lines: tuple[Line, ...], figures: dict[str, Any], peer: str = OURS
    ) -> None:
        """Keep the available figures."""
        for line in lines:
            if line.figure in figures:
                metric = self._recorder.metric(
                    scenario,
                    line.title,
                    line.unit,
                    better=line.better,
                    target=line.target,
                    headline=line.headline,
                )
                metric.add(peer, round(figures[line.figure] * line.scale, 4))

    def fill(self, count: int, subscriptions: int) -> None:
        """At full speed, beside the index in one process; then kill and restart."""
        served = self.worker("served", count, subscriptions)
        peer = self.worker("in-process", count, subscriptions)
        served["in_process_times"] = peer["adds_per_s"] / served["adds_per_s"]
        among = "1 subscription" if subscriptions == 1 else f"{subscriptions:,} subscriptions"
        title = f"{count:,} entries over 7 days, {among}"
        self.record(title, FILL, served)
        self.record(title, PEER, peer, IN_PROCESS)
        self.record(f"{title}: kill -9 at full speed, started again", KILLED, served)

    def few(self, count: int, subscriptions: int) -> None:
        """Frames of few entries."""
        title = f"{count:,} entries in small frames, {subscriptions} subscriptions"
        self.record(title, SMALL, self.worker("few", count, subscriptions))

    def start(self) -> None:
        """The start-up times of commands."""
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
            self.record("start", START, starts(Path(folder)))


def run(plan: Plan, recorder: Recorder) -> None:
    """All scenarios, in each round."""
    small = QUICK if plan.quick else 1
    counts = {
        "entries": 100_000_000 // small,
        "subscriptions": 1_000 // small,
        "in small frames": 1_000_000 // small,
    }
    recorder.parameters |= counts
    for _ in plan.rounds():
        one = Run(plan, recorder)
        one.start()
        one.few(counts["in small frames"], 10)
        for entries in (counts["entries"] // 10, counts["entries"]):
            one.fill(entries, 1)
            one.fill(entries, counts["subscriptions"])


BENCH = Bench(
    name="daemon",
    measures="a real daemon through its socket: rate, time until DURABLE, small frames, starts",
    takes="9 min",
    takes_quick="1 min",
    peers=(OURS, IN_PROCESS),
    runs=1,
    runs_quick=1,
    run=run,
    uses_pulsar=False,
)
