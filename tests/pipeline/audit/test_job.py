"""The audit's job on Spark: records in every format, faults of known number, reports, rounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast
from urllib.request import urlopen

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.support.pipeline.commands import Notes
from tidegate.pipeline.audit import job
from tidegate.pipeline.audit.options import AuditOptions, Record, StreamOptions
from tidegate.pipeline.audit.report import moment
from tidegate.pipeline.errors import OptionError, PipelineError, TraceError

BASE_MS = 1_700_000_000_000


def sent_rows(count: int = 300, first: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "message_id": f"m{number}",
            "topic": "persistent://public/default/orders",
            "key": f"k{number % 7}" if number % 2 else None,
            "sent_at_ms": BASE_MS + number,
            "deliver_at_ms": BASE_MS + 60_000 + number * 100 if number % 10 else None,
        }
        for number in range(first, first + count)
    ]


def receipts(
    sent: list[dict[str, Any]], subscription: str = "billing", late_ms: int = 3
) -> list[dict[str, Any]]:
    return [
        {
            "message_id": row["message_id"],
            "subscription": subscription,
            "received_at_ms": (row["deliver_at_ms"] or row["sent_at_ms"]) + late_ms,
            "redelivery_count": 0,
        }
        for row in sent
    ]


def write(rows: list[dict[str, Any]], path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl":
        lines = (json.dumps({key: value for key, value in row.items() if value is not None}) for row in rows)
        path.write_text("".join(f"{line}\n" for line in lines))
    elif path.suffix == ".csv":
        pa_csv.write_csv(pa.Table.from_pylist(rows), path)
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return str(path)


def audit(
    spark: SparkSession, sent: str, received: str, **options: Any
) -> tuple[dict[str, Any], int, list[str]]:
    """The audit on Spark, which agrees with one in this process, in figures and in errors."""
    wanted = AuditOptions(sent=Record.of(sent, None), received=Record.of(received, None), **options)
    here = None if wanted.stream else _outcome(wanted, Notes(spark, wants_spark=False))
    found = _outcome(wanted, Notes(spark))
    if here is not None:
        assert _compared(here) == _compared(found)
    if isinstance(found, PipelineError):
        raise found
    return found


def _outcome(wanted: AuditOptions, context: Notes) -> tuple[dict[str, Any], int, list[str]] | PipelineError:
    try:
        result, exit_code = job.run(context, wanted.model_dump(mode="json"))
    except PipelineError as error:
        return error
    if wanted.report is not None and not wanted.dry_run:
        result["page"] = _without_examples((Path(wanted.report) / job.REPORT_NAME).read_text())
    if wanted.offending is not None:
        result["bad"] = sorted(map(str, pq.read_table(wanted.offending).to_pylist()))
    return result, exit_code, context.told


def _without_examples(page: str) -> str:
    """The page but for the examples, which have Spark's order."""
    return page.partition("Offending messages")[0]


def _compared(outcome: tuple[dict[str, Any], int, list[str]] | PipelineError) -> object:
    if isinstance(outcome, PipelineError):
        return type(outcome), str(outcome)
    result, exit_code, told = outcome
    same = {name: value for name, value in result.items() if name not in {"engine", "groups"}}
    return same, exit_code, [line for line in told if "without Spark" not in line]


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_faults_in_every_format(spark: SparkSession, tmp_path: Path, suffix: str) -> None:
    sent = sent_rows()
    received = receipts(sent)
    lost = {f"m{number}" for number in (5, 50, 299)}
    received = [row for row in received if row["message_id"] not in lost]
    for number in (11, 12):
        received[number]["received_at_ms"] -= 10
    again = [
        {**row, "received_at_ms": row["received_at_ms"] + 60, "redelivery_count": 1}
        for row in received[20:24]
    ]
    again += [{**received[30], "received_at_ms": received[30]["received_at_ms"] + 70}]
    strange = [{**received[0], "message_id": "x1"}]
    result, exit_code, told = audit(
        spark,
        write(sent, tmp_path / f"sent{suffix}"),
        write(received + again + strange, tmp_path / f"received{suffix}"),
        report=str(tmp_path / "report"),
        offending=str(tmp_path / "report" / "offending"),
    )
    assert exit_code == 1
    assert {name: result[name] for name in ("sent", "lost", "early", "repeated", "unknown")} == {
        "sent": 300,
        "lost": 3,
        "early": 2,
        "repeated": 5,
        "unknown": 1,
    }
    assert result["received"] == 297 + 5 + 1
    assert result["repeated_by_cause"] == {"redelivered": 4, "forgotten": 1, "unknown": 0}
    assert result["lateness_ms"]["p50"] == 3
    assert result["earliest_ms"] == 7
    assert any("--until" in line for line in told)
    bad = pq.read_table(tmp_path / "report" / "offending").to_pylist()
    kinds = sorted((row["wrong"], row["message_id"]) for row in bad)
    assert [kind for kind, _ in kinds].count("lost") == 3
    assert {message for kind, message in kinds if kind == "lost"} == lost
    assert len([1 for kind, _ in kinds if kind == "early"]) == 2
    assert ("unknown", "x1") in kinds
    page = (tmp_path / "report" / "report.html").read_text()
    assert "Failed" in page and "<svg" in page and "x1" in page
    assert all(moment(row["received_at_ms"]) in page for row in bad)


