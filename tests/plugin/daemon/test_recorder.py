"""A trace of what arrives: every so-manieth entry, never more than fit, and nobody else's."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.index import ManualClock, SubscriptionName
from tidegate.plugin.daemon.recorder import Recorder
from tidegate.plugin.errors import UserError

NAME = SubscriptionName("persistent://public/default/orders", "billing")
OTHER = SubscriptionName("persistent://public/default/orders", "audit")


def column(told: dict[str, Any], name: str) -> list[int]:
    return np.frombuffer(base64.b64decode(told[name]), "<i8").tolist()  # type: ignore[no-any-return]


@given(st.lists(st.integers(0, 40), max_size=30), st.integers(2, 16))
def test_every_so_manieth_entry_is_kept(sizes: list[int], kept_max: int) -> None:
    clock, holder = ManualClock(1_000), object()
    recorder = Recorder(clock, kept_max)
    recorder.ask(holder, {})
    times: list[int] = []
    arrivals: list[int] = []
    for number, size in enumerate(sizes):
        made = list(range(len(times), len(times) + size))
        recorder.record_arrivals(NAME, np.array(made, np.int64))
        times += made
        arrivals += [clock.now_ms()] * size
        clock.advance(number + 1)
    told = recorder.ask(holder, {})
    stride = told["stride"]
    assert told["seen"] == len(times)
    assert told["entries"] < kept_max
    assert column(told, "deliver_at_ms") == times[::stride]
    assert column(told, "arrival_ms") == arrivals[::stride]
    assert stride == 1 or len(times) > stride * (kept_max - 1) // 2, "no more is left out than must be"


def test_nothing_is_kept_unless_somebody_records() -> None:
    recorder, holder = Recorder(ManualClock(0)), object()
    recorder.record_arrivals(NAME, np.arange(10))
    assert recorder.ask(holder, {})["seen"] == 0
    recorder.record_arrivals(NAME, np.arange(10))
    with pytest.raises(UserError, match="another recording"):
        recorder.ask(object(), {})
    recorder.gone(object())
    assert recorder.ask(holder, {})["seen"] == 10, "of another connection"
    recorder.gone(holder)
    assert recorder.ask(holder, {})["seen"] == 0, "a new recording begins empty"


def test_of_one_subscription() -> None:
    recorder, holder = Recorder(ManualClock(0)), object()
    request = NAME._asdict()
    recorder.ask(holder, request)
    recorder.record_arrivals(OTHER, np.arange(3))
    recorder.record_arrivals(NAME, np.arange(4))
    assert recorder.ask(holder, request)["seen"] == 4
    with pytest.raises(UserError, match="one topic and subscription"):
        recorder.ask(holder, {"topic": "orders"})
