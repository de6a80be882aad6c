"""The data source itself: ``spark.read.format("tidegate-backlog")`` and ``spark.readStream``.

    from tidegate.pipeline.source.backlog import register
    register(spark)
    spark.read.format("tidegate-backlog").options(service_url=…, admin_url=…, topic=…, subscription=…).load()

A Spark partition is a group of ledger ranges, all of about the same size. Planning fixes the entries to read:
later entries and acknowledgements do not count. A stream's offsets are positions, regardless of
acknowledgements. With ``trigger(availableNow=True)`` it reads what was there at the query's beginning, in as
many batches as that takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from tidegate.pipeline.errors import OptionError
from tidegate.pipeline.job.parts import check_spark
from tidegate.pipeline.source import positions
from tidegate.pipeline.source.limits import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from tidegate.pipeline.source.options import Options
from tidegate.pipeline.source.pushdown import bounds, push
from tidegate.pipeline.topic.plan import backlog, check, survey
from tidegate.pipeline.topic.ranges import EntryRange, split
from tidegate.pipeline.topic.reader import EntryReader
from tidegate.pipeline.topic.rows import RowBuilder, Wanted, arrow_schema, schema_text

FORMAT = "tidegate-backlog"


def register(spark: SparkSession) -> None:
    """Make the format known to a session, and let it push filters down. Raises ``MissingPartError``."""
    check_spark(spark.version, advice="correct SPARK_HOME, or take a newer cluster")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(BacklogSource)


class BacklogSource(DataSource):
    """A topic's backlog."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format(…)``."""
        return FORMAT

    def schema(self) -> str:
        """The columns (see `topic/rows.py`)."""
        return schema_text(Options.parse(self.options).payloads)

    def reader(self, schema: StructType) -> BacklogReader:
        """A reader for one query."""
        return BacklogReader(_checked(self.options, schema))

    def streamReader(self, schema: StructType) -> BacklogStream:  # noqa: N802 Spark's name
        """A reader for one streaming query."""
        return BacklogStream(_checked(self.options, schema))


class RangesPartition(InputPartition):
    """Ranges that one task reads in a row."""

    def __init__(self, ranges: Sequence[EntryRange]) -> None:
        super().__init__(list(ranges))


class BacklogReader(DataSourceReader):
    """Plans once and reads in the workers."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._wanted = Wanted()

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 Spark's name
        """Take over filters on positions and times."""
        self._wanted, left = push(filters)
        return left

    def partitions(self) -> Sequence[InputPartition]:
        """Fix the ranges to read."""
        options = self._options
        partition = self._wanted.of("partition")
        found = [
            one
            for planned in survey(options.cluster, options.topic)
            if partition.has(planned.partition)
            for one in backlog(planned, options.subscription, bounds(self._wanted))
        ]
        check(found, options.cluster)
        return [RangesPartition(group) for group in split(found, options.entries_per_partition)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one partition; where there is none, PySpark 4.1 asks for those of None."""
        if partition is not None:
            yield from read_rows(self._options, self._wanted, partition.value)


class BacklogStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are ``{partition: "ledger:entry"}``, each the first unread position."""

    def __init__(self, options: Options) -> None:
        if options.subscription is not None:
            raise OptionError("a stream reads the whole topic: leave the option subscription out")
        self._options = options
        self._target: positions.Offset | None = None

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 Spark's name
        """The start of a new query."""
        found = survey(self._options.cluster, self._options.topic)
        return positions.latest(found) if self._options.from_latest else positions.earliest(found)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 Spark's name
        """The size of a batch; for one batch Spark asks for everything instead."""
        entries = self._options.entries_per_trigger
        return ReadAllAvailable() if entries is None else ReadMaxRows(entries)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 Spark's name
        """The query reads the present entries, and then ends."""
        self._target = positions.latest(survey(self._options.cluster, self._options.topic))

    def latestOffset(self, start: Any = None, limit: ReadLimit | None = None) -> dict[str, str]:  # noqa: N802
        """The end of a batch. Before 4.2 Spark gives neither its beginning nor its size limit."""
        found = survey(self._options.cluster, self._options.topic)
        end = positions.forward(start or {}, self._target or positions.latest(found))
        if start is None or not isinstance(limit, ReadMaxRows):
            return end
        return positions.limited(found, start, end, limit.max_rows)

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """The ranges between two offsets."""
        options = self._options
        ranges = [
            one
            for planned in survey(options.cluster, options.topic)
            for one in positions.between(planned, start, end, may_lose=options.may_lose)
        ]
        check(ranges, options.cluster)
        return [RangesPartition(group) for group in split(ranges, options.entries_per_partition)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition."""
        yield from read_rows(self._options, Wanted(), partition.value)


def read_rows(
    options: Options, wanted: Wanted, ranges: Sequence[EntryRange] | None
) -> Iterator[pa.RecordBatch]:
    """The rows of some ranges, in order. Without partitions PySpark 4.3 makes one that has None."""
    topic = str(options.topic.base)
    with EntryReader(options.cluster) as reader:
        for one in ranges or ():
            builder = RowBuilder(topic, one.partition, wanted, payloads=options.payloads)
            for chunk in reader.read(one):
                if chunk.entries:
                    yield builder.batch(chunk.ledger_id, chunk.entries)


def _checked(given: Any, schema: StructType) -> Options:
    options = Options.parse(given)
    names = arrow_schema(options.payloads).names
    if schema.fieldNames() != names:
        raise OptionError(f"the columns are fixed: leave the schema out; they are {', '.join(names)}")
    return options
