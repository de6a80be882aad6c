"""The data source on a real broker: the same rows both ways, and no acknowledged row."""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulsar as client
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition

from tests.support.cluster import RETAINED, Cluster
from tests.support.inbox import Inbox, Verdict
from tests.support.lane import Lane, now_ms
from tests.support.pipeline.topics import both_ways, frame, options, rows, send_every_kind
from tests.support.waiting import wait_until
from tidegate.pipeline.errors import OptionError
from tidegate.pipeline.job.parts import spark_is_at_least
from tidegate.pipeline.source.backlog import FORMAT, BacklogStream
from tidegate.pipeline.source.options import Options
from tidegate.pipeline.topic.bookies import MissingError
from tidegate.pipeline.topic.cluster import Cluster as PulsarCluster
from tidegate.pipeline.topic.cluster import ReadFrom
from tidegate.pipeline.topic.names import TopicName
from tidegate.pipeline.topic.plan import backlog, survey
from tidegate.pipeline.topic.ranges import Bounds
from tidegate.pipeline.topic.reader import EntryReader


def test_messages_of_every_kind(lane: Lane, spark: SparkSession) -> None:
    lane.reserve()
    before_ms = now_ms()
    send_every_kind(lane)
    found = both_ways(spark, lane, subscription="sub", entries_per_partition="300")
    # 500, then 32 for each of five compressions, two large ones in chunks, 20 encrypted, 21.
    single = [row for row in found if row["batch_index"] == -1]
    batched = [row for row in found if row["batch_index"] >= 0]
    assert len(batched) == 5 * 30 + 10
    assert max(row["batch_index"] for row in batched) == 6
    chunks = [row for row in single if row["size_bytes"] > 1_000_000]
    assert len(single) - 500 - 5 * 2 - 10 - 21 >= len(chunks) >= 2
    assert len({row["ledger_id"] for row in found}) > 1
    delays = [row["deliver_at_ms"] - before_ms for row in found if row["deliver_at_ms"] is not None]
    assert all(600_000 <= delay <= 660_000 for delay in delays)
    keys = Counter(row["key"] for row in found)
    assert keys["red"] + keys["green"] + keys["blue"] == 500
    assert keys["a"] == keys["b"] == 5 * 15
    assert keys["k"] == 10, "of the encrypted ones those in batches do not show their keys"
    compressed = [row["size_bytes"] for row in found if row["key"] in ("a", "b")]
    assert set(compressed) == {len(b"compress me " * 20)}
    assert {row["topic"] for row in found} == {f"persistent://{lane.topic}"}
    assert {row["partition"] for row in found} == {-1}
    assert all(before_ms <= row["publish_time_ms"] <= now_ms() for row in found)
    assert all(row["producer"] for row in found)


def test_acknowledged_ones_are_left_out(lane: Lane, spark: SparkSession) -> None:
    inbox = Inbox()
    acknowledged = set[tuple[int, int]]()

    def judge(arrival: object) -> Verdict:
        entry = arrival.entry  # type: ignore[attr-defined]
        if entry[1] % 3 == 1 or entry[1] < 5:
            return Verdict.KEEP
        acknowledged.add(entry)
        return Verdict.ACK

    lane.subscribe(inbox, judge, receiver_queue_size=2000)
    sent = lane.send_in(*[None] * 900, *[600_000] * 50)
    inbox.wait_for([one for one in sent if one.deliver_at_ms is None])
    lane.disconnect()
    found = both_ways(spark, lane, subscription="sub", entries_per_partition="100")
    everything = both_ways(spark, lane)
    assert len(everything) == 950
    kept = [(row["ledger_id"], row["entry_id"]) for row in everything]
    assert [(row["ledger_id"], row["entry_id"]) for row in found] == [
        position for position in kept if position not in acknowledged
    ]


def test_a_partitioned_topic(lane: Lane, spark: SparkSession) -> None:
    lane.admin.create_partitioned(lane.topic, 3)
    lane.reserve()
    lane.send_in(*[600_000, None] * 60)
    found = both_ways(spark, lane, subscription="sub")
    assert len(found) == 120
    assert {row["partition"] for row in found} == {0, 1, 2}
    assert {row["topic"] for row in found} == {f"persistent://{lane.topic}"}
    one = options(lane, subscription="sub") | {"topic": f"persistent://{lane.topic}-partition-1"}
    only = rows(spark.read.format(FORMAT).options(**one).load())
    # With its number too, as in the ids that its consumers have.
    assert only == [row for row in found if row["partition"] == 1]


