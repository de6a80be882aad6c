"""The view while drills run: a live screen on a terminal, lines elsewhere.

Rendering is a pure function of ``Progress`` and the time; the two views only decide when. The scale of
lateness is logarithmic, because both a millisecond and an outage matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tidegate.plugin.drill.course import Progress
from tidegate.plugin.drill.screen import LineView, LiveView
from tidegate.plugin.drill.stands.trackers import TITLES, is_ours
from tidegate.plugin.drill.tally import BUCKET_US, RECENT_US, Tally
from tidegate.plugin.drill.watch import IndexState
from tidegate.plugin.shared.durations import in_words

SPARKS = "▁▂▃▄▅▆▇█"
GOOD_MS, BAD_MS = 20.0, 1_000.0
_SPARK_DECADES = 5.0  # from a tenth of a millisecond below the first bar's top to 100 s
_BAR_CELLS = 60
_PANEL_WIDTH = 31
_EVENTS_SHOWN = 6
_FINISHED_SHOWN = 12

_Rows = list[tuple[str, str, str]]


def live_view(
    progress: Progress, console: Console, now_us: Callable[[], int], *, transient: bool = True
) -> LiveView:
    """A screen that redraws itself in place."""
    return LiveView(lambda: render(progress, now_us()), console, transient=transient)


def plain_view(progress: Progress, console: Console, now_us: Callable[[], int], every_s: int = 0) -> LineView:
    """A line for each phase, event and result, and one of counts ``every_s`` seconds (0: never)."""
    events = finished = 0
    told = ""
    counted_s = -1

    def news(over: bool) -> list[str]:
        nonlocal events, finished, told, counted_s
        said = []
        title = TITLES.get(progress.tracker, progress.tracker)
        phase = f"{progress.drill} on {title}, round {progress.round}: {progress.phase}"
        if phase != told and progress.drill:
            told = phase
            said.append(phase)
        for at_s, text in progress.events[events:]:
            events += 1
            said.append(f"{at_s:7.1f} s  {text}")
        if every_s and not over and progress.start_us is not None:
            second = int((now_us() - progress.start_us) / 1e6)
            if second >= counted_s + every_s:
                counted_s = second
                said.append(f"{second:7.1f} s  {line(progress, now_us())}")
        for drill, tracker, passed in progress.finished[finished:]:
            finished += 1
            said.append(f"{drill} on {TITLES.get(tracker, tracker)}: {'pass' if passed else 'FAIL'}")
        return said

    return LineView(news, console, 0.1)


def line(progress: Progress, now_us: int) -> str:
    """The counts in one line."""
    tally = progress.tally
    if tally is None:
        return progress.phase
    text = f"sent {tally.sent:,}, due {tally.due(now_us):,}, received {tally.delivered_due:,}"
    text += f", early {tally.early:,}, again {tally.again:,}"
    recent = tally.recent(now_us)
    if recent.count:
        text += f" | late p50 {in_words(recent.p50_ms)}, p99 {in_words(recent.p99_ms)}"
    state = progress.watch.latest if progress.watch is not None else None
    if state is not None:
        text += f" | index: {state.in_memory:,} in memory, {state.on_disk:,} on disk"
    return text


def render(progress: Progress, now_us: int) -> RenderableType:
    """The whole screen."""
    parts: list[RenderableType] = [_finished(progress), _headline(progress), _time_bar(progress, now_us)]
    tally = progress.tally
    if tally is not None and progress.start_us is not None:
        panels = [_messages(tally, now_us), _lateness(tally, now_us)]
        if progress.watch is not None:
            panels.insert(1, _index(progress.watch.latest))
        parts += [Columns(panels, padding=(0, 1)), _history(progress, tally)]
    parts.append(_events(progress))
    return Group(*parts)


def spark(worst_ms: float | None) -> tuple[str, str]:
    """The bar and the colour for the latest receipt of an interval; a blank without any."""
    if worst_ms is None:
        return " ", ""
    if worst_ms < 0:
        return SPARKS[0], "bold magenta"
    height = (math.log10(max(worst_ms, 1.0)) / _SPARK_DECADES) * len(SPARKS)
    return SPARKS[min(int(height), len(SPARKS) - 1)], colour(worst_ms)


def colour(late_ms: float) -> str:
    """The colour of a lateness."""
    if late_ms < 0:
        return "bold magenta"
    return "green" if late_ms < GOOD_MS else "yellow" if late_ms < BAD_MS else "red"


def _finished(progress: Progress) -> Text:
    text = Text()
    for drill, tracker, passed in progress.finished[-_FINISHED_SHOWN:]:
        text.append("✔ " if passed else "✘ ", "bold green" if passed else "bold red")
        text.append(f"{drill}  ").append(f"{TITLES.get(tracker, tracker)}\n", "bright_black")
    return text


def _headline(progress: Progress) -> Text:
    text = Text.assemble(
        (progress.drill, "bold cyan"), f"  {TITLES.get(progress.tracker, progress.tracker)}", "  ",
        (f"round {progress.round}", "bright_black"), "\n", (progress.does, "bright_black"), "\n",
    )  # fmt: skip
    runs = progress.tally is not None
    parts = [("broker", runs and "broker" not in progress.down)]
    if is_ours(progress.tracker):
        parts.append(("daemon", runs and "daemon" not in progress.down))
    for what, up in (*parts, ("clients", progress.online)):
        text.append("● " if up else "○ ", "green" if up else "bold red")
        text.append(f"{what}  ", "default" if up else "red")
    return text.append(f" {progress.phase}", "bold")


def _time_bar(progress: Progress, now_us: int) -> Text:
    if progress.start_us is None:
        return Text(f"setting up, {(now_us - progress.began_us) / 1e6:.0f} s", "bright_black")
    elapsed_s, end_s = (now_us - progress.start_us) / 1e6, max(progress.end_ms / 1000, 0.001)
    filled = min(int(elapsed_s / end_s * _BAR_CELLS), _BAR_CELLS)
    marks = {int(at_s / end_s * _BAR_CELLS) for at_s in progress.marks_s}
    text = Text()
    for cell in range(_BAR_CELLS):
        filling = "cyan" if cell < filled else "bright_black"
        text.append(*(("✖", "bold red" if cell < filled else "red") if cell in marks else ("━", filling)))
    return text.append(f"  {elapsed_s:4.1f} of {end_s:.0f} s", "bright_black")


def _panel(title: str, rows: _Rows) -> Panel:
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(style="bright_black")
    table.add_column(justify="right")
    for name, value, style in rows:
        table.add_row(name, Text(value, style))
    return Panel(table, title=title, title_align="left", width=_PANEL_WIDTH, border_style="bright_black")


def _messages(tally: Tally, now_us: int) -> Panel:
    due, delivered = tally.due(now_us), tally.delivered_due
    rows = [
        ("sent", f"{tally.sent:,}", "bold"),
        ("due by now", f"{due:,}", "bold"),
        ("received of these", f"{delivered:,}", "bold green" if delivered >= due else "bold yellow"),
        ("without a delay", f"{tally.undelayed:,}", "default"),
        ("early", f"{tally.early:,}", "bold red" if tally.early else "bold green"),
        ("received again", f"{tally.again:,}", "yellow" if tally.again else "default"),
    ]
    return _panel("messages", rows)


def _index(state: IndexState | None) -> Panel:
    if state is None:
        return _panel("index", [("the daemon is away", "", "red"), *[("", "", "")] * 5])
    rows = [
        ("waiting", f"{state.in_memory + state.on_disk:,}", "bold"),
        ("· in memory", f"{state.in_memory:,}", "bold cyan"),
        ("· on disk", f"{state.on_disk:,}", "bold blue"),
        ("at the broker", f"{state.in_flight:,}", "default"),
        ("memory", f"{state.memory_bytes / 2**20:,.1f} MiB", "default"),
        ("disk", f"{state.disk_bytes / 2**20:,.1f} MiB", "default"),
    ]
    return _panel("index", rows)


def _lateness(tally: Tally, now_us: int) -> Panel:
    recent = tally.recent(now_us)
    rows = [("a second", f"{recent.count * 1e6 / RECENT_US:,.0f}", "bold")]
    for name, value_ms in (("p50", recent.p50_ms), ("p99", recent.p99_ms), ("max", recent.max_ms)):
        rows.append((name, in_words(value_ms) if recent.count else "–", colour(value_ms)))
    return _panel("how late, last 5 s", [*rows, ("", "", ""), ("", "", "")])


def _history(progress: Progress, tally: Tally) -> Text:
    worst_ms = list(tally.worst_ms)
    buckets = max(int(progress.end_ms * 1000 / BUCKET_US), len(worst_ms), 1)
    per_cell = math.ceil(buckets / (2 * _BAR_CELLS))
    heading = "how late at worst, since the start (each bar step is about four times more)\n"
    text = Text(heading, "bright_black", no_wrap=True, overflow="crop")
    for first in range(0, len(worst_ms), per_cell):
        cell = [worst for worst in worst_ms[first : first + per_cell] if worst is not None]
        # A late message must not hide an early one.
        text.append(*spark(min(cell) if cell and min(cell) < 0 else max(cell, default=None)))
    marks = "\n"
    for at_s, what in sorted(progress.strikes):
        cell_number = int(at_s * 1e6 / BUCKET_US / per_cell)
        marks += " " * (cell_number + 1 - len(marks)) + f"▲ {what} "
    return text.append(marks, "red")


def _events(progress: Progress) -> Text:
    text = Text()
    for at_s, what in progress.events[-_EVENTS_SHOWN:]:
        text.append(f"{at_s:7.1f} s  ", "bright_black").append(f"{what}\n")
    return text
