"""Rebuild and verify with faults, and over many topics at once; on a real broker and daemon."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pulsar
import pytest
from pyspark.sql import SparkSession

from tests.pipeline.rebuild.test_rebuild import HOUR_MS, Unstarted, held, job, kinds, session
from tests.support.cluster import RETAINED, Cluster
from tests.support.lane import SHARED, Lane
from tests.support.pipeline.commands import Notes
from tests.support.waiting import wait_until
from tidegate.index import Entries, SubscriptionName
from tidegate.index.format import encode_block
from tidegate.pipeline.errors import PipelineError, TopicError, UnreachableError
from tidegate.pipeline.job.request import StageEvent
from tidegate.pipeline.rebuild import job as rebuild
from tidegate.pipeline.rebuild import stages, verify
from tidegate.pipeline.rebuild.files import Files
from tidegate.pipeline.rebuild.plan import Task
from tidegate.pipeline.rebuild.stages import PART, Part
from tidegate.pipeline.topic.cluster import Cluster as PulsarCluster
from tidegate.pipeline.topic.cluster import ReadFrom
from tidegate.pipeline.topic.names import TopicName
from tidegate.pipeline.topic.plan import backlog, survey
from tidegate.pipeline.topic.ranges import Bounds, Segment
from tidegate.pipeline.topic.reader import EntryReader

ReadTask = Callable[[PulsarCluster, Files, Task], Part]


def filled(lane: Lane, count: int) -> None:
    lane.reserve()
    lane.send_in(*[HOUR_MS + number for number in range(count)])


@pytest.mark.parametrize(("spark_is_here", "entries_here"), [(True, 200), (False, 10_000)])
def test_a_large_backlog_or_a_cluster_has_spark_started(
    cluster: Cluster,
    lane: Lane,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spark_is_here: bool,
    entries_here: int,
) -> None:
    filled(lane, 300)
    monkeypatch.setattr(rebuild, "ENTRIES_HERE", entries_here)
    context = Unstarted()
    context.spark_is_here = spark_is_here
    _, code = job(rebuild, context, cluster, lane, tmp_path / "work")
    assert (code, context.started) == (0, True)


def test_a_small_backlog_does_not_wait_for_spark(cluster: Cluster, lane: Lane, tmp_path: Path) -> None:
    filled(lane, 300)
    context = Unstarted()
    result, code = job(rebuild, context, cluster, lane, tmp_path / "work", entries_per_task=100)
    assert (code, result["entries"], result["matched"]) == (0, 300, True)
    assert not context.started, "it would take longer than the work"
    assert [(one.name, one.done, one.tasks, one.entries) for one in context.stages] == [
        ("reading the backlog", 3, 3, 300),
        ("packing slices", 1, 1, 300),
    ]


def killing(read_task: ReadTask, killed: Path, driver: int) -> ReadTask:
    """Reads as usual, but two tasks' Python workers are killed after their reading.

    Made here, to travel to workers that lack this module.
    """

    def task(cluster: PulsarCluster, files: Files, one: Task) -> Part:
        found = read_task(cluster, files, one)
        for name in ("first", "second"):
            with contextlib.suppress(FileExistsError):
                (killed / name).touch(exist_ok=False)
                assert os.getpid() != driver, "it was not left to Spark"
                os.kill(os.getpid(), signal.SIGKILL)
        return found

    return task


@pytest.mark.parametrize("module", [rebuild, verify])
def test_workers_are_killed_in_the_middle(
    cluster: Cluster,
    lane: Lane,
    spark: SparkSession,
    tmp_path: Path,
    module: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    filled(lane, 600)
    if module is verify:
        job(rebuild, Unstarted(), cluster, lane, tmp_path / "first")
    (tmp_path / "killed").mkdir()
    monkeypatch.setattr(stages, "read_task", killing(stages.read_task, tmp_path / "killed", os.getpid()))
    result, code = job(module, spark, cluster, lane, tmp_path / "work", entries_per_task=20)
    assert len(list((tmp_path / "killed").iterdir())) == 2
    assert code == 0
    assert result["entries" if module is rebuild else "checked"] == 600


@contextlib.contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """The system refuses to let a file of this process grow further, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_nothing_half_written(cluster: Cluster, lane: Lane, tmp_path: Path) -> None:
    lane.reserve()
    # In no order, so that they do not pack into next to nothing.
    lane.send_in(*(HOUR_MS + np.random.default_rng(1).integers(0, 10**9, 4_000)).tolist())
    lane.disconnect()
    work = tmp_path / "work"
    with (
        files_of_at_most(4_096),
        pytest.raises(PipelineError, match=r"cannot write read/.*start again when there is room"),
    ):
        job(rebuild, Unstarted(), cluster, lane, work)
    assert not [path for path in work.rglob("*") if path.is_file() and path.suffix in (".part", PART)]
    assert len(held(cluster, lane)) == 0
    result, code = job(rebuild, Unstarted(), cluster, lane, work)
    assert (code, result["entries"], list(work.iterdir())) == (0, 4_000, [])


