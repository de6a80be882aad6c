"""The two records of an audit as Spark tables with fixed columns, checked before they are judged.

Invariants: a missing column, a non-numeric value or a row without a required value is one error that names
the record; rows then have `judge`'s types. The data source reads a record that is a topic: that of the
delayed messages as the sent record, one of JSON rows as the received one.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    DataType,
    DoubleType,
    LongType,
    NumericType,
    StringType,
    StructField,
    StructType,
)

from tidegate.pipeline.audit.options import Format, Pulsar, Record
from tidegate.pipeline.errors import OptionError, TraceError
from tidegate.pipeline.job.failures import explained
from tidegate.pipeline.source.backlog import FORMAT, register
from tidegate.pipeline.times import check_unit, whole

_TEXT, _NUMBER, _FLOAT = StringType(), LongType(), DoubleType()
_JSON_LINES = 1_000
_CORRUPT = "_corrupt_record"


class Columns(NamedTuple):
    """The columns of a record. ``needed`` must not be null; ``optional`` columns may be absent."""

    name: str
    types: dict[str, DataType]
    needed: tuple[str, ...]
    optional: tuple[str, ...]


SENT = Columns(
    "sent",
    {"message_id": _TEXT, "topic": _TEXT, "key": _TEXT, "sent_at_ms": _NUMBER, "deliver_at_ms": _NUMBER},
    ("message_id", "sent_at_ms"),
    ("topic", "key"),
)
RECEIVED = Columns(
    "received",
    {"message_id": _TEXT, "subscription": _TEXT, "received_at_ms": _NUMBER, "redelivery_count": _NUMBER},
    ("message_id", "received_at_ms"),
    ("redelivery_count",),
)


TIME = {"sent": "sent_at_ms", "received": "received_at_ms"}
"""The recording time of a row."""
_ENDS = {"least": sf.min, "most": sf.max}


def read(spark: SparkSession, record: Record, columns: Columns, pulsar: Pulsar | None) -> DataFrame:
    """A record's rows. Raises ``TraceError``."""
    if record.format is Format.TOPIC:
        return _of_topic(spark.read.format(FORMAT).options(**_topic(spark, record, pulsar)).load(), columns)
    try:
        match record.format:
            case Format.CSV:
                found = spark.read.option("header", "true").csv(record.where)
            case Format.JSON:
                names = _names_of_json(spark, record)
                if names is not None:
                    check_names(names, columns, record)
                found = spark.read.json(
                    record.where, schema=_text_schema(columns), columnNameOfCorruptRecord=_CORRUPT
                )
            case _:
                found = spark.read.parquet(record.where)
        return _typed(found, columns, record)
    except (PySparkException, Py4JJavaError) as error:
        raise TraceError(_not_read(record, columns, error)) from error


def read_stream(spark: SparkSession, record: Record, columns: Columns, pulsar: Pulsar | None) -> DataFrame:
    """The present and future rows of a record. Raises ``TraceError``."""
    if record.format is Format.TOPIC:
        source = spark.readStream.format(FORMAT).options(**_topic(spark, record, pulsar))
        return _of_topic(source.load(), columns)
    try:
        # A stream must know its columns before it reads a file: the present files have them.
        match record.format:
            case Format.CSV:
                schema = spark.read.option("header", "true").csv(record.where).schema
                source = spark.readStream.schema(schema).option("header", "true").format("csv")
            case Format.JSON:
                source = spark.readStream.schema(_text_schema(columns)).format("json")
                source = source.option("columnNameOfCorruptRecord", _CORRUPT)
            case _:
                source = spark.readStream.schema(spark.read.parquet(record.where).schema).format("parquet")
        return _typed(source.load(record.where), columns, record)
    except (PySparkException, Py4JJavaError) as error:
        raise TraceError(_not_read(record, columns, error)) from error


class Counted(NamedTuple):
    """The number of a record's rows, and the earliest and latest of their times (None without rows)."""

    rows: int
    first_ms: int | None
    last_ms: int | None


def count(frame: DataFrame, columns: Columns, record: Record) -> Counted:
    """Read a record once and check it. Raises ``TraceError``."""
    spans = [of(name).alias(f"{word}_{name}") for name in times_of(columns) for word, of in _ENDS.items()]
    nulls = [sf.count_if(sf.col(name).isNull()).alias(f"no_{name}") for name in columns.needed]
    broken = sf.count_if(sf.col(BROKEN).isNotNull()).alias("broken")
    sample = sf.first(sf.col(BROKEN), ignorenulls=True).alias("sample")
    row = frame.agg(
        sf.count("*").alias("rows"),
        broken,
        sample,
        *spans,
        *nulls,
    ).first()
    assert row is not None  # noqa: S101 an aggregate without groups has one row
    return checked(row.asDict(), columns, record)


def checked(row: Mapping[str, Any], columns: Columns, record: Record) -> Counted:
    """The count of a record by its `rows`, `broken` ones with a `sample`, and by column `no_`, `least_`,
    `most_`.

    Raises ``TraceError``.
    """
    if row["broken"]:
        raise TraceError(
            f"{columns.name}: {row['broken']:,} rows of {record.where} have a value that does not fit its "
            f"column, such as {str(row['sample'])[:80]!r}"
        )
    for name in columns.needed:
        if row[f"no_{name}"]:
            raise TraceError(f"{columns.name}: {row[f'no_{name}']:,} rows of {record.where} have no {name}")
    for name in times_of(columns):
        check_unit(f"{columns.name}: {name} in {record.where}", row[f"least_{name}"], row[f"most_{name}"])
    time = TIME[columns.name]
    return Counted(row["rows"], row[f"least_{time}"], row[f"most_{time}"])


