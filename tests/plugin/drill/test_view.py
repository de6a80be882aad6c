"""What is shown while drills run."""

from __future__ import annotations

import io

from rich.console import Console

from tests.support.ledgers import START_US, at_us
from tidegate.plugin.drill.clients import Tally
from tidegate.plugin.drill.course import Progress
from tidegate.plugin.drill.plan import Load, Shape, plan
from tidegate.plugin.drill.view import plain_view, render


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
        tally=tally,
        online=True,
        events=[(3.5, "kill -9 of the broker")],
        strikes=[(3.5, "kill -9 of the broker")],
        finished=[("broker-killed", "bucket", False)],
    )


def test_the_screen_says_what_runs_and_what_came() -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(render(progress(), at_us(5.0)))
    text = console.export_text()
    for told in ("burst", "[/] a burst", "round 1 of 2", "✘ broker-killed", "kill -9 of the broker", "▲"):
        assert told in text
    numbers = next(line for line in text.splitlines() if line.split()[:2] == ["100", "100"])
    assert numbers.split() == ["100", "100", "40", "0", "1"], "sent, due, received, early, again"


def test_the_plain_view_says_each_thing_once_and_in_order() -> None:
    said = io.StringIO()
    with plain_view(progress(), Console(file=said, width=100)):
        pass
    lines = said.getvalue().splitlines()
    assert lines == [
        "burst on Tidegate, round 1 of 2: sending and delivering",
        "    3.5 s  kill -9 of the broker",
        "broker-killed on Pulsar's Bucket tracker: FAIL",
    ]
