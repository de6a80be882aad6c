"""The messages that wait while a topic moves: most are due tomorrow, a sample after the last move.

The sample is spread over the topic, first message to last: a defect in a part of an index shows. Pure
functions; times are planned before the fill.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.takeover.judge import Arrival

FAR_MS = (24 * 3_600_000, 48 * 3_600_000)
SAMPLE = 2_000
SPREAD_MS = 5_000
"""The sample falls due over so long, so that the client keeps up."""
FILLED_PER_S = 13_000
READ_PER_S = 15_000
"""What Pulsar's dispatcher reads, when nothing is held."""


@dataclass(frozen=True)
class Backlog:
    """Messages numbered from 0 in the order of the topic. ``due``: the sample's deliver_at in ms."""

    count: int
    deliver_at_ms: NDArray[np.int64]
    due: Mapping[int, int]

    @property
    def schedule(self) -> NDArray[np.int64]:
        """Rows for ``bench.pulsar.producer``, to be sent at once."""
        return np.column_stack([np.arange(self.count), np.zeros(self.count, np.int64), self.deliver_at_ms])


@dataclass(frozen=True)
class Sample:
    """The fate of a sample's messages. ``lost`` has their numbers, the others count deliveries.

    twice: after the first, except by a reset of the cursor. before: first ones while the topic was still
    moving, so not through all of it.
    """

    lost: tuple[int, ...]
    early: int
    twice: int
    before: int


def sampled(count: int) -> NDArray[np.int64]:
    """The numbers of the sample, evenly over the topic with its first and its last; a tenth at most."""
    return np.unique(np.linspace(0, count - 1, max(1, min(SAMPLE, count // 10))).round().astype(np.int64))


def make(count: int, now_ms: int, due_ms: int, seed: int) -> Backlog:
    """Due tomorrow in random order, and the sample from ``due_ms`` on, in random order as well."""
    random = np.random.default_rng(seed)
    deliver_at_ms = now_ms + random.integers(*FAR_MS, count)
    numbers = sampled(count)
    deliver_at_ms[numbers] = due_ms + random.integers(0, SPREAD_MS, len(numbers))
    return Backlog(count, deliver_at_ms, {number: int(deliver_at_ms[number]) for number in numbers.tolist()})


def planned_s(count: int, rounds: int, faults_s: float, rereads: int, moves_s: float | None) -> float:
    """The approximate seconds from before the fill until the last move is done.

    faults_s: a round without repeated reads. rereads: complete repeated reads in it, apart from the moves,
    which take ``moves_s`` at most if each reads all, and next to nothing with None.
    """
    reread_s = count / READ_PER_S
    moving_s = 0.0 if moves_s is None else min(10 * reread_s, moves_s + reread_s)
    return count / FILLED_PER_S + rounds * (faults_s + rereads * reread_s + moving_s)


def judge_sample(
    due: Mapping[int, int],
    arrivals: Sequence[Arrival],
    *,
    moved_ns: int,
    taken_back_at_ns: Sequence[int] = (),
) -> Sample:
    """The fate of these messages (number: deliver_at in ms), all due by now.

    ``moved_ns``: the end of the last move.
    """
    last_ns: dict[int, int] = {}
    early = twice = before = 0
    for one in sorted(arrivals, key=lambda arrival: arrival.arrived_at_ns):
        if one.number not in due:
            continue
        early += one.arrived_at_ns < due[one.number] * 1_000_000
        former_ns = last_ns.get(one.number)
        if former_ns is None:
            before += one.arrived_at_ns < moved_ns
        elif not any(former_ns <= at_ns <= one.arrived_at_ns for at_ns in taken_back_at_ns):
            twice += 1
        last_ns[one.number] = one.arrived_at_ns
    return Sample(tuple(sorted(due.keys() - last_ns.keys())), early, twice, before)
