"""Shows the progress of a run: a screen that redraws itself, or lines.

Invariant: the last view shows how the run ended, whatever ended it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live

from tidegate.plugin.shared.repeated import Repeated

_REFRESHES_PER_SECOND = 6


class LiveView:
    """A screen that redraws itself in place, between ``__enter__`` and ``__exit__``."""

    def __init__(self, render: Callable[[], RenderableType], console: Console, *, transient: bool) -> None:
        self._live = Live(
            get_renderable=render,
            console=console,
            refresh_per_second=_REFRESHES_PER_SECOND,
            transient=transient,
        )

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()


class LineView(Repeated):
    """Lines without control characters, from its own thread between ``__enter__`` and ``__exit__``.

    news: called every ``interval_s``, and once more at the end (with True); the lines to print.
    """

    def __init__(self, news: Callable[[bool], list[str]], console: Console, interval_s: float) -> None:
        super().__init__(lambda: self._print(news(False)), interval_s)
        self._news = news
        self._console = console

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._print(self._news(True))

    def _print(self, lines: list[str]) -> None:
        for line in lines:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
