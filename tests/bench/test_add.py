"""The bench of adds: its stub of a broker is enough for the shim, and every tracker has its lines."""

from __future__ import annotations

import itertools
from pathlib import Path

from bench import add
from bench.harness.driver import Recorder
from bench.harness.parts import shim_jar
from bench.harness.trackers import BUCKET, IN_MEMORY, OURS
from tidegate.plugin.local.daemon import Daemon


def test_every_tracker_adds_in_the_stub_of_a_broker(tmp_path: Path) -> None:
    peers = (OURS, add.LOGGED, IN_MEMORY, BUCKET)
    daemon = Daemon(tmp_path / "daemon")
    daemon.start()
    try:
        arguments = [str(daemon.socket_path), "2000", "0", "1", add.names(peers), str(tmp_path)]
        lines = add.run_harness([shim_jar()], arguments)
        logged_bytes = add.logged_bytes(daemon)
    finally:
        daemon.kill()
    assert logged_bytes > 0, "the index log that one of them has is written"
    called = [add.NAMES.get(peer, peer) for peer in peers]
    assert sorted((line[1], line[2]) for line in lines) == sorted(itertools.product(called, add.WORKLOADS))
    recorder = Recorder()
    add.record(recorder, lines)
    means = [metric for metric in recorder.metrics if metric.title == "add, mean"]
    assert len(means) == len(add.WORKLOADS)
    assert all(metric.samples[peer][0] > 0 for metric in means for peer in peers)
