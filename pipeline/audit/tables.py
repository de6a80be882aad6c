"""Small tables for a summary and a report, from judged rows, on Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from tidegate.pipeline.audit.folder import FIRST_COLUMN
from tidegate.pipeline.audit.judge import JUDGED, Verdict, find_out_of_order, judge
from tidegate.pipeline.audit.summary import Figures, Int64, figures_of
from tidegate.plugin.checks import Gaps, Lateness, gaps

ROWS_PER_GROUP = 400_000
MINUTE_MS = 60_000
SECOND_MS = 1_000
EXACT_MS = 10_000
BAD = (Verdict.LOST, Verdict.REPEATED, Verdict.UNKNOWN)
_DDL = (
    "message_id string, topic string, `key` string, sent_at_ms bigint, deliver_at_ms bigint, "
    "subscription string, received_at_ms bigint, redelivery_count bigint, verdict tinyint, early boolean, "
    "cause tinyint"
)


def groups_for(rows: int, at_least: int) -> int:
    """The number of message groups for so many rows."""
    return max(at_least, -(-rows // ROWS_PER_GROUP))


def judged(
    sent: DataFrame, received: DataFrame, subscriptions: Sequence[str], until_ms: int | None, groups: int
) -> DataFrame:
    """The rows of `judge` for all messages, group by group, with their receipts."""
    names = list(subscriptions)

    def judge_group(some: pa.Table, receipts: pa.Table) -> pa.Table:
        return judge(some, receipts, names, until_ms)

    def grouped(frame: DataFrame) -> DataFrame:
        return frame.withColumn("group", sf.pmod(sf.xxhash64("message_id"), sf.lit(groups)).cast("int"))

    whole = grouped(received.withColumn("subscription", sf.coalesce("subscription", sf.lit(""))))
    return grouped(sent).groupBy("group").cogroup(whole.groupBy("group")).applyInArrow(judge_group, _DDL)


def out_of_order(rows: DataFrame, groups: int) -> DataFrame:
    """The deliveries that are out of order within their key."""
    keyed = rows.filter(_is(Verdict.DELIVERED) & sf.col("key").isNotNull())
    group = sf.pmod(sf.xxhash64("subscription", "key"), sf.lit(groups)).cast("int")
    return keyed.withColumn("group", group).groupBy("group").applyInArrow(find_late, _DDL)


def find_late(rows: pa.Table) -> pa.Table:
    """`find_out_of_order` in Spark's form."""
    return find_out_of_order(rows.select(JUDGED.names))


def figures(rows: DataFrame, gap_ms: int | None) -> dict[str, Figures]:
    """The parts of a summary, by subscription; gaps only if a length is given."""
    early_by = sf.max(sf.when(sf.col("early"), sf.col("deliver_at_ms") - sf.col("received_at_ms")))
    counted = (
        rows.groupBy("subscription", "verdict", "early", "cause")
        .agg(sf.count("*").alias("rows"), sf.coalesce(early_by, sf.lit(0)).alias("by"))
        .collect()
    )
    counts = defaultdict(list)
    for row in counted:
        counts[row[0]].append((row[1], row[2], row[3], row[4], row[5]))
    lateness = defaultdict(list)
    for name, late_ms, number in _lateness(rows, sf.col("late_ms")).collect():
        lateness[name].append((late_ms, number))
    found = figures_of(counts, lateness)
    if gap_ms is not None:
        for name, silent in all_gaps(rows, gap_ms).items():
            found[name].gaps = silent
    return found


def all_gaps(rows: DataFrame, gap_ms: int) -> dict[str, Gaps]:
    """The gaps of each subscription; receipts at both ends are exact to a second."""
    second = sf.floor(sf.col("received_at_ms") / SECOND_MS)
    ready = sf.greatest(sf.col("deliver_at_ms"), sf.col("sent_at_ms"))
    table = (
        rows.filter(_is(Verdict.DELIVERED))
        .groupBy("subscription", second.alias("second"))
        .agg(
            sf.min("received_at_ms").alias("first"),
            sf.max("received_at_ms").alias("last"),
            sf.min(ready).alias("due"),
        )
        .toArrow()
    )
    return gaps_by_subscription(table, gap_ms)


def gaps_by_subscription(table: pa.Table, gap_ms: int) -> dict[str, Gaps]:
    """The gaps of each subscription, by second.

    From the ``first`` and ``last`` receipt of each second, and the earliest ``due`` time of these.
    """
    found = {}
    for name, part in _by_subscription(table):
        first, last, due = _columns(part, "first", "last", "due")
        found[name] = gaps(first, last, due, max(gap_ms, SECOND_MS))
    return found


class LateTable(NamedTuple):
    """Lateness by due time: one element an interval, ascending."""

    start_ms: Int64
    lateness: list[Lateness]


def lateness_by(rows: DataFrame, width_ms: int) -> dict[str, LateTable]:
    """Lateness by interval of ``width_ms``, for each subscription. Beyond 10 s it is exact to 0.1 %."""
    late = sf.col("late_ms")
    step = sf.pow(sf.lit(10), sf.floor(sf.log10(sf.abs(late))) - 2)
    rounded = sf.when(sf.abs(late) < EXACT_MS, late).otherwise((sf.floor(late / step) * step).cast("bigint"))
    interval = sf.floor(sf.col("deliver_at_ms") / width_ms)
    return late_tables(_lateness(rows, rounded, interval.alias("interval")).toArrow(), width_ms)


def late_tables(table: pa.Table, width_ms: int) -> dict[str, LateTable]:
    """Of each subscription, from the number of ``messages`` for each ``interval`` and ``late_ms``."""
    found = {}
    for name, part in _by_subscription(table):
        number, late_ms, messages = _columns(part.sort_by("interval"), "interval", "late_ms", "messages")
        numbers, begin = np.unique(number, return_index=True)
        pieces = zip(np.split(late_ms, begin[1:]), np.split(messages, begin[1:]), strict=True)
        found[name] = LateTable(
            numbers * width_ms, [Lateness.of(values, counts, per_ms=1) for values, counts in pieces]
        )
    return found


def offending(rows: DataFrame, late: DataFrame | None) -> DataFrame:
    """Every offending row, with its offence."""
    bad = rows.filter(_is(*BAD) | sf.col("early"))
    together = bad if late is None else bad.unionByName(late)
    names = sf.create_map([sf.lit(x) for one in Verdict for x in (int(one), one.name.lower())])
    wrong = sf.when(_is(Verdict.DELIVERED), sf.lit("early")).otherwise(names[sf.col("verdict").cast("int")])
    kept = [name for name in JUDGED.names if name not in ("verdict", "early", "cause")]
    return together.select(wrong.alias(FIRST_COLUMN), *kept)


def _lateness(rows: DataFrame, late_ms: Column, *by: Column) -> DataFrame:
    """(subscription, …, late_ms, messages)."""
    return (
        rows.filter(_is(Verdict.DELIVERED) & sf.col("deliver_at_ms").isNotNull())
        .withColumn("late_ms", sf.col("received_at_ms") - sf.col("deliver_at_ms"))
        .groupBy("subscription", *by, late_ms.alias("late_ms"))
        .agg(sf.count("*").alias("messages"))
    )


def _is(*verdicts: Verdict) -> Column:
    return sf.col("verdict").isin([int(one) for one in verdicts])


def _by_subscription(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    for name in pc.unique(table["subscription"]).to_pylist():
        yield name, table.filter(pc.equal(table["subscription"], name))


def _columns(table: pa.Table, *names: str) -> tuple[Int64, ...]:
    return tuple(table[name].to_numpy().astype(np.int64) for name in names)
