"""Writes that wait for a log: in their order, and no more of them than may."""

from __future__ import annotations

import pytest

from tidegate.index.log.tap import Noted
from tidegate.index.log.waiting import Waiting
from tidegate.index.store import Batch


def noted(number: int) -> Noted:
    return Noted(1, [(Batch.PUT, bytes([number]), bytes(39))], 40, number)


@pytest.fixture
def waiting() -> Waiting:
    """Room for 100 bytes, and two writes of 40."""
    made = Waiting(100)
    for number in (1, 2):
        made.put(noted(number))
    return made


def test_what_waits_is_counted_until_it_is_taken(waiting: Waiting) -> None:
    assert (len(waiting), waiting.size_bytes, waiting.since_ns) == (2, 80, 1)
    operations, taken = waiting.pop_oldest(record_bytes=40, count=5)
    assert ([key for _, key, _ in operations], taken) == ([b"\1"], 1)
    assert (len(waiting), waiting.size_bytes, waiting.since_ns) == (1, 40, 1)
    waiting.appended()
    assert waiting.since_ns == 2
    waiting.check()


def test_of_more_than_may_wait_only_the_age_is_kept(waiting: Waiting) -> None:
    """A log that cannot be written for hours must not take the daemon's memory."""
    waiting.put(noted(3))
    waiting.put(noted(4))
    assert waiting.full
    assert (len(waiting), waiting.size_bytes, waiting.since_ns) == (0, 0, 1)
    waiting.appended()
    assert waiting.since_ns == 1, "nobody has appended what was let go"
    waiting.check()
