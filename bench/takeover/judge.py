"""What came of a fault: pure functions of what was sent and of what arrived when.

A message is known by its number, and a delivery by its position in the topic as well: what a producer sent
twice is not delivered twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

YOUNG_NS = 200_000_000
"""What was acknowledged so shortly before a kill may come again."""


class Arrival(NamedTuple):
    """One delivery. ``acked_at_ns``: when the client acknowledged it, 0 if it could not."""

    number: int
    position: tuple[int, int]
    deliver_at_ms: int
    arrived_at_ns: int
    acked_at_ns: int


@dataclass(frozen=True)
class Outcome:
    """What a fault has done to the messages. ``repeated``: of those acknowledged before."""

    early: int
    lost: int
    repeated_old: int
    repeated_young: int
    repeated_in_flight: int


def first_after(arrivals: Sequence[Arrival], moment_ns: int) -> int | None:
    """When the first message came that came at that moment or later, in ns; None if none did."""
    return min((one.arrived_at_ns for one in arrivals if one.arrived_at_ns >= moment_ns), default=None)


def missing(due: Mapping[int, int], arrivals: Sequence[Arrival], now_ms: int) -> set[int]:
    """The confirmed messages (number: deliver_at in ms) that are due by now and have not come."""
    came = {one.number for one in arrivals}
    return {number for number, deliver_at_ms in due.items() if deliver_at_ms <= now_ms} - came


def judge(
    due: Mapping[int, int],
    arrivals: Sequence[Arrival],
    *,
    fault_at_ns: int,
    now_ms: int,
    taken_back_at_ns: int | None = None,
) -> Outcome:
    """What happened since the fault. ``taken_back_at_ns``: a reset of the cursor, which repeats by intent."""
    last: dict[tuple[int, int], Arrival] = {}
    early = old = young = in_flight = 0
    for one in sorted(arrivals, key=lambda arrival: arrival.arrived_at_ns):
        former = last.get(one.position)
        last[one.position] = one
        if one.arrived_at_ns < fault_at_ns:
            continue
        early += one.arrived_at_ns < one.deliver_at_ms * 1_000_000
        if former is None:
            continue
        if taken_back_at_ns is not None and former.arrived_at_ns <= taken_back_at_ns <= one.arrived_at_ns:
            continue
        if not former.acked_at_ns:
            in_flight += 1
        elif former.acked_at_ns < fault_at_ns - YOUNG_NS:
            old += 1
        else:
            young += 1
    return Outcome(early, len(missing(due, arrivals, now_ms)), old, young, in_flight)
