"""Slices of which everything was handed out: each is finished once nothing of it is held any more.

To look at all of them at each acknowledgement would cost more the more there are. So each is watched by one
of its held entries, the sentinel: as long as that is held, the slice is not finished. When it departs, the
slice is looked at again, though not before as many positions have departed as it had left: then it has
another sentinel, or is done. Each look is paid for by a departure.

Invariants: each slice here has a sentinel, or waits for a number of departures; a sentinel is held.
"""

from __future__ import annotations

from collections.abc import Iterator

from heapdict import heapdict

from tidegate.index.checks import require
from tidegate.index.positions import Position, PositionSet
from tidegate.index.slices import Slice

_FEW = 64
"""So few positions are looked up one by one."""


class Exhausted:
    """The slices that wait for what is in flight of them."""

    def __init__(self) -> None:
        self._sentinel: dict[Slice, Position] = {}
        self._look_at: dict[Slice, int] = {}
        """When a slice that has a sentinel is to be looked at, if that departs."""
        self._watched: dict[Position, list[Slice]] = {}
        self._sentinels = PositionSet()
        self._waiting: heapdict = heapdict()
        """Slices without a sentinel, each with how many positions must have departed for a look."""

    def __iter__(self) -> Iterator[Slice]:
        return iter([*self._sentinel, *self._waiting])

    def add(self, each: Slice, departed: int) -> None:
        """A slice is exhausted: it is looked at once `departed` positions have departed."""
        self.discard(each)
        self._waiting[each] = departed

    def discard(self, each: Slice) -> None:
        """Wait for it no longer, if it is here."""
        if each in self._waiting:
            del self._waiting[each]
        position = self._sentinel.get(each)
        if position is not None:
            self._dismiss(each, position)

    def clear(self) -> None:
        """Wait for none."""
        for each in self:
            self.discard(each)

    def depart(self, positions: PositionSet) -> None:
        """These are not held any more."""
        if not self._watched:
            return
        if len(positions) > _FEW:
            positions = positions.intersection(self._sentinels)
        for position in positions:
            for each in list(self._watched.get(position, ())):
                self._retire(each, position)

    def depart_up_to(self, last: Position) -> None:
        """None up to this position is held any more."""
        for position in [position for position in self._watched if position <= last]:
            for each in list(self._watched[position]):
                self._retire(each, position)

    def take_finished(self, held: PositionSet, departed: int) -> Iterator[Slice]:
        """Yield the slices of which nothing is held any more; they are not here from then on."""
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
