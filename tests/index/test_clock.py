"""The clock that tests and the simulator move."""

from __future__ import annotations

from tidegate.index.clock import ManualClock


def test_setting_the_wall_clock_leaves_the_other_one() -> None:
    clock = ManualClock(5_000)
    clock.advance(100)
    clock.set_ms(1_000)
    assert (clock.now_ms(), clock.monotonic_ns()) == (1_000, 100_000_000)
    clock.work(7)
    assert (clock.now_ms(), clock.monotonic_ns()) == (1_000, 100_000_007)
