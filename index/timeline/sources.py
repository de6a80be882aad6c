"""The places of entries, as found by the walk of a `check()`."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.index.entries.checks import require
from tidegate.index.entries.entry import EntryKey
from tidegate.index.state.positions import PositionSet


class Sources:
    """Collects the places of entries: in the heap, in a source, still to be popped.

    found: positions that a source has.
    coming: positions that will be popped without a rewind.
    """

    def __init__(self, heap: Iterable[tuple[object, EntryKey]]) -> None:
        self._in_heap: dict[object, EntryKey] = dict(heap)
        self.found = PositionSet()
        self.coming = PositionSet()

    def reach(self, item: object) -> EntryKey | None:
        """The key of an item that the walk has reached; None if the heap lacks it."""
        return self._in_heap.pop(item, None)

    def forget(self, positions: PositionSet) -> None:
        """Discard everything found of these positions so far."""
        self.found.difference_update(positions)
        self.coming.difference_update(positions)

    def require_complete(self) -> None:
        """Require that the walk has reached everything in the heap."""
        require(not self._in_heap, f"the heap has items that nobody owns: {list(self._in_heap)}")

    def require_all(self, held: PositionSet, in_flight: PositionSet) -> None:
        """Require that every held position is somewhere, and will be popped unless it is in flight."""
        missing = held.difference(self.found)
        require(not missing, f"held but nowhere to be found: {missing} {list(missing)[:5]}")
        stuck = held.difference(in_flight).difference(self.coming)
        require(not stuck, f"held and not in flight, but will not be popped: {stuck} {list(stuck)[:5]}")
