"""The plan of what is sent, and the payload that carries a message's number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.plugin.demo.workload import FIRST_KILL_AT, SECOND_KILL_AT, Kind, decode, encode, plan


@given(st.integers(1, 2_000), st.floats(5, 600), st.integers(0, 300), st.integers(0, 5))
def test_the_plan_keeps_its_promises(messages: int, seconds: float, far: int, seed: int) -> None:
    workload = plan(messages, seconds, far, seed)
    near = workload.kind != Kind.FAR
    delayed = near & (workload.due_ms >= 0)
    assert (int(near.sum()), workload.count(Kind.FAR)) == (messages, far)
    assert (np.diff(workload.send_ms) >= 0).all()
    assert (workload.due_ms[delayed] >= workload.send_ms[delayed]).all()
    assert (workload.due_ms[near] < seconds * 1000).all()
    assert (workload.send_ms[near] >= 0).all()
    assert (workload.send_ms[~near] < 0).all()
    assert (workload.due_ms[~near] >= 86_400_000).all()


def test_the_burst_lives_through_both_kills() -> None:
    workload = plan(1_000, 60, 0)
    burst = workload.kind == Kind.BURST
    assert burst.any()
    assert len(np.unique(workload.due_ms[burst])) == 1
    assert workload.send_ms[burst].max() < 60_000 * FIRST_KILL_AT
    assert workload.due_ms[burst].min() > 60_000 * SECOND_KILL_AT


def test_retries_have_fixed_levels_and_one_seed_gives_one_plan() -> None:
    one, other = plan(1_000, 60, 10, seed=3), plan(1_000, 60, 10, seed=3)
    retries = one.kind == Kind.RETRY
    levels = np.unique(one.due_ms[retries] - one.send_ms[retries])
    assert levels.tolist() == [1_000, 5_000, 10_000]
    assert (one.due_ms == other.due_ms).all()


@given(st.integers(0, 2**32 - 1))
def test_a_payload_gives_its_number_back(number: int) -> None:
    assert decode(encode(number)) == number


@pytest.mark.parametrize("payload", [b"", b"tide", b"tideabcdefgh", b"12345678"])
def test_somebody_elses_message_is_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match="not sent by the demo"):
        decode(payload)
