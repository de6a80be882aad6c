"""The demo's view while it runs: a live screen on a terminal, a line a second elsewhere.

Rendering is a pure function of ``Progress``; the two views only decide when. The scale of lateness is
logarithmic, since both a millisecond and an outage matter.
"""

from __future__ import annotations

import math

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tidegate.plugin.demo.recorder import BUCKET_US, LiveCounts
from tidegate.plugin.demo.run import Progress
from tidegate.plugin.demo.trackers import TRACKERS
from tidegate.plugin.demo.watch import IndexState
from tidegate.plugin.demo.workload import FIRST_KILL_AT, SECOND_KILL_AT
from tidegate.plugin.view import LineView, LiveView

SPARKS = "▁▂▃▄▅▆▇█"
GOOD_MS, BAD_MS = 20.0, 1_000.0
_SPARK_DECADES = 5.0  # from a tenth of a millisecond below the first bar's top to 100 s
_BAR_CELLS = 60
_EVENTS_SHOWN = 5
_PANEL_WIDTH = 31


def live_view(progress: Progress, console: Console) -> LiveView:
    """A screen that redraws itself in place."""
    return LiveView(lambda: render(progress), console, transient=False)


def plain_view(progress: Progress, console: Console) -> LineView:
    """A line a second and one for each event."""
    shown = 0

    def news(over: bool) -> list[str]:
        nonlocal shown
        events = progress.events[shown:]
        shown += len(events)
        said = [f"{_at(at_s)}  * {text}" for at_s, text in events]
        return said if over else [*said, line(progress)]

    return LineView(news, console, 1.0)


def _clock(progress: Progress) -> str:
    """The clock of the run, or of the set-up before the first message."""
    if progress.start_us is None:
        return f"set-up {progress.setup_s:.0f} s"
    return _at(progress.elapsed_s)


def _at(at_s: float) -> str:
    return f"{at_s:5.1f} s"


def line(progress: Progress) -> str:
    """The state in one line."""
    text = f"{_clock(progress)}  {progress.phase}"
    if progress.recorder is None:
        return text
    counts = progress.recorder.live()
    text += f" | sent {counts.sent:,}, due {counts.due:,}, delivered {counts.delivered - counts.plain:,}"
    text += f", early {counts.early:,}, again {counts.repeated:,}"
    if counts.recent:
        text += f" | late p50 {duration(counts.p50_ms)}, p99 {duration(counts.p99_ms)}"
    state = progress.watch.latest if progress.watch is not None else None
    if state is not None:
        text += f" | index: {state.in_memory:,} in memory, {state.on_disk:,} on disk"
    return text


def render(progress: Progress) -> RenderableType:
    """The whole screen."""
    counts = None if progress.recorder is None else progress.recorder.live()
    state = progress.watch.latest if progress.watch is not None else None
    parts: list[RenderableType] = [_headline(progress), _time_bar(progress)]
    if counts is not None:
        panels = [_messages(counts), _lateness(counts)]
        if TRACKERS[progress.options.tracker].factory is None:
            panels.insert(1, _index(state))
        parts += [Columns(panels, padding=(0, 1)), _history(progress, counts)]
    parts.append(_events(progress))
    return Group(*parts)


def duration(milliseconds: float) -> str:
    """Milliseconds in a form for people, with three significant digits."""
    size = abs(milliseconds)
    if size >= 999.5:
        return f"{milliseconds / 1000:.1f} s"
    return f"{milliseconds:.0f} ms" if size >= 9.95 else f"{milliseconds:.1f} ms"


def spark(worst_ms: float | None) -> tuple[str, str]:
    """The bar and the colour for the latest delivery of an interval; a blank without any."""
    if worst_ms is None:
        return " ", ""
    if worst_ms < 0:
        return SPARKS[0], "bold magenta"
    height = (math.log10(max(worst_ms, 1.0)) / _SPARK_DECADES) * len(SPARKS)
    colour = "green" if worst_ms < GOOD_MS else "yellow" if worst_ms < BAD_MS else "red"
    return SPARKS[min(int(height), len(SPARKS) - 1)], colour


def _headline(progress: Progress) -> Text:
    tracker = TRACKERS[progress.options.tracker]
    text = Text.assemble((tracker.title, "bold cyan"), "  ", (progress.phase, "bold"), "   ")
    parts = [("broker", progress.broker_up), ("clients", progress.clients_up)]
    if tracker.factory is None:
        parts.insert(1, ("daemon", progress.daemon_up))
    for what, up in parts:
        text.append("● " if up else "○ ", "green" if up else "bold red")
        text.append(f"{what}  ", "default" if up else "red")
    return text


