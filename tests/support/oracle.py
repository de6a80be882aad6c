"""The index's contract, in sets and a sorted list."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable

from tidegate.index.entries.entry import Entries, EntryKey
from tidegate.index.state.positions import Position
from tidegate.index.subscription.delay_index import DelayIndex

LEDGERS = 4
ENTRY_IDS = 40
SPAN_MS = 300
START_MS = 1_000


def deliver_at_ms(position: Position) -> int:
    """A position's due time never changes, as a message's does not; many are equal."""
    return START_MS + random.Random(position[0] * 7919 + position[1]).randrange(SPAN_MS)  # noqa: S311 a model


def entries_of(positions: Iterable[Position]) -> Entries:
    return Entries.of((deliver_at_ms(position), *position) for position in positions)


class Oracle:
    """The whole state of one subscription; slow and obviously right."""

    def __init__(self) -> None:
        self.held: dict[Position, int] = {}
        self.acknowledged: set[Position] = set()
        self.in_flight: set[Position] = set()
        self.moved: dict[Position, int] = {}
        self.mark: Position = (-1, -1)
        self.generation = 0
        self.width_ms = 0
        self.width_auto = False

    def snapshot(self) -> Oracle:
        return copy.deepcopy(self)

    def add(self, positions: Iterable[Position]) -> None:
        for position in positions:
            if position > self.mark and position not in self.acknowledged:
                self.held.setdefault(position, self.moved.get(position, deliver_at_ms(position)))

    def move(self, entries: Iterable[EntryKey]) -> None:
        for at_ms, *ids in entries:
            position = (ids[0], ids[1])
            if position <= self.mark or position in self.acknowledged:
                continue
            self.in_flight.discard(position)
            self.held[position] = self.moved[position] = at_ms

    def due(self, now_ms: int) -> list[EntryKey]:
        return sorted(
            (at, *position)
            for position, at in self.held.items()
            if position not in self.in_flight and at <= now_ms
        )

    def pop(self, now_ms: int, limit: int) -> list[EntryKey]:
        popped = self.due(now_ms)[:limit]
        self.in_flight.update((ledger_id, entry_id) for _, ledger_id, entry_id in popped)
        return popped

    def acknowledge(self, positions: Iterable[Position]) -> None:
        for position in positions:
            self.held.pop(position, None)
            self.moved.pop(position, None)
            self.in_flight.discard(position)
            if position > self.mark:
                self.acknowledged.add(position)

    def unacknowledge(self, positions: Iterable[Position]) -> None:
        self.acknowledged.difference_update(positions)

    def mark_delete(self, mark: Position) -> None:
        if mark < self.mark:
            self.acknowledged = set()
        self.mark = mark
        self.held = {position: at for position, at in self.held.items() if position > mark}
        self.moved = {position: at for position, at in self.moved.items() if position > mark}
        self.acknowledged = {position for position in self.acknowledged if position > mark}
        self.in_flight = {position for position in self.in_flight if position > mark}

    def begin_generation(self, generation: int) -> None:
        if generation == 0 or generation != self.generation:
            self.acknowledged = set()
        self.generation = generation

    def rewind(self, in_flight: set[Position]) -> None:
        self.in_flight = in_flight & self.held.keys()

    def mark_in_flight(self, positions: set[Position]) -> None:
        self.in_flight |= positions & self.held.keys()

    def clear(self) -> None:
        self.held, self.acknowledged, self.in_flight, self.moved = {}, set(), set(), {}

    def same_durable_state(self, index: DelayIndex) -> bool:
        """True if `index` is in this state, but for what was handed out."""
        return (
            list(index.state.held) == sorted(self.held)
            and list(index.state.acknowledged) == sorted(self.acknowledged)
            and sorted(index.state.moved.snapshot().entries())
            == sorted((at, *one) for one, at in self.moved.items())
            and index.state.mark == self.mark
            and index.state.generation == self.generation
            and self.same_width(index)
        )

    def same_width(self, index: DelayIndex) -> bool:
        """True if the width is what somebody has set; one that is automatic may be any."""
        stats = index.stats()
        if stats.slice_width_auto != self.width_auto:
            return False
        return self.width_auto or stats.slice_width_ms == self.width_ms
