"""The tuning's job on Spark, and the command with a real daemon."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from tests.pipeline.tune.test_model import COSTS, START_MS, uniform
from tests.support.cluster import Cluster
from tests.support.inbox import Inbox
from tests.support.lane import SHARED, Lane
from tests.support.pipeline.commands import SMALL_SPARK, Notes, assert_one_line, tidegate
from tests.support.waiting import wait_until
from tidegate.index import WIDTHS_MS, IndexOptions
from tidegate.pipeline.errors import TraceError
from tidegate.pipeline.tune import job, local, traces
from tidegate.pipeline.tune.calibrate import Played, Trace
from tidegate.pipeline.tune.model import Activity
from tidegate.pipeline.tune.options import TuneOptions, parse_delays
from tidegate.pipeline.tune.record import record
from tidegate.pipeline.tune.span import checked
from tidegate.plugin.errors import UserError
from tidegate.plugin.wire.client import ask_socket
from tidegate.plugin.wire.session import DaemonSession

HOUR_MS = 3_600_000


def write(trace: Trace, path: Path) -> str:
    table = pa.table(trace._asdict())
    if path.suffix == ".csv":
        pa_csv.write_csv(table, path)
    else:
        pq.write_table(table, path)
    return str(path)


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_spark_follows_slices_as_one_machine_does(spark: SparkSession, tmp_path: Path, suffix: str) -> None:
    sent = uniform(3_000, 2 * HOUR_MS, 24 * HOUR_MS)
    options = IndexOptions(staging_budget_bytes=1 << 16)
    trace = traces.read(spark, TuneOptions(trace=write(sent, tmp_path / f"trace{suffix}")))
    span = job._span(trace, "the trace")
    assert span == (3_000, int(sent.arrival_ms[0]), int(sent.arrival_ms[-1]))
    spills = job._spills(trace, span, options)
    played = Played(sent, options)
    assert spills.at_ms.tolist() == played.spills.at_ms.tolist()
    found = job._filled(trace, spills, span.entries, options, COSTS)
    for width_ms in WIDTHS_MS:
        assert Activity.of(width_ms, spills, found[width_ms]) == played.activity(width_ms, COSTS)


def test_of_too_many_slices_some_stand_for_all(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = uniform(4_000, 2 * HOUR_MS, 24 * HOUR_MS)
    trace = traces.read(spark, TuneOptions(trace=write(sent, tmp_path / "trace.parquet")))
    options = IndexOptions()
    span = job._span(trace, "the trace")
    spills = job._spills(trace, span, options)
    monkeypatch.setattr(job, "_HISTORY_MAX", 800)
    found = job._filled(trace, spills, span.entries, options, COSTS)[1_000]
    expected = Played(sent, options).activity(1_000)
    assert found.spilled == pytest.approx(expected.spilled, rel=0.2)
    assert found.pairs == pytest.approx(expected.pairs, rel=0.2)


class TestWhatIf:
    def changed(self, spark: SparkSession, tmp_path: Path, **changes: Any) -> Any:
        sent = uniform(5_000, HOUR_MS, 6 * HOUR_MS)
        trace = traces.read(spark, TuneOptions(trace=write(sent, tmp_path / "trace.parquet")))
        made = traces.changed(trace, changes.get("scale", 1.0), changes.get("delays", ()), HOUR_MS)
        return made.withColumn("delay", sf.col("deliver_at_ms") - sf.col("arrival_ms"))

    @pytest.mark.parametrize("scale", [0.3, 2.0, 3.5])
    def test_more_and_less_traffic(self, spark: SparkSession, tmp_path: Path, scale: float) -> None:
        made = self.changed(spark, tmp_path, scale=scale)
        assert made.count() == pytest.approx(5_000 * scale, rel=0.1)
        assert made.agg(sf.min("delay")).first()[0] >= 1_000
        distinct = made.select("arrival_ms", "deliver_at_ms").distinct().count()
        assert distinct > 0.95 * made.count(), "copies are moved"

    def test_another_mix_of_delays(self, spark: SparkSession, tmp_path: Path) -> None:
        mix = parse_delays("50%:30m,30%:1h,20%:2h-3h")
        delays = [row[0] for row in self.changed(spark, tmp_path, delays=mix).select("delay").collect()]
        shares = [delays.count(30 * 60_000), delays.count(HOUR_MS)]
        long = [one for one in delays if 2 * HOUR_MS <= one <= 3 * HOUR_MS]
        assert [*shares, len(long)] == pytest.approx([2_500, 1_500, 1_000], rel=0.15)
        assert len(set(long)) > 900


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (
            pa.table({"arrival_ms": [1], "when": [2]}),
            "has no column deliver_at_ms; its columns: arrival_ms, when",
        ),
        (
            pa.table({"arrival_ms": pa.array([], pa.int64()), "deliver_at_ms": pa.array([], pa.int64())}),
            "there are no",
        ),
        (pa.table({"arrival_ms": [1, 2], "deliver_at_ms": ["5", "soon"]}), "1 rows of .* lack a time"),
        (pa.table({"arrival_ms": [True], "deliver_at_ms": [5]}), "of the type boolean"),
        (pa.table({"arrival_ms": [1.0, float("nan")], "deliver_at_ms": [5, 6]}), "1 rows of .* lack a time"),
        (pa.table({"arrival_ms": [5], "deliver_at_ms": [5]}), "nothing in .* is delayed: no deliver_at_ms"),
        (
            pa.table({"arrival_ms": [START_MS], "deliver_at_ms": [START_MS // 1_000 + 60]}),
            "deliver_at_ms in .* must be milliseconds since the epoch: 1700000060 looks like seconds",
        ),
        (
            pa.table({"arrival_ms": [0, START_MS], "deliver_at_ms": [START_MS + 9] * 2}),
            "is 19,676 days long, from 0 to 1700000000000 ms: give 366 at most",
        ),
    ],
)
def test_traces_that_do_not_fit(spark: SparkSession, tmp_path: Path, table: pa.Table, words: str) -> None:
    path = tmp_path / "trace.parquet"
    pq.write_table(table, path)
    for wants_spark in (True, False):
        with pytest.raises(TraceError, match=words):
            job.run(
                Notes(spark, wants_spark=wants_spark), TuneOptions(trace=str(path)).model_dump(mode="json")
            )


def test_no_trace(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="there is nothing at"):
        job.run(Notes(spark), TuneOptions(trace=str(tmp_path / "no.parquet")).model_dump(mode="json"))


def test_a_dry_run_only_looks_at_the_trace(spark: SparkSession, tmp_path: Path) -> None:
    path = write(uniform(200, HOUR_MS, 6 * HOUR_MS), tmp_path / "trace.parquet")
    options = TuneOptions(trace=path, report=str(tmp_path / "report"), dry_run=True)
    found, code = job.run(Notes(spark), options.model_dump(mode="json"))
    assert (code, found["dry_run"], found["entries"], len(found["widths"])) == (0, True, 200, len(WIDTHS_MS))
    here, _ = job.run(Notes(spark, wants_spark=False), options.model_dump(mode="json"))
    assert here == found | {"engine": "python"}
    assert [one.name for one in tmp_path.iterdir()] == ["trace.parquet"]


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_a_small_trace_is_read_here_as_on_spark(spark: SparkSession, tmp_path: Path, suffix: str) -> None:
    sent = uniform(3_000, 2 * HOUR_MS, 24 * HOUR_MS)
    mixed = Trace(*(times[np.random.default_rng(1).permutation(len(sent))] for times in sent))
    wanted = TuneOptions(trace=write(mixed, tmp_path / f"trace{suffix}"))
    found = local.read_trace(wanted)
    assert found is not None
    there = traces.read(spark, wanted)
    span = checked(found.ends(), "the trace")
    assert span == job._span(there, "the trace")
    part = local.part_of(found.trace(), *span.sample(IndexOptions()))
    for mine, its in zip(part, job._sample(there, span, IndexOptions()), strict=True):
        assert sorted(mine.tolist()) == sorted(its.tolist())


def test_a_trace_that_takes_python_long_is_left_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(uniform(200, HOUR_MS, 6 * HOUR_MS), tmp_path / "trace.parquet")
    assert local.read_trace(TuneOptions(trace=path)) is not None
    monkeypatch.setattr(local, "ENTRIES_MAX", 300)
    assert local.read_trace(TuneOptions(trace=path)) is not None
    assert local.read_trace(TuneOptions(trace=path, scale=2.0)) is None


class TestWhatIfHere:
    sent = uniform(5_000, HOUR_MS, 6 * HOUR_MS)

    @pytest.mark.parametrize("scale", [0.3, 2.0, 3.5])
    def test_more_and_less_traffic(self, scale: float) -> None:
        made = local.changed(self.sent, scale, (), HOUR_MS)
        assert len(made) == pytest.approx(5_000 * scale, rel=0.1)
        assert (made.deliver_at_ms - made.arrival_ms).min() >= 1_000
        assert (np.diff(made.arrival_ms) >= 0).all()
        assert len(set(zip(*(times.tolist() for times in made), strict=True))) > 0.95 * len(made)

    def test_another_mix_of_delays(self) -> None:
        made = local.changed(self.sent, 1.0, parse_delays("50%:30m,30%:1h,20%:2h-3h"), HOUR_MS)
        delays = (made.deliver_at_ms - made.arrival_ms).tolist()
        long = [one for one in delays if 2 * HOUR_MS <= one <= 3 * HOUR_MS]
        found = [delays.count(30 * 60_000), delays.count(HOUR_MS), len(long)]
        assert found == pytest.approx([2_500, 1_500, 1_000], rel=0.15)
        assert len(set(long)) > 900


def test_a_bulk_that_arrives_in_one_instant(spark: SparkSession, tmp_path: Path) -> None:
    count = 2_100
    arrival = np.full(count, START_MS, np.int64)
    sent = Trace(arrival, arrival + np.arange(count, dtype=np.int64) * 10_000 + 60_000)
    trace = traces.read(spark, TuneOptions(trace=write(sent, tmp_path / "trace.parquet")))
    options = IndexOptions(staging_budget_bytes=500 * 24)
    span = job._span(trace, "the trace")
    spills = job._spills(trace, span, options)
    assert len(spills.at_ms) == 4
    each = np.bincount(spills.number_of(*sent), minlength=5)
    assert each.tolist() == pytest.approx([500, 500, 500, 500, 100], abs=60)


def test_from_a_topic_and_applied_to_its_daemon(cluster: Cluster, lane: Lane, tmp_path: Path) -> None:
    lane.reserve()
    lane.send_in(*[number * 60_000 for number in range(10, 510)])
    consumer = lane.client.subscribe(lane.topic, "sub", SHARED)
    lane.wait_delayed(500)
    consumer.close()
    broker, socket = cluster.broker, cluster.daemon.socket_path
    done = tidegate(
        "tune", "--from-topic", f"persistent://{lane.topic}", "--subscription", "sub",
        "--service-url", broker.service_url, "--admin-url", broker.admin_url,
        "--apply", f"persistent://{lane.topic}:sub", "--socket", socket,
        "--report", tmp_path / "report", "--json", *SMALL_SPARK,
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["entries"] == 500
    assert len(result["candidates"]) == len(WIDTHS_MS)
    for one in result["candidates"]:
        assert {
            "width_ms",
            "memory_bytes",
            "bytes",
            "blocks",
            "spills",
            "boundary_ms",
            "recovery_ms",
        } <= one.keys()
    assert len(result["calibration"]["runs"]) == 3
    width_ms = result["recommended"]["width_ms"]
    asked = ask_socket(socket, {"what": "width", "subscription": f"persistent://{lane.topic}:sub"})
    (now,) = asked["subscriptions"]
    assert (now["slice_width_ms"], now["slice_width_auto"]) == (width_ms, False)
    page = (tmp_path / "report" / "report.html").read_text()
    assert "Recommended" in page and page.count("<svg") == 4


def test_what_arrives_at_a_daemon_is_recorded(cluster: Cluster, lane: Lane, tmp_path: Path) -> None:
    inbox, end, path = Inbox(), threading.Event(), tmp_path / "trace.csv"
    noted: list[str] = []
    lane.subscribe(inbox)
    socket, name = cluster.daemon.socket_path, f"{lane.topic}:sub"
    with ThreadPoolExecutor(1) as pool:
        recording = pool.submit(record, socket, name, 600.0, path, noted.append, end)
        try:
            wait_until(lambda: noted, "it says that it records", during=recording)
            assert noted == ["recording: 0 delayed messages so far, 600 s to go"]
            with DaemonSession(socket) as other, pytest.raises(UserError, match="another recording"):
                other.ask({"what": "record"})
            sent = lane.send_in(*[HOUR_MS + number for number in range(50)])
            held = cluster.held
            wait_until(lambda: held(lane.topic).get("sub") == 50, "all of it is held", during=recording)
        finally:
            end.set()
        found = recording.result(60)
    assert (found.entries, found.seen, found.stride) == (50, 50, 1)
    header, *rows = path.read_text().splitlines()
    assert header == "arrival_ms,deliver_at_ms"
    assert sorted(int(row.split(",")[1]) for row in rows) == [one.deliver_at_ms for one in sent]
    with pytest.raises(TraceError, match="no delayed message arrived within 0 s"):
        record(socket, name, 0.0, tmp_path / "none.csv", noted.append)
    assert [one.name for one in tmp_path.iterdir()] == ["trace.csv"]


@pytest.mark.parametrize(
    ("arguments", "words", "exit_code"),
    [
        ([], "say which trace", 2),
        (["t.parquet", "--from-daemon"], "say which trace", 2),
        (["--from-daemon", "--dry-run"], "leave out --from-daemon", 2),
        (["--from-daemon", "--record", "soon"], "--record soon", 2),
        (["--from-daemon", "--subscription", "x", "--socket", "/nowhere/socket"], "TOPIC:SUBSCRIPTION", 2),
        (["--from-daemon", "--socket", "/nowhere/socket"], "no daemon answers", 3),
        (["t.parquet", "--from-topic", "x"], "say which trace", 2),
        (["t.parquet"], "the trace: there is nothing at t.parquet", 2),
        (["--from-topic", "x"], "needs --service-url and --admin-url", 2),
        (["t.parquet", "--scale", "0"], "--scale must be more than 0", 2),
        (["t.parquet", "--delays", "all"], "write it as 80%", 2),
        (["t.parquet", "--apply", "x:y", "--socket", "/nowhere/socket"], "no daemon answers", 3),
    ],
)
def test_options_that_make_no_sense(tmp_path: Path, arguments: list[str], words: str, exit_code: int) -> None:
    assert_one_line(tidegate("tune", *arguments, cwd=tmp_path), words, exit_code)