Rows = list[dict[str, Any]]


def faulty() -> tuple[Rows, Rows, dict[str, Any]]:
    """(sent, received, how many there are of each): a different number for every kind and every cause."""
    sent = [row for row in sent_rows(400) if row["deliver_at_ms"] is not None]
    received = receipts(sent)
    by_id = {row["message_id"]: row for row in received}
    keyed = [row["message_id"] for row in sent if row["key"] == "k3"]
    plain = [row["message_id"] for row in sent if row["key"] is None]
    lost, early, late = plain[:7], plain[10:16], plain[20:24]
    for one in early:
        by_id[one]["received_at_ms"] -= 10
    for one in late:
        by_id[one]["received_at_ms"] += 1_000
    # Each of two comes after the one of its key that should follow it.
    for first, second in ((keyed[0], keyed[1]), (keyed[4], keyed[5])):
        by_id[first]["received_at_ms"] = by_id[second]["received_at_ms"] + 1
    again = [
        {**by_id[one], "received_at_ms": by_id[one]["received_at_ms"] + 50, "redelivery_count": count}
        for one, count in zip(plain[30:42], [3] * 5 + [0] * 4 + [None] * 3, strict=True)
    ]
    strange = [{**received[0], "message_id": f"x{number}"} for number in range(8)]
    twice = [dict(row) for row in sent[:9]]
    received = [row for row in received if row["message_id"] not in lost]
    expected = {
        "sent": len(sent),
        "sent_twice": 9,
        "received": len(sent) - 7 + 12 + 8,
        "delivered": len(sent) - 7,
        "lost": 7,
        "early": 6,
        "earliest_ms": 7,
        "repeated": 12,
        "repeated_by_cause": {"redelivered": 5, "forgotten": 4, "unknown": 3},
        "unknown": 8,
        "out_of_order": 2,
        "pending": 0,
    }
    return sent + twice, received + again + strange, expected


def test_every_kind_and_every_cause_by_its_number(spark: SparkSession, tmp_path: Path) -> None:
    sent, received, expected = faulty()
    # Another subscription has received everything, and has none of the faults.
    well = receipts([row for row in sent_rows(400) if row["deliver_at_ms"] is not None], "mail")
    result, exit_code, _ = audit(
        spark,
        write(sent, tmp_path / "sent.parquet"),
        write(received + well, tmp_path / "received.parquet"),
        offending=str(tmp_path / "offending"),
    )
    billing, mail = result["subscriptions"]["billing"], result["subscriptions"]["mail"]
    assert exit_code == 1
    assert (result["sent"], result["sent_twice"]) == (expected["sent"], expected["sent_twice"])
    assert {name: billing[name] for name in expected if name in billing} == {
        name: value for name, value in expected.items() if name in billing
    }
    assert billing["lateness_ms"]["max"] == 1_404
    assert {
        name: mail[name] for name in ("lost", "early", "repeated", "unknown", "out_of_order")
    } == dict.fromkeys(("lost", "early", "repeated", "unknown", "out_of_order"), 0)
    wrong = [row["wrong"] for row in pq.read_table(tmp_path / "offending").to_pylist()]
    told = {kind: wrong.count(kind) for kind in ("lost", "early", "repeated", "unknown", "out_of_order")}
    assert told == {name: expected[name] for name in told}


