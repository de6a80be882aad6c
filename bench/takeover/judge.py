"""The consequences of a fault: pure functions of the sent messages and their arrivals.

A number identifies a message, with its position a delivery: a message sent twice is not delivered twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

YOUNG_NS = 200_000_000
"""What was acknowledged so shortly before a kill may come again."""
HELD_NS = 100_000_000
"""Pulsar's client gathers acknowledgements for so long before it sends them."""


class Arrival(NamedTuple):
    """One delivery. ``acked_at_ns``: when the client acknowledged it, 0 if it could not."""

    number: int
    position: tuple[int, int]
    deliver_at_ms: int
    arrived_at_ns: int
    acked_at_ns: int


class Outage(NamedTuple):
    """From the beginning of a fault that disconnects the consumer to its reconnection, in ns."""

    begin_ns: int
    end_ns: int


@dataclass(frozen=True)
class Outcome:
    """The effect of faults on the messages, and for repeats, on their acknowledgements.

    repeated_in_flight: there was none. repeated_under_way: made in the client's last 0.1 s before an outage,
    or during it, and perhaps unsent. repeated_young: made 0.2 s before the fault or later. repeated_old:
    earlier. oldest_ms: the oldest acknowledgement's age, at the fault, of these two kinds, 0 without any.
    """

    early: int
    lost: int
    repeated_old: int
    repeated_young: int
    repeated_under_way: int
    repeated_in_flight: int
    oldest_ms: int = 0


def first_after(arrivals: Sequence[Arrival], moment_ns: int) -> int | None:
    """The time of the first arrival at that moment or later, in ns; None without one."""
    return min((one.arrived_at_ns for one in arrivals if one.arrived_at_ns >= moment_ns), default=None)


def earliest_past(due: Mapping[int, int], past_ms: int) -> int | None:
    """The first to fall due after ``past_ms`` (number: deliver_at in ms); None without one."""
    later = ((deliver_at_ms, number) for number, deliver_at_ms in due.items() if deliver_at_ms > past_ms)
    return min(later, default=(0, None))[1]


def came_at(arrivals: Sequence[Arrival], number: int) -> int | None:
    """A message's first arrival, in ns; None without one."""
    return min((one.arrived_at_ns for one in arrivals if one.number == number), default=None)


def quiet_ns(arrivals: Sequence[Arrival], moment_ns: int) -> int:
    """The time from the client's last acknowledgement to a moment."""
    made = (one.acked_at_ns for one in arrivals if 0 < one.acked_at_ns <= moment_ns)
    return moment_ns - max(made, default=0)


def served_since(client_ns: int, owner_ns: int | None, first_ns: int) -> int:
    """The time since which the new owner has had the consumer, all in ns.

    client_ns: when its client was connected, perhaps to a broker that still loaded the topic. owner_ns: the
    owner's own value, None without one; perhaps of a later connection than the first message.
    """
    return owner_ns if owner_ns is not None and client_ns <= owner_ns <= first_ns else client_ns


def missing(due: Mapping[int, int], arrivals: Sequence[Arrival], now_ms: int) -> set[int]:
    """The confirmed messages (number: deliver_at in ms) that are due by now and have not come.

    A message that came and could not be acknowledged has to come again.
    """
    came = {one.number for one in arrivals if one.acked_at_ns}
    return {number for number, deliver_at_ms in due.items() if deliver_at_ms <= now_ms} - came


def judge(
    due: Mapping[int, int],
    arrivals: Sequence[Arrival],
    *,
    since_ns: int,
    now_ms: int,
    outages: Sequence[Outage] = (),
    taken_back_at_ns: int | None = None,
) -> Outcome:
    """The outcome since then. ``taken_back_at_ns``: a reset of the cursor, which repeats by intent.

    outages: since then, in order; repeats without one count from ``since_ns``.
    """
    last: dict[tuple[int, int], Arrival] = {}
    early = old = young = under_way = in_flight = oldest_ns = 0
    for one in sorted(arrivals, key=lambda arrival: arrival.arrived_at_ns):
        former = last.get(one.position)
        last[one.position] = one
        if one.arrived_at_ns < since_ns:
            continue
        early += one.arrived_at_ns < one.deliver_at_ms * 1_000_000
        if former is None:
            continue
        if taken_back_at_ns is not None and former.arrived_at_ns <= taken_back_at_ns <= one.arrived_at_ns:
            continue
        if not former.acked_at_ns:
            in_flight += 1
        elif any(_is_under_way(former, one, outage) for outage in outages):
            under_way += 1
        else:
            age_ns = _next_fault_ns(former, since_ns, outages) - former.acked_at_ns
            oldest_ns = max(oldest_ns, age_ns)
            old += age_ns > YOUNG_NS
            young += age_ns <= YOUNG_NS
    lost = len(missing(due, arrivals, now_ms))
    return Outcome(early, lost, old, young, under_way, in_flight, oldest_ns // 1_000_000)


def _is_under_way(former: Arrival, one: Arrival, outage: Outage) -> bool:
    """True if the outage lies between the two, and the former's acknowledgement may not have been sent."""
    lies_between = former.arrived_at_ns < outage.end_ns and one.arrived_at_ns >= outage.begin_ns
    return lies_between and former.acked_at_ns >= outage.begin_ns - HELD_NS


def _next_fault_ns(former: Arrival, since_ns: int, outages: Sequence[Outage]) -> int:
    """The beginning of the first fault after the acknowledgement."""
    return next((each.begin_ns for each in outages if each.begin_ns >= former.acked_at_ns), since_ns)
