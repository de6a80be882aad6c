"""Ctrl-C while a command is being loaded: no traceback, and the exit code of an interrupt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tidegate.plugin.local.daemon import without_settings
from tidegate.plugin.shared import interrupt

ROOT = Path(__file__).resolve().parents[2]
(MODULE, FUNCTION) = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"][
    "tidegate"
].split(":")

# As the console script that pip makes, with a SIGINT that comes amid an import.
SCRIPT = """
import os, signal, sys
amid, sys.argv = sys.argv[1], ["tidegate", *sys.argv[2:]]
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == amid:
            print("interrupted", flush=True)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from MODULE import FUNCTION
FUNCTION()
""".replace("MODULE", MODULE).replace("FUNCTION", FUNCTION)


def interrupted(amid: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, amid, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=without_settings(os.environ),
    )


@pytest.mark.parametrize(
    ("amid", "arguments"),
    [
        ("tidegate.plugin.cli", ("status",)),
        ("tidegate.plugin.shared.environment", ("status",)),
        ("tidegate.plugin.shared.shown", ("serve", "--data", "d")),
        ("typer", ("status",)),
        ("tidegate.plugin.commands.status", ("status",)),
        ("rich.console", ("status",)),
        ("tidegate.plugin.daemon.settings", ("serve", "--data", "d")),
        ("numpy", ("serve", "--data", "d")),
        ("rocksdict", ("serve", "--data", "d")),
        ("tidegate.pipeline.commands.audit", ("audit", "--help")),
    ],
)
def test_amid_an_import_it_ends_without_a_word(amid: str, arguments: tuple[str, ...], tmp_path: Path) -> None:
    if "d" in arguments:
        arguments = (*arguments[:-1], str(tmp_path / "d"), "--socket", str(tmp_path / "s"))
    done = interrupted(amid, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (130, "interrupted\n", "")
    assert not list(tmp_path.iterdir())


def test_who_ignores_it_goes_on() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = interrupted("typer", "--version")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("interrupted\ntidegate ")


def test_what_runs_may_clean_up() -> None:
    assert not interrupt.raise_again(), "pytest has a handler of its own"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        interrupt.end_at_once()
        assert interrupt.raise_again()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
