"""The account of processor time: the clocks of threads, the samples' tasks, the tree of a flame graph."""

from __future__ import annotations

from collections import Counter

import pytest

from bench.cost import account, clocks, samples
from bench.cost.account import BROKER, DAEMON, KERNEL, REST, Rules
from bench.cost.clocks import US_PER_TICK, ThreadTime
from bench.cost.samples import Stack

CURSOR = "org.apache.bookkeeper.mledger.impl.ManagedCursorImpl"
DISPATCHER = "org.apache.pulsar.broker.service.persistent.PersistentDispatcherMultipleConsumers"
METADATA = "org.apache.pulsar.common.api.proto.MessageMetadata"


def test_a_stat_file_of_a_thread_whose_name_has_brackets() -> None:
    fields = ["S", *map(str, range(4, 14)), "700", "30", "0"]
    assert clocks.parse_stat(f"12 (a) b (c) {' '.join(fields)}") == ThreadTime(
        "a) b (c", 700 * US_PER_TICK, 30 * US_PER_TICK
    )


def test_time_spent_is_the_difference_and_a_new_thread_counts_whole() -> None:
    before = {
        1: ThreadTime("old", 100.0, 10.0),
        2: ThreadTime("idle", 5.0, 5.0),
        3: ThreadTime("gone", 9.0, 9.0),
    }
    after = {
        1: ThreadTime("old", 150.0, 10.0),
        2: ThreadTime("idle", 5.0, 5.0),
        4: ThreadTime("new", 0.0, 20.0),
    }
    assert clocks.spent(before, after) == {1: ThreadTime("old", 50.0, 0.0), 4: ThreadTime("new", 0.0, 20.0)}


def java_event(tid: int, name: str, *methods: tuple[str, str]) -> dict[str, object]:
    """As ``jfr print --json`` has it: the innermost frame first."""
    frames = [{"method": {"type": {"name": owner}, "name": method}} for owner, method in reversed(methods)]
    return {
        "values": {
            "sampledThread": {"osThreadId": tid, "javaName": name},
            "stackTrace": {"frames": frames},
        }
    }


def test_samples_of_the_flight_recorder_have_the_outermost_frame_first_and_are_counted() -> None:
    event = java_event(7, "main", ("java.lang.Thread", "run"), ("a/b/C", "work"))
    lost = {"values": {"sampledThread": None, "stackTrace": None}}
    printed = {"recording": {"events": [event, event, lost]}}
    assert samples.java_stacks(printed) == Counter(
        {Stack(7, "main", ("java.lang.Thread.run", "a.b.C.work")): 2}
    )


@pytest.mark.parametrize("tid", ["31", "0x1F"])
def test_samples_of_py_spy_without_those_of_waiting_threads(tid: str) -> None:
    raw = (
        f'thread ({tid}): "MainThread";run (/usr/lib/python3.11/asyncio/runners.py);'
        "add (/home/a/tidegate/index/timeline/staging.py);sort (/v/site-packages/numpy/core.py) 12\n"
        'thread (32): "asyncio_0";_worker (/usr/lib/python3.11/concurrent/futures/thread.py) 40\n'
    )
    frames = ("runners.run", "tidegate.index.timeline.staging.add", "numpy.core.sort")
    assert samples.python_stacks(raw) == Counter({Stack(31, "MainThread", frames): 12})


@pytest.mark.parametrize(
    ("thread", "frames", "task"),
    [
        (
            "pulsar-io-4-1",
            (f"{DISPATCHER}.readEntriesComplete", "tidegate.pulsar.Tracker.addMessage"),
            "gating",
        ),
        (
            "pulsar-io-4-1",
            (f"{DISPATCHER}.readEntriesComplete", f"{METADATA}.parseFrom", "java.util.A.b"),
            "parsing",
        ),
        ("topic-worker", (f"{CURSOR}.asyncReadEntries", "io.netty.util.Recycler.get"), "reading"),
        ("topic-worker", (f"{CURSOR}.asyncDelete", "java.util.TreeMap.put"), "acknowledging"),
        ("tidegate-ack-watch", (f"{CURSOR}.isMessageDeleted",), "watching acknowledgements"),
        ("ZWorker#0", (), "garbage collection"),
        ("C2 CompilerThre", (), "compiler"),
        ("a thread", ("java.lang.Thread.run",), REST),
    ],
)
def test_the_task_of_a_sample(thread: str, frames: tuple[str, ...], task: str) -> None:
    assert account.task_of(thread, frames, BROKER) == task


def test_a_threads_time_is_divided_among_its_samples_and_the_kernels_stands_alone() -> None:
    times = {1: ThreadTime("MainThread", 900.0, 50.0), 2: ThreadTime("rocksdb:low", 40.0, 10.0)}
    stacks = Counter(
        {
            Stack(1, "MainThread", ("tidegate.plugin.wire.codec.decode",)): 2,
            Stack(1, "MainThread", ("tidegate.index.timeline.staging.add",)): 1,
        }
    )
    assert account.by_task(times, stacks, DAEMON) == {
        "frames": 600.0, "index": 300.0, KERNEL: 60.0, REST: 40.0
    }  # fmt: skip


def test_no_time_is_lost_however_few_samples_there_are() -> None:
    times = {1: ThreadTime("one", 10.0, 1.0), 2: ThreadTime("two", 20.0, 2.0)}
    stacks = Counter({Stack(2, "two", ("a.B.c",)): 1, Stack(99, "ended", ("a.B.c",)): 5})
    assert sum(account.by_task(times, stacks, Rules((), ())).values()) == pytest.approx(33.0)
    root = account.flame("it", times, stacks, divisor=1, least=0.0)
    assert root.value == pytest.approx(33.0)
    assert sum(child.value for child in root.children) == pytest.approx(33.0)


def test_a_flame_graph_has_a_box_for_each_package_entered_and_none_too_small() -> None:
    times = {1: ThreadTime("pulsar-io-4-1", 60.0, 0.0), 2: ThreadTime("pulsar-io-4-2", 40.0, 0.0)}
    deep = ("a.Loop.run", "a.Loop.step", "b.c.Reader.read", "b.c.Cache.find", "a.Loop.done")
    stacks = Counter({Stack(1, "pulsar-io-4-1", deep): 1, Stack(2, "pulsar-io-4-2", ("a.Loop.run",)): 39})
    stacks[Stack(2, "pulsar-io-4-2", ("z.Rare.call",))] = 1
    root = account.flame("broker", times, stacks, divisor=10, least=0.05)
    assert root.value == 10.0
    (pool,) = root.children
    assert (pool.name, pool.value) == ("pulsar-io", 10.0)
    (loop,) = pool.children
    assert (loop.name, loop.value) == ("Loop.run", 9.9)
    (reader,) = loop.children
    assert (reader.name, reader.value, reader.children[0].name) == ("Reader.read", 6.0, "Loop.done")