def holding_acknowledged(cluster: Cluster, lane: Lane) -> pulsar.MessageId:
    """13 messages, and an index of 7 more that are acknowledged; returns the first of those 7."""
    lane.reserve()
    lane.send_in(*[None] * 20)
    consumer = lane.client.subscribe(lane.topic, "sub", SHARED)
    got = [consumer.receive(30_000) for _ in range(20)]
    gone = [one.message_id() for one in got[3:10]]
    for one in gone:
        consumer.acknowledge(one)
    consumer.close()
    wait_until(lambda: lane.stats().backlog == 13, "seven of them are acknowledged")
    name = SubscriptionName(f"persistent://{lane.topic}", "sub")
    with session(cluster) as broken:
        broken.take_in(name)
        entries = Entries.of((1 << 41, one.ledger_id(), one.entry_id()) for one in gone)
        assert list(broken.put(name, [encode_block(entries)])) == [7]
    return gone[0]


def test_acknowledged_and_held(
    cluster: Cluster, make_lane: Callable[..., Lane], spark: SparkSession, tmp_path: Path
) -> None:
    lane = make_lane(namespace=RETAINED)
    first = holding_acknowledged(cluster, lane)
    found, code = job(verify, Unstarted(), cluster, lane, tmp_path / "work")
    assert (code, kinds(found)) == (1, (0, 0, 0, 7))
    (told,) = found["subscriptions"]
    assert told["examples"]["acknowledged_but_held"][0] == f"{first.ledger_id()}:{first.entry_id()}"
    found, code = job(verify, spark, cluster, lane, tmp_path / "work", repair=True)
    assert (code, found["repaired"]) == (1, 7)
    assert job(verify, Unstarted(), cluster, lane, tmp_path / "work")[1] == 0


def test_rebuild_lets_go_of_what_is_acknowledged(
    cluster: Cluster, make_lane: Callable[..., Lane], tmp_path: Path
) -> None:
    """As after a consumer that acknowledged unseen and went before the broker told the daemon."""
    lane = make_lane(namespace=RETAINED)
    holding_acknowledged(cluster, lane)
    result, code = job(rebuild, Unstarted(), cluster, lane, tmp_path / "work")
    (told,) = result["subscriptions"]
    assert (code, told["let_go"], told["acknowledged_but_held"]) == (0, 7, 0)
    assert len(held(cluster, lane)) == 0


@pytest.mark.parametrize("read_from", [ReadFrom.BOOKIES, ReadFrom.AUTO])
def test_a_bookie_is_away(lane: Lane, pulsar: PulsarCluster, read_from: ReadFrom) -> None:
    """The broker, where allowed, gives the same entries instead."""
    filled(lane, 50)
    lane.send_in(*[None] * 5)
    (planned,) = survey(pulsar, TopicName.parse(lane.topic))
    (wanted,) = backlog(planned, "sub", Bounds())
    away = dataclasses.replace(wanted.ledger, segments=(Segment(0, ("127.0.0.1:1",)),))
    with EntryReader(dataclasses.replace(pulsar, read_from=read_from)) as reader:
        asked = reader.delayed(dataclasses.replace(wanted, ledger=away))
        if read_from is ReadFrom.BOOKIES:
            with pytest.raises(UnreachableError, match=r"bookie 127\.0\.0\.1:1 does not answer"):
                list(asked)
            return
        found = list(asked)
        expected = list(reader.delayed(wanted))
    assert [one for each in found for one in each.entry_ids] == list(range(50))
    assert [one.tolist() for each in found for one in each[1:3]] == [
        one.tolist() for each in expected for one in each[1:3]
    ]
    assert sum(each.looked_at for each in found) == 55


