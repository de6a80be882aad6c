"""Progress on the terminal: stages, entries, rate and time left; elsewhere a line now and then.

All goes to standard error: standard output is for the result. Notes may contain names that clients chose.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from tidegate.pipeline.job.request import StageEvent
from tidegate.plugin.shared.shown import one_line

_LINE_EVERY_S = 5.0


class View(Protocol):
    """Shows a job's progress."""

    def stage(self, event: StageEvent) -> None:
        """A stage has progressed."""

    def note(self, text: str) -> None:
        """Show a line."""


class Rate:
    """Entries a second of one stage, since it was first seen."""

    def __init__(self) -> None:
        self._began: dict[int, float] = {}

    def of(self, event: StageEvent, now_s: float) -> float | None:
        """None while too little is known."""
        began_s = self._began.setdefault(event.stage, now_s)
        if event.entries is None or now_s - began_s < 1.0:
            return None
        return event.entries / (now_s - began_s)


def in_words(event: StageEvent, rate: float | None) -> str:
    """A stage's progress, in a few words."""
    words = f"{event.done:,} of {event.tasks:,} tasks"
    if event.entries is not None:
        words += f", {event.entries:,} entries"
    if rate is not None:
        words += f", {rate:,.0f}/s"
    return words


class TerminalView:
    """A bar a stage; a context manager."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[words]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._tasks: dict[int, TaskID] = {}
        self._rate = Rate()

    def __enter__(self) -> Self:
        """Start drawing."""
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the bars."""
        self._progress.stop()

    def stage(self, event: StageEvent) -> None:
        """Move its bar."""
        words = in_words(event, self._rate.of(event, time.monotonic()))
        if event.stage not in self._tasks:
            self._tasks[event.stage] = self._progress.add_task(escape(event.name), words=words)
        self._progress.update(
            self._tasks[event.stage], completed=event.done, total=max(event.tasks, 1), words=words
        )

    def note(self, text: str) -> None:
        """A line above the bars."""
        self._progress.console.print(one_line(text), markup=False, highlight=False)


class LineView:
    """A line a stage, and one every few seconds while it lasts; a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._told_s: dict[int, float] = {}
        self._rate = Rate()

    def __enter__(self) -> Self:
        """Nothing to begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to end."""

    def stage(self, event: StageEvent) -> None:
        """Report it when it ends, or after a while of silence."""
        now_s = time.monotonic()
        rate = self._rate.of(event, now_s)
        ended = event.done >= event.tasks
        if ended or now_s - self._told_s.setdefault(event.stage, now_s) >= _LINE_EVERY_S:
            self._told_s[event.stage] = now_s
            self.note(f"{event.name}: {in_words(event, rate)}")

    def note(self, text: str) -> None:
        """A line."""
        self._console.print(one_line(text), markup=False, highlight=False, soft_wrap=True)


def make_view() -> TerminalView | LineView:
    """The view that fits standard error."""
    console = Console(stderr=True)
    return TerminalView(console) if console.is_terminal else LineView(console)
