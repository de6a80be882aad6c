"""Slices whose entries were all handed out: each is finished once none of its entries is held any more.

Instead of a look at all slices at each acknowledgement, one held entry of each, the sentinel, stands for it.
When the sentinel departs, the slice waits until as many positions have departed as the slice had left. Then a
look gives it another sentinel, or finds it finished. Departures thus pay for each look.

Invariants: each slice here has a sentinel, or waits for a number of departures; a sentinel is held.
"""

from __future__ import annotations

from collections.abc import Iterator

from heapdict import heapdict

from tidegate.index.entries.checks import require
from tidegate.index.state.positions import Position, PositionSet
from tidegate.index.timeline.slices import Slice

_FEW = 64
"""So few positions are looked up one by one."""


class Exhausted:
    """The slices that wait for their entries in flight."""

    def __init__(self) -> None:
        self._sentinel: dict[Slice, Position] = {}
        self._look_at: dict[Slice, int] = {}
        """The count of departures at which to look at a slice whose sentinel departs."""
        self._watched: dict[Position, list[Slice]] = {}
        self._sentinels = PositionSet()
        self._waiting: heapdict = heapdict()
        """Slices without a sentinel, by the count of departures at which to look."""

    def __iter__(self) -> Iterator[Slice]:
        return iter([*self._sentinel, *self._waiting])

    def add(self, each: Slice, departed: int) -> None:
        """Add an exhausted slice, for a look once `departed` positions have departed."""
        self.discard(each)
        self._waiting[each] = departed

    def discard(self, each: Slice) -> None:
        """Stop waiting for a slice, if it is here."""
        if each in self._waiting:
            del self._waiting[each]
        position = self._sentinel.get(each)
        if position is not None:
            self._dismiss(each, position)

    def clear(self) -> None:
        """Stop waiting for any slice."""
        for each in self:
            self.discard(each)

    def depart(self, positions: PositionSet) -> None:
        """Note that these positions are no longer held."""
        if not self._watched:
            return
        if len(positions) > _FEW:
            positions = positions.intersection(self._sentinels)
        for position in positions:
            for each in list(self._watched.get(position, ())):
                self._retire(each, position)

    def depart_up_to(self, last: Position) -> None:
        """Note that positions up to this one are no longer held."""
        for position in [position for position in self._watched if position <= last]:
            for each in list(self._watched[position]):
                self._retire(each, position)

    def take_finished(self, held: PositionSet, departed: int) -> Iterator[Slice]:
        """Yield the slices without held entries, and forget them."""
        while self._waiting and self._waiting.peekitem()[1] <= departed:
            each, _ = self._waiting.popitem()
            left = each.in_flight.prune(held)
            if left:
                self._watch(each, each.in_flight.last_in(held), departed + left)
            else:
                yield each

    def _watch(self, each: Slice, position: Position, look_at: int) -> None:
        self._sentinel[each] = position
        self._look_at[each] = look_at
        self._watched.setdefault(position, []).append(each)
        self._sentinels.update(PositionSet.of([position]))

    def _retire(self, each: Slice, position: Position) -> None:
        look_at = self._look_at[each]
        self._dismiss(each, position)
        self._waiting[each] = look_at

    def _dismiss(self, each: Slice, position: Position) -> None:
        del self._sentinel[each], self._look_at[each]
        watched = self._watched[position]
        watched.remove(each)
        if not watched:
            del self._watched[position]
            self._sentinels.difference_update(PositionSet.of([position]))

    def check(self, held: PositionSet) -> None:
        """Raise CheckError if an invariant does not hold."""
        for each, position in self._sentinel.items():
            require(position in held, f"the sentinel {position} of slice {each.id} is not held")
            require(
                each in self._watched.get(position, ()), f"the sentinel of slice {each.id} is not watched"
            )
            require(each not in self._waiting, f"slice {each.id} has a sentinel and waits")
        require(len(self._sentinels) == len(self._watched), "sentinels are missing among those watched")
