"""Packages of each extra: the daemon needs no plotting; one line says how to get a missing package."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemons import START_SECONDS, assert_one_line
from tidegate.plugin.local.daemon import Daemon

CHILD = Path(__file__).parent / "children" / "installed_with.py"
ROOT = Path(__file__).parents[2]


def run(extras: str, module: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a module with what pip installs for ``tidegate[extras]``, and with nothing more."""
    return subprocess.run(
        [sys.executable, str(CHILD), extras, module, *map(str, arguments)],
        cwd=ROOT, capture_output=True, text=True, timeout=START_SECONDS, check=False,
    )  # fmt: skip


def tidegate(*arguments: str | Path) -> str:
    done = run("-", "tidegate.plugin.cli", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


class BareDaemon(Daemon):
    """`tidegate serve` where no extra is installed."""

    def _prepare(self) -> tuple[list[str], dict[str, str]]:
        (python, _, *command), environment = super()._prepare()
        return [python, str(CHILD), "-", *command], environment


def test_the_daemon_and_its_commands_need_no_extra(short_dir: Path, home: Path) -> None:
    with BareDaemon(short_dir) as daemon:
        socket = ("--socket", daemon.socket_path)
        assert json.loads(tidegate("status", "--json", *socket))["daemon"]["ready"]
        assert json.loads(tidegate("status", "--json", "--http", daemon.url))["daemon"]["ready"]
        assert "ready" in tidegate("status", *socket)
        width = run("-", "tidegate.plugin.cli", "width", "*:*", *socket)
        assert_one_line(width, "the daemon has none yet, not before its first delayed message", 1)
        assert tidegate("attach", home, *socket).startswith("attached ")
        where_fsspec_is_not = tidegate("attach", home, "--index-log", "s3://bucket/folder")
        assert "nothing is kept there before the daemon's Python has it: s3:// needs" in where_fsspec_is_not
        assert "for S3 run pip install 'WHEEL[s3]' with" in where_fsspec_is_not
        assert tidegate("detach", home).startswith("detached ")
        assert daemon.stop() == 0


def test_the_list_of_commands_needs_no_extra() -> None:
    listed = tidegate("--help")
    for command in ("serve", "status", "attach", "detach", "demo", "setup", "width"):
        assert f"  {command} " in listed


def test_the_help_of_a_command_needs_no_extra() -> None:
    for command in ("audit", "demo", "drill", "rebuild", "spark-package", "tune", "verify"):
        assert f"Usage: tidegate {command} " in tidegate(command, "--help")


@pytest.mark.parametrize(
    ("extras", "module", "argument", "said"),
    [
        ("-", "tidegate.plugin.cli", "demo", "tidegate: demo needs pulsar, which is not installed: "),
        ("demo", "bench", "list", "bench: it needs psutil, which is not installed: "),
    ],
)
def test_a_command_without_its_extra_says_how_to_get_it(
    extras: str, module: str, argument: str, said: str
) -> None:
    package = "'WHEEL[demo]' with the path" if argument == "demo" else "-e '.[bench]'"
    code = 2 if module == "tidegate.plugin.cli" else 1
    assert_one_line(run(extras, module, argument), f"{said}run pip install {package}", code)


@pytest.mark.parametrize(
    "arguments",
    [("verify", "persistent://public/default/o", "s", "--admin-url", "http://[::1]:1"), ("tune", __file__)],
)
def test_what_was_not_judged_for_lack_of_a_package_is_no_verdict(arguments: tuple[str, ...]) -> None:
    """1 is what `verify` says of an index that differs, and `audit` of messages that were lost."""
    done = run("-", "tidegate.plugin.cli", *arguments)
    assert_one_line(done, "run pip install 'WHEEL[spark]' with the path of Tidegate's wheel", 2)


def test_the_demo_has_all_it_needs_with_its_extra(tmp_path: Path) -> None:
    done = run("demo", "tidegate.plugin.cli", "demo", "--pulsar-home", tmp_path)
    assert_one_line(done, f"there is no Pulsar in {tmp_path}", 2)
    for module in ("demo.preset", "demo.picture", "demo.report", "drill.session", "drill.view"):
        code = f"tidegate.plugin.{module}"
        assert run("demo", code).returncode == 0, code
