"""The messages of a drill."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.plugin.drill.plan import (
    BEFORE,
    FAR_MS,
    SENDS_PER_S,
    UNDELAYED,
    Kind,
    Load,
    Shape,
    decode,
    encode,
    plan,
)


@pytest.mark.parametrize("shape", [Shape.EVEN, Shape.BURST, Shape.HOLES])
def test_every_message_is_sent_before_it_is_due_and_in_order(shape: Shape) -> None:
    made = plan(Load(messages=2_000, shape=shape), 1)
    assert len(made) == 3_000
    assert int(made.expected.sum()) == 2_000
    assert (np.diff(made.send_ms) >= 0).all()
    assert (made.due_ms > made.send_ms).all()
    at_once = made.send_ms == 0
    # Messages sent at once have been sent when the first of them is due.
    assert made.due_ms[at_once].min() >= at_once.sum() * 1000 / SENDS_PER_S
    assert made.due_ms[~made.expected].min() >= FAR_MS


def test_what_is_due_tomorrow_is_sent_before_the_start() -> None:
    made = plan(Load(messages=3, far=1 / 3), 1)
    assert made.send_ms.tolist()[0] == BEFORE
    assert made.before == made.count(Kind.FAR) == 1


@given(st.integers(1, 2_000), st.floats(5, 600), st.integers(0, 300), st.integers(0, 5))
def test_a_mixed_load_keeps_its_promises(messages: int, seconds: float, far: int, seed: int) -> None:
    made = plan(Load(messages, seconds, Shape.MIXED, far / messages), seed)
    assert (int(made.expected.sum()), made.before, made.count(Kind.FAR)) == (messages, far, far)
    near = made.expected & made.delayed
    assert (np.diff(made.send_ms) >= 0).all()
    assert (made.due_ms[near] >= made.send_ms[near]).all()
    assert (made.due_ms[near] < seconds * 1000).all()
    assert (made.send_ms[made.expected] >= 0).all()
    assert (made.due_ms[made.kind == Kind.PLAIN] == UNDELAYED).all()
    assert made.end_ms < seconds * 1000


def test_the_burst_of_a_mixed_load_lives_through_kills_at_both_thirds() -> None:
    made = plan(Load(1_000, 60.0, Shape.MIXED, 0.0), 1)
    burst = made.kind == Kind.BURST
    assert len(np.unique(made.due_ms[burst])) == 1
    assert made.send_ms[burst].max() < 20_000
    assert made.due_ms[burst].min() > 40_000


def test_retries_of_a_mixed_load_have_fixed_delays() -> None:
    made = plan(Load(1_000, 60.0, Shape.MIXED, 0.0), 3)
    retries = made.kind == Kind.RETRY
    assert np.unique((made.due_ms - made.send_ms)[retries]).tolist() == [1_000, 5_000, 10_000]


def test_a_burst_is_one_instant() -> None:
    assert len(np.unique(plan(Load(messages=500, shape=Shape.BURST, far=0.0), 1).due_ms)) == 1


def test_what_is_sent_at_once_has_the_time_that_the_machine_needs() -> None:
    load = Load(messages=6_000, shape=Shape.BURST, far=0.0)
    fast, slow = plan(load, 1, sends_per_s=6_000), plan(load, 1, sends_per_s=3_000)
    assert slow.lead_ms - fast.lead_ms == 1_000
    assert slow.end_ms == slow.lead_ms


def test_holes_alternate() -> None:
    made = plan(Load(messages=500, shape=Shape.HOLES, span_s=9.0, far=0.0), 1)
    assert (made.due_ms[1::2] == made.lead_ms).all()
    assert (made.due_ms[0::2] == made.lead_ms + 9_000).all()


def test_the_seed_makes_the_plan() -> None:
    assert (plan(Load(), 1).due_ms == plan(Load(), 1).due_ms).all()
    assert (plan(Load(), 1).due_ms != plan(Load(), 2).due_ms).any()


def test_a_payload_is_of_one_run() -> None:
    assert decode(7, encode(7, 123)) == 123
    assert decode(8, encode(7, 123)) is None
    assert decode(7, b"somebody else's") is None


def test_what_is_asked_of_a_plan_for_each_message_is_made_once() -> None:
    """Made anew for each of a million, the keys alone would take hours."""
    messages = plan(Load(messages=100), seed=1)
    assert messages.keys is messages.keys
    assert messages.expected is messages.expected
