"""``tidegate drill`` refuses what cannot be with one line, before anything is started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from tests.support.ledgers import finished, round_of
from tidegate.plugin.commands import drill as command
from tidegate.plugin.commands import running
from tidegate.plugin.drill.catalogue import DRILLS
from tidegate.plugin.drill.session import LEDGERS, Session
from tidegate.plugin.errors import UserError

OWN = ["--service-url", "pulsar://a:1", "--topic", "persistent://a/b/c"]


def run(*arguments: str) -> Result:
    app = typer.Typer()
    command.register(app)
    return CliRunner().invoke(app, ["drill", *arguments])


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Arguments that name every needed part, none of which could run, and no run may begin."""
    jar, pulsar = tmp_path / "parts" / "shim.jar", tmp_path / "parts" / "bin" / "pulsar"
    pulsar.parent.mkdir(parents=True)
    for path in (jar, pulsar):
        path.touch()
    monkeypatch.setattr(running, "SHIM_JAR", jar)

    def never(_: Session) -> None:
        pytest.fail("the drills were started")

    monkeypatch.setattr(Session, "run", never)
    return ["--pulsar-home", str(tmp_path / "parts"), "--out", str(tmp_path / "out")]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "name a drill, or say --all"),
        (["broker-killed", "--all"], "not both"),
        (["broker-kiled"], "there is no drill broker-kiled: is it broker-killed?"),
        (["burst", "--rounds", "0"], "--rounds must be between 1"),
        (["burst", "--messages", "1"], "--messages must be between 10"),
        (["burst", "--compare", "memory"], "--compare takes in-memory, bucket, no-index-log, not memory"),
        (["burst", "--topic", "t"], "--topic is about a cluster of your own: give its --service-url"),
        (["burst", "--service-url", "pulsar://a:1"], "--service-url needs --topic persistent://"),
        (["burst", *OWN, "--topic", "mine"], "--service-url needs --topic persistent://"),
        (["burst", *OWN, "--admin-url", "a:1"], "--admin-url begins with http"),
        (["burst", *OWN, "--service-url", "http://a"], "--service-url begins with pulsar://"),
        (["burst", *OWN, "--compare", "bucket"], "--compare starts brokers of its own"),
        (["burst", *OWN, "--on-kill", "'"], "--on-kill is no command"),
        (["burst", *OWN, "--on-kill", ""], "--on-kill is empty"),
        (["burst", *OWN, "--token-file", "/nothing"], "cannot read --token-file /nothing: No such file"),
        (["burst", *OWN, "--token-file", "/dev/zero"], "--token-file /dev/zero: it is longer than 65,536"),
        (["burst", *OWN, "--token-file", "/dev/null"], "--token-file /dev/null is empty"),
        (
            ["burst", *OWN, "--token-file", __file__],
            "test_drill.py holds no token: that is one word of ASCII",
        ),
        (["burst", "--seed", "-2"], "--seed must not be negative, it is -2"),
    ],
)
def test_what_makes_no_sense_is_refused(parts: list[str], arguments: list[str], told: str) -> None:
    result = run("run", *arguments, *parts)
    assert isinstance(result.exception, UserError), result.output
    assert told in str(result.exception)
    assert result.exception.exit_code == 2


def test_a_report_in_the_place_of_a_file_is_refused(parts: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run("run", "burst", *parts, "--report", str(tmp_path / "file"))
    assert "is not a directory" in str(result.exception)


def test_a_report_that_cannot_be_written_is_told_before_the_drills(parts: list[str], tmp_path: Path) -> None:
    result = run("run", "burst", *parts, "--report", "/proc/self/report")
    assert isinstance(result.exception, UserError), result.output
    assert result.exception.exit_code == 2
    assert "cannot write to --report /proc/self/report" in str(result.exception)
    (tmp_path / "file").touch()
    result = run("run", "burst", *parts, "--report", str(tmp_path / "file" / "below"))
    assert "choose another one" in str(result.exception)


def test_the_list_is_an_array_of_name_does_needs() -> None:
    shown = json.loads(run("list", "--json").output)
    assert [one["name"] for one in shown] == [drill.name for drill in DRILLS]
    assert all(set(one) == {"name", "does", "needs"} for one in shown)


def test_the_list_for_people_has_every_drill() -> None:
    lines = run("list").output.splitlines()
    assert {line.split()[0] for line in lines if not line.startswith(" ")} == {drill.name for drill in DRILLS}


def test_a_report_is_made_of_what_a_killed_run_left(tmp_path: Path) -> None:
    ledgers = tmp_path / LEDGERS
    finished(ledgers / "one", round_of())
    finished(ledgers / "two", round_of(number=2))
    result = run("report", "--out", str(tmp_path), "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["sent"] == 400
    events = (ledgers / "two" / "events.jsonl").read_text().splitlines(keepends=True)
    (ledgers / "two" / "events.jsonl").write_text("".join(events[:-1]))
    result = run("report", "--out", str(tmp_path), "--json", "--report", str(tmp_path / "report"))
    assert result.exit_code == 1
    assert json.loads(result.stdout)["reasons"] == ["the drill itself ended before the round did"]
    assert "the drill itself ended" in (tmp_path / "report" / "index.html").read_text()


def test_without_ledgers_there_is_nothing_to_report(tmp_path: Path) -> None:
    result = run("report", "--out", str(tmp_path))
    assert isinstance(result.exception, UserError)
    assert "there are no ledgers" in str(result.exception)
    assert result.exception.exit_code == 2, "no drill has failed"
