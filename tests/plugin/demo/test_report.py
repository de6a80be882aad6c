"""The demo's report: it says what the one verdict says."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.demo_results import BROKER_S, Change, demo_result
from tests.support.ledgers import finished
from tidegate.plugin.demo.report import as_text
from tidegate.plugin.drill.report import as_json
from tidegate.plugin.drill.session import Result
from tidegate.plugin.drill.verdict import judge


def shown(result: Result) -> str:
    out = io.StringIO()
    Console(file=out, width=140).print(as_text(result, [Path("run/demo/demo.png")], 66.0))
    return out.getvalue()


def lose_one(comes_s: dict[int, float]) -> None:
    del comes_s[0]


def hurry_one(comes_s: dict[int, float]) -> None:
    comes_s[0] = 0.5


def wait_for_the_broker(comes_s: dict[int, float]) -> None:
    begin_s, end_s = BROKER_S
    for number, second in comes_s.items():
        if begin_s <= second < end_s:
            comes_s[number] = end_s + 0.2


def test_a_good_run_passes(tmp_path: Path) -> None:
    text = shown(demo_result(tmp_path / "ledger"))
    assert "PASSED" in text
    assert "through kill -9 of the broker, kill -9 of the daemon" in text
    assert "100 retries, 100 order time-outs, 100 burst" in text
    assert "run/demo/demo.png" in text
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("change", "words"), [(lose_one, "1 messages were lost"), (hurry_one, "1 messages came")]
)
def test_a_bad_run_fails_and_says_why(tmp_path: Path, change: Change, words: str) -> None:
    result = demo_result(tmp_path / "ledger", change)
    assert not result.passed
    assert "FAILED" in shown(result)
    assert words in shown(result)


def test_lateness_of_an_outage_is_told_apart_and_not_hidden(tmp_path: Path) -> None:
    result = demo_result(tmp_path / "ledger", wait_for_the_broker)
    (one,) = as_json(result)["rounds"]
    assert result.passed
    assert one["lateness_ms"]["max"] > 8_000
    assert one["faults"][0]["waited_ms"]["max"] > 8_000
    assert one["lateness_by_wait_ms"]["usual"]["max"] == pytest.approx(2.0)
    assert "waited through kill -9 of the broker" in shown(result)


def test_the_json_says_of_each_kind_and_each_fault(tmp_path: Path) -> None:
    (one,) = as_json(demo_result(tmp_path / "ledger"))["rounds"]
    assert one["planned"] == {"plain": 100, "retry": 100, "timeout": 100, "burst": 100}
    assert set(one["lateness_by_kind_ms"]) == {"retry", "timeout", "burst"}
    assert set(one["lateness_by_wait_ms"]) == {"usual", "fault", "catching_up", "stored_late"}
    assert [fault["what"] for fault in one["faults"]] == ["kill -9 of the broker", "kill -9 of the daemon"]
    assert set(one["faults"][0]) == {
        "what", "seen", "at_s", "done_after_s", "usable_after_s", "first_due_s", "first_due_after_usable_s",
        "due_meanwhile", "received_meanwhile", "waited_ms",
    }  # fmt: skip


def test_a_run_without_kills_or_deliveries_can_be_reported(tmp_path: Path) -> None:
    result = demo_result(tmp_path / "ledger", dict.clear, kills=False)
    assert "FAILED" in shown(result)
    assert "no fault" in shown(replace(result, verdicts=[replace(result.verdicts[0], passed=True)]))


def test_a_fault_that_was_not_undone_is_reported(tmp_path: Path) -> None:
    verdict = judge(finished(tmp_path / "ledger", change=lambda made: made.strike(9.0, None)))
    assert "kill -9 of the broker" in shown(Result("demo", "", "tidegate", [verdict]))