def test_a_record_without_redelivery_counts_tells_no_cause(spark: SparkSession, tmp_path: Path) -> None:
    sent = sent_rows(20)
    received = [{**row} for row in receipts(sent)]
    received += [{**row, "received_at_ms": row["received_at_ms"] + 5} for row in received[:6]]
    for row in received:
        del row["redelivery_count"]
    result, exit_code, _ = audit(
        spark, write(sent, tmp_path / "sent.jsonl"), write(received, tmp_path / "received.parquet")
    )
    assert (exit_code, result["repeated"]) == (0, 6)
    assert result["repeated_by_cause"] == {"redelivered": 0, "forgotten": 0, "unknown": 6}


def test_all_is_well_for_two_subscriptions(spark: SparkSession, tmp_path: Path) -> None:
    sent = sent_rows()
    both = receipts(sent) + receipts(sent, "mail", 9)
    result, exit_code, _ = audit(
        spark, write(sent, tmp_path / "sent.parquet"), write(both, tmp_path / "received.parquet")
    )
    assert exit_code == 0
    assert result["passed"]
    assert result["subscriptions"]["billing"]["lateness_ms"]["max"] == 3
    assert result["subscriptions"]["mail"]["lateness_ms"]["max"] == 9
    assert (result["sent"], result["received"], result["lost"]) == (300, 600, 0)


def test_one_of_two_subscriptions_got_nothing(spark: SparkSession, tmp_path: Path) -> None:
    sent = sent_rows()
    result, exit_code, _ = audit(
        spark,
        write(sent, tmp_path / "sent.parquet"),
        write(receipts(sent), tmp_path / "received.parquet"),
        subscriptions=("billing", "mail"),
        until_ms=BASE_MS + 60_000 + 200 * 100,
    )
    assert exit_code == 1
    mail = result["subscriptions"]["mail"]
    assert (mail["lost"], mail["pending"]) == (201 + 9, 90)
    assert result["subscriptions"]["billing"]["lost"] == 0


def test_a_time_before_all_messages_judges_nothing_and_says_so(spark: SparkSession, tmp_path: Path) -> None:
    sent = sent_rows(30)
    written = write(sent, tmp_path / "sent.parquet")
    one = write(receipts(sent)[:1], tmp_path / "one.parquet")
    result, exit_code, told = audit(spark, written, one, until_ms=BASE_MS - 1)
    assert (exit_code, result["pending"]) == (0, 29)
    assert not any("was due by --until" in line for line in told)
    strange = [{**receipts(sent)[0], "message_id": "x"}]
    result, _, told = audit(spark, written, write(strange, tmp_path / "x.parquet"), until_ms=BASE_MS - 1)
    assert result["pending"] == 30
    assert any("no message was due by --until" in line for line in told)


