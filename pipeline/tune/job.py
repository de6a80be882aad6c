"""The job of `tidegate tune`: a trace in, a table of slice widths and a recommendation out.

    trace ─► arrivals by step and delay ─► when the index spills
        │                                       │
        └─► entries by spill and slice, for each width ─► what the slices do ─► activity ─┐
        └─► a part of it ─► the real index, short runs ─► what things cost ┴──────────────┴► predictions

For very narrow widths, with as many slices as entries, a sample of the slices stands for all. A small trace
on this machine is followed in this process, by ``local``; others on Spark.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from tidegate.index import WIDTHS_MS, IndexOptions
from tidegate.pipeline.errors import TraceError
from tidegate.pipeline.job.progress import phase
from tidegate.pipeline.job.request import HERE, SPARK
from tidegate.pipeline.job.runner import Context
from tidegate.pipeline.tune import local, traces
from tidegate.pipeline.tune.calibrate import SAMPLE_MAX, Calibration, Played, Trace, calibrate
from tidegate.pipeline.tune.local import LocalTrace
from tidegate.pipeline.tune.model import Activity, Costs, Prediction, predict, recommend
from tidegate.pipeline.tune.options import TuneOptions
from tidegate.pipeline.tune.report import make_report
from tidegate.pipeline.tune.slices import Changes, Filled, Fullest, History, Time, follow
from tidegate.pipeline.tune.span import Ends, Span, checked
from tidegate.pipeline.tune.spills import Spills, choose_step_ms, classes, find_spills
from tidegate.plugin.shared.durations import duration

REPORT_NAME = "report.html"
_HISTORY_MAX = 100_000
"""Slices and spills of one width that are followed; of more, only a part of the slices."""
_SHARES = 1_000_000
_PARTS = 16
_SECOND_MS = 1_000
_CHANGED = "spill bigint, " + ", ".join(f"{name} double" for name in Changes._fields)
_DDL = f"width_ms bigint, kind tinyint, {_CHANGED}"


def run(context: Context, options: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Run a tuning; (result, exit code). Raises ``PipelineError``."""
    wanted = TuneOptions.model_validate(options)
    index = IndexOptions(staging_budget_bytes=wanted.staging_bytes)
    small = None if context.wants_spark else local.read_trace(wanted)
    found = _on_spark(context, wanted, index) if small is None else _here(context, wanted, index, small)
    return found | {"engine": SPARK if small is None else HERE}, 0


def _here(context: Context, wanted: TuneOptions, index: IndexOptions, small: LocalTrace) -> dict[str, Any]:
    where = wanted.trace or "the topic"
    span = checked(small.ends(), where)
    context.note(f"{span.entries:,} messages: following them here, without Spark")
    if wanted.dry_run:
        return _planned(span)
    trace = local.changed(small.trace(), wanted.scale, wanted.delays, span.last_ms - span.first_ms)
    if not len(trace):
        raise TraceError(f"--scale {wanted.scale:g} leaves nothing of {where}")
    span = Span(len(trace), int(trace.arrival_ms[0]), int(trace.arrival_ms[-1]))
    with tempfile.TemporaryDirectory(prefix="tidegate-tune-") as folder:
        calibration = calibrate(Path(folder), local.part_of(trace, *span.sample(index)), context.note)
    played = Played(trace, index)
    activities = [played.activity(width_ms, calibration.costs) for width_ms in WIDTHS_MS]
    predictions = [predict(one, calibration.costs, index) for one in activities]
    return _result(wanted, span, predictions, calibration, index)


def _planned(span: Span) -> dict[str, Any]:
    return {
        "dry_run": True,
        "entries": span.entries,
        "span_ms": span.last_ms - span.first_ms,
        "widths": [duration(width_ms) for width_ms in WIDTHS_MS],
    }


