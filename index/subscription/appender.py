"""The appending of one subscription's records to the journal, each at the clock's time."""

from __future__ import annotations

from tidegate.index.clock import Clock
from tidegate.index.entries.entry import Entries
from tidegate.index.format.records import RecordType
from tidegate.index.journal.journal import Journal, SubscriptionJournal
from tidegate.index.state.positions import PositionSet


class Appender:
    """Appends. Each call returns a token: the change is durable when the journal's has reached it."""

    def __init__(self, journal: Journal, own_journal: SubscriptionJournal, clock: Clock) -> None:
        self._journal = journal
        self._own = own_journal
        self._clock = clock

    def nothing(self) -> int:
        """The token of what was appended before."""
        return self._journal.appended_token

    def entries(self, entries: Entries, record_type: RecordType = RecordType.ADD) -> int:
        """Append a record with entries."""
        return self._journal.add(self._own, entries, self._clock.now_ms(), record_type)

    def positions(self, record_type: RecordType, positions: PositionSet) -> int:
        """Append a record with positions."""
        return self._journal.positions(self._own, record_type, positions, self._clock.now_ms())

    def numbers(self, record_type: RecordType, first: int = 0, second: int = 0) -> int:
        """Append a record with two numbers."""
        return self._journal.numbers(self._own, record_type, first, second, self._clock.now_ms())

    def cut(self) -> None:
        """Have later records not joined with those so far."""
        self._journal.cut(self._own)
