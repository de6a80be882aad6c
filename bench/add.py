"""Nanoseconds per addMessage on the dispatcher's thread: each tracker's own class, in one JVM (bench/java).

The dispatcher holds its lock meanwhile, and delivers nothing. Ours sends the entries over the socket to its
real daemon; and once more with an index log in a folder.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import httpx

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
LOGGED = "tidegate, index log"
NAMES = {LOGGED: "tidegate-log"}
"""Of those that bench/java/AddBench.java calls otherwise."""
WORKLOADS = {"uniform": "due evenly over 24 h", "fixed": "one fixed delay"}


def run_harness(jars: Sequence[Path], arguments: Sequence[str]) -> list[list[str]]:
    """Run AddBench; returns the words of its ``round`` lines."""
    command = jvm.command("AddBench", arguments, options=JVM_OPTIONS, jars=jars)
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=TIMEOUT_S)
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("round ")]
    if done.returncode or not lines:
        raise BenchError(f"AddBench failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return lines


def names(peers: Sequence[str]) -> str:
    """In the form that AddBench expects."""
    return ",".join(NAMES.get(peer, peer) for peer in peers)


def logged_bytes(daemon: Daemon) -> float:
    """The bytes that the daemon has appended to index logs since its start."""
    text = httpx.get(f"{daemon.url}/metrics", timeout=5.0, trust_env=False).text
    found = re.search(r"^tidegate_index_log_bytes_total (\S+)$", text, re.MULTILINE)
    return 0.0 if found is None else float(found[1])


def record(recorder: Recorder, lines: Sequence[Sequence[str]]) -> None:
    """Turn the harness's lines into metrics."""
    peers = {name: peer for peer, name in NAMES.items()}
    for _, name, workload, _, mean, cpu, p50, p99, longest, paused_ms in lines:
        scenario, peer = WORKLOADS[workload], peers.get(name, name)
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
        jars = [shim_jar()] if {OURS, LOGGED} & set(plan.peers) else []
        if jars:
            daemon.start()
        try:
            counts = [str(messages), str(WARM_UPS), str(plan.runs)]
            arguments = [str(daemon.socket_path), *counts, names(plan.peers), folder]
            lines = run_harness(jars, arguments)
            if LOGGED in plan.peers and not logged_bytes(daemon):
                raise BenchError("the daemon has written no index log")
        finally:
            daemon.kill()
    record(recorder, lines)
    plan.say(f"{len(lines)} rounds of {messages:,} adds")


BENCH = Bench(
    name="add",
    measures="nanoseconds per addMessage on the dispatcher's thread, the trackers' own classes in one JVM",
    takes="1 min",
    takes_quick="30 s",
    peers=(OURS, LOGGED, IN_MEMORY, BUCKET),
    runs=7,
    runs_quick=5,
    run=run,
)
