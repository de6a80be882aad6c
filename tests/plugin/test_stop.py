"""A wait of the demo that takes too long, and one that is broken off."""

from __future__ import annotations

import signal

import pytest

from tidegate.plugin.shared.stop import InterruptedRunError, RunError, Stop


def test_a_wait_that_takes_too_long_says_what_to_do() -> None:
    with pytest.raises(RunError, match=r"^the broker's way back took more than 0 s: ask for less$"):
        Stop("the demo").until("the broker's way back", lambda: False, 0.0, "ask for less")


def test_a_wait_that_is_broken_off() -> None:
    stop = Stop("the demo")
    stop.request(signal.SIGTERM)
    with pytest.raises(InterruptedRunError) as broken_off:
        stop.until("anything", lambda: False, 60.0, "nothing")
    assert broken_off.value.exit_code == 128 + signal.SIGTERM
