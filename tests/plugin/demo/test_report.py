"""The demo's report: the verdict, the table and the JSON say the same."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.outcomes import Row, at_us, broker_outage, daemon_outage, outcome_of
from tidegate.plugin.demo.report import as_json, as_text
from tidegate.plugin.demo.run import Outcome

OUTAGES = (broker_outage(13, 22), daemon_outage(27, 28))


def shown(outcome: Outcome) -> str:
    out = io.StringIO()
    Console(file=out, width=140).print(as_text(outcome, [Path("run/demo/demo.png")]))
    return out.getvalue()


def without_the_last(rows: list[Row]) -> list[Row]:
    last = max(rows, key=lambda one: one[3])
    return [one for one in rows if one is not last]


def one_is_early(rows: list[Row]) -> list[Row]:
    # The last one is the burst's or a delayed one: nothing is due in the first second.
    last = max(rows, key=lambda one: one[3])
    return [(*last[:3], at_us(0.5), last[4]), *(one for one in rows if one is not last)]


def test_a_good_run_passes(tmp_path: Path) -> None:
    outcome = outcome_of(tmp_path, outages=OUTAGES)
    text = shown(outcome)
    assert outcome.passed
    assert "PASSED" in text
    assert "kill -9 of the broker and kill -9 of the daemon" in text
    assert "run/demo/demo.png" in text
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("change", "words"),
    [(without_the_last, "1 lost"), (one_is_early, "1 early")],
)
def test_a_bad_run_fails_and_says_why(tmp_path: Path, change: object, words: str) -> None:
    outcome = outcome_of(tmp_path, outages=OUTAGES, change=change)  # type: ignore[arg-type]
    assert not outcome.passed
    assert "FAILED" in shown(outcome)
    assert words in shown(outcome)


def test_tomorrows_messages_that_nobody_holds_any_more_fail_the_run(tmp_path: Path) -> None:
    outcome = outcome_of(tmp_path, far=50, far_held=49)
    assert not outcome.passed
    assert "49 of 50 due tomorrow still held" in shown(outcome)


def test_lateness_of_an_outage_is_told_apart_and_not_hidden(tmp_path: Path) -> None:
    def wait_for_the_broker(rows: list[Row]) -> list[Row]:
        back_us = at_us(22.2)
        return [(*one[:3], back_us, back_us) if at_us(13) <= one[3] < back_us else one for one in rows]

    outcome = outcome_of(tmp_path, outages=OUTAGES, change=wait_for_the_broker)
    report = as_json(outcome)
    assert report["passed"]
    assert report["lateness_ms"]["overall"]["max"] > 8_000
    assert report["lateness_ms"]["broker_down"]["max"] > 8_000
    assert report["lateness_ms"]["outside_outages"]["max"] == pytest.approx(2.0)
    assert "waited while the broker was down" in shown(outcome)


def test_the_json_has_its_fields(tmp_path: Path) -> None:
    report = json.loads(json.dumps(as_json(outcome_of(tmp_path, outages=OUTAGES), [Path("a.svg")])))
    assert report["schema"] == 1
    assert set(report) == {
        "schema", "tracker", "passed", "run", "planned", "sent", "unconfirmed", "delivered", "early", "lost",
        "duplicated", "lateness_ms", "lateness_by_kind_ms", "kills", "due_tomorrow", "plots",
    }  # fmt: skip
    assert (report["sent"], report["delivered"], report["lost"]) == (450, 400, 0)
    assert [kill["what"] for kill in report["kills"]] == ["broker", "daemon"]
    assert report["due_tomorrow"] == {"sent": 50, "held": 50}
    assert set(report["lateness_ms"]) == {
        "overall", "outside_outages", "outside_outages_without_burst", "broker_down", "daemon_down",
        "catching_up", "stored_late",
    }  # fmt: skip
    assert set(report["kills"][0]) == {
        "what", "at_seconds", "healthy_after_seconds", "recovered_after_seconds",
        "first_due_after_kill_seconds", "first_due_after_recovery_seconds", "due_meanwhile",
        "delivered_meanwhile",
    }  # fmt: skip


def test_a_run_without_kills_or_deliveries_can_be_reported(tmp_path: Path) -> None:
    outcome = outcome_of(tmp_path, change=lambda _rows: [], far=0)
    assert "FAILED" in shown(outcome)
    assert as_json(outcome)["lateness_ms"]["overall"]["count"] == 0
