"""The journal in RocksDB beside a file of our own, by turns: docs/decisions/journal-family.md."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping

from bench.harness.driver import Bench, Plan, Recorder
from bench.harness.machine import ROOT
from bench.harness.stats import Better
from bench.harness.worker_process import measured
from bench.journal.worker import SPILL_ENTRIES

ROCKS, FILE = "rocksdb", "file"
COUNT, COUNT_QUICK = 20_000_000, 2_000_000
# Entries a batch, batches a second (0: as many as become durable), and the share of the entries.
SCENARIOS = (
    ("frames of 5,000, as many as become durable", 5_000, 0, 1.0),
    ("frames of 100, as many as become durable", 100, 0, 0.1),
    ("frames of 100, 500 a second", 100, 500, 0.05),
)
FIGURES: tuple[tuple[str, str, str, Better], ...] = (
    ("adds_per_s", "durable", "adds/s", "higher"),
    ("p50_ms", "from a frame to its being durable, p50", "ms", "lower"),
    ("p99_9_ms", "the same, p99.9", "ms", "lower"),
    ("max_ms", "the same, longest", "ms", "lower"),
    ("cpu_ns", "processor time", "ns an entry", "lower"),
    ("commits", "commits", "", "lower"),
    ("memory_mib", "memory, most", "MiB", "lower"),
)


INDEX_FIGURES: tuple[tuple[str, str, str, Better], ...] = (
    ("adds_per_s", "durable", "adds/s", "higher"),
    ("cpu_ns", "processor time", "ns an entry", "lower"),
    ("commits", "commits", "", "lower"),
)
_LESSER = ("commits", "memory, most", "the same, longest")
INDEX_SHARE = 0.2
INDEXES = (1, 1_000)


def run(plan: Plan, recorder: Recorder) -> None:
    """Each scenario with each journal, in each round."""
    count = COUNT_QUICK if plan.quick else COUNT
    recorder.parameters |= {"entries": count, "spill_entries": SPILL_ENTRIES}
    for number, journals in plan.rounds():
        for indexes in INDEXES:
            scenario = f"the whole index, {indexes:,} subscription{'s' if indexes > 1 else ''}"
            for journal in journals:
                figures = _measured(
                    "bench.journal.index_worker", journal, str(int(count * INDEX_SHARE)), str(indexes)
                )
                _keep(recorder, scenario, journal, figures, INDEX_FIGURES)
                plan.say(f"round {number + 1}, {scenario}, {journal}: {figures['adds_per_s']:,.0f} a second")
        for scenario, batch, rate, share in SCENARIOS:
            entries = int(count * share) // batch * batch
            for journal in journals:
                figures = _measured("bench.journal.worker", journal, str(entries), str(batch), str(rate))
                _keep(recorder, scenario, journal, figures, FIGURES)
                plan.say(
                    f"round {number + 1}, {scenario}, {journal}: {figures['adds_per_s']:,.0f} a second, "
                    f"p99.9 {figures['p99_9_ms']:.1f} ms"
                )


def _measured(module: str, journal: str, *arguments: str) -> Mapping[str, float]:
    # On the checkout's disk: /tmp may be a file system in memory.
    place = ROOT / "build"
    place.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-", dir=place) as folder:
        return measured(module, journal, f"{folder}/data", *arguments)


def _keep(
    recorder: Recorder,
    scenario: str,
    journal: str,
    figures: Mapping[str, float],
    wanted: tuple[tuple[str, str, str, Better], ...],
) -> None:
    for figure, title, unit, better in wanted:
        metric = recorder.metric(scenario, title, unit, better=better, headline=title not in _LESSER)
        metric.add(journal, round(figures[figure], 3))


BENCH = Bench(
    name="journal",
    measures="the journal in RocksDB beside an append-only file of our own",
    takes="5 min",
    takes_quick="30 s",
    peers=(ROCKS, FILE),
    runs=5,
    runs_quick=1,
    run=run,
    uses_pulsar=False,
    ours=ROCKS,
)
