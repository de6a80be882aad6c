"""``tidegate demo`` refuses what cannot be with one line, before anything is started; its exit code."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from tests.support.demo_process import left_behind
from tests.support.demo_results import Change, demo_result
from tidegate.plugin.commands import demo as command
from tidegate.plugin.commands import running
from tidegate.plugin.drill.session import Result, Session
from tidegate.plugin.errors import UserError
from tidegate.plugin.local.broker import Broker, BrokerPorts
from tidegate.plugin.local.process import LocalProcessError


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    command.register(app)
    return app


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Arguments that name every part that the demo looks for, none of which could run."""
    jar, pulsar = tmp_path / "parts" / "shim.jar", tmp_path / "parts" / "bin" / "pulsar"
    pulsar.parent.mkdir(parents=True)
    for path in (jar, pulsar):
        path.touch()
    monkeypatch.setattr(running, "SHIM_JAR", jar)
    return ["--pulsar-home", str(tmp_path / "parts"), "--out", str(tmp_path / "out"), "--plain"]


@pytest.fixture
def never_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo must have refused before."""

    def run(_: Session) -> list[Result]:
        pytest.fail("the demo was started")

    monkeypatch.setattr(Session, "run", run)


def refusal(app: typer.Typer, *arguments: str) -> UserError:
    result = CliRunner().invoke(app, list(arguments))
    assert isinstance(result.exception, UserError), result.output
    return result.exception


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seconds", "0"], "--seconds must be between 5 and 3600, it is 0"),
        (["--seconds", "-3"], "--seconds must be"),
        (["--seconds", "nan"], "--seconds must be"),
        (["--seconds", "inf"], "--seconds must be"),
        (["--messages", "0"], "--messages must be between 1 and"),
        (["--messages", "-5"], "--messages must be"),
        (["--far", "-1"], "--far must be"),
        (["--tracker", "kafka"], "--tracker must be one of tidegate, in-memory, bucket, it is kafka"),
    ],
)
def test_values_that_make_no_sense(app: typer.Typer, arguments: list[str], words: str) -> None:
    error = refusal(app, *arguments)
    assert words in str(error)
    assert "\n" not in str(error)
    assert error.exit_code == 2


@pytest.mark.usefixtures("never_started")
def test_a_place_where_pulsar_cannot_start(app: typer.Typer, parts: list[str], tmp_path: Path) -> None:
    error = refusal(app, *parts, "--out", str(tmp_path / "tide gate"))
    assert error.exit_code == 2
    assert str(error).endswith(
        "has a space in it, which Pulsar's start script cannot take: choose another --out"
    )
    home = tmp_path / "pulsar home"
    shutil.copytree(tmp_path / "parts", home)
    assert "choose another --pulsar-home" in str(refusal(app, *parts, "--pulsar-home", str(home)))


def test_a_pulsar_home_that_is_none(app: typer.Typer, tmp_path: Path) -> None:
    error = refusal(app, "--pulsar-home", str(tmp_path))
    assert f"there is no Pulsar in {tmp_path}" in str(error)
    assert error.exit_code == 2


def test_pulsar_was_not_fetched(app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_CACHE_DIR", str(tmp_path))
    error = refusal(app)
    assert "make setup" in str(error)
    assert error.exit_code == 2


def test_the_shim_was_not_built(app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "SHIM_JAR", tmp_path / "no.jar")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pulsar").touch()
    error = refusal(app, "--pulsar-home", str(tmp_path))
    assert "jar is missing" in str(error)
    assert "make setup" in str(error)
    assert error.exit_code == 2


def test_there_is_no_java(app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    error = refusal(app)
    assert "JAVA_HOME" in str(error)
    assert error.exit_code == 2


@pytest.mark.usefixtures("never_started")
def test_a_report_that_could_not_be_written(app: typer.Typer, parts: list[str], tmp_path: Path) -> None:
    for target, reason in (
        (tmp_path, "it is a directory"),
        (tmp_path / "no" / "report.json", f"there is no directory {tmp_path / 'no'}"),
    ):
        error = refusal(app, *parts, "--json", str(target))
        assert str(error) == f"cannot write the report to {target}: {reason}; choose another --json"
        assert error.exit_code == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("never_started")
@pytest.mark.parametrize("there_already", [True, False])
def test_a_report_that_may_not_be_written(
    app: typer.Typer,
    parts: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    there_already: bool,
) -> None:
    target = tmp_path / "report.json"
    if there_already:
        target.write_text("old")
    forbidden = target if there_already else tmp_path
    # Root may write everywhere, so that permissions alone would not do.
    monkeypatch.setattr(os, "access", lambda path, mode: not (Path(path) == forbidden and mode & os.W_OK))
    error = refusal(app, *parts, "--json", str(target))
    assert "no permission to write there" in str(error)
    assert error.exit_code == 2
    assert target.exists() == there_already


@pytest.mark.usefixtures("never_started")
def test_a_full_disk(
    app: typer.Typer, parts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    def disk_usage(path: Path) -> SimpleNamespace:
        asked.append(path)
        return SimpleNamespace(free=400 * 2**20)

    monkeypatch.setattr(shutil, "disk_usage", disk_usage)
    error = refusal(app, *parts, "--messages", "1000000")
    assert str(error) == (
        f"{tmp_path / 'out'} has 400 MiB of disk left and 1349 MiB are needed: "
        "free some, or choose an --out on another disk"
    )
    assert error.exit_code == 1
    assert asked == [tmp_path]


def test_another_demo_in_the_same_directory(app: typer.Typer, parts: list[str], tmp_path: Path) -> None:
    out_dir = tmp_path / "out"
    work = out_dir / "work"
    work.mkdir(parents=True)
    with (out_dir / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        error = refusal(app, *parts)
        assert (
            str(error)
            == f"another demo or drill works in {out_dir}: wait for its end, or choose another --out"
        )
        assert error.exit_code == 1
        assert work.is_dir(), "the other demo works in there"


@pytest.mark.parametrize("name", ["broker", "web", "bookie"])
def test_a_busy_port(
    app: typer.Typer, parts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        ports = BrokerPorts(**(vars(BrokerPorts.free()) | {name: port}))
        said = (
            f"port {port} ({name}) is in use: stop what listens there, "
            "or run the same command again, which takes other ports"
        )
        broker = Broker(tmp_path / "parts", tmp_path / "broker", ports=ports)
        with pytest.raises(LocalProcessError) as refused:
            broker.spawn()
        assert str(refused.value) == said
        assert not broker.running
        monkeypatch.setattr(BrokerPorts, "free", lambda: ports)
        error = refusal(app, *parts)
    assert str(error) == said
    assert error.exit_code == 1
    assert left_behind(tmp_path) == []


def lose_one(comes_s: dict[int, float]) -> None:
    del comes_s[0]


@pytest.mark.parametrize(
    ("change", "exit_code"), [(lambda _: None, 0), (lose_one, 1)], ids=["passed", "one lost"]
)
def test_the_exit_code_is_the_verdict(
    app: typer.Typer,
    parts: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Change,
    exit_code: int,
) -> None:
    out_dir, target = tmp_path / "out", tmp_path / "report.json"
    work = out_dir / "work"
    work.mkdir(parents=True)
    finished = demo_result(tmp_path / "ledger", change)
    monkeypatch.setattr(Session, "run", lambda _: iter([finished]))
    result = CliRunner().invoke(app, [*parts, "--json", str(target)])
    assert result.exit_code == exit_code, result.output
    report = json.loads(target.read_text())
    assert report["verdict"] == ("fail" if exit_code else "pass")
    assert [Path(plot).name for plot in report["plots"]] == ["demo.png", "demo.svg"]
    assert work.exists() == bool(exit_code), "the logs of a failed run stay"
