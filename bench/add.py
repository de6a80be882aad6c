"""Nanoseconds per addMessage on the dispatcher's thread: each tracker's own class, in one JVM (bench/java).

The dispatcher holds its lock while it adds, so that this is time in which a subscription delivers nothing.
Ours runs with its real daemon: its own threads send what was added over the socket meanwhile.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.harness.driver import Bench, Plan, Recorder
from bench.harness.errors import BenchError
from bench.harness.parts import shim_jar
from bench.harness.trackers import BUCKET, IN_MEMORY, OURS
from bench.pulsar import jvm
from tidegate.plugin.local.daemon import Daemon

MESSAGES, MESSAGES_QUICK = 1_000_000, 500_000
WARM_UPS = 3
TARGET_NS = 40.0
JVM_OPTIONS = ("-Xms1g", "-Xmx2g", "-XX:MaxDirectMemorySize=1g", "-XX:+UseZGC")
"""Roomy, with the collector that Pulsar's own start script chooses."""
TIMEOUT_S = 900.0
WORKLOADS = {"uniform": "due evenly over 24 h", "fixed": "one fixed delay"}


def run_harness(jars: Sequence[Path], arguments: Sequence[str]) -> list[list[str]]:
    """Run AddBench; returns the words of its ``round`` lines."""
    command = jvm.command("AddBench", arguments, options=JVM_OPTIONS, jars=jars)
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=TIMEOUT_S)
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("round ")]
    if done.returncode or not lines:
        raise BenchError(f"AddBench failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return lines


def record(recorder: Recorder, lines: Sequence[Sequence[str]]) -> None:
    """Turn the harness's lines into metrics."""
    for _, peer, workload, _, mean, cpu, p50, p99, longest, paused_ms in lines:
        scenario = WORKLOADS[workload]
        for title, unit, text, target, headline in (
            ("add, mean", "ns", mean, TARGET_NS, True),
            ("add, CPU time of the thread", "ns", cpu, None, True),
            ("add, median batch of 100", "ns", p50, None, True),
            ("add, p99 batch of 100", "ns", p99, None, True),
            ("longest batch of 100", "ms", longest, None, False),
            ("paused by the tracker", "ms", paused_ms, None, False),
        ):
            metric = recorder.metric(scenario, title, unit, target=target, headline=headline)
            metric.add(peer, float(text))


def run(plan: Plan, recorder: Recorder) -> None:
    """Compile, start the daemon, run every round in one JVM."""
    messages = MESSAGES_QUICK if plan.quick else MESSAGES
    recorder.parameters |= {"messages": messages, "warm_up_rounds": WARM_UPS, "entries_per_ledger": 50_000}
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        daemon = Daemon(Path(folder) / "daemon")
        jars = [shim_jar()] if OURS in plan.peers else []
        if OURS in plan.peers:
            daemon.start()
        try:
            counts = [str(messages), str(WARM_UPS), str(plan.runs)]
            lines = run_harness(jars, [str(daemon.socket_path), *counts, ",".join(plan.peers)])
        finally:
            daemon.kill()
    record(recorder, lines)
    plan.say(f"{len(lines)} rounds of {messages:,} adds")


BENCH = Bench(
    name="add",
    measures="nanoseconds per addMessage on the dispatcher's thread, the trackers' own classes in one JVM",
    takes="1 min",
    takes_quick="30 s",
    peers=(OURS, IN_MEMORY, BUCKET),
    runs=7,
    runs_quick=5,
    run=run,
)