def test_order_and_gaps(spark: SparkSession, tmp_path: Path) -> None:
    sent = [row for row in sent_rows() if row["deliver_at_ms"] is not None]
    received = receipts(sent)
    # Everything due in eight seconds comes together after them; of one key two change places.
    stopped, continued = BASE_MS + 70_000, BASE_MS + 78_000
    for row in received:
        if stopped <= row["received_at_ms"] < continued:
            row["received_at_ms"] = continued
    keyed = [at for at, row in enumerate(sent) if row["key"] == "k3"]
    first, second = received[keyed[0]], received[keyed[1]]
    first["received_at_ms"], second["received_at_ms"] = second["received_at_ms"] + 5, second["received_at_ms"]
    result, exit_code, _ = audit(
        spark,
        write(sent, tmp_path / "sent.parquet"),
        write(received, tmp_path / "received.parquet"),
        gap_ms=2_000,
    )
    assert exit_code == 0, "order and gaps are told, and are no failure"
    assert result["out_of_order"] == 1
    assert result["gaps"]["count"] == 1
    assert result["gaps"]["longest_ms"] == pytest.approx(8_000, abs=200)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("no column", "sent: .* has no column deliver_at_ms; its columns: message_id"),
        ("no number", "have a value that does not fit its column, such as 'soon'"),
        ("no rows", "sent: there are no rows"),
        ("no file", "sent: there is nothing at"),
        ("no parquet", "sent: .* cannot be read as parquet"),
        ("no id", "have no message_id"),
        ("not finite", "2 rows of .* have a value that does not fit its column, such as '(NaN|1.0E30)'"),
        ("seconds", "sent: deliver_at_ms in .* must be milliseconds since the epoch: .* looks like seconds"),
        ("microseconds", "sent: sent_at_ms in .* looks like micro- or nanoseconds"),
        ("no json", "value that does not fit"),
    ],
)
def test_records_that_do_not_fit(spark: SparkSession, tmp_path: Path, change: str, words: str) -> None:
    sent = sent_rows(20)
    received = write(receipts(sent), tmp_path / "received.parquet")
    where = tmp_path / "sent.jsonl"
    match change:
        case "no column":
            for row in sent:
                del row["deliver_at_ms"]
        case "no number":
            sent[3]["sent_at_ms"] = "soon"
        case "not finite":
            sent[3]["sent_at_ms"], sent[4]["sent_at_ms"] = float("nan"), 1e30
            where = tmp_path / "sent.parquet"
            for row in sent:
                row["sent_at_ms"] = float(row["sent_at_ms"])
        case "seconds":
            for row in sent:
                row["deliver_at_ms"] = row["deliver_at_ms"] and row["deliver_at_ms"] // 1_000
        case "microseconds":
            for row in sent:
                row["sent_at_ms"] *= 1_000
        case "no rows":
            sent = []
        case "no id":
            sent[3]["message_id"] = None
    write(sent, where)
    if change == "no file":
        where.unlink()
    elif change == "no parquet":
        where = where.rename(tmp_path / "sent.parquet")
    elif change == "no json":
        where.write_text(where.read_text() + "{half")
    with pytest.raises(TraceError, match=words):
        audit(spark, str(where), received)


def test_a_column_of_floats_as_pandas_writes_it(spark: SparkSession, tmp_path: Path) -> None:
    sent = sent_rows(30)
    for row in sent:
        row["deliver_at_ms"] = None if row["deliver_at_ms"] is None else float(row["deliver_at_ms"])
    result, exit_code, _ = audit(
        spark, write(sent, tmp_path / "s.parquet"), write(receipts(sent_rows(30)), tmp_path / "r.csv")
    )
    assert (exit_code, result["lateness_ms"]["max"]) == (0, 3)


@pytest.mark.parametrize("theirs", ["thesis.txt", "part-of-it/thesis.txt", "part-1.parquet"])
def test_what_no_audit_has_written_is_not_replaced(spark: SparkSession, tmp_path: Path, theirs: str) -> None:
    sent = sent_rows(30)
    records = write(sent, tmp_path / "s.parquet"), write(receipts(sent)[1:], tmp_path / "r.parquet")
    folder = tmp_path / "offending"
    for _ in range(2):
        # An older one's is.
        result, _, _ = audit(spark, *records, offending=str(folder))
        assert (result["lost"], pq.read_table(folder).num_rows) == (1, 1)
    for path in [*folder.iterdir()]:
        path.unlink()
    mine = Path(write(sent, folder / theirs))
    with pytest.raises(OptionError, match=r"offending has what no audit has written, .* choose another"):
        audit(spark, *records, offending=str(folder))
    assert mine.is_file()


def test_a_subscription_that_is_named_twice_is_judged_once(spark: SparkSession, tmp_path: Path) -> None:
    sent = sent_rows(30)
    received = [*receipts(sent), *receipts(sent, "audit")]
    result, _, _ = audit(
        spark,
        write(sent, tmp_path / "s.parquet"),
        write(received, tmp_path / "r.parquet"),
        subscriptions=("billing", "audit", "billing"),
    )
    assert (result["sent"], result["received"], list(result["subscriptions"])) == (
        30,
        60,
        ["audit", "billing"],
    )


def test_small_records_are_judged_without_spark(tmp_path: Path) -> None:
    sent = sent_rows(30)
    wanted = AuditOptions(
        sent=Record.of(write(sent, tmp_path / "s.csv"), None),
        received=Record.of(write(receipts(sent), tmp_path / "r.jsonl"), None),
        report=str(tmp_path / "report"),
    )
    context = Notes(cast(SparkSession, None), wants_spark=False)
    result, exit_code = job.run(context, wanted.model_dump(mode="json"))
    assert (exit_code, result["engine"], result["delivered"]) == (0, "python", 30)
    assert context.told == ["60 rows: judging them here, without Spark"]
    assert "minutes since " in (tmp_path / "report" / "report.html").read_text(encoding="utf-8")