@pytest.fixture
def strict_admin() -> Iterator[str]:
    """An admin API that knows its caller and refuses."""

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(403)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize("module", [rebuild, verify])
def test_no_permission(cluster: Cluster, lane: Lane, strict_admin: str, tmp_path: Path, module: Any) -> None:
    with pytest.raises(TopicError, match="no permission to see the ledgers of"):
        job(module, Unstarted(), cluster, lane, tmp_path / "work", admin_url=strict_admin,
            service_url=cluster.service_url)  # fmt: skip
    assert not list(tmp_path.iterdir())


def test_topics_by_pattern_with_partitions_and_every_subscription(
    cluster: Cluster, lane: Lane, spark: SparkSession, tmp_path: Path
) -> None:
    """One pass over each topic, whatever its subscriptions have acknowledged."""
    lane.admin.create_partitioned(lane.topic, 2)
    lane.reserve("early", "late")
    lane.send_in(*[HOUR_MS] * 60)
    whole = Lane(cluster, f"{lane.topic.rpartition('/')[2]}-whole")
    other = Lane(cluster, "not-of-the-pattern")
    try:
        whole.reserve("sub")
        whole.send_in(*[HOUR_MS] * 30)
        other.reserve("sub")
        other.send_in(*[HOUR_MS] * 10)
        acknowledge_first(lane, "early")
        pattern = f"persistent://{lane.topic}*"
        result, code = job(rebuild, spark, cluster, lane, tmp_path / "work", topic=pattern, subscription="*")
        told = {
            (one["topic"].removeprefix(f"persistent://{lane.topic}"), one["subscription"]): one["entries"]
            for one in result["subscriptions"]
        }
        ours = {(topic, name) for topic in ("-partition-0", "-partition-1") for name in ("early", "late")}
        (of_whole,) = told.keys() - ours
        assert of_whole[1] == "sub"
        assert (code, result["matched"], told[of_whole]) == (0, True, 30)
        assert sum(told["-partition-0", name] + told["-partition-1", name] for name in ("late",)) == 60
        assert sum(told["-partition-0", name] + told["-partition-1", name] for name in ("early",)) == 59
        read = next(one for one in result["stages"] if one["name"] == "read")
        assert read["delayed"] == 90, "each entry is read once, not once for each subscription"
        found, code = job(verify, spark, cluster, lane, tmp_path / "work", topic=pattern, subscription="*")
        assert (code, kinds(found), len(found["subscriptions"])) == (0, (0, 0, 0, 0), 5)
    finally:
        other.close()
        whole.close()


def acknowledge_first(lane: Lane, name: str) -> None:
    """Acknowledge the first message of a partition, unseen, by its id."""
    consumer = lane.client.subscribe(f"{lane.topic}-partition-0", name, SHARED)
    ledgers = lane.admin.internal_stats(f"{lane.topic}-partition-0")["ledgers"]
    consumer.acknowledge(pulsar.MessageId(0, int(ledgers[0]["ledgerId"]), 0, -1))
    consumer.close()
    wait_until(
        lambda: lane.admin.subscription(f"{lane.topic}-partition-0", name).backlog == 29,
        "one of them is acknowledged",
    )


def test_progress_counts_entries_of_workers(
    cluster: Cluster, lane: Lane, spark: SparkSession, tmp_path: Path
) -> None:
    filled(lane, 200)
    context = Notes(spark)
    job(rebuild, context, cluster, lane, tmp_path / "work", entries_per_task=50)
    first: StageEvent = context.stages[0]
    assert (first.name, first.done, first.tasks, first.entries) == ("reading the backlog", 4, 4, 200)