def test_nothing_yet_and_the_open_ledger(lane: Lane, spark: SparkSession) -> None:
    lane.reserve()
    assert both_ways(spark, lane, subscription="sub") == []
    lane.send_in(600_000)
    assert len(both_ways(spark, lane, subscription="sub")) == 1
    lane.admin.clear_backlog(lane.topic, "sub")
    assert both_ways(spark, lane, subscription="sub") == []


def test_while_others_send(lane: Lane, pulsar: PulsarCluster) -> None:
    """A read has exactly the messages of the time when it was planned."""
    lane.reserve()
    lane.send_in(*[600_000] * 500)
    (planned,) = survey(pulsar, TopicName.parse(lane.topic))
    wanted = list(backlog(planned, "sub", Bounds()))
    end = threading.Event()

    def send() -> None:
        while not end.is_set():
            lane.send_in(*[600_000] * 50)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        for way in (ReadFrom.BOOKIES, ReadFrom.BROKER):
            with EntryReader(dataclasses.replace(pulsar, read_from=way)) as reader:
                found = [len(chunk.entries) for one in wanted for chunk in reader.read(one)]
            assert sum(found) == 500
    finally:
        end.set()
        sender.join()


ADMISSION = pytest.mark.skipif(not spark_is_at_least(4, 2), reason="no limits before 4.2")
OLD_SPARK = pytest.mark.skipif(spark_is_at_least(4, 2), reason="4.2 has limits")


def len_of(partition: InputPartition) -> int:
    return sum(one.entries for one in partition.value)


def trimmed(lane: Lane, ledger_id: int) -> bool:
    lane.admin.call("POST", f"/persistent/{lane.topic}/trim")
    return all(one["ledgerId"] != ledger_id for one in lane.admin.internal_stats(lane.topic)["ledgers"])


def test_ledgers_that_are_trimmed_meanwhile(lane: Lane, pulsar: PulsarCluster) -> None:
    lane.reserve()
    lane.send_in(*[None] * 1000)
    (planned,) = survey(pulsar, TopicName.parse(lane.topic))
    wanted = list(backlog(planned, "sub", Bounds()))
    first = wanted[0].ledger.ledger_id
    lane.admin.clear_backlog(lane.topic, "sub")

    wait_until(lambda: trimmed(lane, first), "the first ledger is gone")
    with EntryReader(dataclasses.replace(pulsar, read_from=ReadFrom.BROKER)) as reader:
        assert [entry for chunk in reader.read(wanted[0]) for entry in chunk.entries] == []
    # A bookie keeps what was deleted for a while; later it knows no such ledger.
    with EntryReader(pulsar) as reader:
        assert sum(len(chunk.entries) for chunk in reader.read(wanted[0])) in (0, 400)
        unknown = dataclasses.replace(wanted[0].ledger, ledger_id=1 << 40)
        assert list(reader.read(dataclasses.replace(wanted[0], ledger=unknown))) == []


def test_filters_are_pushed_down(lane: Lane, spark: SparkSession) -> None:
    lane.reserve()  # else Pulsar deletes a full ledger between two readings
    start_ms = now_ms()
    lane.send_in(*[None, 600_000, 900_000] * 200)
    everything = both_ways(spark, lane)
    middle = everything[300]
    cases: dict[str, Callable[[dict[str, int]], bool]] = {
        f"ledger_id = {middle['ledger_id']} AND entry_id >= {middle['entry_id']}": (
            lambda row: row["ledger_id"] == middle["ledger_id"] and row["entry_id"] >= middle["entry_id"]
        ),
        f"ledger_id > {middle['ledger_id']}": lambda row: row["ledger_id"] > middle["ledger_id"],
        f"ledger_id <= {middle['ledger_id']}": lambda row: row["ledger_id"] <= middle["ledger_id"],
        "deliver_at_ms IS NULL": lambda row: row["deliver_at_ms"] is None,
        f"deliver_at_ms > {start_ms + 800_000}": lambda row: (row["deliver_at_ms"] or 0) > start_ms + 800_000,
        f"publish_time_ms < {middle['publish_time_ms']}": (
            lambda row: row["publish_time_ms"] < middle["publish_time_ms"]
        ),
        "partition = 7": lambda _: False,
        "batch_index = -1 AND size_bytes < 100 AND key IS NULL": lambda _: True,
        "entry_id < 10 OR deliver_at_ms IS NULL": (
            lambda row: row["entry_id"] < 10 or row["deliver_at_ms"] is None
        ),
        "entry_id IN (1, 5)": lambda row: row["entry_id"] in (1, 5),
    }
    for text, wanted in cases.items():
        filtered = frame(spark, lane).filter(text)
        assert rows(filtered) == [row for row in everything if wanted(row)], text
        plan = filtered._jdf.queryExecution().executedPlan().toString()
        assert ("Filter " in plan) == (" OR " in text or " IN " in text or "key" in text), (text, plan)


