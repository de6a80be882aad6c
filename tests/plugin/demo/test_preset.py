"""The demo as a drill: its load, and when it kills what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.plugin.demo.preset import demo_drill
from tidegate.plugin.drill.plan import Shape
from tidegate.plugin.drill.repeats import Cause


def test_both_are_killed_one_after_the_other() -> None:
    drill = demo_drill(20_000, 48.0, 100_000, "tidegate")
    assert [fault.what for fault in drill.faults] == ["kill -9 of the broker", "kill -9 of the daemon"]
    assert (drill.at_s, drill.apart_s, drill.load.shape) == (16.0, 16.0, Shape.MIXED)
    assert not {Cause.HOLE, Cause.TRACKER} & drill.repeats_allowed


@pytest.mark.parametrize("tracker", ["in-memory", "bucket"])
def test_pulsars_own_trackers_have_no_daemon_to_kill(tracker: str) -> None:
    assert [fault.what for fault in demo_drill(10, 10.0, 0, tracker).faults] == ["kill -9 of the broker"]


@given(st.integers(1, 1_000_000), st.integers(0, 1_000_000))
def test_exactly_so_many_are_due_tomorrow(messages: int, far: int) -> None:
    assert demo_drill(messages, 10.0, far, "tidegate").load.far_messages == far
