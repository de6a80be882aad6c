"""The index in one process, as the daemon uses it: durable adds, kill -9, reopening, pops.

Entries are due evenly over 7 days and come in batches of 10,000, each committed before the next. The
process is killed -9, another opens the same data, pops the first due entry and then everything,
acknowledging what it popped. A pause is the longest single call of the answering thread. No peer takes
part.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.driver import Bench, Plan, Recorder
from bench.errors import BenchError
from bench.machine import ROOT
from bench.peers.trackers import OURS

ENTRIES, ENTRIES_QUICK = 10_000_000, 500_000


def start(phase: str, folder: Path, count: int) -> tuple[subprocess.Popen[str], dict[str, float]]:
    """Start a worker and wait for its figures."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.index_worker", phase, str(folder / "data"), str(count)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise BenchError(f"the {phase} worker failed with code {process.wait()}; see its message above")
    figures: dict[str, float] = json.loads(line)
    return process, figures


def end(process: subprocess.Popen[str]) -> None:
    """Kill -9 and wait."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def disk_bytes(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


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
            process, filled = start("fill", folder, count)
            size_bytes = disk_bytes(folder)
            end(process)
            process, drained = start("drain", folder, count)
            end(process)
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