def test_a_bookie_that_cannot_be_reached(cluster: Cluster, lane: Lane, spark: SparkSession) -> None:
    lane.send_in(*[600_000] * 30)
    port = cluster.broker.ports.bookie
    away = {"bookies": f"127.0.0.1:{port}=127.0.0.1:1"}
    assert len(rows(frame(spark, lane, **away))) == 30, "read through the broker"
    with pytest.raises(PySparkException, match="does not answer"):
        rows(frame(spark, lane, read_from="bookies", **away))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"topic": "persistent://public/default/no-such-topic"}, "there is no topic"),
        ({"subscription": "nobody"}, "has no subscription 'nobody'"),
        ({"service_url": "pulsar://127.0.0.1:1"}, "no broker answers"),
        ({"admin_url": "http://127.0.0.1:1"}, "does not answer"),
        ({"admin_url": "ftp://x"}, "is no admin URL"),
        ({"service_url": "x"}, "is no service URL"),
        ({"topic": ""}, "the option topic is missing"),
        ({"token": "s3cret"}, "would show in Spark's plans"),
        ({"misspelt": "1"}, "unknown option 'misspelt'"),
        ({"entries_per_partition": "0"}, "1 or more"),
        ({"read_from": "disk"}, "one of auto, bookies, broker"),
        ({"token_file": "/nowhere/token"}, "cannot read the token in /nowhere/token"),
    ],
)
def test_errors_say_what_to_do(lane: Lane, spark: SparkSession, change: dict[str, str], words: str) -> None:
    lane.reserve()
    with pytest.raises(PySparkException, match=words) as raised:
        spark.read.format(FORMAT).options(**(options(lane) | change)).load().collect()
    assert "s3cret" not in str(raised.value)


