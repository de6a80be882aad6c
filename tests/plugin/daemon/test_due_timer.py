"""The timer of due entries, on a loop whose timers the test fires."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast
from unittest.mock import Mock

import pytest

from tidegate.index.clock import ManualClock
from tidegate.plugin.daemon.due_timer import BUG_AGAIN_MS, DueTimer

T0 = 1_800_000_000_000
BUDGET_S = 1.0


class ManualLoop:
    """Keeps what is to be called, and calls it when the test says so."""

    def __init__(self) -> None:
        self.wanted: Callable[[], object] | None = None

    def call_soon(self, callback: Callable[[], object]) -> Mock:
        self.wanted = callback
        return Mock()

    def call_later(self, delay: float, callback: Callable[[], object]) -> Mock:
        self.wanted = callback
        return Mock()

    def fire(self) -> None:
        """Call what was to be called last."""
        callback, self.wanted = self.wanted, None
        assert callback is not None, "no timer is set"
        callback()


def test_a_bug_in_serving_one_stream_stops_nobody() -> None:
    clock, loop = ManualClock(T0), ManualLoop()
    served: list[tuple[str, int]] = []

    def serve(stream: str, now_ms: int) -> None:
        if not served:
            served.append((stream, now_ms))
            raise RuntimeError("a bug")
        served.append((stream, now_ms))

    timer: DueTimer[str] = DueTimer(clock, cast("asyncio.AbstractEventLoop", loop), serve, BUDGET_S)
    timer.set("buggy", T0)
    timer.set("other", T0 + 1)
    with pytest.raises(RuntimeError):
        loop.fire()
    clock.advance(1)
    loop.fire()
    assert served == [("buggy", T0), ("other", T0 + 1)]
    clock.advance(BUG_AGAIN_MS)
    timer.set("third", T0)
    loop.fire()
    assert {stream for stream, _ in served[2:]} == {"buggy", "third"}
