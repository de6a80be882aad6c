"""Shows the progress of a run: a screen that redraws itself, or lines.

Invariant: the last view shows how the run ended, whatever ended it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live

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


class LineView:
    """Lines without control characters, from its own thread between ``__enter__`` and ``__exit__``.

    news: called every ``interval_s``, and once more at the end (with True); the lines to print.
    """

    def __init__(self, news: Callable[[bool], list[str]], console: Console, interval_s: float) -> None:
        self._news = news
        self._console = console
        self._interval_s = interval_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._print(self._news(True))

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            self._print(self._news(False))

    def _print(self, lines: list[str]) -> None:
        for line in lines:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