class TestStream:
    def read(self, spark: SparkSession, lane: Lane, folder: Path, **more: str) -> list[int]:
        """The entries that a stream gives that goes on where its checkpoint is, until there are no more."""
        sink = folder / "rows"
        query = (
            spark.readStream.format(FORMAT)
            .options(**options(lane, **more))
            .load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .option("path", str(sink))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        found = spark.read.schema(frame(spark, lane).schema).parquet(str(sink)).collect()
        return sorted(row["ledger_id"] * 1_000_000 + row["entry_id"] for row in found)

    def test_goes_on_where_it_was(self, lane: Lane, spark: SparkSession, tmp_path: Path) -> None:
        lane.reserve()
        lane.send_in(*[600_000] * 500)
        first = self.read(spark, lane, tmp_path)
        assert len(first) == len(set(first)) == 500
        lane.send_in(*[None] * 300)
        second = self.read(spark, lane, tmp_path)
        assert len(second) == len(set(second)) == 800
        assert self.read(spark, lane, tmp_path) == second

    def batches(self, spark: SparkSession, lane: Lane, folder: Path, **more: Any) -> list[int]:
        """The sizes of the batches that a stream comes to with this trigger, until it ends."""
        query = (
            spark.readStream.format(FORMAT)
            .options(**options(lane, entries_per_trigger="100"))
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(**more)
            .start()
        )
        assert query.awaitTermination(240)
        sizes = [progress.numInputRows for progress in query.recentProgress]
        return [size for size in sizes if size]

    @ADMISSION
    def test_a_limited_one_reads_all_that_is_there(
        self, lane: Lane, spark: SparkSession, tmp_path: Path
    ) -> None:
        lane.reserve()
        lane.send_in(*[600_000] * 1000)
        assert self.batches(spark, lane, tmp_path, availableNow=True) == [100] * 10
        lane.send_in(*[None] * 150)
        assert self.batches(spark, lane, tmp_path, availableNow=True) == [100, 50]
        assert self.batches(spark, lane, tmp_path, availableNow=True) == []

    @ADMISSION
    def test_once_is_one_batch(self, lane: Lane, spark: SparkSession, tmp_path: Path) -> None:
        """As Spark has it: the limit does not count."""
        lane.reserve()
        lane.send_in(*[600_000] * 350)
        assert self.batches(spark, lane, tmp_path, once=True) == [350]

    @ADMISSION
    def test_a_limited_one_of_a_partitioned_topic(
        self, lane: Lane, spark: SparkSession, tmp_path: Path
    ) -> None:
        lane.admin.create_partitioned(lane.topic, 3)
        lane.reserve()
        lane.send_in(*[600_000] * 330)
        sizes = self.batches(spark, lane, tmp_path, availableNow=True)
        assert sum(sizes) == 330
        assert len(sizes) > 3
        assert max(sizes) <= 102

    def test_available_now_is_what_was_there_when_it_began(self, lane: Lane) -> None:
        lane.reserve()
        lane.send_in(*[600_000] * 250)
        stream = BacklogStream(Options.parse(options(lane)))
        at = stream.initialOffset()
        stream.prepareForTriggerAvailableNow()
        lane.send_in(*[600_000] * 250)
        end = stream.latestOffset(at)
        assert sum(len_of(one) for one in stream.partitions(at, end)) == 250
        assert stream.latestOffset(end) == end

    @OLD_SPARK
    def test_a_limit_that_this_spark_cannot_keep(self, lane: Lane) -> None:
        lane.reserve()
        with pytest.raises(OptionError, match=r"entries_per_trigger needs PySpark 4\.2 or newer, .* is 4\.1"):
            BacklogStream(Options.parse(options(lane, entries_per_trigger="100")))

    def test_what_was_trimmed_before_it_was_read(
        self, lane: Lane, spark: SparkSession, tmp_path: Path
    ) -> None:
        lane.reserve()
        lane.send_in(*[None] * 100)
        assert len(self.read(spark, lane, tmp_path)) == 100
        lane.send_in(*[None] * 500)
        first = lane.admin.internal_stats(lane.topic)["ledgers"][0]["ledgerId"]
        lane.admin.clear_backlog(lane.topic, "sub")
        wait_until(lambda: trimmed(lane, first), "the first ledger is gone")
        with pytest.raises(PySparkException, match=r"was trimmed from .* before it was read"):
            self.read(spark, lane, tmp_path)
        lane.send_in(*[600_000] * 3)
        assert len(self.read(spark, lane, tmp_path, fail_on_data_loss="false")) >= 103

    def test_from_the_latest(self, lane: Lane, spark: SparkSession, tmp_path: Path) -> None:
        lane.send_in(*[600_000] * 50)
        assert self.read(spark, lane, tmp_path, starting="latest") == []
        lane.send_in(*[600_000] * 7)
        assert len(self.read(spark, lane, tmp_path, starting="latest")) == 7

    def test_a_partitioned_topic(self, lane: Lane, spark: SparkSession, tmp_path: Path) -> None:
        lane.admin.create_partitioned(lane.topic, 2)
        lane.reserve()
        lane.send_in(*[600_000] * 100)
        assert len(self.read(spark, lane, tmp_path)) == 100


def test_an_entry_that_the_bookie_should_have(lane: Lane, pulsar: PulsarCluster) -> None:
    lane.send_in(None)
    (planned,) = survey(pulsar, TopicName.parse(lane.topic))
    (wanted,) = backlog(planned, None, Bounds())
    with EntryReader(pulsar) as reader, pytest.raises(MissingError, match="no entry"):
        list(reader.read(dataclasses.replace(wanted, first=5, last=5)))


def test_payloads(lane: Lane, spark: SparkSession) -> None:
    lane.send_in(*[None] * 3, payload=b'{"a": 1}')
    lane.send_in(*[None] * 4, payload=b"b", producer=lane.producer(batching_enabled=True))
    lane.send_in(None, payload=bytes(6 * 1024 * 1024), producer=lane.producer(chunking_enabled=True))
    found = both_ways(spark, lane, payload="true")
    assert [bytes(row["payload"]) for row in found[:7]] == [b'{"a": 1}'] * 3 + [b"b"] * 4
    chunks = found[7:]
    assert [(row["payload"], row["chunk_id"], row["chunks"]) for row in chunks] == [
        (None, number, len(chunks)) for number in range(len(chunks))
    ]


def test_a_retained_topic_is_read_whole_without_a_subscription(
    make_lane: Callable[..., Lane], spark: SparkSession
) -> None:
    lane = make_lane(namespace=RETAINED)
    inbox = Inbox()
    lane.subscribe(inbox)
    sent = lane.send_in(*[None] * 450)
    inbox.wait_for(sent)
    lane.wait_drained()
    assert len(both_ways(spark, lane)) == 450
    assert both_ways(spark, lane, subscription="sub") == []


def test_the_client_library_is_not_needed() -> None:
    """The workers read without it: its absence of deliver_at is why there is a reader of our own."""
    assert not hasattr(client.Message, "deliver_at")
