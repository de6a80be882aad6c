"""An audit of small records in this process: Spark's start alone would take longer.

Invariant: figures, report and offending messages equal those of ``tables`` with Spark.
"""

from __future__ import annotations

import contextlib
import shutil
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.types import StringType

from tidegate.pipeline.audit.folder import BY_SPARK, DATA, FIRST_COLUMN, not_ours
from tidegate.pipeline.audit.judge import JUDGED, RECEIVED, SENT, Verdict, find_out_of_order, judge
from tidegate.pipeline.audit.options import AuditOptions, Format, Record
from tidegate.pipeline.audit.records import RECEIVED as RECEIVED_COLUMNS
from tidegate.pipeline.audit.records import SENT as SENT_COLUMNS
from tidegate.pipeline.audit.records import Columns, Counted, check_names, checked, times_of
from tidegate.pipeline.audit.report import EXAMPLE_COLUMNS, EXAMPLES
from tidegate.pipeline.audit.summary import Figures, figures_of
from tidegate.pipeline.audit.tables import (
    BAD,
    EXACT_MS,
    SECOND_MS,
    LateTable,
    gaps_by_subscription,
    late_tables,
)
from tidegate.pipeline.errors import PipelineError
from tidegate.pipeline.job.local_file import read_local

_TEMPORARY = "_temporary"
_COUNT: list[tuple[list[str], str]] = [([], "count_all")]


class LocalRecords(NamedTuple):
    """Both records, as ``SENT`` and ``RECEIVED`` of ``judge``; no subscription is null."""

    sent: pa.Table
    received: pa.Table
    of_sent: Counted
    of_received: Counted

    def subscriptions(self) -> list[str]:
        """The subscriptions with receipts."""
        return [str(one) for one in pc.unique(self.received["subscription"]).to_pylist()]


def read_records(wanted: AuditOptions) -> LocalRecords | None:
    """The records, if small and on this machine; None if Spark has to read them.

    Raises ``TraceError``.
    """
    if wanted.offending is not None and "://" in wanted.offending:
        return None
    sent = _read(wanted.sent, SENT_COLUMNS, SENT)
    received = None if sent is None else _read(wanted.received, RECEIVED_COLUMNS, RECEIVED)
    if sent is None or received is None:
        return None
    at = RECEIVED.get_field_index("subscription")
    named = received[0].set_column(at, RECEIVED.field(at), received[0]["subscription"].fill_null(""))
    return LocalRecords(sent[0], named, sent[1], received[1])


def _read(record: Record, columns: Columns, schema: pa.Schema) -> tuple[pa.Table, Counted] | None:
    if record.format is Format.TOPIC:
        return None
    texts = [name for name, kind in columns.types.items() if isinstance(kind, StringType)]
    numbers = [name for name in columns.types if name not in texts]
    found = read_local(record.where, record.format.value, texts=texts, numbers=numbers)
    if found is None:
        return None
    check_names(found.names, columns, record)
    rows = found.table.num_rows
    table = pa.table(
        [
            found.table[one.name] if one.name in found.table.column_names else pa.nulls(rows, one.type)
            for one in schema
        ],
        schema=schema,
    )
    known: dict[str, object] = {"rows": rows, "broken": 0}
    known |= {f"no_{name}": table[name].null_count for name in columns.needed}
    for name in times_of(columns):
        ends = pc.min_max(table[name]).as_py()
        known |= {f"least_{name}": ends["min"], f"most_{name}": ends["max"]}
    return table, checked(known, columns, record)


