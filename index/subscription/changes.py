"""The changes of one subscription, made by the broker, by the replay of its journal, or by a loss.

A change goes to every part that it concerns, in the necessary order. Nothing here writes the journal: the
maker of a lasting change does.

Invariant: after each change every slice without held entries is known to be finished.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from tidegate.index.blocks.compactor import Compactor
from tidegate.index.blocks.persister import Persister
from tidegate.index.blocks.quarantine import Quarantine
from tidegate.index.blocks.slice_width import SliceWidth
from tidegate.index.entries.entry import Entries
from tidegate.index.state.claim import Claim
from tidegate.index.state.position_state import PositionState
from tidegate.index.state.positions import Position, PositionSet
from tidegate.index.subscription.context import Notices
from tidegate.index.timeline.timeline import Timeline

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
        persister: Persister,
        compactor: Compactor,
        notices: Notices[IndexT],
    ) -> None:
        self._positions = positions
        self._timeline = timeline
        self._width = width
        self._quarantine = quarantine
        self._persister = persister
        self._compactor = compactor
        self._notices = notices

    @property
    def mark(self) -> Position:
        """The last mark-delete position from the broker."""
        return self._positions.mark

    def stage_new(self, entries: Entries) -> Entries:
        """Stage the new entries; returns them."""
        fresh = self._positions.hold(entries)
        moved = self._positions.moved
        elsewhen = moved.positions.contains(fresh) if moved else None
        if elsewhen is None or not elsewhen.any():
            self._timeline.stage(fresh)
        else:
            self._timeline.stage(fresh.take(~elsewhen))
            self._timeline.stage_moved(moved.retimed(fresh.take(elsewhen)))
        return fresh

    def move(self, entries: Entries) -> Entries:
        """Hold these positions, at these times; returns the changed entries."""
        changed, again = self._positions.move(entries)
        self._timeline.stage_moved(again)
        return changed

    def stage_moved(self) -> None:
        """Stage the moved and held entries recovered from the store."""
        moved = self._positions.moved.snapshot().entries()
        self._timeline.stage_moved(moved.take(self._positions.held.contains(moved)))

    def acknowledge(self, positions: PositionSet) -> None:
        """Remove positions from held, if there, and know them acknowledged."""
        self._positions.acknowledge(positions)
        self._timeline.depart(positions)
        self._timeline.finish_slices()

    def unacknowledge(self, positions: PositionSet) -> None:
        """Forget that positions are acknowledged."""
        self._positions.unacknowledge(positions)

    def mark_delete(self, ledger_id: int, entry_id: int) -> None:
        """Remove everything up to the position; if it goes back, forget all acknowledgements."""
        self._positions.mark_delete(ledger_id, entry_id)
        self._timeline.depart_up_to((ledger_id, entry_id))
        self._timeline.finish_slices()

    def begin_generation(self, generation: int) -> None:
        """Forget all acknowledgements: a new generation begins."""
        self._positions.begin_generation(generation)

    def begin_claim(self, claim: Claim) -> None:
        """Note the claim of a new owner, the source of all further changes."""
        self._positions.claim = claim

    def forget_acknowledgements(self) -> None:
        """Forget all knowledge of the cursor, also its owner. See `PositionState`."""
        self._positions.forget_acknowledgements()

    def set_width(self, width_ms: int, *, auto: bool) -> None:
        """Set the slice width for entries spilled from now on."""
        self._width.set(width_ms, auto)

    def clear(self) -> None:
        """Forget every entry and acknowledgement."""
        self._positions.clear()
        self._compactor.clear()
        self._persister.clear(self._timeline.clear())
        self._quarantine.clear()
        self._notices.told_lost()
        self._notices.work_changed(persist=self._persister.wanted)

    def lose(self, positions: PositionSet) -> None:
        """Remove lost positions from held, and report them to the broker. `Timeline.finish_slices` must
        follow.
        """
        if positions:
            # Report first: reading a still held position costs little, an unreported one is lost.
            self._quarantine.lose(positions)
            self._notices.lost_positions()
            self._positions.lose(positions)
            self._timeline.depart(positions)

    def disown(self, positions: PositionSet) -> None:
        """Remove positions from held, if there. Reports nothing: the next OPEN's answer does."""
        self._positions.lose(positions)
        self._timeline.depart(positions)
        self._timeline.finish_slices()
