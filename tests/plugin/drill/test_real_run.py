"""Drills on a real broker, as a user runs them; whatever ends them, no process is left."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.demo_process import left_behind
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(800)]


def start(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    """``tidegate drill`` with its output in pipes."""
    return subprocess.Popen(
        [sys.executable, "-m", "tidegate.plugin.cli", "drill", *arguments],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_drills_pass_on_one_broker_and_clean_up(tmp_path: Path) -> None:
    names = ["daemon-killed", "consumers-churning", "broker-killed"]
    arguments = ["run", *names, "--messages", "1000", "--json", "--report", "report", "--out", "out"]
    process = start(*arguments, cwd=tmp_path)
    output, errors = process.communicate(timeout=700)
    assert process.returncode == 0, errors + troubles(tmp_path)
    found = [json.loads(line) for line in output.splitlines()]
    assert [one["drill"] for one in found] == names
    for one in found:
        assert (one["verdict"], one["reasons"], one["tracker"]) == ("pass", [], "tidegate")
        assert (one["sent"], one["lost"], one["early"], one["not_due"]) == (1_000, 0, 0, 500)
        assert one["repeated"] == sum(one["repeated_by_cause"].values())
        assert one["gap_s"] >= 0
        assert set(one["lateness_ms"]) == {"p50", "p99", "p99_9", "max"}
        assert one["first_due_s"] is not None
        assert one["rounds"][0]["faults"][0]["seen"]
    assert found[2]["gap_s"] > 1, "a broker that starts delivers nothing"
    assert found[2]["read_again"] < 500, "what is held is not read again"
    assert "\x1b" not in errors
    assert json.loads((tmp_path / "report" / "report.json").read_text()) == found
    assert left_behind(tmp_path) == []


def test_a_machine_is_lost_in_a_cluster_and_another_takes_over(tmp_path: Path) -> None:
    process = start("run", "machine-lost", "--messages", "2000", "--json", "--out", "out", cwd=tmp_path)
    output, errors = process.communicate(timeout=700)
    assert process.returncode == 0, errors + output + troubles(tmp_path)
    found = json.loads(output)
    assert (found["sent"], found["lost"], found["early"]) == (2_000, 0, 0)
    assert found["read_again"] < 1_500, "half of what waits: the other owner has it from the index log"
    assert found["gap_s"] > 1, "the session has to time out first"
    assert left_behind(tmp_path) == []


def test_ended_by_ctrl_c_it_leaves_no_process(tmp_path: Path) -> None:
    process = start("run", "broker-killed", "--messages", "200", "--plain", "--out", "out", cwd=tmp_path)
    read_until(process, "everything is started again")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 128 + signal.SIGINT
    assert errors.strip() == "tidegate: interrupted; every process that the drills started has been stopped"
    assert left_behind(tmp_path) == []


def test_killed_itself_it_leaves_no_process_and_a_ledger_that_is_reported(tmp_path: Path) -> None:
    process = start("run", "daemon-paused", "--messages", "200", "--plain", "--out", "out", cwd=tmp_path)
    read_until(process, "seen:")
    process.kill()
    process.communicate(timeout=180)
    wait_until(lambda: not left_behind(tmp_path), "the guard has ended what ran")
    reporting = start("report", "--json", "--out", "out", cwd=tmp_path)
    output, errors = reporting.communicate(timeout=180)
    assert reporting.returncode == 1, errors
    found = json.loads(output)
    assert "the drill itself ended before the round did" in found["reasons"]
    assert found["sent"] > 0


def read_until(process: subprocess.Popen[str], text: str) -> None:
    """Return at the first line of its output that has the text."""
    assert process.stdout is not None
    assert any(text in line for line in process.stdout), f"it ended before it said {text}"


def troubles(directory: Path) -> str:
    """The warnings of broker, daemon and client: a reader of a failed CI run has no other trace of them."""
    lines = []
    for path in sorted((directory / "out").rglob("*.log")):
        bad = [one for one in path.read_text(errors="replace").splitlines() if re.search("WARN|ERROR", one)]
        lines += [f"\n{path}, the last of {len(bad)} warnings:", *bad[-15:]]
    return "\n".join(lines)
