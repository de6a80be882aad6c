"""The whole demo on a real broker: nothing early or lost, and no process left however it ends."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest
from tenacity import Retrying, stop_after_delay, wait_fixed

from tests.support.demo_process import left_behind, start

pytestmark = [pytest.mark.broker, pytest.mark.timeout(800)]


def test_a_short_run_passes_and_cleans_up(tmp_path: Path) -> None:
    out_dir = tmp_path / "out"
    arguments = ["--seconds", "25", "--messages", "2000", "--far", "1000", "--plain", "--json", "-"]
    process = start(*arguments, "--out", str(out_dir), cwd=tmp_path)
    output, errors = process.communicate(timeout=700)
    assert process.returncode == 0, errors + troubles(out_dir)
    report = json.loads(output)
    assert (report["verdict"], report["reasons"]) == ("pass", [])
    assert (report["early"], report["lost"], report["unconfirmed"]) == (0, 0, 0)
    assert (report["sent"], report["received"], report["not_due"]) == (2_000, 2_000, 1_000)
    (one,) = report["rounds"]
    assert one["not_due_held"] == 1_000
    assert [fault["what"] for fault in one["faults"]] == ["kill -9 of the broker", "kill -9 of the daemon"]
    assert one["repeated_by_cause"]["ack_hole"] == one["repeated_by_cause"]["tracker"] == 0
    assert "index: " in errors, "the daemon's own counts are shown"
    assert "\x1b" not in errors
    assert "kill -9 of the broker" in errors
    assert (out_dir / "demo.png").is_file()
    assert (out_dir / "demo.svg").is_file()
    assert json.loads((out_dir / "report.json").read_text()) == report
    assert not (out_dir / "work").exists()
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize(
    ("phase", "how"),
    [
        ("starting a broker", signal.SIGTERM),
        ("starting a broker", signal.SIGKILL),
        ("sending and delivering", signal.SIGINT),
        ("sending and delivering", signal.SIGKILL),
        ("everything is started again", signal.SIGINT),
    ],
)
def test_ended_in_the_middle_it_leaves_no_process(tmp_path: Path, how: signal.Signals, phase: str) -> None:
    out_dir = tmp_path / "out"
    process = start("--seconds", "12", "--plain", "--far", "0", "--out", str(out_dir), cwd=tmp_path)
    assert process.stdout is not None
    assert any(phase in line for line in process.stdout), "the demo ended before it got there"
    assert left_behind(tmp_path)
    process.send_signal(how)
    _, errors = process.communicate(timeout=180)
    if how == signal.SIGKILL:
        assert process.returncode == -how
    else:
        assert process.returncode == 128 + how
        assert errors.strip() == "tidegate: interrupted; every process that the demo started has been stopped"
    wait_until_nothing_is_left(tmp_path)


def wait_until_nothing_is_left(directory: Path) -> None:
    """The guard of a demo that was killed -9 needs a moment; everything else ends at once."""
    for attempt in Retrying(stop=stop_after_delay(60), wait=wait_fixed(0.1), reraise=True):
        with attempt:
            assert left_behind(directory) == []


def troubles(out_dir: Path) -> str:
    """The warnings of broker, daemon and client: a reader of a failed CI run has no other trace of them."""
    lines = []
    for path in sorted((out_dir / "work").rglob("*.log")):
        text = path.read_text(errors="replace")
        bad = [line for line in text.splitlines() if re.search("WARN|ERROR", line)]
        lines += [f"\n{path.name}, the last of {len(bad)} warnings:", *bad[-15:]]
    return "\n".join(lines)
