"""Nanoseconds per addMessage on the dispatcher's thread: each tracker's own class, in one JVM (bench/java).

The dispatcher holds its lock while it adds, so that this is time in which a subscription delivers nothing.
Ours runs with its real daemon: its own threads send what was added over the socket meanwhile.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.daemon import Daemon
from bench.driver import Bench, Plan, Recorder
from bench.errors import BenchError
from bench.machine import ROOT
from bench.peers.trackers import BUCKET, IN_MEMORY, OURS
from bench.stand import PULSAR_VERSION, pulsar_home, shim_jar

MESSAGES, MESSAGES_QUICK = 1_000_000, 500_000
WARM_UPS = 3
TARGET_NS = 60.0
SOURCES = ROOT / "bench" / "java"
JVM_OPTIONS = ("-Xms1g", "-Xmx2g", "-XX:MaxDirectMemorySize=1g", "-XX:+UseZGC")
"""Roomy, with the collector that Pulsar's own start script chooses."""
TIMEOUT_S = 900.0
WORKLOADS = {"uniform": "due evenly over 24 h", "fixed": "one fixed delay"}


def compile_harness(classes: Path, class_path: str) -> None:
    """Compile bench/java; raises BenchError with the compiler's words."""
    sources = [str(path) for path in sorted(SOURCES.glob("*.java"))]
    command = ["javac", "-nowarn", "-XDignore.symbol.file", "-d", str(classes), "-cp", class_path, *sources]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except OSError as error:
        raise BenchError("no javac found: install a JDK 17 or newer") from error
    if done.returncode:
        raise BenchError(f"bench/java does not compile:\n{done.stderr}")


def run_harness(classes: Path, class_path: str, arguments: Sequence[str]) -> list[list[str]]:
    """Run AddBench; returns the words of its ``round`` lines."""
    version = f"-Dbench.pulsarVersion={PULSAR_VERSION}"
    command = [
        "java",
        *JVM_OPTIONS,
        version,
        "-cp",
        f"{classes}{os.pathsep}{class_path}",
        "AddBench",
        *arguments,
    ]
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
    class_path = str(pulsar_home() / "lib" / "*")
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        daemon = Daemon(Path(folder) / "daemon")
        classes = Path(folder) / "classes"
        compile_harness(classes, class_path)
        if OURS in plan.peers:
            class_path = f"{shim_jar()}{os.pathsep}{class_path}"
            daemon.start()
        try:
            counts = [str(messages), str(WARM_UPS), str(plan.runs)]
            lines = run_harness(classes, class_path, [str(daemon.socket_path), *counts, ",".join(plan.peers)])
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
