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


def test_the_harness_lines_become_one_sample_a_round() -> None:
    recorder = Recorder()
    line = "round tidegate uniform 0 41.50 39.00 40.10 55.00 2.250 0.2"
    add.record(recorder, [line.split(), line.replace("41.50", "43.00").split()])
    mean = recorder.metrics[0]
    assert (mean.scenario, mean.unit, mean.target) == ("due evenly over 24 h", "ns", 40.0)
    assert mean.samples == {"tidegate": [41.5, 43.0]}
