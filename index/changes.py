"""The changes of one subscription, whoever makes them: the broker, the replay of its journal, a loss.

A change is made in all parts that it concerns, in the order in which they have to hear of it. Nothing here
goes to the journal: whoever makes a change that is to last tells it there.

Invariant: after each change the slices of which nothing is held any more are known to be finished.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from tidegate.index.claim import Claim
from tidegate.index.compacting import Compacting
from tidegate.index.context import Notices
from tidegate.index.entry import Entries
from tidegate.index.persisting import Persisting
from tidegate.index.position_state import PositionState
from tidegate.index.positions import Position, PositionSet
from tidegate.index.quarantine import Quarantine
from tidegate.index.slice_width import SliceWidth
from tidegate.index.timeline import Timeline

IndexT = TypeVar("IndexT")


class Changes(Generic[IndexT]):
    """Makes them. Called by the core's thread only."""

    def __init__(
        self,
        positions: PositionState,
        timeline: Timeline,
        width: SliceWidth,
        quarantine: Quarantine,
        *,
        persisting: Persisting,
        compacting: Compacting,
        notices: Notices[IndexT],
    ) -> None:
        self._positions = positions
        self._timeline = timeline
        self._width = width
        self._quarantine = quarantine
        self._persisting = persisting
        self._compacting = compacting
        self._notices = notices

    @property
    def mark(self) -> Position:
        """The mark-delete position as last told."""
        return self._positions.mark

    def add(self, entries: Entries) -> Entries:
        """Stage the entries that are new; returns them."""
        fresh = self._positions.add(entries)
        self._timeline.stage(fresh)
        return fresh

    def acknowledge(self, positions: PositionSet) -> None:
        """Positions leave held, if they are there, and are known acknowledged."""
        self._positions.acknowledge(positions)
        self._timeline.depart(positions)
        self.finish_slices()

    def unacknowledge(self, positions: PositionSet) -> None:
        """Positions are not known acknowledged any more."""
        self._positions.unacknowledge(positions)

    def mark_delete(self, ledger_id: int, entry_id: int) -> None:
        """Everything up to the position leaves; if it goes back, nothing is known acknowledged any more."""
        self._positions.mark_delete(ledger_id, entry_id)
        self._timeline.depart_up_to((ledger_id, entry_id))
        self.finish_slices()

    def begin_generation(self, generation: int) -> None:
        """What was acknowledged before is not known any more."""
        self._positions.begin_generation(generation)

    def begin_claim(self, claim: Claim) -> None:
        """From now on this owner tells."""
        self._positions.claim = claim

    def forget_acknowledgements(self) -> None:
        """Nothing is known of what the cursor has: not even whose it was. See `PositionState`."""
        self._positions.forget_acknowledgements()

    def set_width(self, width_ms: int, *, auto: bool) -> None:
        """Width of the slices that entries spilled from now on go to."""
        self._width.set(width_ms, auto)

    def clear(self) -> None:
        """Forget every entry and acknowledgement."""
        self._positions.clear()
        self._compacting.clear()
        self._persisting.clear(self._timeline.clear())
        self._quarantine.clear()
        self._notices.told_lost()
        self._notices.work_changed(persist=self._persisting.wanted)

    def lose(self, positions: PositionSet) -> None:
        """Positions leave held, and the broker hears of it. `finish_slices` is to follow."""
        if positions:
            # Told first: to read what is held after all costs little; what nobody hears of is lost.
            self._quarantine.lose(positions)
            self._notices.lost_positions()
            self._positions.lose(positions)
            self._timeline.depart(positions)

    def disown(self, positions: PositionSet) -> None:
        """Positions leave held, if they are there. Nobody is told: the answer to the next OPEN says so."""
        self._positions.lose(positions)
        self._timeline.depart(positions)
        self.finish_slices()

    def finish_slices(self) -> None:
        """After anything that may have made a slice useless."""
        self._timeline.finish_slices()
        if self._timeline.worth_dropping:
            self._notices.want_persist()
