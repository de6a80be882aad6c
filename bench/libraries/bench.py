"""Libraries that leave the interpreter for the hot loop: merge eight sorted runs, drop positions not held.

Each runs in its own process, in another order each round, with the same input and (checked) result. Ratios
compare with NumPy, the index's way. A way without its library (an optional dependency ``bench``) does not
run, and a note says so.
"""

from __future__ import annotations

from bench.harness.driver import Bench, Plan, Recorder
from bench.harness.errors import BenchError
from bench.harness.worker_process import measured
from bench.libraries.merge_ways import WAYS, installed

WORKER = "bench.libraries.worker"
OURS = "numpy"
SCENARIOS = {
    "large": "8 runs, 524,288 entries (a slice's merge)",
    "small": "8 runs, 8,192 entries (a pop)",
}
TITLES = {"merged": "merged", "filtered": "merged and filtered by a held set"}


def run(plan: Plan, recorder: Recorder) -> None:
    """Every way that is installed, in each round."""
    there = installed()
    for name in plan.peers:
        if name not in there:
            recorder.note(f"{name} left out: not installed, run: pip install -e '.[bench]'")
    if not set(there) & set(plan.peers):
        raise BenchError("none of the libraries is installed, run: pip install -e '.[bench]'")
    for number, names in plan.rounds():
        for name in names:
            if name in there:
                figures = measured(WORKER, name)
                record(recorder, name, figures)
                plan.say(f"round {number + 1}, {name}: {figures['large_filtered_ns']:.1f} ns an entry")


def record(recorder: Recorder, name: str, figures: dict[str, float]) -> None:
    """Keep one way's figures of a round."""
    for size, scenario in SCENARIOS.items():
        for what, title in TITLES.items():
            recorder.metric(scenario, title, "ns an entry").add(name, round(figures[f"{size}_{what}_ns"], 3))
            recorder.metric(scenario, f"{title}, processor time of all threads", "ns an entry").add(
                name, round(figures[f"{size}_{what}_cpu_ns"], 3)
            )
    costs = "what having the library costs"
    recorder.metric(costs, "another thread waits for the interpreter meanwhile, p99", "ms").add(
        name, round(figures["wait_ms"], 4)
    )
    recorder.metric(costs, "import and first call", "s").add(name, round(figures["warm_up_s"], 4))
    recorder.metric(costs, "memory", "MiB").add(name, round(figures["memory_mib"], 2))


BENCH = Bench(
    name="libraries",
    measures="libraries that leave the interpreter: eight sorted runs merged and filtered by a held set",
    takes="1 min",
    takes_quick="20 s",
    peers=tuple(WAYS),
    runs=3,
    runs_quick=1,
    run=run,
    uses_pulsar=False,
    ours=OURS,
)
