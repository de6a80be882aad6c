"""Where the positions of one subscription stand: held, acknowledged, in flight, marked deleted.

Pure state: no store, no clock, no entries but those at hand. Called by the core's thread only; other threads
get snapshots.

Invariants (walked by `check`): held and acknowledged are disjoint and above the mark-delete position; in
flight is a subset of held. Which ledgers' bitmaps have changed is noted by the sets themselves; what a
persist took and could not write comes back by `put_back`, as does what is found damaged in the store, and
nobody else says that a ledger has changed.
"""

from __future__ import annotations

from typing import NamedTuple

from tidegate.index.checks import require
from tidegate.index.claim import LOST, UNKNOWN, Claim
from tidegate.index.entry import Entries, bounds
from tidegate.index.position_batch import PositionBatch
from tidegate.index.positions import Position, PositionSet

_NONE = PositionSet()
NO_POSITION: Position = (-1, -1)


class ChangedLedgers(NamedTuple):
    """Ledgers whose stored bitmaps of `held` and of `acknowledged` are out of date."""

    held: set[int]
    acknowledged: set[int]


class PositionState:
    """The positions of one subscription.

    generation: under which seal of the cursor the acknowledgements were learned; 0 if that is unknown.
    claim: of the owner that told all this last.
    removals: changes that may have taken entries out of `held`.
    departed: how many positions have left `held`, or more.
    """

    def __init__(
        self,
        held: PositionSet | None = None,
        acknowledged: PositionSet | None = None,
        mark: Position = NO_POSITION,
        generation: int = 0,
        claim: Claim = UNKNOWN,
    ) -> None:
        self.held = PositionSet(tracked=True) if held is None else held
        self.acknowledged = PositionSet(tracked=True) if acknowledged is None else acknowledged
        self.in_flight = PositionSet()
        self.mark = mark
        self.generation = generation
        self.claim = claim
        self.removals = 0
        self.departed = 0

    # ---- what the broker tells

    def add(self, entries: Entries) -> Entries:
        """Hold the positions of `entries`; returns the entries that were not known."""
        ledger_id, entry_id = self.mark
        if len(entries) and bounds(entries.ledger_id)[0] <= ledger_id:
            above = (entries.ledger_id > ledger_id) | (
                (entries.ledger_id == ledger_id) & (entries.entry_id > entry_id)
            )
            entries = entries.take(above)
        fresh = self.held.add_new(entries, self.acknowledged)
        return entries if fresh.all() else entries.take(fresh)

    def acknowledge(self, positions: PositionSet) -> None:
        """Positions leave held, if they are there, and are known acknowledged."""
        self.removals += 1
        self.held.difference_update(positions)
        self.in_flight.difference_update(positions)
        above = positions.snapshot()
        above.discard_up_to(*self.mark)
        self.acknowledged.update(above)
        self.departed += len(positions)

    def unacknowledge(self, positions: PositionSet) -> None:
        """Positions are not known acknowledged any more."""
        self.acknowledged.difference_update(positions)

    def mark_delete(self, ledger_id: int, entry_id: int) -> None:
        """Everything up to the position leaves; if it goes back, nothing is known acknowledged any more."""
        if (ledger_id, entry_id) < self.mark:
            self.acknowledged.clear()
        self.mark = (ledger_id, entry_id)
        self.removals += 1
        self.departed += self.held.discard_up_to(ledger_id, entry_id)
        self.acknowledged.discard_up_to(ledger_id, entry_id)
        self.in_flight.discard_up_to(ledger_id, entry_id)

    def begin_generation(self, generation: int) -> None:
        """What was acknowledged before is not known any more."""
        self.acknowledged.clear()
        self.generation = generation

    def forget_acknowledgements(self) -> None:
        """Nothing is known of what the cursor has: acknowledgements, mark-delete position, seal, owner."""
        self.begin_generation(0)
        self.mark = NO_POSITION
        self.claim = LOST

    def clear(self) -> None:
        """Nothing is held or known acknowledged."""
        self.removals += 1
        for positions in (self.held, self.acknowledged, self.in_flight):
            positions.clear()

    # ---- handing out

    def hand_out(self, entries: Entries) -> tuple[Entries, PositionSet, Entries]:
        """Popped entries are in flight from now on.

        Returns the entries that are held, their positions (not to be changed), and of them those that were
        not in flight before: the ones to hand out.
        """
        batch = PositionBatch(entries)
        held = self.held.contains(batch)
        if not held.all():
            entries = entries.take(held)
            batch = PositionBatch(entries)
        fresh = self.in_flight.add_new(batch, _NONE)
        return entries, PositionSet.of_batch(batch), entries if fresh.all() else entries.take(fresh)

    def mark_in_flight(self, positions: PositionSet) -> None:
        """The broker has these already."""
        self.in_flight.update(positions.intersection(self.held))

    def rewind(self, in_flight: PositionSet) -> None:
        """Nothing is in flight but `in_flight`."""
        self.in_flight = in_flight.intersection(self.held)

    # ---- persisting

    def take_changed(self) -> ChangedLedgers:
        """The ledgers that have changed since the last call."""
        return ChangedLedgers(self.held.take_dirty(), self.acknowledged.take_dirty())

    def put_back(self, changed: ChangedLedgers) -> None:
        """These ledgers are to be written again: a persist has failed, or what is stored does not count."""
        self.held.mark_dirty(changed.held)
        self.acknowledged.mark_dirty(changed.acknowledged)

    def lose(self, positions: PositionSet) -> None:
        """Positions leave held, because nobody has their entries any more."""
        self.removals += 1
        self.held.difference_update(positions)
        self.in_flight.difference_update(positions)
        self.departed += len(positions)

    # ---- telling

    def last(self) -> Position:
        """The last position that is held or known acknowledged, -1:-1 if there is none."""
        return max(each.last() or NO_POSITION for each in (self.held, self.acknowledged))

    def memory_bytes(self) -> int:
        """An estimate of the memory of all bitmaps. O(containers)."""
        return sum(each.memory_bytes() for each in (self.held, self.acknowledged, self.in_flight))

    def check(self) -> None:
        """Raise CheckError if an invariant does not hold."""
        require(self.held.isdisjoint(self.acknowledged), "a position is held and acknowledged")
        require(self.in_flight.issubset(self.held), "a position in flight is not held")
        for name, positions in (
            ("held", self.held),
            ("acknowledged", self.acknowledged),
            ("in flight", self.in_flight),
        ):
            require(all(bitmap for _, bitmap in positions.items()), f"{name} has an empty bitmap")
            above = positions.snapshot()
            above.discard_up_to(*self.mark)
            require(above == positions, f"{name} has positions up to the mark-delete position")