def _on_spark(context: Context, wanted: TuneOptions, index: IndexOptions) -> dict[str, Any]:
    spark = context.spark
    where = wanted.trace or "the topic"
    with phase(spark, "reading the trace"):
        trace = traces.read(spark, wanted)
        span = _span(trace, where)
    if wanted.dry_run:
        return _planned(span)
    trace = traces.changed(trace, wanted.scale, wanted.delays, span.last_ms - span.first_ms)
    # Persisted, since a random draw must be the same at each read.
    trace = trace.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        with phase(spark, "counting arrivals"):
            span = _span(trace, where)
            spills = _spills(trace, span, index)
        with phase(spark, "taking a part of the trace"):
            sample = _sample(trace, span, index)
        with tempfile.TemporaryDirectory(prefix="tidegate-tune-") as folder:
            calibration = calibrate(Path(folder), sample, context.note)
        with phase(spark, "following slices of every width"):
            filled = _filled(trace, spills, span.entries, index, calibration.costs)
    finally:
        trace.unpersist()
    activities = [Activity.of(width_ms, spills, filled[width_ms]) for width_ms in WIDTHS_MS]
    predictions = [predict(one, calibration.costs, index) for one in activities]
    return _result(wanted, span, predictions, calibration, index)


def _result(
    wanted: TuneOptions,
    span: Span,
    predictions: list[Prediction],
    calibration: Calibration,
    index: IndexOptions,
) -> dict[str, Any]:
    chosen = recommend(predictions, index)
    best = next(one for one in predictions if one.width_ms == chosen.width_ms)
    result = {
        "entries": span.entries,
        "span_ms": span.last_ms - span.first_ms,
        "recommended": {**best.as_json(), "reason": chosen.reason},
        "candidates": [one.as_json() for one in predictions],
        "calibration": {
            "sample_entries": calibration.sample_entries,
            "costs": {name: float(f"{value:.4g}") for name, value in calibration.costs._asdict().items()},
            "runs": [
                {
                    "width_ms": one.predicted.width_ms,
                    "measured": one.measured.model_dump(),
                    "predicted": one.predicted.as_json(),
                    "error_percent": one.errors_percent(),
                }
                for one in calibration.compared
            ],
        },
    }
    if wanted.report is not None:
        path = Path(wanted.report) / REPORT_NAME
        make_report(result).write(path)
        result["report"] = str(path)
    return result


def _span(trace: DataFrame, where: str) -> Span:
    row = trace.agg(
        sf.count("*"),
        sf.count_if(sf.col("arrival_ms").isNull() | sf.col("deliver_at_ms").isNull()),
        sf.min("arrival_ms"),
        sf.max("arrival_ms"),
        sf.min("deliver_at_ms"),
        sf.max("deliver_at_ms"),
        sf.count_if(sf.col("deliver_at_ms") > sf.col("arrival_ms")),
    ).collect()[0]
    return checked(Ends(*row), where)


