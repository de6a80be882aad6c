"""The positions that the index of one subscription answers for: the timeline's view of the state.

Invariant: in flight is a subset of held. A timeline puts positions in flight, and changes nothing else here.
"""

from __future__ import annotations

from tidegate.index.entries.entry import FEW, Entries
from tidegate.index.state.moved import Moved
from tidegate.index.state.position_batch import PositionBatch
from tidegate.index.state.positions import PositionSet

_NONE = PositionSet()


class Holding:
    """Positions held, in flight and moved.

    removals: number of changes that may have taken entries out of `held`.
    departed: number of positions that have left `held`, or more.
    handed_out: number of positions that have come in flight, or more, less those that left it without an
        acknowledgement.
    """

    def __init__(self, held: PositionSet | None = None, moved: Moved | None = None) -> None:
        self.held = PositionSet(tracked=True) if held is None else held
        self.in_flight = PositionSet()
        self.moved = moved or Moved()
        self.removals = 0
        self.departed = 0
        self.handed_out = 0

    def hand_out(self, entries: Entries) -> tuple[Entries, PositionSet | None, Entries]:
        """Put popped entries in flight.

        Returns the held entries, their positions (not to be changed; None for few), and the entries to hand
        out: those that were not in flight before.
        """
        batch = _batch(entries)
        held = self.held.contains(batch)
        if not held.all():
            entries = entries.take(held)
            batch = _batch(entries)
        fresh = self.in_flight.add_new(batch, _NONE)
        self.handed_out += int(fresh.sum())
        positions = PositionSet.of_batch(batch) if isinstance(batch, PositionBatch) else None
        return entries, positions, entries if fresh.all() else entries.take(fresh)

    def mark_in_flight(self, positions: PositionSet) -> None:
        """Put positions in flight that the broker already has in flight."""
        held = positions.intersection(self.held)
        self.handed_out += len(held)
        self.in_flight.update(held)

    def rewind(self, in_flight: PositionSet) -> None:
        """Let only `in_flight` be in flight."""
        before, self.in_flight = self.in_flight, in_flight.intersection(self.held)
        self.handed_out -= len(before) - len(self.in_flight)

    def taken(self) -> int:
        """Number of positions that consumers have taken so far: once in flight, now acknowledged.
        O(containers).
        """
        return self.handed_out - len(self.in_flight)


def _batch(entries: Entries) -> Entries | PositionBatch:
    """The entries, for several look-ups: bitmaps are worth their making from some entries on."""
    return PositionBatch(entries) if len(entries) > FEW else entries
