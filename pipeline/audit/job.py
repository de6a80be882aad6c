"""The audit's job: two records in, figures, a report and the offending messages out.

Small records on this machine are judged in this process, by ``local``; others on Spark:

sent ───► checked ─┐  by message, in groups            ┌► figures by subscription ─► result, report
                   ├───────────► judged (kept on disk) ┤
received ► checked ┘                                   └► by key, in groups ► out of order ─► offending
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from tidegate.pipeline.audit import local, records, tables
from tidegate.pipeline.audit.folder import check_replaceable
from tidegate.pipeline.audit.judge import Verdict
from tidegate.pipeline.audit.local import LocalRecords, LocalRows
from tidegate.pipeline.audit.options import AuditOptions
from tidegate.pipeline.audit.records import Counted
from tidegate.pipeline.audit.report import EXAMPLE_COLUMNS, EXAMPLES, Findings, make_report
from tidegate.pipeline.audit.summary import Figures, Summary
from tidegate.pipeline.audit.tables import LateTable
from tidegate.pipeline.errors import TraceError
from tidegate.pipeline.job.failures import room_for
from tidegate.pipeline.job.progress import phase
from tidegate.pipeline.job.request import HERE, SPARK
from tidegate.pipeline.job.runner import Context
from tidegate.plugin.shared.shown import without_passwords

SUBSCRIPTIONS_MAX = 1_000
REPORT_NAME = "report.html"


def run(context: Context, options: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Run an audit; (result, exit code: 0 if none was lost or early, else 1). Raises ``PipelineError``."""
    wanted = AuditOptions.model_validate(options)
    if wanted.stream is not None:
        from tidegate.pipeline.audit.stream import run_stream  # noqa: PLC0415

        return run_stream(context, wanted)
    small = None if context.wants_spark else local.read_records(wanted)
    return _on_spark(context, wanted) if small is None else _here(context, wanted, small)


def _here(context: Context, wanted: AuditOptions, records: LocalRecords) -> tuple[dict[str, Any], int]:
    rows = records.of_sent.rows + records.of_received.rows
    context.note(f"{rows:,} rows: judging them here, without Spark")
    _check_rows(context, wanted, records.of_sent, records.of_received)
    subscriptions = wanted.subscriptions or _sorted(records.subscriptions())
    if wanted.dry_run:
        return _planned(records.of_sent, records.of_received, subscriptions, 1) | {"engine": HERE}, 0
    if wanted.offending is not None:
        local.check_replaceable(wanted.offending)
    judged = LocalRows(records, list(subscriptions), wanted.until_ms)
    summary = summed(judged.figures(wanted.gap_ms), subscriptions)
    bad = judged.offending()
    if wanted.offending is not None:
        local.write_offending(bad, wanted.offending)
    findings = None
    if wanted.report is not None:
        late = judged.lateness_by(tables.MINUTE_MS), judged.lateness_by(wanted.slice_width_ms)
        findings = _findings(wanted, summary, *late, local.examples(bad))
    return _result(context, wanted, summary, findings, records.of_received) | {"engine": HERE}, _code(summary)


def _on_spark(context: Context, wanted: AuditOptions) -> tuple[dict[str, Any], int]:
    spark = context.spark
    if wanted.offending is not None:
        check_replaceable(spark, wanted.offending)
    with phase(spark, "reading what was sent"):
        sent = records.read(spark, wanted.sent, records.SENT, wanted.pulsar)
        of_sent = records.count(sent, records.SENT, wanted.sent)
    with phase(spark, "reading what was received"):
        received = records.read(spark, wanted.received, records.RECEIVED, wanted.pulsar)
        of_received = records.count(received, records.RECEIVED, wanted.received)
    _check_rows(context, wanted, of_sent, of_received)
    subscriptions = wanted.subscriptions or _subscriptions(spark, received)
    groups = tables.groups_for(of_sent.rows + of_received.rows, spark.sparkContext.defaultParallelism)
    if wanted.dry_run:
        return _planned(of_sent, of_received, subscriptions, groups) | {"engine": SPARK}, 0
    summary, findings = judge_all(Work(spark, sent, received, subscriptions, groups), wanted)
    return _result(context, wanted, summary, findings, of_received) | {"engine": SPARK}, _code(summary)


def _check_rows(context: Context, wanted: AuditOptions, of_sent: Counted, of_received: Counted) -> None:
    if not of_sent.rows:
        raise TraceError(f"sent: there are no rows in {wanted.sent.where}")
    if not of_received.rows:
        context.note("nothing was received at all: is that the right record?")


def _planned(
    of_sent: Counted, of_received: Counted, subscriptions: Sequence[str], groups: int
) -> dict[str, Any]:
    return {
        "dry_run": True,
        "sent_rows": of_sent.rows,
        "received_rows": of_received.rows,
        "subscriptions": list(subscriptions),
        "groups": groups,
    }


