"""The state of each position of one subscription: held, acknowledged, moved, in flight, marked deleted.

Pure state: no store, no clock, no entries but arguments. Called by the core's thread only; other threads get
snapshots. All may ask here; changes go through `DelayIndex`, which writes them to the journal.

Invariants (tested by `check`): held and acknowledged are disjoint and above the mark-delete position, as are
moved and acknowledged; in flight is a subset of held. The sets note the ledgers of changed bitmaps;
`put_back` alone notes others, which a persist could not write or found damaged.
"""

from __future__ import annotations

from typing import NamedTuple

from tidegate.index.entries.checks import require
from tidegate.index.entries.entry import Entries, bounds
from tidegate.index.state.claim import LOST, UNKNOWN, Claim
from tidegate.index.state.holding import Holding
from tidegate.index.state.moved import Moved
from tidegate.index.state.positions import Position, PositionSet

_NONE = PositionSet()
NO_POSITION: Position = (-1, -1)


class ChangedLedgers(NamedTuple):
    """Ledgers with outdated stored values of `held`, `acknowledged` and `moved`."""

    held: set[int]
    acknowledged: set[int]
    moved: set[int] = set()  # noqa: RUF012 nobody changes it


class PositionState(Holding):
    """One subscription's positions.

    mark: the last persisted mark-delete position, (-1, -1) before the first. generation: the cursor's seal
    under which the acknowledgements were learned; 0 if unknown. claim: the owner behind the latest changes;
    `claim.UNKNOWN` before the first one, `claim.LOST` if damaged.
    """

    def __init__(
        self,
        held: PositionSet | None = None,
        acknowledged: PositionSet | None = None,
        mark: Position = NO_POSITION,
        generation: int = 0,
        claim: Claim = UNKNOWN,
        *,
        moved: Moved | None = None,
    ) -> None:
        super().__init__(held, moved)
        self.acknowledged = PositionSet(tracked=True) if acknowledged is None else acknowledged
        self.mark = mark
        self.generation = generation
        self.claim = claim

    # ---- changes from the broker

    def hold(self, entries: Entries) -> Entries:
        """Hold the positions of `entries`; returns the new entries."""
        ledger_id, entry_id = self.mark
        if len(entries) and bounds(entries.ledger_id)[0] <= ledger_id:
            above = (entries.ledger_id > ledger_id) | (
                (entries.ledger_id == ledger_id) & (entries.entry_id > entry_id)
            )
            entries = entries.take(above)
        fresh = self.held.add_new(entries, self.acknowledged)
        return entries if fresh.all() else entries.take(fresh)

    def move(self, entries: Entries) -> tuple[Entries, Entries]:
        """Hold these positions, at these times.

        Returns the entries changed thereby, and those for `pop_due` to have again: these, and entries in
        flight. Neither has acknowledged ones, or ones up to the mark-delete position.
        """
        mark, acknowledged = self.mark, self.acknowledged
        last: dict[Position, int] = {}
        for at_ms, ledger_id, entry_id in entries:
            position = (ledger_id, entry_id)
            if position > mark and position not in acknowledged:
                last[position] = at_ms
        told = Entries.of((at_ms, *position) for position, at_ms in last.items())
        if not len(told):
            return told, told
        changes = ~self.moved.holds(told) | self.held.add_new(told, _NONE)
        in_flight = self.in_flight.contains(told)
        self.handed_out -= int(in_flight.sum())
        again = changes | in_flight
        self.in_flight.difference_update(PositionSet.of_entries(told))
        changed = told.take(changes)
        if len(changed):
            self.moved.put(changed)
        return changed, told.take(again)

    def acknowledge(self, positions: PositionSet) -> None:
        """Remove positions from held, if there, and know them acknowledged."""
        self.removals += 1
        self.moved.discard(positions)
        self.held.difference_update(positions)
        self.in_flight.difference_update(positions)
        above = positions.snapshot()
        above.discard_up_to(*self.mark)
        self.acknowledged.update(above)
        self.departed += len(positions)

    def unacknowledge(self, positions: PositionSet) -> None:
        """Forget that positions are acknowledged."""
        self.acknowledged.difference_update(positions)

    def mark_delete(self, ledger_id: int, entry_id: int) -> None:
        """Remove everything up to the position; if it goes back, forget all acknowledgements."""
        if (ledger_id, entry_id) < self.mark:
            self.acknowledged.clear()
        self.mark = (ledger_id, entry_id)
        self.removals += 1
        self.moved.discard_up_to(ledger_id, entry_id)
        self.departed += self.held.discard_up_to(ledger_id, entry_id)
        self.acknowledged.discard_up_to(ledger_id, entry_id)
        self.in_flight.discard_up_to(ledger_id, entry_id)

    def begin_generation(self, generation: int) -> None:
        """Forget all acknowledgements: a new generation begins."""
        self.acknowledged.clear()
        self.generation = generation

    def forget_acknowledgements(self) -> None:
        """Forget all knowledge of the cursor: acknowledgements, mark-delete position, seal, owner."""
        self.begin_generation(0)
        self.mark = NO_POSITION
        self.claim = LOST

    def clear(self) -> None:
        """Forget all held, acknowledged and moved positions."""
        self.removals += 1
        self.moved.clear()
        self.handed_out -= len(self.in_flight)
        for positions in (self.held, self.acknowledged, self.in_flight):
            positions.clear()

    # ---- persisting

    def take_changed(self) -> ChangedLedgers:
        """The ledgers changed since the last call."""
        return ChangedLedgers(
            self.held.take_dirty(), self.acknowledged.take_dirty(), self.moved.positions.take_dirty()
        )

    def put_back(self, changed: ChangedLedgers) -> None:
        """Have ledgers written again: a persist has failed, or their stored bitmaps do not count."""
        self.held.mark_dirty(changed.held)
        self.acknowledged.mark_dirty(changed.acknowledged)
        self.moved.positions.mark_dirty(changed.moved)

    def lose(self, positions: PositionSet) -> None:
        """Remove positions from held: their entries are lost."""
        self.removals += 1
        self.held.difference_update(positions)
        self.handed_out -= len(positions.intersection(self.in_flight))
        self.in_flight.difference_update(positions)
        self.departed += len(positions)

    # ---- telling

    @property
    def empty(self) -> bool:
        """True if nothing is held, moved or known acknowledged."""
        return not (self.held or self.acknowledged or self.moved)

    def held_among(self, positions: PositionSet) -> PositionSet:
        """The held ones of `positions`. No snapshot: the next change copies nothing."""
        return positions.intersection(self.held)

    def acknowledged_among(self, positions: PositionSet) -> PositionSet:
        """Those of `positions` known acknowledged, or up to mark-delete. No snapshot."""
        above = positions.snapshot()
        above.discard_up_to(*self.mark)
        known = above.intersection(self.acknowledged)
        known.update(positions.difference(above))
        return known

    def last(self) -> Position:
        """The last position held or known acknowledged, -1:-1 without one."""
        return max(each.last() or NO_POSITION for each in (self.held, self.acknowledged))

    def memory_bytes(self) -> int:
        """Estimated memory of all bitmaps. O(containers)."""
        return sum(each.memory_bytes() for each in (self.held, self.acknowledged, self.in_flight, self.moved))

    def check(self) -> None:
        """Raise CheckError if an invariant is broken."""
        require(self.held.isdisjoint(self.acknowledged), "a position is held and acknowledged")
        require(self.in_flight.issubset(self.held), "a position in flight is not held")
        moved = self.moved.positions
        require(moved.isdisjoint(self.acknowledged), "a position is moved and acknowledged")
        timed = self.moved.snapshot().entries()
        require(
            len(timed) == len(moved) and PositionSet.of_entries(timed) == moved,
            "a moved position has no time, or two",
        )
        for name, positions in (
            ("held", self.held),
            ("acknowledged", self.acknowledged),
            ("moved", moved),
            ("in flight", self.in_flight),
        ):
            require(all(bitmap for _, bitmap in positions.items()), f"{name} has an empty bitmap")
            above = positions.snapshot()
            above.discard_up_to(*self.mark)
            require(above == positions, f"{name} has positions up to the mark-delete position")
