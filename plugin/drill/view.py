"""The view while drills run: a live screen on a terminal, a line for each event elsewhere.

Rendering is a pure function of ``Progress`` and the time; the two views only decide when.
"""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.plugin.demo.view import spark
from tidegate.plugin.drill.course import Progress
from tidegate.plugin.drill.stands.trackers import TITLES
from tidegate.plugin.view import LineView, LiveView

_CELLS = 80
_EVENTS_SHOWN = 6
_FINISHED_SHOWN = 12


def live_view(progress: Progress, console: Console, now_us: Callable[[], int]) -> LiveView:
    """A screen that redraws itself in place."""
    return LiveView(lambda: render(progress, now_us()), console, transient=True)


def plain_view(progress: Progress, console: Console) -> LineView:
    """A line for each phase, event and result."""
    events = finished = 0
    told = ""

    def news(_: bool) -> list[str]:
        nonlocal events, finished, told
        said = []
        title = TITLES.get(progress.tracker, progress.tracker)
        phase = f"{progress.drill} on {title}, round {progress.round}: {progress.phase}"
        if phase != told and progress.drill:
            told = phase
            said.append(phase)
        for at_s, text in progress.events[events:]:
            events += 1
            said.append(f"{at_s:7.1f} s  {text}")
        for drill, tracker, passed in progress.finished[finished:]:
            finished += 1
            said.append(f"{drill} on {TITLES.get(tracker, tracker)}: {'pass' if passed else 'FAIL'}")
        return said

    return LineView(news, console, 0.1)


def render(progress: Progress, now_us: int) -> RenderableType:
    """The whole screen."""
    parts: list[RenderableType] = [_finished(progress), _headline(progress)]
    if progress.tally is not None and progress.start_us is not None:
        parts += [_counts(progress, now_us), _history(progress)]
    parts.append(_events(progress))
    return Group(*parts)


def _finished(progress: Progress) -> Text:
    text = Text()
    for drill, tracker, passed in progress.finished[-_FINISHED_SHOWN:]:
        text.append("✔ " if passed else "✘ ", "bold green" if passed else "bold red")
        text.append(f"{drill}  ").append(f"{TITLES.get(tracker, tracker)}\n", "bright_black")
    return text


def _headline(progress: Progress) -> Text:
    return Text.assemble(
        (progress.drill, "bold cyan"), f"  {TITLES.get(progress.tracker, progress.tracker)}", "  ",
        (f"round {progress.round}", "bright_black"), "\n", (progress.does, "bright_black"), "\n",
        ("● " if progress.online else "○ ", "green" if progress.online else "bold red"), "clients   ",
        (progress.phase, "bold"),
    )  # fmt: skip


def _counts(progress: Progress, now_us: int) -> Table:
    tally = progress.tally
    table = Table.grid(padding=(0, 3, 0, 0))
    if tally is None:
        return table
    due = tally.due(now_us)
    cells = [
        ("sent", f"{tally.sent:,}", "bold"),
        ("due by now", f"{due:,}", "bold"),
        ("received", f"{tally.received:,}", "bold green" if tally.received >= due else "bold yellow"),
        ("early", f"{tally.early:,}", "bold red" if tally.early else "bold green"),
        ("again", f"{tally.again:,}", "yellow" if tally.again else "default"),
    ]
    table.add_row(*(Text(name, "bright_black") for name, _, _ in cells))
    table.add_row(*(Text(value, style) for _, value, style in cells))
    return table


def _history(progress: Progress) -> Text:
    tally = progress.tally
    text = Text("how late at worst, each second\n", "bright_black", no_wrap=True, overflow="crop")
    if tally is None:
        return text
    worst_ms = list(tally.worst_ms)
    first = max(len(worst_ms) - _CELLS, 0)
    for one in worst_ms[first:]:
        text.append(*spark(one))
    marks = "\n"
    for at_s, _ in sorted(progress.strikes):
        cell = int(at_s) - first
        if cell >= 0:
            marks += " " * (cell + 1 - len(marks)) + "▲"
    return text.append(marks, "red")


def _events(progress: Progress) -> Text:
    text = Text()
    for at_s, what in progress.events[-_EVENTS_SHOWN:]:
        text.append(f"{at_s:7.1f} s  ", "bright_black").append(f"{what}\n")
    return text