def _result(
    context: Context,
    wanted: AuditOptions,
    summary: Summary,
    findings: Findings | None,
    of_received: Counted,
) -> dict[str, Any]:
    result = summary.as_json()
    if findings is not None and wanted.report is not None:
        path = Path(wanted.report) / REPORT_NAME
        make_report(findings).write(path)
        result["report"] = str(path)
    result["offending"] = findings.offending if findings is not None else wanted.offending
    if of_received.last_ms is not None and wanted.until_ms is None:
        _warn_of_the_end(context, summary, of_received.last_ms)
    verdicts = summary.together().verdicts
    if verdicts[Verdict.PENDING] and not verdicts[Verdict.DELIVERED] + verdicts[Verdict.LOST]:
        context.note("no message was due by --until, so none could be lost: check that time")
    return result


def _code(summary: Summary) -> int:
    return 0 if summary.passed else 1


def _findings(
    wanted: AuditOptions,
    summary: Summary,
    by_minute: dict[str, LateTable],
    by_slice: dict[str, LateTable],
    examples: Sequence[Sequence[object]],
) -> Findings:
    return Findings(
        summary,
        without_passwords(wanted.sent.where),
        without_passwords(wanted.received.where),
        by_minute,
        by_slice,
        examples,
        None if wanted.offending is None else without_passwords(wanted.offending),
    )


@dataclass(frozen=True)
class Work:
    """The input: both records, the subscriptions that should receive everything, and the number of groups."""

    spark: SparkSession
    sent: DataFrame
    received: DataFrame
    subscriptions: Sequence[str]
    groups: int


def judge_all(work: Work, wanted: AuditOptions) -> tuple[Summary, Findings | None]:
    """The figures, and the report's findings if a report is wanted. Writes the offending messages."""
    rows = tables.judged(work.sent, work.received, work.subscriptions, wanted.until_ms, work.groups)
    rows = rows.persist(StorageLevel.DISK_ONLY)
    try:
        with phase(work.spark, "judging messages"):
            found = tables.figures(rows, wanted.gap_ms)
        with phase(work.spark, "looking at the order within keys"):
            late = tables.out_of_order(rows, work.groups).persist(StorageLevel.DISK_ONLY)
            for name, number in late.groupBy("subscription").count().collect():
                found[name].verdicts[Verdict.OUT_OF_ORDER] += number
        summary = summed(found, work.subscriptions)
        bad = tables.offending(rows, late)
        if wanted.offending is not None:
            with (
                phase(work.spark, "writing offending messages"),
                room_for(f"the offending messages to {without_passwords(wanted.offending)}", "--offending"),
            ):
                bad.write.mode("overwrite").parquet(wanted.offending)
        if wanted.report is None:
            return summary, None
        with phase(work.spark, "measuring lateness over time"):
            findings = _findings(
                wanted,
                summary,
                tables.lateness_by(rows, tables.MINUTE_MS),
                tables.lateness_by(rows, wanted.slice_width_ms),
                [tuple(row) for row in bad.select(*EXAMPLE_COLUMNS).limit(EXAMPLES).collect()],
            )
        return summary, findings
    finally:
        rows.unpersist()


def summed(found: dict[str, Figures], subscriptions: Sequence[str]) -> Summary:
    """A summary from figures by subscription; an empty name means no subscription."""
    for name in subscriptions:
        found.setdefault(name, Figures())
    sent_twice = sum(one.verdicts.pop(Verdict.SENT_TWICE, 0) for one in found.values())
    if "" not in subscriptions:
        found.pop("", None)
    first = found[subscriptions[0]].verdicts
    sent = first[Verdict.DELIVERED] + first[Verdict.LOST] + first[Verdict.PENDING]
    return Summary(sent, sent_twice, found)


def _subscriptions(spark: SparkSession, received: DataFrame) -> tuple[str, ...]:
    with phase(spark, "looking for subscriptions"):
        column = sf.coalesce("subscription", sf.lit("")).alias("name")
        names = [row[0] for row in received.select(column).distinct().limit(SUBSCRIPTIONS_MAX + 1).collect()]
    return _sorted(names)


def _sorted(names: Sequence[str]) -> tuple[str, ...]:
    if len(names) > SUBSCRIPTIONS_MAX:
        raise TraceError(
            f"received has more than {SUBSCRIPTIONS_MAX:,} subscriptions: name those to be judged"
        )
    return tuple(sorted(names)) or ("",)


def _warn_of_the_end(context: Context, summary: Summary, last_ms: int) -> None:
    if summary.together().verdicts[Verdict.LOST]:
        context.note(
            f"the record of what was received ends at {last_ms} ms: if messages due later are not to count "
            "as lost, say --until"
        )
