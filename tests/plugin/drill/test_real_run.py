"""Drills on a real broker, as a user runs them; whatever ends them, no process is left."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.demo_process import left_behind
from tests.support.waiting import wait_until
from tidegate.plugin.drill.catalogue import named
from tidegate.plugin.drill.drill import Drill
from tidegate.plugin.drill.fault import Need
from tidegate.plugin.drill.session import Options, Session
from tidegate.plugin.drill.stands.trackers import OURS
from tidegate.plugin.drill.verdict import Verdict
from tidegate.plugin.local.shim import SHIM_JAR
from tidegate.plugin.shared.stop import Stop

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


def test_what_is_stored_and_the_clock_are_tampered_with_on_one_broker(
    tmp_path: Path, distribution: Path
) -> None:
    # All three where clocks can be set: a broker's start takes longer than a round.
    drills = [
        short(name, span_s=span_s, needs=(*named(name).needs, Need.CLOCK))
        for name, span_s in (("block-corrupted", 14.0), ("upgrade", 8.0), ("daemon-clock-ahead", 8.0))
    ]
    damaged, upgraded, stepped = run_short(drills, 2_000, tmp_path, distribution)
    for one in (damaged, upgraded, stepped):
        assert (one.sent, one.lost, one.early, one.repeated) == (2_000, 0, 0, 0)
        assert one.first_due_s is not None
        assert one.not_due_held == one.not_due > 0
    assert re.match(r"[1-9]\d* blocks were damaged, and the daemon has noticed [1-9]", seen(damaged)[0])
    assert seen(upgraded) == ["1 subscriptions are of format 4"]
    assert re.match(r"the daemon shows a time \+36\d\d", seen(stepped)[0])
    assert stepped.down_s is not None
    assert stepped.down_s > 5, "the clock stays wrong for so long"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
def test_a_disk_fills_up_under_the_daemon_and_at_its_start(tmp_path: Path, distribution: Path) -> None:
    (full,) = run_short([short("disk-full", span_s=14.0)], 2_000, tmp_path, distribution)
    assert (full.sent, full.lost, full.early, full.repeated) == (2_000, 0, 0, 0)
    running, starting = seen(full)
    assert re.search("the daemon is not ready: .* is full: free some space, then it goes on", running)
    assert starting.endswith("and the daemon did not start on it")
    assert full.not_due_held == full.not_due > 0


def test_a_bundle_moves_a_cursor_is_set_back_and_a_bookie_is_slow_in_a_cluster(
    tmp_path: Path, distribution: Path
) -> None:
    drills = [
        short("bundle-moved", span_s=7.0, times=3),
        short("seek-while-moving", span_s=9.0),
        short("bookie-slow", span_s=14.0),
    ]
    moved, rewound, slow = run_short(drills, 1_000, tmp_path, distribution)
    for one in (moved, rewound, slow):
        assert (one.sent, one.lost, one.early) == (1_000, 0, 0)
        assert one.first_due_s is not None
    assert seen(moved) == [f"moved from {way}" for way in ("a to b", "b to a", "a to b")]
    assert seen(rewound) == ["moved from a to b, and the cursor was set back"]
    assert rewound.repeated_by_cause["rewound"] > 0
    assert seen(slow) == ["the bookie stood still 16 times for 0.4 s"]
    assert slow.repeated == 0


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


def short(name: str, span_s: float, **changes: Any) -> Drill:
    """The drill with its messages due within ``span_s``: the rest of a round is waiting."""
    drill = named(name)
    return replace(drill, load=replace(drill.load, span_s=span_s), **changes)


def run_short(drills: Sequence[Drill], messages: int, directory: Path, pulsar_home: Path) -> list[Verdict]:
    """The verdicts on a round of each, all of which pass and leave no process behind."""
    options = Options(
        drills=drills,
        trackers=[OURS],
        rounds=1,
        messages=messages,
        pulsar_home=pulsar_home,
        jar=SHIM_JAR,
        out_dir=directory / "out",
        seed=1,
    )
    session = Session(options, Stop("the drills"), lambda: time.time_ns() // 1000)
    results = list(session.run())
    failed = [
        (one.drill, one.failures, [it.reasons for it in one.verdicts]) for one in results if not one.passed
    ]
    assert not failed, troubles(directory)
    assert not session.stuck
    assert left_behind(directory) == []
    return [one.verdicts[0] for one in results]


def seen(verdict: Verdict) -> list[str]:
    """How each of its faults was seen."""
    return [strike.evidence for strike in verdict.strikes]


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
