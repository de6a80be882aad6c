"""Replays a journal: makes its changes anew, as few as have the same effect.

The order of ADD, ACKNOWLEDGE, MOVE and a MARK_DELETE that goes forward does not matter, but for MOVEs among
themselves: in the end a position is gone if it is up to the last mark-delete position, else acknowledged if
any record says so, else held if any does, at the time of the last MOVE. So all of these between two records
of other types are applied at once. Example:

    ADD a b c, ACKNOWLEDGE a, ADD d, CLEAR, ADD e f, ACKNOWLEDGE f

becomes: stage a b c d, acknowledge a; clear; stage e f, acknowledge f.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.index.entries.entry import Entries
from tidegate.index.format.records import RECORD_ENTRIES_MAX, RecordType
from tidegate.index.journal.journals import Replayed
from tidegate.index.state.claim import Claim
from tidegate.index.state.positions import Position, PositionSet
from tidegate.index.subscription.changes import Changes, IndexT


def replay(records: Iterable[Replayed], changes: Changes[IndexT]) -> None:
    """Make the changes of the records. Repeating them changes nothing."""
    gathered = _Gathered(changes.mark)
    for record in records:
        if not gathered.gather(record):
            gathered.make(changes)
            _make(record, changes)
            gathered = _Gathered(changes.mark)
        elif gathered.entries >= RECORD_ENTRIES_MAX:
            gathered.make(changes)
            gathered = _Gathered(changes.mark)
    gathered.make(changes)


class _Gathered:
    """Records in any order. mark: the mark-delete position before them."""

    def __init__(self, mark: Position) -> None:
        self.entries = 0
        self._added: list[Entries] = []
        self._moved: list[Entries] = []
        self._acknowledged: PositionSet | None = None
        self._before = self._mark = mark

    def gather(self, record: Replayed) -> bool:
        """Gather a record if its order does not matter; True if it was gathered."""
        match record.record_type, record.content:
            case RecordType.ADD, Entries() as entries:
                self._added.append(entries)
                self.entries += len(entries)
            case RecordType.MOVE, Entries() as entries:
                self._moved.append(entries)
                self.entries += len(entries)
            case RecordType.ACKNOWLEDGE, PositionSet() as positions:
                if self._acknowledged is None:
                    self._acknowledged = PositionSet()
                self._acknowledged.update(positions)
            case RecordType.MARK_DELETE, (int() as ledger_id, int() as entry_id) if (
                ledger_id,
                entry_id,
            ) >= self._mark:
                self._mark = (ledger_id, entry_id)
            case _:
                return False
        return True

    def make(self, changes: Changes[IndexT]) -> None:
        """Make the changes of all records gathered."""
        if self._added:
            changes.stage_new(Entries.concat(self._added))
        if self._moved:
            changes.move(Entries.concat(self._moved))
        if self._acknowledged:
            changes.acknowledge(self._acknowledged)
        if self._mark != self._before:
            changes.mark_delete(*self._mark)


def _make(record: Replayed, changes: Changes[IndexT]) -> None:
    match record.record_type, record.content:
        case RecordType.UNACKNOWLEDGE, PositionSet() as positions:
            changes.unacknowledge(positions)
        case RecordType.DISOWN, PositionSet() as positions:
            changes.disown(positions)
        case RecordType.MARK_DELETE, (int() as ledger_id, int() as entry_id):
            changes.mark_delete(ledger_id, entry_id)
        case RecordType.WIDTH, (int() as width_ms, int() as auto):
            changes.set_width(width_ms, auto=bool(auto))
        case RecordType.GENERATION, (int() as generation, _):
            changes.begin_generation(generation)
        case RecordType.CLAIM, (int() as epoch, int() as number):
            changes.begin_claim(Claim(epoch, number))
        case RecordType.CLEAR, _:
            changes.clear()
        case _:
            # A damaged record may have taken back an acknowledgement or the mark-delete position, or begun a
            # generation or a claim. Keeping these could ignore an entry that is added again; forgetting costs
            # a redelivery.
            changes.forget_acknowledgements()
