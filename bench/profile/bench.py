"""The distribution of the nanoseconds: the hottest paths of the index by function, C functions too.

Each path runs bare and under cProfile, in its own process; the tables have the profiler's overhead.
``profile-before.json`` becomes a column beside ``profile.json`` in the report. No peer takes part.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from bench.harness.driver import Bench, Plan, Recorder
from bench.harness.results import EVERYTHING_ELSE
from bench.harness.trackers import OURS
from bench.harness.worker_process import measured
from bench.plots.profile import FUNCTION_UNIT

WORKER = "bench.profile.worker"
PATHS = {
    "add": ("add and commit", 4_000_000),
    "spill": ("spill", 10_000_000),
    "pop": ("pop and acknowledge", 4_000_000),
    "trickle": ("add five at a time for each of 1,000 subscriptions, and commit", 400_000),
}
QUICK = 8
KEPT, SHOWN = 0.003, 0.03  # of a path's time: functions below are summed, or left out of the docs
HARDWARE = ("cycles", "instructions", "cache-misses")


def run(plan: Plan, recorder: Recorder) -> None:
    """Every path, bare and profiled, in each round."""
    counts = {name: count // (QUICK if plan.quick else 1) for name, (_, count) in PATHS.items()}
    recorder.parameters |= counts
    for _ in plan.rounds():
        for name, (title, _) in PATHS.items():
            bare, profiled = (worker(name, counts[name], how) for how in ("bare", "profiled"))
            record(recorder, title, bare, profiled)
            plan.say(f"{title}: {bare['wall_ns']:,.0f} ns an entry")
    if not hardware_counters():
        recorder.note("the processor's own counters (cycles, cache misses) cannot be read on this machine")


def worker(name: str, count: int, how: str) -> dict[str, Any]:
    """The figures of one run of a path."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        return measured(WORKER, name, str(Path(folder) / "data"), str(count), how)


def record(recorder: Recorder, path: str, bare: dict[str, Any], profiled: dict[str, Any]) -> None:
    """Keep one round of a path: the whole bare, the functions of the profiled run."""
    overhead = profiled["wall_ns"] / bare["wall_ns"] - 1
    for title, unit, value in (
        ("the whole path", "ns an entry", bare["wall_ns"]),
        ("processor time", "ns an entry", bare["cpu_ns"]),
        ("profiler's overhead", "%", 100 * overhead),
        ("context switches", "a million entries", bare["switches"]),
        ("page faults", "a thousand entries", bare["faults"]),
    ):
        recorder.metric(path, title, unit, headline=unit != "%").add(OURS, round(value, 3))
    for name, self_ns in kept(profiled["functions_ns"], profiled["wall_ns"]).items():
        shown = name == EVERYTHING_ELSE or self_ns >= SHOWN * profiled["wall_ns"]
        metric = recorder.metric(path, name, FUNCTION_UNIT, headline=shown)
        metric.headline = metric.headline or shown
        metric.add(OURS, round(self_ns, 3))


def kept(functions_ns: dict[str, float], wall_ns: float) -> dict[str, float]:
    """The functions worth a line, the longest first, and the sum of all others."""
    ranked = sorted(functions_ns.items(), key=lambda pair: -pair[1])
    large = {name: self_ns for name, self_ns in ranked if self_ns >= KEPT * wall_ns}
    return large | {EVERYTHING_ELSE: sum(functions_ns.values()) - sum(large.values())}


def hardware_counters() -> bool:
    """True if ``perf`` can count cycles here (in a virtual machine it often cannot)."""
    perf = shutil.which("perf")
    if perf is None:
        return False
    done = subprocess.run(
        [perf, "stat", "-x", ";", "-e", ",".join(HARDWARE), "true"],
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    return done.returncode == 0 and "<not" not in done.stderr


BENCH = Bench(
    name="profile",
    measures="where the nanoseconds go: add and commit, spill, pop and acknowledge, by function",
    takes="2 min",
    takes_quick="20 s",
    peers=(OURS,),
    runs=3,
    runs_quick=1,
    run=run,
    uses_pulsar=False,
)
