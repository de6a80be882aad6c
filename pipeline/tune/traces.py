"""A trace as a Spark table of arrival_ms and deliver_at_ms, changed as a what-if requires."""

from __future__ import annotations

from collections.abc import Sequence

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import NumericType, StringType

from tidegate.pipeline.errors import OptionError, TraceError
from tidegate.pipeline.source.backlog import FORMAT, register
from tidegate.pipeline.times import whole
from tidegate.pipeline.tune.options import Delays, TuneOptions

ARRIVAL = ("arrival_ms", "arrival", "sent_at_ms", "publish_time_ms")
DUE = ("deliver_at_ms", "deliver_at")
_CSV = (".csv", ".csv.gz")


def read(spark: SparkSession, wanted: TuneOptions) -> DataFrame:
    """The trace, without undelayed messages. Raises ``TraceError``."""
    if wanted.topic is not None:
        register(spark)
        found = spark.read.format(FORMAT).options(**wanted.topic.options).load()
        return found.filter("deliver_at_ms IS NOT NULL").select(
            sf.col("publish_time_ms").alias("arrival_ms"), "deliver_at_ms"
        )
    if wanted.trace is None:
        raise OptionError("say which trace: a file, or --from-topic")
    try:
        if form_of(wanted.trace) == "csv":
            found = spark.read.option("header", "true").csv(wanted.trace)
        else:
            found = spark.read.parquet(wanted.trace)
        arrival, due = _number(found, ARRIVAL, wanted.trace), _number(found, DUE, wanted.trace)
    except (PySparkException, Py4JJavaError) as error:
        raise TraceError(_not_read(wanted.trace, str(error))) from error
    return found.select(arrival.alias("arrival_ms"), due.alias("deliver_at_ms"))


def form_of(where: str) -> str:
    """The format of a trace: ``csv`` or ``parquet``."""
    return "csv" if where.rstrip("/*").lower().endswith(_CSV) else "parquet"


def changed(trace: DataFrame, scale: float, delays: Sequence[Delays], span_ms: int) -> DataFrame:
    """The trace with ``scale`` times its traffic, and with another mix of delays if one is given."""
    if scale != 1:
        trace = _scaled(trace, scale, span_ms)
    if not delays:
        return trace
    trace = trace.select("arrival_ms", sf.rand(3).alias("which"), sf.rand(5).alias("where"))

    def length(one: Delays) -> Column:
        return sf.lit(one.least_ms) + sf.floor(sf.col("where") * (one.most_ms - one.least_ms + 1))

    delay, above = length(delays[-1]), 1.0 - delays[-1].share
    for one in reversed(delays[:-1]):
        delay = sf.when(sf.col("which") < above, length(one)).otherwise(delay)
        above -= one.share
    return trace.select("arrival_ms", (sf.col("arrival_ms") + delay).cast("bigint").alias("deliver_at_ms"))


def _scaled(trace: DataFrame, scale: float, span_ms: int) -> DataFrame:
    """Each entry so many times, moved by up to a second: the same ups and downs, but no two alike."""
    whole = int(scale)
    copies = sf.lit(whole) + (sf.rand(7) < (scale - whole)).cast("int")
    several = trace.withColumn("copies", copies).filter("copies > 0")
    several = several.withColumn("copy", sf.explode(sf.sequence(sf.lit(1), sf.col("copies"))))
    jitter_ms = max(min(1_000, span_ms // 100), 1)
    moved = sf.when(sf.col("copy") == 1, 0).otherwise((sf.rand(11) * jitter_ms).cast("bigint"))
    return several.withColumn("moved", moved).select(
        (sf.col("arrival_ms") + sf.col("moved")).alias("arrival_ms"),
        (sf.col("deliver_at_ms") + sf.col("moved")).alias("deliver_at_ms"),
    )


def _number(found: DataFrame, names: Sequence[str], where: str) -> Column:
    name = column_of(found.columns, names, where)
    kind = found.schema[name].dataType
    if not isinstance(kind, (NumericType, StringType)):
        raise TraceError(
            f"{name} in {where} is of the type {kind.simpleString()}: it must be milliseconds since the epoch"
        )
    text = sf.trim(sf.col(name).cast("string"))
    return sf.coalesce(text.try_cast("bigint"), whole(text.try_cast("double")))


def column_of(columns: Sequence[str], names: Sequence[str], where: str) -> str:
    """The first of ``names`` that is a column. Raises ``TraceError``."""
    name = next((one for one in names if one in columns), None)
    if name is None:
        has = ", ".join(one[:40] for one in columns[:20]) or "none"
        raise TraceError(f"{where} has no column {names[0]}; its columns: {has}")
    return name


def _not_read(where: str, text: str) -> str:
    if "PATH_NOT_FOUND" in text or "does not exist" in text:
        return f"there is nothing at {where}"
    if "UNABLE_TO_INFER_SCHEMA" in text:
        return f"there are no rows in {where}"
    return f"{where} cannot be read: it must be Parquet, or CSV with a header in a file that ends in .csv"
