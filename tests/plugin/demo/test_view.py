"""What the demo shows while it runs."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.outcomes import LEDGER_ID
from tidegate.plugin.demo.recorder import Recorder, now_us
from tidegate.plugin.demo.run import Options, Progress
from tidegate.plugin.demo.view import SPARKS, duration, line, plain_view, render, spark
from tidegate.plugin.demo.workload import Kind, plan

NOW_US = now_us()


def made(tmp_path: Path) -> Progress:
    options = Options(100, 30.0, 10, "tidegate", Path("pulsar"), None, tmp_path)
    return Progress(options, clock_us=lambda: NOW_US)


@pytest.fixture
def progress(tmp_path: Path) -> Progress:
    """A run ten seconds old, with one message received 5 ms late, after the broker's kill."""
    progress = made(tmp_path)
    workload = plan(100, 30.0, 10)
    recorder = Recorder(workload)
    progress.recorder, progress.start_us = recorder, NOW_US - 10_000_000
    recorder.begin(progress.start_us)
    number = int((workload.kind == Kind.RETRY).nonzero()[0][0])
    due_us = progress.start_us + int(workload.due_ms[number]) * 1000
    recorder.delivered(number, LEDGER_ID, 1, due_us + 5_000, due_us + 5_000)
    progress.phase = "the broker is down, and starts again"
    progress.kills.append((9.0, "broker"))
    progress.events.append((9.0, "kill -9 of the broker"))
    return progress


def shown(progress: Progress, width: int = 110) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(render(progress))
    return out.getvalue()


def test_the_screen_before_anything_runs(tmp_path: Path) -> None:
    progress = made(tmp_path)
    assert "starting" in shown(progress)


def test_the_clock_of_the_set_up_goes_on(tmp_path: Path) -> None:
    progress = made(tmp_path)
    progress.began_us = NOW_US - 12_000_000
    assert line(progress) == "set-up 12 s  starting"
    assert "setting up, 12 s" in shown(progress)
    progress.start_us = NOW_US - 3_000_000
    progress.began_us = progress.start_us - 7_000_000
    assert line(progress).startswith("  3.0 s  starting")
    assert progress.setup_s == 7.0


def test_the_screen_in_the_middle(progress: Progress) -> None:
    text = shown(progress)
    assert "the broker is down" in text
    assert "▲ broker killed" in text
    assert "the daemon is away" in text
    assert "10.0 of 30 s" in text
    assert max(len(one) for one in text.splitlines()) <= 110


def test_pulsars_own_tracker_has_no_index_to_show(progress: Progress) -> None:
    options = progress.options
    progress.options = Options(
        options.messages,
        options.seconds,
        options.far,
        "in-memory",
        options.pulsar_home,
        None,
        options.out_dir,
    )
    text = shown(progress)
    assert "Pulsar's in-memory tracker" in text
    assert "index" not in text


def test_the_line_says_the_same(progress: Progress) -> None:
    text = line(progress)
    assert "the broker is down" in text
    assert "delivered 1" in text
    assert "\n" not in text


def test_the_plain_view_has_no_control_characters_and_shows_every_event_once(progress: Progress) -> None:
    out = io.StringIO()
    with plain_view(progress, Console(file=out, force_terminal=False)):
        progress.events.append((9.5, "one more thing"))
    assert out.getvalue().count("kill -9 of the broker") == 1
    assert out.getvalue().count("one more thing") == 1
    assert "\x1b" not in out.getvalue()


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0.0 ms"),
        (1.25, "1.2 ms"),
        (9.97, "10 ms"),
        (999.4, "999 ms"),
        (999.6, "1.0 s"),
        (-990, "-990 ms"),
    ],
)
def test_durations(milliseconds: float, text: str) -> None:
    assert duration(milliseconds) == text


def test_sparks_rise_with_lateness_and_early_ones_stand_out() -> None:
    heights = [SPARKS.index(spark(10.0**power)[0]) for power in range(-1, 7)]
    assert heights == sorted(heights)
    assert heights[-1] == len(SPARKS) - 1
    assert spark(None) == (" ", "")
    assert spark(-1)[1] not in {spark(1)[1], spark(100)[1], spark(10_000)[1]}
