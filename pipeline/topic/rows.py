"""Rows of a topic's backlog, one for each message, as Arrow batches.

    topic            the whole topic's name        partition         its number, -1 if there are none
    ledger_id        \\ the position, which is      batch_index       -1 if the message is not in a batch
    entry_id         / what an index holds         deliver_at_ms     null if it is not delayed
    publish_time_ms  when the producer sent it     key               null if it has none, or is encrypted in
    producer         the producer's name                             a batch
    size_bytes       of the payload, uncompressed (of a chunk: as it is stored); null in an encrypted batch

With ``payloads`` there are three more: ``payload`` (null if it is encrypted or a chunk), ``chunk_id`` and
``chunks`` (null if the message is not in chunks; each chunk is a row, for each is an entry).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.pipeline.errors import WireError
from tidegate.pipeline.topic.entry import Entry, messages
from tidegate.pipeline.topic.schema import NOT_SET

COLUMNS: Final = {
    "topic": "string",
    "partition": "int",
    "ledger_id": "bigint",
    "entry_id": "bigint",
    "batch_index": "int",
    "deliver_at_ms": "bigint",
    "publish_time_ms": "bigint",
    "key": "string",
    "producer": "string",
    "size_bytes": "bigint",
}
PAYLOAD_COLUMNS: Final = {"payload": "binary", "chunk_id": "int", "chunks": "int"}

_ARROW = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "binary": pa.binary()}
_NOT_DELAYED = NOT_SET["deliver_at_time"]
_NO_CHUNK = NOT_SET["chunk_id"]
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


def schema_text(payloads: bool) -> str:
    """The columns as Spark's DDL."""
    columns = COLUMNS | (PAYLOAD_COLUMNS if payloads else {})
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


def arrow_schema(payloads: bool) -> pa.Schema:
    """The columns as Arrow's schema."""
    columns = COLUMNS | (PAYLOAD_COLUMNS if payloads else {})
    return pa.schema([(name, _ARROW[kind]) for name, kind in columns.items()])


@dataclass(frozen=True)
class Interval:
    """A column's permitted values: low … high, both inclusive, and perhaps null."""

    low: int = _INT64_MIN
    high: int = _INT64_MAX
    null: bool = False
    values: bool = True

    def has(self, value: int | None) -> bool:
        """True if a value is permitted."""
        return self.null if value is None else self.values and self.low <= value <= self.high


@dataclass(frozen=True)
class Wanted:
    """The wanted rows: an interval for each restricted column."""

    intervals: dict[str, Interval] = field(default_factory=dict)

    def of(self, column: str) -> Interval:
        """A column's interval."""
        return self.intervals.get(column, Interval(null=True))


class RowBuilder:
    """Makes Arrow batches of the messages of one topic or partition."""

    def __init__(self, topic: str, partition: int, wanted: Wanted, *, payloads: bool = False) -> None:
        self._topic, self._partition = topic, partition
        self._payloads = payloads
        self._schema = arrow_schema(payloads)
        self._deliver_at = wanted.intervals.get("deliver_at_ms")
        self._publish_time = wanted.intervals.get("publish_time_ms")
        self._late = {
            column: interval
            for column, interval in wanted.intervals.items()
            if column not in ("deliver_at_ms", "publish_time_ms")
        }

    def batch(self, ledger_id: int, entries: Sequence[Entry]) -> pa.RecordBatch:
        """The wanted rows of these entries. Raises ``WireError``."""
        try:
            return self._filtered(self._made(ledger_id, self._rows(entries)))
        except (UnicodeDecodeError, OverflowError, pa.ArrowException) as error:
            raise WireError(
                f"a message of ledger {ledger_id} has a field that makes no sense: {error}"
            ) from error

    def _rows(self, entries: Sequence[Entry]) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        deliver_at, publish_time = self._deliver_at, self._publish_time
        for entry in entries:
            metadata = entry.metadata
            deliver_at_ms = metadata.deliver_at_time
            if deliver_at_ms == _NOT_DELAYED:
                deliver_at_ms = None
            publish_time_ms = metadata.publish_time
            if deliver_at is not None and not deliver_at.has(deliver_at_ms):
                continue
            if publish_time is not None and not publish_time.has(publish_time_ms):
                continue
            producer = metadata.producer_name
            for index, key, size_bytes, payload in messages(entry, payloads=self._payloads):
                row = (entry.entry_id, index, deliver_at_ms, publish_time_ms, key, producer, size_bytes)
                if self._payloads:
                    in_chunks = metadata.chunk_id != _NO_CHUNK
                    chunks = (metadata.chunk_id, metadata.num_chunks_from_msg) if in_chunks else (None, None)
                    row = (*row, payload, *chunks)
                rows.append(row)
        return rows

    def _made(self, ledger_id: int, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
        columns = list(zip(*rows, strict=True)) if rows else [()] * (len(self._schema) - 3)
        constant = [
            pa.repeat(pa.scalar(value, self._schema.field(at).type), len(rows))
            for at, value in enumerate((self._topic, self._partition, ledger_id))
        ]
        varying = [
            pa.array(column, self._schema.field(at).type) for at, column in enumerate(columns, len(constant))
        ]
        return pa.RecordBatch.from_arrays([*constant, *varying], schema=self._schema)

    def _filtered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for column, interval in self._late.items():
            values = batch.column(column)
            inside = pc.and_(
                pc.greater_equal(values, pa.scalar(max(interval.low, _INT64_MIN), pa.int64())),
                pc.less_equal(values, pa.scalar(interval.high, pa.int64())),
            )
            if not interval.values:
                inside = pc.and_(inside, False)
            batch = batch.filter(pc.if_else(pc.is_null(values), interval.null, inside))
        return batch
