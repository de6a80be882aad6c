"""The Spark filters that the reader applies itself, as an interval for each column.

Pure. Invariant: the reader takes a filter only if intervals express it exactly; Spark applies the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)

from tidegate.pipeline.topic.ranges import Bounds, Position
from tidegate.pipeline.topic.rows import Interval, Wanted

_COLUMNS = (
    "partition",
    "ledger_id",
    "entry_id",
    "batch_index",
    "deliver_at_ms",
    "publish_time_ms",
    "size_bytes",
)


def push(filters: Sequence[Filter]) -> tuple[Wanted, list[Filter]]:
    """(the wanted rows, the filters left to Spark)."""
    wanted = Wanted()
    left = []
    for one in filters:
        column, interval = _understood(one)
        if interval is None:
            left.append(one)
        else:
            before = wanted.of(column)
            wanted.intervals[column] = Interval(
                max(before.low, interval.low),
                min(before.high, interval.high),
                before.null and interval.null,
                before.values and interval.values,
            )
    return wanted, left


def bounds(wanted: Wanted) -> Bounds:
    """The positions that enclose all wanted rows."""
    ledger, entry = wanted.of("ledger_id"), wanted.of("entry_id")
    everything = Bounds()
    first, last = everything
    if ledger.low >= 0:
        first = Position(ledger.low, max(entry.low, 0) if ledger.low == ledger.high else 0)
    if ledger.high < last.ledger_id:
        last = Position(ledger.high, entry.high if ledger.low == ledger.high else last.entry_id)
    return Bounds(first, last)


def _understood(one: Filter) -> tuple[str, Interval | None]:
    """(column, its interval); None for a filter that stays with Spark."""
    column = ".".join(getattr(one, "attribute", ()))
    if column not in _COLUMNS:
        return column, None
    if isinstance(one, IsNull):
        return column, Interval(null=True, values=False)
    if isinstance(one, IsNotNull):
        return column, Interval()
    value = getattr(one, "value", None)
    if not isinstance(value, int) or isinstance(value, bool):
        return column, None
    return column, _compared(one, value)


def _compared(one: Filter, value: int) -> Interval | None:
    match one:
        case EqualTo():
            return Interval(low=value, high=value)
        case GreaterThan():
            return Interval(low=value + 1)
        case GreaterThanOrEqual():
            return Interval(low=value)
        case LessThan():
            return Interval(high=value - 1)
        case LessThanOrEqual():
            return Interval(high=value)
        case _:
            return None
