"""The pure parts of the cost bench: its schedules, and what it makes of a profile."""

from __future__ import annotations

from collections import Counter

import numpy as np

from bench.cost.bench import UNIT, Profile, flames, in_order, record, schedule, spread
from bench.cost.clocks import ThreadTime
from bench.cost.samples import Stack
from bench.harness.driver import Recorder

DAEMON = Counter({Stack(5, "MainThread", ("tidegate.plugin.wire.codec.decode",)): 1})


def profile() -> Profile:
    return Profile(
        {1: ThreadTime("C2 CompilerThread0", 300.0, 100.0)},
        Counter(),
        {5: ThreadTime("python", 200.0, 0.0)},
        DAEMON,
    )


def test_due_times_fill_the_span_in_no_order() -> None:
    times = spread(1_000, 5_000, 2_000, seed=3)
    assert np.sort(times).tolist() == list(range(5_000, 7_000, 2))
    assert (np.diff(times) < 0).any()
    assert schedule(times[:2], 7).tolist() == [[7, 0, times[0]], [8, 0, times[1]]]


def test_a_profile_becomes_microseconds_a_message_by_process_and_task() -> None:
    recorder = Recorder()
    assert record(recorder, "burst", "tidegate", 10, profile()) == "broker 40.0, daemon 20.0"
    record(
        recorder,
        "burst",
        "in-memory",
        10,
        Profile({1: ThreadTime("x", 900.0, 0.0)}, Counter(), {}, Counter()),
    )
    in_order(recorder)
    found = {metric.title: metric.samples for metric in recorder.metrics}
    assert found == {
        "broker and daemon": {"tidegate": [60.0], "in-memory": [90.0]},
        "broker: everything else": {"in-memory": [90.0]},
        "broker: compiler": {"tidegate": [30.0]},
        "broker: system calls": {"tidegate": [10.0], "in-memory": [0.0]},
        "daemon: frames": {"tidegate": [20.0]},
        "daemon: system calls": {"tidegate": [0.0]},
    }
    assert [metric.title for metric in recorder.metrics] == list(found), "the largest first, the daemon last"
    assert {metric.unit for metric in recorder.metrics} == {UNIT}


def test_a_flame_graph_has_both_processes() -> None:
    made = flames("burst", "tidegate", 10, profile())
    assert [(root.name, root.value) for root in made.roots] == [("broker", 40.0), ("daemon", 20.0)]
