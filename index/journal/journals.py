"""Reads journals: from rows in a store to records, with damaged and missing ones marked.

Invariants: the records of a subscription come in order, without those that a persist has covered. A missing
record, or an unreadable one that was no ADD, ACKNOWLEDGE or MOVE, counts as the worst.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import NamedTuple

from tidegate.index.entries.entry import Entries
from tidegate.index.errors import CorruptRecordError
from tidegate.index.format import keys
from tidegate.index.format.records import RecordType, decode_entries, decode_numbers, decode_positions
from tidegate.index.journal.damage import Damage
from tidegate.index.state.positions import PositionSet

Rows = Iterator[tuple[bytes, bytes]]


class Replayed(NamedTuple):
    """A journal record; both fields are None for a damaged one, which counts as the worst."""

    record_type: RecordType | None
    content: Entries | PositionSet | tuple[int, int] | None


class Journals:
    """The journals of many subscriptions, in one scan: a scan for each would cost as much as its rows.

    strangers: subscriptions whose journals were met unasked.
    """

    def __init__(self, rows: Rows) -> None:
        self._groups = groupby(rows, lambda row: row[0][: keys.PREFIX_BYTES])
        self._upcoming = next(self._groups, None)
        self.strangers: set[int] = set()

    def of(self, subscription_id: int) -> Rows:
        """Yield the rows of one subscription. Call it in the order of the ids."""
        rows = self._skip_to(subscription_id)
        if rows is not None:
            yield from rows
            self._upcoming = next(self._groups, None)

    def skip_rest(self) -> None:
        """Count all remaining journals as strangers'."""
        self._skip_to(None)

    def _skip_to(self, subscription_id: int | None) -> Rows | None:
        """The rows of a subscription, None if it has none; those before it are strangers'."""
        while self._upcoming is not None:
            prefix, rows = self._upcoming
            found = keys.subscription_id_of(prefix)
            if subscription_id is not None and found >= subscription_id:
                return rows if found == subscription_id else None
            self.strangers.add(found)
            self._upcoming = next(self._groups, None)
        return None


class JournalReader:
    """Reads the journal of one subscription once; the counters are final after that."""

    def __init__(self, journals: Journals, subscription_id: int, after: int, damage: Damage) -> None:
        self._journals = journals
        self._subscription_id = subscription_id
        self._damage = damage
        self.last_sequence = after
        self.size_bytes = 0
        self.damaged = False

    def records(self) -> Iterator[Replayed]:
        """Yield the records after the persisted ones, in order."""
        persisted_sequence = self.last_sequence
        gaps = False
        for key, value in self._journals.of(self._subscription_id):
            sequence, number = keys.parse_journal_key(key)
            if sequence <= persisted_sequence:
                continue
            self.size_bytes += len(value)
            if sequence != self.last_sequence + 1:
                self.damaged = gaps = True
                self._damage.report(key, None, f"journal records before {sequence} are missing")
                yield Replayed(None, None)
            self.last_sequence = sequence
            try:
                record = _decode(number, value)
            except CorruptRecordError as error:
                self.damaged = True
                self._damage.report(key, value, str(error))
                if number not in (RecordType.ADD, RecordType.ACKNOWLEDGE, RecordType.MOVE):
                    yield Replayed(None, None)
            else:
                yield record
        if gaps:
            # If the state is lost, these may predate the bitmaps, and the records that revoked them be
            # deleted.
            yield Replayed(None, None)


def _decode(number: int, value: bytes) -> Replayed:
    try:
        record_type = RecordType(number)
    except ValueError as error:
        raise CorruptRecordError(f"a journal record of the unknown type {number}") from error
    decode: Callable[[bytes], Entries | PositionSet | tuple[int, int]] = decode_numbers
    if record_type in (RecordType.ADD, RecordType.MOVE):
        decode = decode_entries
    elif record_type in (RecordType.ACKNOWLEDGE, RecordType.UNACKNOWLEDGE, RecordType.DISOWN):
        decode = decode_positions
    return Replayed(record_type, decode(value))
