"""Work that its own thread repeats beside other work.

Invariant: when ``__exit__`` returns, the work has ended and does not come again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Repeated:
    """Work once every ``interval_s`` between ``__enter__`` and ``__exit__``."""

    def __init__(self, work: Callable[[], None], interval_s: float) -> None:
        self._work = work
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

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            self._work()
