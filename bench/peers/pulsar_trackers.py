"""Pulsar's InMemory and Bucket trackers as peers: their own classes in a JVM (bench/java/TrackerPeer.java).

Pulsar's defaults, with two exceptions: the in-memory tracker's look-ahead for fixed delays is off, since with
it the dispatcher stops reading at 50,000 messages of one delay; Bucket's snapshots go to synced files
(bench/java/SnapshotFiles.java) instead of BookKeeper, in its favour. A bucket is sealed when a ledger ends
(50,000 entries) and it has 50,000, so later entries are not on disk at the kill: the broker would read them
from the topic again (bench ``failover``).

The collector is G1: with ZGC, Pulsar's choice, the kernel counts the heap's pages several times. Speeds and
pauses are alike.
"""

from __future__ import annotations

from pathlib import Path

from bench.harness.errors import BenchError
from bench.harness.machine import java_version
from bench.harness.parts import PULSAR_VERSION
from bench.harness.trackers import BUCKET, IN_MEMORY
from bench.peers.base import PeerInfo
from bench.peers.launch import Launcher
from bench.pulsar import jvm

TICK_MS = 1_000
MEMORY = ("-Xms64m", "-Xmx4g", "-XX:MaxDirectMemorySize=4g", "-XX:+UseG1GC")
"""Room for 10 M entries; what is free is not counted, because it is never touched."""


class TrackerLauncher(Launcher):
    """Starts the JVM with one tracker, by the peer's name."""

    def missing(self) -> str | None:
        """If Pulsar's distribution or a JDK is missing."""
        try:
            jvm.compiled()
        except BenchError as error:
            return str(error)
        return None

    def versions(self) -> dict[str, str]:
        """Pulsar's version, and Java's."""
        return {"pulsar": PULSAR_VERSION, "java": java_version()}

    def command(self, phase: str, folder: Path, workload: str, count: int) -> list[str]:
        """The JVM."""
        return jvm.command(
            "TrackerPeer", [self.info.name, phase, str(folder), workload, str(count)], options=MEMORY
        )


class InMemoryLauncher(TrackerLauncher):
    """Pulsar's default tracker."""

    def __init__(self) -> None:
        super().__init__(
            PeerInfo(
                name=IN_MEMORY,
                scheme="a binary heap of (deliver_at, ledger, entry) outside the Java heap",
                durability="none, the broker reads the topic again",
                survives_kill=False,
                tick_ms=TICK_MS,
                slack_ms=TICK_MS,
                may_look_faster=True,
            )
        )


class BucketLauncher(TrackerLauncher):
    """Pulsar's Bucket tracker."""

    def __init__(self) -> None:
        super().__init__(
            PeerInfo(
                name=BUCKET,
                scheme=(
                    "buckets of 50,000 entries or more, sealed when a ledger ends, are stored as segments of "
                    "at most 5,000 entries or 300 s; a segment of each and what is not sealed yet are in a "
                    "binary heap"
                ),
                durability="a sealed bucket is a synced file, the entries since the last seal are nowhere",
                tick_ms=TICK_MS,
                slack_ms=TICK_MS,
                may_look_faster=True,
            )
        )
