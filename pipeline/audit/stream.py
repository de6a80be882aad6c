"""The audit beside production: a Structured Streaming query, a round (`rounds.py`) for each of its batches.

    checkpoint/spark        Spark's own: the progress of reading both records
    checkpoint/rounds/N     the rest of round N: open messages, receipts, the furthest of each key, totals
    offending/round=N       the offences of round N

Invariants: a round depends only on the previous one and one batch, and counts once its totals, the last file,
are written: a batch repeated after a crash gives the same round, and nothing is reported twice. The two
newest rounds are kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from tidegate.pipeline.audit import records, tables
from tidegate.pipeline.audit.gauges import Gauges
from tidegate.pipeline.audit.judge import JUDGED, Verdict
from tidegate.pipeline.audit.options import AuditOptions, StreamOptions
from tidegate.pipeline.audit.rounds import (
    FURTHEST,
    KEPT,
    OPEN,
    SUBSCRIPTIONS_MAX,
    Limits,
    play,
    play_order,
)
from tidegate.pipeline.audit.summary import Figures
from tidegate.pipeline.audit.totals import Totals, coarse
from tidegate.pipeline.errors import OptionError
from tidegate.pipeline.job.failures import room_for
from tidegate.pipeline.job.progress import phase
from tidegate.pipeline.job.runner import Context

_TOLD, _OPEN, _KEPT, _FURTHEST = range(4)
_DDL = (
    "part tinyint, message_id string, topic string, `key` string, sent_at_ms bigint, deliver_at_ms bigint, "
    "subscription string, received_at_ms bigint, redelivery_count bigint, verdict tinyint, early boolean, "
    "cause tinyint, told_lost bigint, got bigint, told boolean, ready_ms bigint"
)
_OUTPUT = pa.schema(
    [
        pa.field("part", pa.int8()),
        *JUDGED,
        pa.field("told_lost", pa.int64()),
        pa.field("got", pa.int64()),
        pa.field("told", pa.bool_()),
        pa.field("ready_ms", pa.int64()),
    ]
)
_DDL_OF = {
    _OPEN: "message_id string, topic string, `key` string, sent_at_ms bigint, deliver_at_ms bigint, "
    "told_lost bigint, got bigint",
    _KEPT: "message_id string, subscription string, received_at_ms bigint, redelivery_count bigint, "
    "told boolean",
    _FURTHEST: "subscription string, `key` string, ready_ms bigint, sent_at_ms bigint, received_at_ms bigint",
}
_FOLDER = {_OPEN: "open", _KEPT: "kept", _FURTHEST: "furthest"}


def run_stream(context: Context, wanted: AuditOptions) -> tuple[dict[str, Any], int]:
    """Judge until ended, or with ``once`` until all records are read. Raises ``PipelineError``."""
    stream = wanted.stream
    if stream is None or not 1 <= len(wanted.subscriptions) <= SUBSCRIPTIONS_MAX:
        raise OptionError(f"--stream needs --subscription, 1 to {SUBSCRIPTIONS_MAX} of them")
    spark = context.spark
    # A partition for each of a round's many small tables would cost more than their work.
    spark.conf.set("spark.sql.shuffle.partitions", str(spark.sparkContext.defaultParallelism))
    gauges = Gauges()
    if stream.metrics is not None:
        port = gauges.serve(*stream.metrics)
        context.note(f"metrics: http://{stream.metrics[0]}:{port}/metrics")
    rounds = Rounds(spark, wanted, stream, gauges, context.note)
    query = (
        _both(spark, wanted)
        .writeStream.foreachBatch(rounds.run)
        .option("checkpointLocation", f"{stream.checkpoint}/spark")
        .queryName("tidegate-audit")
    )
    query = (
        query.trigger(availableNow=True)
        if stream.once
        else query.trigger(processingTime=f"{max(int(stream.trigger_s * 1000), 1)} milliseconds")
    )
    running = query.start()
    try:
        with room_for(f"to {stream.checkpoint} or {wanted.offending}", "--checkpoint or --offending"):
            running.awaitTermination()
    finally:
        running.stop()
    result = rounds.totals.summary().as_json()
    result["watermark_ms"] = rounds.totals.watermark_ms
    result["unreadable"] = rounds.totals.unreadable
    result["offending"] = wanted.offending
    return result, 0 if rounds.totals.summary().passed else 1


def _both(spark: SparkSession, wanted: AuditOptions) -> DataFrame:
    """Both records as one stream, so that one checkpoint has the progress of both."""
    sent = records.read_stream(spark, wanted.sent, records.SENT, wanted.pulsar)
    received = records.read_stream(spark, wanted.received, records.RECEIVED, wanted.pulsar)
    return sent.withColumn("is_sent", sf.lit(True)).unionByName(
        received.withColumn("is_sent", sf.lit(False)), allowMissingColumns=True
    )


class Rounds:
    """Plays the rounds; Spark calls ``run`` for each batch."""

    def __init__(
        self,
        spark: SparkSession,
        wanted: AuditOptions,
        stream: StreamOptions,
        gauges: Gauges,
        note: Callable[[str], None],
    ) -> None:
        self.totals = Totals()
        self._spark, self._wanted, self._stream = spark, wanted, stream
        self._gauges, self._note = gauges, note
        self._folder = f"{stream.checkpoint}/rounds"
        newest = self._newest()
        if newest is not None:
            self.totals = self._totals_of(newest)
            before = self.totals.by_subscription.keys()
            if before != set(wanted.subscriptions):
                raise OptionError(
                    f"the checkpoint is of an audit of {', '.join(sorted(before))[:200]}: "
                    "give the same --subscription, or another --checkpoint"
                )
            # After a restart the gauges have their former values, even before new rows come.
            gauges.show(self.totals)

    def run(self, batch: DataFrame, number: int) -> None:
        """Run the round of the batch ``number``."""
        began_s = time.time()
        before = Totals() if number == 0 else self._totals_of(number - 1)
        batch = batch.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            with phase(self._spark, f"round {number}: reading"):
                self._look(batch, before)
            self._play(batch.filter(_readable()), number, before)
        finally:
            batch.unpersist()
        self._put_text(f"{self._folder}/{number}/totals", before.to_json())
        self.totals = before
        self._remove(f"{self._folder}/{number - 2}")
        ended_s = time.time()
        self._gauges.show(before)
        self._gauges.round_ended(ended_s, ended_s - began_s)
        self._note(_in_words(number, before, ended_s - began_s))

    def _look(self, batch: DataFrame, totals: Totals) -> None:
        """Count unreadable rows, and set the time."""
        event_ms = sf.when(sf.col("is_sent"), sf.col("sent_at_ms")).otherwise(sf.col("received_at_ms"))
        row = batch.agg(
            sf.count_if(~_readable()).alias("unreadable"),
            sf.max(sf.when(_readable(), event_ms)).alias("latest"),
        ).collect()[0]
        totals.unreadable += row["unreadable"]
        # A clock that is ahead must not make all other messages late.
        latest_ms = min(row["latest"] or 0, int(time.time() * 1000))
        totals.latest_ms = max(totals.latest_ms, latest_ms)
        totals.watermark_ms = totals.latest_ms - self._stream.watermark_ms

    def _play(self, batch: DataFrame, number: int, totals: Totals) -> None:
        stream = self._stream
        limits = Limits(
            totals.watermark_ms, stream.grace_ms, stream.forget_ms, tuple(self._wanted.subscriptions)
        )
        new_sent = batch.filter("is_sent").select(
            "message_id", "topic", "key", "sent_at_ms", "deliver_at_ms",
            sf.lit(0).cast("bigint").alias("told_lost"), sf.lit(0).cast("bigint").alias("got"),
        )  # fmt: skip
        new_received = batch.filter("NOT is_sent").select(
            "message_id", sf.coalesce("subscription", sf.lit("")).alias("subscription"), "received_at_ms",
            "redelivery_count", sf.lit(False).alias("told"),
        )  # fmt: skip
        out = self._grouped(
            self._kept(_OPEN, number).unionByName(new_sent),
            self._kept(_KEPT, number).unionByName(new_received),
            ["message_id"],
            _player(limits),
        )
        ordered = None
        try:
            with phase(self._spark, f"round {number}: judging"):
                for part in (_OPEN, _KEPT):
                    self._put(out, part, number)
                told = out.filter(sf.col("part") == _TOLD)
                keyed = told.filter((sf.col("verdict") == int(Verdict.DELIVERED)) & sf.col("key").isNotNull())
                ordered = self._grouped(
                    self._kept(_FURTHEST, number), keyed, ["subscription", "key"], _order_player(limits)
                )
                self._put(ordered, _FURTHEST, number)
            rows = told.unionByName(ordered.filter(sf.col("part") == _TOLD))
            with phase(self._spark, f"round {number}: counting"):
                self._count(rows, out, totals)
                late = rows.filter(sf.col("verdict") == int(Verdict.OUT_OF_ORDER))
                bad = tables.offending(told.select(*JUDGED.names), late.select(*JUDGED.names))
                if self._wanted.offending is not None:
                    bad.write.mode("overwrite").parquet(f"{self._wanted.offending}/round={number}")
        finally:
            out.unpersist()
            if ordered is not None:
                ordered.unpersist()

    def _count(self, rows: DataFrame, out: DataFrame, totals: Totals) -> None:
        """Add this round's rows to the totals."""
        news = tables.figures(rows.select(*JUDGED.names), gap_ms=None)
        for name, one in news.items():
            if name:
                totals.by_subscription.setdefault(name, Figures()).add(one)
            else:
                totals.sent_twice += one.verdicts[Verdict.SENT_TWICE]
        still = out.filter(sf.col("part") == _OPEN)
        missing = [
            sf.count_if(
                sf.shiftrightunsigned(sf.col("told_lost").bitwiseOR(sf.col("got")), at).bitwiseAND(sf.lit(1))
                == 0
            )
            for at in range(len(self._wanted.subscriptions))
        ]
        pending = still.agg(*missing).collect()[0]
        for at, name in enumerate(self._wanted.subscriptions):
            one = totals.by_subscription.setdefault(name, Figures())
            one.verdicts[Verdict.PENDING] = pending[at]
            one.lateness = coarse(one.lateness)
        first = totals.by_subscription[self._wanted.subscriptions[0]].verdicts
        totals.sent = (
            first[Verdict.DELIVERED] + first[Verdict.LOST] - first[Verdict.FOUND] + first[Verdict.PENDING]
        )

    def _grouped(
        self,
        left: DataFrame,
        right: DataFrame,
        by: list[str],
        function: Callable[[pa.Table, pa.Table], pa.Table],
    ) -> DataFrame:
        """Pass groups of both tables' rows with the same hash to ``function``."""
        groups = self._spark.sparkContext.defaultParallelism * 2
        group = sf.pmod(sf.xxhash64(*by), sf.lit(groups)).cast("int")
        sides = [side.withColumn("group", group).groupBy("group") for side in (left, right)]
        return sides[0].cogroup(sides[1]).applyInArrow(function, _DDL).persist(StorageLevel.MEMORY_AND_DISK)

    # ---- state between rounds

    def _kept(self, part: int, number: int) -> DataFrame:
        if number == 0:
            return self._spark.createDataFrame([], _DDL_OF[part])
        return self._spark.read.schema(_DDL_OF[part]).parquet(f"{self._folder}/{number - 1}/{_FOLDER[part]}")

    def _put(self, rows: DataFrame, part: int, number: int) -> None:
        names = {_OPEN: OPEN, _KEPT: KEPT, _FURTHEST: FURTHEST}[part].names
        kept = rows.filter(sf.col("part") == part).select(*names)
        kept.write.mode("overwrite").parquet(f"{self._folder}/{number}/{_FOLDER[part]}")

    def _totals_of(self, number: int) -> Totals:
        rows = self._spark.read.text(f"{self._folder}/{number}/totals").collect()
        return Totals.of_json("".join(row[0] for row in rows))

    def _put_text(self, path: str, text: str) -> None:
        self._spark.createDataFrame([(text,)], "text string").coalesce(1).write.mode("overwrite").text(path)

    def _remove(self, path: str) -> None:
        where = self._spark._jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]
        self._files(where).delete(where, True)

    def _newest(self) -> int | None:
        """The last round with written totals."""
        folder = self._spark._jvm.org.apache.hadoop.fs.Path(self._folder)  # type: ignore[union-attr]
        files = self._files(folder)
        if not files.exists(folder):
            return None
        numbers = [
            int(one.getPath().getName())
            for one in files.listStatus(folder)
            if one.getPath().getName().isdecimal()
        ]
        for number in sorted(numbers, reverse=True):
            done = f"{self._folder}/{number}/totals/_SUCCESS"
            if files.exists(self._spark._jvm.org.apache.hadoop.fs.Path(done)):  # type: ignore[union-attr]
                return number
        return None

    def _files(self, path: Any) -> Any:
        return path.getFileSystem(self._spark.sparkContext._jsc.hadoopConfiguration())


