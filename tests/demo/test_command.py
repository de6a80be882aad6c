"""``tidegate demo`` refuses what makes no sense with one line and exit code 2, before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tidegate.plugin import demo as command
from tidegate.plugin.errors import UserError


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    command.register(app)
    return app


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
        (["--tracker", "kafka"], "--tracker must be one of tidegate, pulsar, bucket, it is kafka"),
    ],
)
def test_values_that_make_no_sense(app: typer.Typer, arguments: list[str], words: str) -> None:
    error = refusal(app, *arguments)
    assert words in str(error)
    assert "\n" not in str(error)
    assert error.exit_code == 2


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
    monkeypatch.setattr(command, "JAR", tmp_path / "no.jar")
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
