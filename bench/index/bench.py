"""The index in one process, as the daemon uses it: durable adds, kill -9, reopening, pops.

Entries, due evenly over 7 days, come in batches of 10,000, each committed before the next. After kill -9
another process opens the data, pops the first due entry and then everything, and acknowledges each pop. A
pause is the answering thread's longest single call. No peer takes part.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.harness.driver import Bench, Plan, Recorder
from bench.harness.meters import disk_bytes
from bench.harness.trackers import OURS
from bench.harness.worker_process import measured, worker

WORKER = "bench.index.worker"
ENTRIES, ENTRIES_QUICK = 10_000_000, 500_000


def run(plan: Plan, recorder: Recorder) -> None:
    """Fill, kill -9, reopen, drain, in each round."""
    count = ENTRIES_QUICK if plan.quick else ENTRIES
    scenario = f"{count:,} entries over 7 days"
    recorder.parameters |= {"entries": count, "batch": 10_000}

    def add(title: str, unit: str, value: float, better: str = "lower", target: float | None = None) -> None:
        metric = recorder.metric(
            scenario, title, unit, better="higher" if better == "higher" else "lower", target=target
        )
        metric.add(OURS, round(value, 3))

    for number, _ in plan.rounds():
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as name:
            folder = Path(name)
            with worker(WORKER, "fill", str(folder / "data"), str(count)) as filled:
                size_bytes = disk_bytes(folder)
            drained = measured(WORKER, "drain", str(folder / "data"), str(count))
        add("adds, durable", "M/s", filled["adds_per_s"] / 1e6, "higher")
        add("pops", "M/s", drained["pops_per_s"] / 1e6, "higher")
        add("pops, acknowledged and durable", "M/s", drained["pop_ack_per_s"] / 1e6, "higher")
        add("kill -9, opened, first due entry popped", "s", drained["first_pop_s"])
        if filled["packed"]:
            add("packed blocks", "B an entry", filled["block_bytes"] / filled["packed"])
        add("all files, journal and log included", "B an entry", size_bytes / count)
        add("longest pause, adding", "ms", filled["pause_ms"], target=50.0)
        add("longest pause, popping", "ms", drained["pause_ms"], target=50.0)
        add("memory while adding, less the input", "MiB", filled["memory_mib"] - filled["input_mib"])
        add("memory while popping", "MiB", drained["memory_mib"])
        add("missing after kill -9", "entries", drained["missing"], target=0)
        add("out of order", "rounds", drained["out_of_order"], target=0)
        plan.say(
            f"round {number + 1}: {filled['adds_per_s'] / 1e6:.2f} M adds/s, "
            f"{drained['pops_per_s'] / 1e6:.2f} M pops/s, "
            f"{size_bytes / count:.2f} B an entry, first pop {drained['first_pop_s']:.2f} s"
        )


BENCH = Bench(
    name="index",
    measures="the index alone: durable adds/s, pops/s, bytes an entry, longest pause, reopening",
    takes="3 min",
    takes_quick="15 s",
    peers=(OURS,),
    runs=3,
    runs_quick=1,
    run=run,
    uses_pulsar=False,
)