class LocalRows:
    """The judged rows of an audit."""

    def __init__(self, records: LocalRecords, subscriptions: list[str], until_ms: int | None) -> None:
        self._rows = judge(records.sent, records.received, subscriptions, until_ms)
        self._delivered = self._rows.filter(pc.equal(self._rows["verdict"], int(Verdict.DELIVERED)))
        keyed = self._delivered.filter(pc.is_valid(self._delivered["key"]))
        self._out_of_order = find_out_of_order(keyed)
        delayed = self._delivered.filter(pc.is_valid(self._delivered["deliver_at_ms"]))
        late_ms = pc.subtract(delayed["received_at_ms"], delayed["deliver_at_ms"])
        self._late = delayed.append_column("late_ms", late_ms)

    def figures(self, gap_ms: int) -> dict[str, Figures]:
        """Everything that a summary needs, by subscription."""
        early_by = pc.subtract(self._rows["deliver_at_ms"], self._rows["received_at_ms"])
        by = pc.if_else(self._rows["early"], early_by, pa.scalar(None, pa.int64()))
        counted = (
            self._rows.append_column("by", by)
            .group_by(["subscription", "verdict", "early", "cause"])
            .aggregate([*_COUNT, ("by", "max")])
        )
        counts = defaultdict(list)
        for row in counted.to_pylist():
            one = (row["verdict"], row["early"], row["cause"], row["count_all"], row["by_max"] or 0)
            counts[row["subscription"]].append(one)
        lateness = defaultdict(list)
        for row in self._late.group_by(["subscription", "late_ms"]).aggregate(_COUNT).to_pylist():
            lateness[row["subscription"]].append((row["late_ms"], row["count_all"]))
        found = figures_of(counts, lateness)
        for name, silent in gaps_by_subscription(self._seconds(), gap_ms).items():
            found[name].gaps = silent
        for row in self._out_of_order.group_by("subscription").aggregate(_COUNT).to_pylist():
            found[row["subscription"]].verdicts[Verdict.OUT_OF_ORDER] += row["count_all"]
        return found

    def _seconds(self) -> pa.Table:
        """Receipts by second, for ``gaps_by_subscription``."""
        rows = self._delivered
        second = pa.array(rows["received_at_ms"].to_numpy() // SECOND_MS)
        due = pc.max_element_wise(rows["deliver_at_ms"], rows["sent_at_ms"])
        return (
            rows.select(["subscription", "received_at_ms"])
            .append_column("second", second)
            .append_column("due", due)
            .group_by(["subscription", "second"])
            .aggregate([("received_at_ms", "min"), ("received_at_ms", "max"), ("due", "min")])
            .rename_columns(["subscription", "second", "first", "last", "due"])
        )

    def lateness_by(self, width_ms: int) -> dict[str, LateTable]:
        """As ``tables.lateness_by``."""
        late_ms = self._late["late_ms"].to_numpy()
        size = np.abs(late_ms)
        step = 10 ** (np.floor(np.log10(np.maximum(size, 1))) - 2)
        rounded = np.where(size < EXACT_MS, late_ms, (np.floor(late_ms / step) * step).astype(np.int64))
        interval = self._late["deliver_at_ms"].to_numpy() // width_ms
        table = pa.table(
            {
                "subscription": self._late["subscription"],
                "interval": pa.array(interval),
                "late_ms": pa.array(rounded),
            }
        )
        counted = table.group_by(["subscription", "interval", "late_ms"]).aggregate(_COUNT)
        return late_tables(
            counted.rename_columns(["subscription", "interval", "late_ms", "messages"]), width_ms
        )

    def offending(self) -> pa.Table:
        """As ``tables.offending``."""
        verdict = self._rows["verdict"].to_numpy()
        is_bad = np.isin(verdict, [int(one) for one in BAD]) | self._rows["early"].to_numpy()
        bad = pa.concat_tables([self._rows.filter(pa.array(is_bad)), self._out_of_order])
        names = [one.name.lower() for one in Verdict]
        names[Verdict.DELIVERED] = "early"
        wrong = pa.array(names, pa.string()).take(bad["verdict"].combine_chunks())
        kept = [name for name in JUDGED.names if name not in ("verdict", "early", "cause")]
        return bad.select(kept).add_column(0, FIRST_COLUMN, wrong)


def examples(bad: pa.Table) -> list[tuple[object, ...]]:
    """The first offending messages."""
    rows = bad.slice(0, EXAMPLES).select(list(EXAMPLE_COLUMNS)).to_pylist()
    return [tuple(row[name] for name in EXAMPLE_COLUMNS) for row in rows]


def check_replaceable(where: str) -> None:
    """As ``folder.check_replaceable``, without Spark. Raises ``OptionError``."""
    path = Path(where)
    if not path.exists():
        return
    names = [one.name for one in path.iterdir()] if path.is_dir() else None
    is_ours = names is not None and all(map(BY_SPARK.fullmatch, names))
    for name in (one for one in names or () if one.startswith(DATA)):
        try:
            is_ours = is_ours and pq.read_schema(path / name).names[:1] == [FIRST_COLUMN]
        except (OSError, pa.ArrowException):
            is_ours = False
    if not is_ours:
        raise not_ours(where)


def write_offending(bad: pa.Table, where: str) -> None:
    """Write them, in place of an older audit's: whole, or not at all. Raises ``PipelineError``."""
    path = Path(where)
    try:
        path.mkdir(parents=True, exist_ok=True)
        old = list(path.iterdir())
        for one in [one for one in old if one.name == _TEMPORARY and one.is_dir()]:
            shutil.rmtree(one)
        pq.write_table(bad, path / _TEMPORARY)
        for one in [one for one in old if one.name != _TEMPORARY]:
            one.unlink()
        (path / _TEMPORARY).replace(path / "part-00000.parquet")
        (path / "_SUCCESS").touch()
    except OSError as error:
        with contextlib.suppress(OSError):
            (path / _TEMPORARY).unlink(missing_ok=True)
        raise PipelineError(
            f"cannot write the offending messages to {where}: {error.strerror or error}; "
            "correct that, or choose another --offending"
        ) from error
