"""The view while drills run."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from tests.support.ledgers import START_US, at_us
from tests.support.waiting import wait_until
from tidegate.plugin.drill.course import Progress
from tidegate.plugin.drill.plan import Load, Shape, plan
from tidegate.plugin.drill.tally import Tally
from tidegate.plugin.drill.view import SPARKS, line, plain_view, render, spark
from tidegate.plugin.drill.watch import Watch

STATUS = {
    "totals": {"held": 100, "in_flight": 20, "staged": 40, "memory_bytes": 4096, "disk_bytes": 8192},
    "subscriptions": [{"slices": [{"state": "active", "entries": 10}, {"state": "later", "entries": 50}]}],
}


def progress() -> Progress:
    """In the middle of a round, five seconds after its start."""
    messages = plan(Load(messages=100, shape=Shape.BURST, far=0.0), 1)
    tally = Tally(messages, START_US)
    for number in range(100):
        assert tally.confirmed(number)
    assert not tally.confirmed(0), "a second confirmation is no news"
    for number in range(40):
        tally.delivered(number, at_us(messages.lead_ms / 1000 + 0.01))
    tally.delivered(0, at_us(4.0))
    assert tally.missing == 60
    return Progress(
        drill="burst",
        does="[/] a burst",
        tracker="tidegate",
        round="1 of 2",
        phase="sending and delivering",
        start_us=START_US,
        end_ms=10_000,
        marks_s=[3.5],
        down="kill -9 of the broker",
        tally=tally,
        online=True,
        events=[(3.5, "kill -9 of the broker")],
        strikes=[(3.5, "kill -9 of the broker")],
        finished=[("broker-killed", "bucket", False)],
    )


def shown(run: Progress, width: int = 110) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(render(run, at_us(5.0)))
    return out.getvalue()


def test_the_screen_before_anything_runs() -> None:
    text = shown(Progress(began_us=at_us(-7.0), phase="starting a broker"))
    assert "setting up, 12 s" in text
    assert "starting a broker" in text


def test_the_screen_says_what_runs_and_what_came() -> None:
    text = shown(progress())
    for told in ("burst", "[/] a burst", "round 1 of 2", "✘ broker-killed", "▲ kill -9 of the broker", "✖"):
        assert told in text
    assert "○ broker" in text
    assert "● daemon" in text
    assert "5.0 of 10 s" in text
    assert re.search(r"│ sent +100 │", text)
    assert re.search(r"│ received of these +40 │", text)
    assert re.search(r"│ received again +1 │", text)
    assert "index" not in text
    assert max(len(one) for one in text.splitlines()) <= 110


@pytest.mark.parametrize(("status", "told"), [(None, "the daemon is away"), (STATUS, "on disk")])
def test_the_index_is_shown_where_the_daemon_is_asked(status: dict[str, Any] | None, told: str) -> None:
    run = progress()
    run.watch = Watch(lambda: status, lambda: at_us(4.0))
    run.watch.start()
    if status is not None:
        wait_until(lambda: run.watch is not None and run.watch.latest is not None, "it has answered")
    try:
        assert told in shown(run)
        assert ("index: 30 in memory, 50 on disk" in line(run, at_us(5.0))) == (status is not None)
    finally:
        run.watch.close()


def test_the_plain_view_says_each_thing_once_and_in_order() -> None:
    said = io.StringIO()
    with plain_view(progress(), Console(file=said, width=100), lambda: at_us(5.0)):
        pass
    lines = said.getvalue().splitlines()
    assert lines == [
        "burst on Tidegate, round 1 of 2: sending and delivering",
        "    3.5 s  kill -9 of the broker",
        "broker-killed on Pulsar's Bucket tracker: FAIL",
    ]


def test_the_plain_view_counts_every_second_where_asked() -> None:
    said = io.StringIO()
    with plain_view(progress(), Console(file=said, width=100), lambda: at_us(5.0), every_s=1):
        wait_until(lambda: "sent 100, due 100, received 40, early 0, again 1" in said.getvalue(), "it counts")
    assert said.getvalue().count("sent 100") == 1
    assert "\x1b" not in said.getvalue()


def test_sparks_rise_with_lateness_and_early_ones_stand_out() -> None:
    heights = [SPARKS.index(spark(10.0**power)[0]) for power in range(-1, 7)]
    assert heights == sorted(heights)
    assert heights[-1] == len(SPARKS) - 1
    assert spark(None) == (" ", "")
    assert spark(-1)[1] not in {spark(1)[1], spark(100)[1], spark(10_000)[1]}