def _spills(trace: DataFrame, span: Span, index: IndexOptions) -> Spills:
    step_ms = choose_step_ms(span.first_ms, span.last_ms, index)
    delays = classes(step_ms, index)
    number = sf.floor((sf.col("arrival_ms") - span.first_ms) / step_ms)
    later = sf.floor(sf.col("deliver_at_ms") / step_ms) - sf.floor(sf.col("arrival_ms") / step_ms)
    delay = sf.greatest(sf.lit(0), sf.least(later, sf.lit(delays - 1)))
    counted = trace.groupBy(number.alias("number"), delay.alias("delay")).count().toArrow()
    arrivals = np.zeros(((span.last_ms - span.first_ms) // step_ms + 1, delays), np.int64)
    arrivals[counted["number"].to_numpy(), counted["delay"].to_numpy()] = counted["count"].to_numpy()
    return find_spills(span.first_ms, step_ms, arrivals, index)


def _filled(
    trace: DataFrame, spills: Spills, entries: int, index: IndexOptions, costs: Costs
) -> dict[int, Filled]:
    """The work of the slices of each width: each group by itself, with its part of the time."""
    at_ms, carry_ms = spills.at_ms, index.carry_ms
    followed = {width_ms: Filled(0, 0, Changes.none(len(at_ms)), Fullest(0, 0), {}) for width_ms in WIDTHS_MS}
    if not len(at_ms):
        return followed

    def by_second(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            arrival, due = (batch.column(name).to_numpy() for name in ("arrival_ms", "deliver_at_ms"))
            spill = spills.number_of(arrival, due)
            reached = due > np.append(at_ms, np.inf)[spill] + carry_ms
            columns = [pa.array(due[reached] // _SECOND_MS), pa.array(spill[reached])]
            yield pa.RecordBatch.from_arrays(columns, names=["second", "spill"])

    def follow_group(rows: pa.Table) -> pa.Table:
        ordered = rows.sort_by([("slice_number", "ascending"), ("spill", "ascending")])
        columns = (ordered[name].to_numpy() for name in ("slice_number", "spill", "entries"))
        width_ms = rows["width_ms"][0].as_py()
        share = pc.sum(rows["entries"]).as_py() / reached
        time = Time(costs.write_block_s, costs.write_entry_s, share)
        return _as_table(width_ms, follow(History(*columns), width_ms, at_ms, index, time))

    pairs = trace.mapInArrow(by_second, "second bigint, spill bigint").groupBy("second", "spill")
    base = pairs.agg(sf.count("*").alias("entries")).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        shares, reached = _shares(base, entries, len(at_ms))
        widths = base.sparkSession.createDataFrame(
            [(width_ms, int(share * _SHARES)) for width_ms, share in shares.items()],
            "width_ms bigint, share int",
        )
        number = sf.floor(sf.col("second") * _SECOND_MS / sf.col("width_ms"))
        told = (
            base.crossJoin(sf.broadcast(widths))
            .withColumn("slice_number", number)
            .filter(sf.pmod(sf.xxhash64("slice_number"), sf.lit(_SHARES)) < sf.col("share"))
            .groupBy("width_ms", "slice_number", "spill")
            .agg(sf.sum("entries").alias("entries"))
            .withColumn("part", sf.pmod(sf.xxhash64("slice_number"), sf.lit(_PARTS)))
            .groupBy("width_ms", "part")
            .applyInArrow(follow_group, _DDL)
            .toArrow()
        )
    finally:
        base.unpersist()
    for width_ms, share in shares.items():
        mine = told.filter(pc.equal(told["width_ms"], width_ms))
        followed[width_ms] = _of_table(mine, len(at_ms), 1 / share)
    return followed


def _shares(base: DataFrame, entries: int, spills: int) -> tuple[dict[int, float], int]:
    """(the share of each width's slices to follow, the number of entries that reach slices).

    All of them, unless they are too many.
    """
    distinct = [
        sf.approx_count_distinct(sf.floor(sf.col("second") * _SECOND_MS / width_ms), 0.05)
        for width_ms in WIDTHS_MS
    ]
    *slices, reached = base.agg(*distinct, sf.sum("entries")).collect()[0]
    # An entry may be the only one of its spill in its slice; no slice gets more than all.
    shares = {
        width_ms: min(1.0, _HISTORY_MAX / max(min(entries, number * spills), 1))
        for width_ms, number in zip(WIDTHS_MS, slices, strict=True)
    }
    return shares, reached or 1


def _as_table(width_ms: int, filled: Filled) -> pa.Table:
    """One row for each spill that changes the slices, and one for the rest."""
    changes = np.stack(filled.changes)
    at = np.flatnonzero(changes.any(axis=0))
    rest = (filled.spilled, filled.pairs, filled.fullest.entries, filled.fullest.runs, 0)
    columns = [np.append(of_spills[at], value) for of_spills, value in zip(changes, rest, strict=True)]
    kind = np.append(np.zeros(len(at), np.int8), np.int8(1))
    spill = np.append(at, 0).astype(np.int64)
    names = ["width_ms", "kind", "spill", *Changes._fields]
    return pa.table([np.full(len(kind), width_ms), kind, spill, *columns], names=names)


def _of_table(told: pa.Table, spills: int, times: float) -> Filled:
    """All groups together; each stands for ``times`` as many."""
    kind, spill = told["kind"].to_numpy(), told["spill"].to_numpy()
    values = [told[name].to_numpy() for name in Changes._fields]
    changes = Changes.none(spills)
    for total, value in zip(changes, values, strict=True):
        np.add.at(total, spill[kind == 0], value[kind == 0] * times)
    spilled, pairs, entries, runs, _ = (value[kind == 1] for value in values)
    fullest = Fullest(int(entries.max(initial=0)), int(runs.max(initial=0)))
    return Filled(float(spilled.sum()) * times, float(pairs.sum()) * times, changes, fullest, {})


def _sample(trace: DataFrame, span: Span, index: IndexOptions) -> Trace:
    begin_ms, length_ms = span.sample(index)
    part = trace.filter((sf.col("arrival_ms") >= begin_ms) & (sf.col("arrival_ms") < begin_ms + length_ms))
    found = part.limit(SAMPLE_MAX).toArrow()
    if not found.num_rows:
        found = trace.limit(SAMPLE_MAX).toArrow()
    found = found.sort_by("arrival_ms")
    return Trace(found["arrival_ms"].to_numpy(), found["deliver_at_ms"].to_numpy())
