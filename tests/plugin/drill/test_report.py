"""The report of a run of drills: JSON, the table, the page."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.ledgers import finished, round_of
from tidegate.plugin.drill.html import page_of, write_report
from tidegate.plugin.drill.report import as_json, as_table
from tidegate.plugin.drill.session import Result, ledgers_of, results_of
from tidegate.plugin.drill.verdict import judge
from tidegate.plugin.errors import UserError


def result(tmp_path: Path, *failures: str, tracker: str = "tidegate") -> Result:
    verdicts = [judge(finished(tmp_path / str(number), round_of(number=number))) for number in (1, 2)]
    return Result("broker-killed", "kills", tracker, verdicts, failures)


def test_counts_are_of_all_rounds_and_times_of_the_worst(tmp_path: Path) -> None:
    shown = as_json(result(tmp_path))
    assert (shown["drill"], shown["verdict"], shown["reasons"]) == ("broker-killed", "pass", [])
    assert (shown["sent"], shown["lost"], shown["early"], shown["repeated"]) == (400, 0, 0, 0)
    assert shown["first_due_s"] == shown["gap_s"] == pytest.approx(2.1)
    assert shown["lateness_ms"] == {"p50": 2.0, "p99": 2_000.5, "p99_9": 2_090.05, "max": 2_100.0}
    assert [one["verdict"] for one in shown["rounds"]] == ["pass", "pass"]
    assert shown["rounds"][0]["faults"][0]["usable_after_s"] == 2.0


def test_a_drill_that_could_not_be_done_fails(tmp_path: Path) -> None:
    shown = as_json(Result("broker-killed", "kills", "tidegate", [], ["there is no daemon here"]))
    assert (shown["verdict"], shown["reasons"]) == ("fail", ["there is no daemon here"])
    assert (shown["sent"], shown["gap_s"], shown["lateness_ms"]) == (0, None, None)


def test_the_table_says_why_one_failed(tmp_path: Path) -> None:
    console = Console(width=180, record=True, file=io.StringIO())
    console.print(as_table([result(tmp_path), result(tmp_path / "b", "[/] no daemon")]))
    text = console.export_text()
    assert "FAIL" in text
    assert "broker-killed: [/] no daemon" in text


def test_what_was_out_of_order_within_its_key_is_shown(tmp_path: Path) -> None:
    some = result(tmp_path)
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(as_table([some]))
    assert "out of order" not in console.export_text()
    late = replace(some, verdicts=[replace(one, out_of_order=4_321) for one in some.verdicts])
    console.print(as_table([late]))
    text = console.export_text()
    assert "out of order" in text
    assert "8,642" in text
    assert "<td>8,642</td>" in page_of([late]).html()


def test_results_are_judged_again_from_the_ledgers(tmp_path: Path) -> None:
    ledgers = tmp_path / "ledgers"
    for number in (1, 2):
        finished(ledgers / f"a-{number}", round_of(number=number))
    finished(ledgers / "b-1", round_of(tracker="bucket"))
    found = results_of(ledgers_of(tmp_path), lambda name: f"does {name}")
    assert [(one.tracker, len(one.verdicts), one.does) for one in found] == [
        ("tidegate", 2, "does broker-killed"),
        ("bucket", 1, "does broker-killed"),
    ]


class Structure(HTMLParser):
    """Counts elements, and notes what links elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}
        self.elsewhere: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        for name, value in attrs:
            if name in {"src", "href"} and not (value or "").startswith("#"):
                self.elsewhere.append(value or "")


def test_the_page_stands_alone_and_escapes_what_it_is_told(tmp_path: Path) -> None:
    structure = Structure()
    hostile = "<script>alert(1)</script>"
    structure.feed(page_of([result(tmp_path), result(tmp_path / "b", hostile, tracker=hostile)]).html())
    assert structure.counts["figure"] == 4
    assert "script" not in structure.counts
    assert not structure.elsewhere


def test_of_many_rounds_the_worst_have_a_picture(tmp_path: Path) -> None:
    usual = judge(finished(tmp_path / "usual"))
    rounds = [usual] * 6 + [replace(usual, gap_s=usual.gap_s + 1), replace(usual, passed=False, gap_s=0.0)]
    shown = page_of([Result("broker-killed", "kills", "tidegate", rounds)]).html()
    assert re.findall(r"<figcaption>Round (\d+):", shown) == ["1", "2", "3", "7", "8"]


def test_the_report_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write the report"):
        write_report([], tmp_path / "file" / "report")