def times_of(columns: Columns) -> list[str]:
    """The names of the columns with times."""
    return [name for name in columns.types if name.endswith("_at_ms")]


BROKEN = "broken"
"""A column beside those of the record: the first value of the row that does not fit, as text."""


def _typed(found: DataFrame, columns: Columns, record: Record) -> DataFrame:
    """The columns with their types, and ``broken``."""
    check_names(found.columns, columns, record)
    typed, problems = [], []
    for name, wanted in columns.types.items():
        if name not in found.columns:
            typed.append(sf.lit(None).cast(wanted).alias(name))
        elif isinstance(wanted, StringType):
            typed.append(sf.col(name).cast(_TEXT).alias(name))
        else:
            present = found.schema[name].dataType
            if not isinstance(present, (StringType, NumericType)):
                raise TraceError(
                    f"{columns.name}: {name} in {record.where} is of the type {present.simpleString()}: "
                    "it must be a number"
                )
            text = sf.nullif(sf.trim(sf.col(name).cast(_TEXT)), sf.lit(""))
            number = sf.coalesce(text.try_cast(_NUMBER), whole(text.try_cast(_FLOAT)))
            typed.append(number.cast(_NUMBER).alias(name))
            problems.append(sf.when(text.isNotNull() & number.isNull(), text))
    if _CORRUPT in found.columns:
        problems.append(sf.col(_CORRUPT))
    return found.select(*typed, sf.coalesce(*problems, sf.lit(None)).cast(_TEXT).alias(BROKEN))


def check_names(names: Sequence[str], columns: Columns, record: Record) -> None:
    """Require all columns but optional ones. Raises ``TraceError``."""
    missing = [name for name in columns.types if name not in names and name not in columns.optional]
    if missing:
        has = ", ".join(name[:40] for name in names[:20]) or "none"
        raise TraceError(
            f"{columns.name}: {record.where} has no column {missing[0]}; its columns: {has}; needed: "
            + ", ".join(name for name in columns.types if name not in columns.optional)
        )


def _text_schema(columns: Columns) -> StructType:
    """All columns as text, so that an error can show a value that is not a number."""
    return StructType([StructField(name, _TEXT) for name in (*columns.types, _CORRUPT)])


def _names_of_json(spark: SparkSession, record: Record) -> list[str] | None:
    """The names in the first lines, None without lines; a line may leave out nulls."""
    lines = spark.read.text(record.where).head(_JSON_LINES)
    names: dict[str, None] = {}
    for row in lines:
        with contextlib.suppress(ValueError):
            told = json.loads(row[0])
            names |= dict.fromkeys(told) if isinstance(told, dict) else {}
    return list(names) if lines else None


def _topic(spark: SparkSession, record: Record, pulsar: Pulsar | None) -> dict[str, str]:
    if pulsar is None:
        raise OptionError(f"{record.where} is a topic: give --service-url and --admin-url")
    register(spark)
    return pulsar.source_options(record.where, payload=True)


def _of_topic(rows: DataFrame, columns: Columns) -> DataFrame:
    if columns is SENT:
        # In the form of Java's MessageId; a message in chunks goes by its last one.
        parts = [sf.col("ledger_id"), sf.col("entry_id"), sf.col("partition")]
        batched = sf.when(
            sf.col("batch_index") >= 0, sf.concat(sf.lit(":"), sf.col("batch_index").cast(_TEXT))
        )
        message_id = sf.concat(sf.concat_ws(":", *parts), sf.coalesce(batched, sf.lit("")))
        whole = sf.col("chunk_id").isNull() | (sf.col("chunk_id") == sf.col("chunks") - 1)
        return rows.filter(whole).select(
            message_id.alias("message_id"),
            "topic",
            "key",
            sf.col("publish_time_ms").alias("sent_at_ms"),
            "deliver_at_ms",
            sf.lit(None).cast(_TEXT).alias(BROKEN),
        )
    schema = StructType([StructField(name, kind) for name, kind in columns.types.items()])
    told = sf.decode(sf.col("payload"), "UTF-8")
    found = rows.select(sf.from_json(told, schema).alias("told"), told.alias("text"))
    unreadable = sf.col("told").isNull() | sf.col("told.message_id").isNull()
    return found.select("told.*", sf.when(unreadable, sf.substring("text", 1, 80)).alias(BROKEN))


def _not_read(record: Record, columns: Columns, error: Exception) -> str:
    text = str(error)
    if "PATH_NOT_FOUND" in text or "does not exist" in text:
        return f"{columns.name}: there is nothing at {record.where}"
    if "UNABLE_TO_INFER_SCHEMA" in text:
        return f"{columns.name}: there are no rows in {record.where}"
    if "is not a Parquet file" in text:
        return f"{columns.name}: {record.where} cannot be read as parquet: say what it is with --format"
    return (
        f"{columns.name}: {record.where} cannot be read as {record.format.value}: {explained(error).message}"
    )
