"""Frames of a broker at random, and what a daemon must know after each of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tidegate.index import Entries, PositionSet
from tidegate.plugin.wire.messages import Ack, Add, Clear, MarkDelete, Unack

LEDGER_ENTRIES = 400
NO_POSITION = (-1, -1)
SPAN_MS = 6 * 3_600_000
SOON_MS = 2_000
NEAR_SHARE = 0.25

Frame = Add | Ack | Unack | MarkDelete | Clear


@dataclass
class Believed:
    """One subscription as docs/protocol.md has it: what is held, known acknowledged, and marked deleted.

    near: held entries that the broker has already, in this life alone, on no disk.
    """

    held: PositionSet = field(default_factory=PositionSet)
    acknowledged: PositionSet = field(default_factory=PositionSet)
    mark: tuple[int, int] = NO_POSITION
    near: PositionSet = field(default_factory=PositionSet, compare=False)

    def copy(self) -> Believed:
        return Believed(self.held.snapshot(), self.acknowledged.snapshot(), self.mark, self.near.snapshot())

    def to_hand_out(self) -> PositionSet:
        """Entries that the daemon may send as DUE in this life."""
        return self.held.difference(self.near)

    def apply(self, frame: Frame) -> None:
        match frame:
            case Add():
                new = PositionSet.of_entries(frame.entries).difference(self.acknowledged)
                new.discard_up_to(*self.mark)
                self.held.update(new)
                if frame.near:
                    self.near.update(new)
            case Ack():
                self.held.difference_update(frame.positions)
                above = frame.positions.snapshot()
                above.discard_up_to(*self.mark)
                self.acknowledged.update(above)
            case Unack():
                self.acknowledged.difference_update(frame.positions)
            case MarkDelete():
                if frame.position < self.mark:
                    self.acknowledged.clear()
                self.mark = frame.position
                self.held.discard_up_to(*self.mark)
                self.acknowledged.discard_up_to(*self.mark)
            case Clear():
                self.held.clear()
                self.acknowledged.clear()
        self.near = self.near.intersection(self.held)


class Workload:
    """Makes frames for one subscription. A position has the same time whenever it is added."""

    def __init__(self, rng: random.Random, start_ms: int) -> None:
        self._rng = rng
        self._start_ms = start_ms
        self._next = 0

    def frame(self, believed: Believed) -> Frame:
        """A frame that a broker might send now."""
        rng = self._rng
        kind = rng.random()
        if kind < 0.6 or not self._next:
            return self._add(self._next, self._take(rng.choice((1, 5, 50, 300))))
        if kind < 0.63:  # read again
            first = rng.randrange(self._next)
            return self._add(first, min(self._next, first + 50))
        some = self._some()
        if kind < 0.85:
            return Ack(some.intersection(believed.held) or some)
        if kind < 0.92:
            return Unack(some.intersection(believed.acknowledged) or some)
        if kind < 0.99:
            # Mostly forward by a little; a reset of the cursor sometimes.
            at = rng.randrange(self._next)
            ahead = min(self._next - 1, self._number(believed.mark) + rng.randint(1, 80))
            return MarkDelete(self._position(ahead if rng.random() < 0.8 else at))
        return Clear()

    def _take(self, count: int) -> int:
        self._next += count
        return self._next

    def _add(self, first: int, stop: int) -> Add:
        return Add(self._entries(first, stop), self._rng.random() < NEAR_SHARE)

    def _some(self) -> PositionSet:
        first = self._rng.randrange(self._next)
        stop = min(self._next, first + self._rng.choice((1, 20, 200)))
        return PositionSet.of(self._position(number) for number in range(first, stop))

    def _entries(self, first: int, stop: int) -> Entries:
        return Entries.of((self._due_ms(number), *self._position(number)) for number in range(first, stop))

    def _due_ms(self, number: int) -> int:
        mixed = number * 0x9E3779B97F4A7C15 >> 16
        return self._start_ms + mixed % (SOON_MS if number % 10 == 0 else SPAN_MS)

    @staticmethod
    def _position(number: int) -> tuple[int, int]:
        return number // LEDGER_ENTRIES, number % LEDGER_ENTRIES

    @staticmethod
    def _number(position: tuple[int, int]) -> int:
        return -1 if position == NO_POSITION else position[0] * LEDGER_ENTRIES + position[1]