def test_a_dry_run_judges_nothing(spark: SparkSession, tmp_path: Path) -> None:
    sent = sent_rows(30)
    result, exit_code, _ = audit(
        spark,
        write(sent, tmp_path / "s.parquet"),
        write(receipts(sent), tmp_path / "r.parquet"),
        dry_run=True,
        report=str(tmp_path / "report"),
    )
    assert (exit_code, result["sent_rows"], result["subscriptions"]) == (0, 30, ["billing"])
    assert not (tmp_path / "report").exists()


class TestBesideProduction:
    def go_on(
        self, spark: SparkSession, folder: Path, **limits: Any
    ) -> tuple[dict[str, Any], int, list[str]]:
        stream = StreamOptions(
            checkpoint=str(folder / "checkpoint"), once=True, watermark_ms=1_000, grace_ms=1_000, **limits
        )
        return audit(
            spark,
            str(folder / "sent"),
            str(folder / "received"),
            subscriptions=("billing",),
            offending=str(folder / "offending"),
            stream=stream,
        )

    def put(self, folder: Path, name: str, sent: list[Any], received: list[Any]) -> None:
        for kind, rows in (("sent", sent), ("received", received)):
            if rows:
                write(rows, folder / kind / f"{name}.parquet")

    def test_rounds(self, spark: SparkSession, tmp_path: Path) -> None:
        sent = [row for row in sent_rows(220) if row["deliver_at_ms"] is not None]
        received = receipts(sent)
        self.put(tmp_path, "1", sent, received[:100])
        result, exit_code, told = self.go_on(spark, tmp_path)
        assert (result["sent"], result["received"], result["lost"], result["pending"]) == (198, 100, 0, 98)
        assert exit_code == 0
        assert told[-1].startswith("round 0: 198 sent, 100 received, 0 lost")
        # Three are missing; the rest comes, one of them early, and one twice.
        lost = [row["message_id"] for row in received[110:113]]
        rest = [row for row in received[100:] if row["message_id"] not in lost]
        rest[50]["received_at_ms"] -= 10
        rest += [
            {**received[7], "received_at_ms": received[7]["received_at_ms"] + 500, "redelivery_count": 2}
        ]
        self.put(tmp_path, "2", [], rest)
        result, exit_code, _ = self.go_on(spark, tmp_path)
        assert exit_code == 1
        wanted = {"sent": 198, "lost": 3, "early": 1, "repeated": 1, "unknown": 0, "pending": 0}
        assert {name: result[name] for name in wanted} == wanted
        # Nothing new: nothing is told again.
        assert self.go_on(spark, tmp_path)[0] == result
        # A lost one comes after all.
        self.put(tmp_path, "3", [], [{**received[110], "received_at_ms": BASE_MS + 90_000}])
        result, _, _ = self.go_on(spark, tmp_path)
        assert (result["lost"], result["delivered"]) == (2, 196)
        bad = pq.read_table(tmp_path / "offending").to_pylist()
        assert sorted((row["wrong"], row["message_id"]) for row in bad if row["wrong"] != "out_of_order") == [
            ("early", rest[50]["message_id"]),
            *sorted(("lost", message_id) for message_id in lost),
            ("repeated", received[7]["message_id"]),
        ]

    def test_a_round_that_crashed_is_played_again(
        self, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from tidegate.pipeline.audit.stream import Rounds  # noqa: PLC0415

        sent = sent_rows(100)
        self.put(tmp_path, "1", sent, receipts(sent)[:50])
        self.go_on(spark, tmp_path)
        self.put(tmp_path, "2", sent_rows(50, 100), receipts(sent)[50:])

        def crash(*_: Any) -> None:
            raise OSError("the machine is gone")

        with monkeypatch.context() as patched:
            patched.setattr(Rounds, "_put_text", crash)
            with pytest.raises(Exception, match="the machine is gone"):
                self.go_on(spark, tmp_path)
        result, _, _ = self.go_on(spark, tmp_path)
        assert (result["sent"], result["received"], result["repeated"]) == (150, 100, 0)

    def test_gauges(self, spark: SparkSession, tmp_path: Path) -> None:
        sent = sent_rows(50)
        self.put(tmp_path, "1", sent, receipts(sent)[:40])
        _, _, told = self.go_on(spark, tmp_path, metrics=("127.0.0.1", 0))
        url = told[0].removeprefix("metrics: ")
        with urlopen(url) as page:  # noqa: S310 our own page on loopback
            text = page.read().decode()
        assert "tidegate_audit_sent_messages 50.0" in text
        assert 'tidegate_audit_delivered_messages{subscription="billing"} 40.0' in text
        assert 'tidegate_audit_lost_messages{subscription="billing"}' in text

    def test_every_kind_and_every_cause_by_its_number(self, spark: SparkSession, tmp_path: Path) -> None:
        """In rounds as at once; the figures of the last one are those of all."""
        sent, received, expected = faulty()
        received.sort(key=lambda row: row["received_at_ms"])
        self.put(tmp_path, "1", sent[:250], received[:150])
        self.go_on(spark, tmp_path)
        self.put(tmp_path, "2", sent[250:], received[150:])
        self.put(tmp_path, "3", [], [{**received[0], "message_id": "end", "received_at_ms": BASE_MS + 10**6}])
        result, exit_code, _ = self.go_on(spark, tmp_path)
        # Of the last one, which tells how late it is by now, nothing is known yet.
        assert exit_code == 1
        assert {name: result[name] for name in expected} == expected

    def test_gauges_are_there_again_before_anything_new_is(self, spark: SparkSession, tmp_path: Path) -> None:
        sent = sent_rows(50)
        self.put(tmp_path, "1", sent, receipts(sent)[:40])
        self.go_on(spark, tmp_path)
        _, _, told = self.go_on(spark, tmp_path, metrics=("127.0.0.1", 0))
        with urlopen(told[0].removeprefix("metrics: ")) as page:  # noqa: S310 our own page on loopback
            text = page.read().decode()
        assert "tidegate_audit_sent_messages 50.0" in text
        assert 'tidegate_audit_delivered_messages{subscription="billing"} 40.0' in text

    def test_rows_that_cannot_be_read_are_counted(self, spark: SparkSession, tmp_path: Path) -> None:
        sent = sent_rows(10)
        write(sent, tmp_path / "sent" / "1.jsonl")
        (tmp_path / "sent" / "2.jsonl").write_text('{half\n{"message_id": "a", "sent_at_ms": "soon"}\n')
        write(receipts(sent), tmp_path / "received" / "1.jsonl")
        stream = StreamOptions(checkpoint=str(tmp_path / "checkpoint"), once=True)
        wanted = AuditOptions(
            sent=Record.of(str(tmp_path / "sent"), "json"),
            received=Record.of(str(tmp_path / "received"), "json"),
            subscriptions=("billing",),
            stream=stream,
        )
        result, exit_code = job.run(Notes(spark), wanted.model_dump(mode="json"))
        assert (result["unreadable"], result["delivered"], exit_code) == (2, 10, 0)

    def test_a_checkpoint_is_of_the_subscriptions_that_it_was_made_for(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        """The kept form of a message has a bit for each of them."""
        sent = sent_rows(20)
        self.put(tmp_path, "1", sent, [*receipts(sent), *receipts(sent, "audit")])
        stream = StreamOptions(checkpoint=str(tmp_path / "checkpoint"), once=True)
        places = str(tmp_path / "sent"), str(tmp_path / "received")
        _, code, _ = audit(spark, *places, subscriptions=("billing", "audit"), stream=stream)
        assert code == 0
        assert audit(spark, *places, subscriptions=("audit", "billing"), stream=stream)[1] == 0
        with pytest.raises(OptionError, match="is of an audit of audit, billing: give the same"):
            audit(spark, *places, subscriptions=("billing",), stream=stream)

    def test_subscriptions_must_be_named(self, spark: SparkSession, tmp_path: Path) -> None:
        stream = StreamOptions(checkpoint=str(tmp_path / "c"))
        with pytest.raises(PipelineError, match="needs --subscription"):
            audit(spark, "a.parquet", "b.parquet", stream=stream)