def _time_bar(progress: Progress) -> Text:
    seconds = progress.options.seconds
    filled = min(int(progress.elapsed_s / seconds * _BAR_CELLS), _BAR_CELLS)
    marks = {int(share * _BAR_CELLS) for share in (FIRST_KILL_AT, SECOND_KILL_AT)}
    text = Text()
    for cell in range(_BAR_CELLS):
        colour = "cyan" if cell < filled else "bright_black"
        text.append(*(("✖", "bold red" if cell < filled else "red") if cell in marks else ("━", colour)))
    if progress.start_us is None:
        return text.append(f"  setting up, {progress.setup_s:.0f} s", "bright_black")
    return text.append(f"  {progress.elapsed_s:4.1f} of {seconds:.0f} s", "bright_black")


def _panel(title: str, rows: list[tuple[str, str, str]]) -> Panel:
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(style="bright_black")
    table.add_column(justify="right")
    for name, value, style in rows:
        table.add_row(name, Text(value, style))
    return Panel(table, title=title, title_align="left", width=_PANEL_WIDTH, border_style="bright_black")


def _messages(counts: LiveCounts) -> Panel:
    delayed = counts.delivered - counts.plain
    return _panel(
        "messages",
        [
            ("sent", f"{counts.sent:,}", "bold"),
            ("due by now", f"{counts.due:,}", "bold"),
            ("delivered of these", f"{delayed:,}", "bold green" if delayed >= counts.due else "bold yellow"),
            ("plain ones as well", f"{counts.plain:,}", "default"),
            ("early", f"{counts.early:,}", "bold red" if counts.early else "bold green"),
            ("delivered again", f"{counts.repeated:,}", "yellow" if counts.repeated else "default"),
        ],
    )


def _index(state: IndexState | None) -> Panel:
    if state is None:
        return _panel("index", [("the daemon is away", "", "red"), *[("", "", "")] * 5])
    return _panel(
        "index",
        [
            ("waiting", f"{state.in_memory + state.on_disk:,}", "bold"),
            ("· in memory", f"{state.in_memory:,}", "bold cyan"),
            ("· on disk", f"{state.on_disk:,}", "bold blue"),
            ("at the broker", f"{state.in_flight:,}", "default"),
            ("memory", f"{state.memory_bytes / 2**20:,.1f} MiB", "default"),
            ("disk", f"{state.disk_bytes / 2**20:,.1f} MiB", "default"),
        ],
    )


def _lateness(counts: LiveCounts) -> Panel:
    rows = [("a second", f"{counts.recent / 5:,.0f}", "bold")]
    for name, value_ms in (("p50", counts.p50_ms), ("p99", counts.p99_ms), ("max", counts.max_ms)):
        rows.append((name, duration(value_ms) if counts.recent else "–", spark(value_ms)[1] or "default"))
    return _panel("how late, last 5 s", [*rows, ("", "", ""), ("", "", "")])


def _history(progress: Progress, counts: LiveCounts) -> Text:
    buckets = max(int(progress.options.seconds * 1e6 / BUCKET_US), len(counts.worst_ms), 1)
    per_cell = math.ceil(buckets / (2 * _BAR_CELLS))
    heading = "how late at worst, since the start (each bar step is about four times more)\n"
    text = Text(heading, "bright_black", no_wrap=True, overflow="crop")
    for first in range(0, len(counts.worst_ms), per_cell):
        cell = [worst for worst in counts.worst_ms[first : first + per_cell] if worst is not None]
        # A late message must not hide an early one.
        text.append(*spark(min(cell) if cell and min(cell) < 0 else max(cell, default=None)))
    kills = {int(at_s * 1e6 / BUCKET_US / per_cell): what for at_s, what in progress.kills}
    marks = "\n"
    for cell_number, what in sorted(kills.items()):
        marks += " " * (cell_number + 1 - len(marks)) + f"▲ {what} killed"
    return text.append(marks, "red")


def _events(progress: Progress) -> Text:
    text = Text()
    for at_s, what in progress.events[-_EVENTS_SHOWN:]:
        text.append(f"{_at(at_s)}  ", "bright_black").append(f"{what}\n")
    return text
