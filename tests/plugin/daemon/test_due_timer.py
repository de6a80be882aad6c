"""The timer of due entries, on a loop whose timers the test fires."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import cast
from unittest.mock import Mock

import pytest

from tidegate.index.clock import ManualClock
from tidegate.plugin.daemon.due_timer import BUG_AGAIN_MS, LOOK_AGAIN_MS, DueTimer, Pause

T0 = 1_800_000_000_000
BUDGET_S = 1.0


class ManualLoop:
    """Keeps what is to be called, and calls it when the test says so."""

    def __init__(self) -> None:
        self.wanted: Callable[[], object] | None = None
        self.delay_ms = 0

    def call_soon(self, callback: Callable[[], object]) -> Mock:
        return self.call_later(0, callback)

    def call_later(self, delay: float, callback: Callable[[], object]) -> Mock:
        self.wanted = callback
        self.delay_ms = round(delay * 1_000)
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
    timer.look_at("buggy", T0)
    timer.look_at("other", T0 + 1)
    with pytest.raises(RuntimeError):
        loop.fire()
    clock.advance(1)
    loop.fire()
    assert served == [("buggy", T0), ("other", T0 + 1)]
    clock.advance(BUG_AGAIN_MS)
    timer.look_at("third", T0)
    loop.fire()
    assert {stream for stream, _ in served[2:]} == {"buggy", "third"}


@pytest.mark.parametrize("step_ms", [1_500, 57_000, 59_999, 3_600_000, 86_400_000])
def test_a_clock_that_steps_forward_is_noticed_within_a_second(step_ms: int) -> None:
    """A set clock moves the wall only; so does a suspend, during which the loop's clock stands still."""
    clock, loop = ManualClock(T0), ManualLoop()
    late_ms: list[int] = []

    def serve(_stream: str, now_ms: int) -> None:
        late_ms.append(now_ms - due_at_ms)

    timer: DueTimer[str] = DueTimer(clock, cast("asyncio.AbstractEventLoop", loop), serve, BUDGET_S)
    due_at_ms = T0 + step_ms
    timer.look_at("far", due_at_ms)
    clock.advance(400)
    clock.set_ms(clock.now_ms() + step_ms)
    passed_ms = 400
    while not late_ms:
        clock.advance(loop.delay_ms - passed_ms)
        passed_ms = 0
        loop.fire()
    assert late_ms[0] <= LOOK_AGAIN_MS + 400
    assert LOOK_AGAIN_MS <= 1_000


def test_a_clock_that_steps_back_makes_nothing_early() -> None:
    clock, loop = ManualClock(T0), ManualLoop()
    served: list[int] = []
    timer: DueTimer[str] = DueTimer(
        clock, cast("asyncio.AbstractEventLoop", loop), lambda _, now_ms: served.append(now_ms), BUDGET_S
    )
    timer.look_at("soon", T0 + 500)
    clock.set_ms(T0 - 5_000)
    for _ in range(20):
        clock.advance(loop.delay_ms)
        loop.fire()
        if served:
            break
    assert served == [T0 + 500]


@pytest.mark.parametrize("fails", [False, True], ids=["pause", "bug"])
def test_a_clock_that_steps_back_makes_no_pause_longer(fails: bool) -> None:
    clock, loop = ManualClock(T0), ManualLoop()
    served_ns: list[int] = []

    def serve(_stream: str, _now_ms: int) -> Pause:
        served_ns.append(clock.monotonic_ns())
        if fails:
            raise RuntimeError("a bug")
        return Pause(BUG_AGAIN_MS)

    timer: DueTimer[str] = DueTimer(clock, cast("asyncio.AbstractEventLoop", loop), serve, BUDGET_S)
    timer.look_at("unreadable", T0)
    for _ in range(20):
        with suppress(RuntimeError):
            loop.fire()
        if len(served_ns) > 1:
            break
        clock.set_ms(T0 - 3_600_000)
        clock.advance(loop.delay_ms)
    assert served_ns == [0, BUG_AGAIN_MS * 1_000_000]
    assert len(timer) == 1


def test_an_event_ends_a_pause() -> None:
    clock, loop = ManualClock(T0), ManualLoop()
    served: list[int] = []

    def serve(_stream: str, now_ms: int) -> Pause | None:
        served.append(now_ms)
        return Pause(60_000) if len(served) == 1 else None

    timer: DueTimer[str] = DueTimer(clock, cast("asyncio.AbstractEventLoop", loop), serve, BUDGET_S)
    timer.look_at("one", T0)
    loop.fire()
    timer.look_at("one", T0)
    loop.fire()
    assert served == [T0, T0]
    assert len(timer) == 0