def _readable() -> Any:
    time_ms = sf.when(sf.col("is_sent"), sf.col("sent_at_ms")).otherwise(sf.col("received_at_ms"))
    return sf.col(records.BROKEN).isNull() & sf.col("message_id").isNotNull() & time_ms.isNotNull()


def _player(limits: Limits) -> Callable[[pa.Table, pa.Table], pa.Table]:
    def one_group(sent: pa.Table, received: pa.Table) -> pa.Table:
        played = play(sent, received, limits)
        return _together([(_TOLD, played.told), (_OPEN, played.open), (_KEPT, played.kept)])

    return one_group


def _order_player(limits: Limits) -> Callable[[pa.Table, pa.Table], pa.Table]:
    def one_group(furthest: pa.Table, delivered: pa.Table) -> pa.Table:
        late, now = play_order(furthest, delivered, limits)
        return _together([(_TOLD, late), (_FURTHEST, now)])

    return one_group


def _together(parts: list[tuple[int, pa.Table]]) -> pa.Table:
    """Tables of different columns as one, with the table's number in ``part``."""
    return pa.concat_tables([pa.Table.from_arrays(list(_columns(*part)), schema=_OUTPUT) for part in parts])


def _columns(part: int, table: pa.Table) -> Iterator[Any]:
    for column in _OUTPUT:
        if column.name == "part":
            yield pa.repeat(pa.scalar(part, pa.int8()), table.num_rows)
        elif column.name in table.column_names:
            yield table[column.name]
        else:
            yield pa.nulls(table.num_rows, column.type)


def _in_words(number: int, totals: Totals, took_s: float) -> str:
    whole = totals.summary().together()
    found = whole.verdicts
    return (
        f"round {number}: {totals.sent:,} sent, {whole.receipts:,} received, "
        f"{found[Verdict.LOST] - found[Verdict.FOUND]:,} lost, {whole.early:,} early, "
        f"{found[Verdict.REPEATED]:,} repeated, {found[Verdict.UNKNOWN]:,} unknown, "
        f"{found[Verdict.PENDING]:,} pending; {took_s:.1f} s"
    )
