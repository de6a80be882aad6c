"""One reader for a range of entries, straight from reachable bookies, else through the broker.

Both give the same entries. Invariants: markers, acknowledged entries and messages of aborted transactions
never appear; after a failure in the middle the other way continues at that entry, if allowed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

import numpy as np

from tidegate.pipeline.errors import UnreachableError, WireError
from tidegate.pipeline.topic.admin import Admin
from tidegate.pipeline.topic.bookies import Batch, Bookies, MissingError
from tidegate.pipeline.topic.broker import TopicReader
from tidegate.pipeline.topic.cluster import Cluster, ReadFrom
from tidegate.pipeline.topic.entry import Entry, is_marker, is_transactional, parse_entry
from tidegate.pipeline.topic.names import TopicName
from tidegate.pipeline.topic.ranges import EntryRange, Position, Stretch
from tidegate.pipeline.topic.scan import NOT_DELAYED, BoolArray, Int64Array, scan
from tidegate.pipeline.topic.state import parse_state

_LOG = logging.getLogger(__name__)
_CHUNK_ENTRIES = 5_000
_Piece = TypeVar("_Piece")


class Chunk(NamedTuple):
    """Some entries of one ledger, ascending."""

    ledger_id: int
    entries: list[Entry]


class Delayed(NamedTuple):
    """The delayed ones among some entries of one ledger, ascending.

    ``looked_at``: the number of entries examined.
    """

    ledger_id: int
    entry_ids: Int64Array
    deliver_at_ms: Int64Array
    looked_at: int


class EntryReader:
    """Reads ranges one after another, over persistent connections; a context manager."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._bookies = Bookies(cluster.bookies)

    def __enter__(self) -> Self:
        """No connection is open yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        self._bookies.__exit__(kind, error, trace)

    def read(self, wanted: EntryRange) -> Iterator[Chunk]:
        """A range's entries that a consumer would get and has not acknowledged. Raises ``TopicError``."""
        return self._either(wanted, self._from_bookies, self._from_broker)

    def delayed(self, wanted: EntryRange) -> Iterator[Delayed]:
        """The due times of the delayed ones among the same entries, several times as fast.

        Raises ``TopicError``.
        """
        return self._either(wanted, self._delayed_from_bookies, self._delayed_from_broker)

    def _either(
        self,
        wanted: EntryRange,
        from_bookies: Callable[[EntryRange], Iterator[tuple[_Piece, int]]],
        from_broker: Callable[[EntryRange, int], Iterator[_Piece]],
    ) -> Iterator[_Piece]:
        at = wanted.first
        if self._cluster.read_from is not ReadFrom.BROKER:
            try:
                for chunk, following in from_bookies(wanted):
                    yield chunk
                    at = following
                return
            except (UnreachableError, WireError, MissingError) as error:
                if self._cluster.read_from is ReadFrom.BOOKIES:
                    if isinstance(error, MissingError) and self._was_trimmed(wanted):
                        return
                    raise
                _LOG.warning("%s: reading on through the broker", error)
        yield from from_broker(wanted, at)

    def _from_bookies(self, wanted: EntryRange) -> Iterator[tuple[Chunk, int]]:
        """(chunk, the entry after it) from the bookies."""
        live = _Live(wanted.acknowledged)
        for first, payloads in self._stored(wanted):
            entries = [
                parse_entry(entry_id, payload, checked=True) for entry_id, payload in live.of(first, payloads)
            ]
            yield Chunk(wanted.ledger.ledger_id, self._visible(wanted, entries)), first + len(payloads)

    def _delayed_from_bookies(self, wanted: EntryRange) -> Iterator[tuple[Delayed, int]]:
        """(the delayed ones among some entries, the entry after them) from the bookies."""
        gone = np.array(wanted.acknowledged, np.int64).reshape(-1, 2)
        for first, payloads in self._stored(wanted):
            following = first + len(payloads)
            found = scan(first, payloads)
            entry_ids = np.arange(first, following, dtype=np.int64)
            live = ~_within(gone, entry_ids) & ~found.marker
            delayed = live & (found.deliver_at_ms != NOT_DELAYED)
            suspects = entry_ids[delayed & found.transactional].tolist()
            if suspects:
                delayed &= ~np.isin(entry_ids, list(self._hidden(wanted, suspects)))
            looked_at = int(np.count_nonzero(live))
            due = found.deliver_at_ms[delayed]
            yield Delayed(wanted.ledger.ledger_id, entry_ids[delayed], due, looked_at), following

    def _stored(self, wanted: EntryRange) -> Iterator[Batch]:
        ledger = wanted.ledger
        if ledger.offloaded:
            raise UnreachableError(
                f"ledger {ledger.ledger_id} of {wanted.topic} has been offloaded, so its bookies may not "
                f"have it: read it through the broker (read_from={ReadFrom.AUTO} does)"
            )
        return self._bookies.entries(ledger, wanted.first, wanted.last)

    def _visible(self, wanted: EntryRange, entries: list[Entry]) -> list[Entry]:
        """The entries without markers, and without those of transactions that the broker withholds."""
        suspects = [one.entry_id for one in entries if is_transactional(one.metadata)]
        if not suspects:
            return [one for one in entries if not is_marker(one.metadata)]
        hidden = self._hidden(wanted, suspects)
        return [one for one in entries if one.entry_id not in hidden and not is_marker(one.metadata)]

    def _hidden(self, wanted: EntryRange, suspects: Sequence[int]) -> set[int]:
        """The entries of aborted transactions, which only the broker knows."""
        ledger_id = wanted.ledger.ledger_id
        reader = self._reader(wanted)
        known = reader.entries(Position(ledger_id, suspects[0]), Position(ledger_id, suspects[-1]))
        return set(suspects) - {entry.entry_id for _, entry in known}

    def _from_broker(self, wanted: EntryRange, first: int) -> Iterator[Chunk]:
        ledger_id = wanted.ledger.ledger_id
        live = _Live(wanted.acknowledged)
        entries: list[Entry] = []
        found = self._reader(wanted).entries(Position(ledger_id, first), Position(ledger_id, wanted.last))
        for _, entry in found:
            if live.has(entry.entry_id) and not is_marker(entry.metadata):
                entries.append(entry)
            if len(entries) >= _CHUNK_ENTRIES:
                yield Chunk(ledger_id, entries)
                entries = []
        yield Chunk(ledger_id, entries)

    def _delayed_from_broker(self, wanted: EntryRange, first: int) -> Iterator[Delayed]:
        for chunk in self._from_broker(wanted, first):
            times = [one.metadata.deliver_at_time for one in chunk.entries]
            due = np.array(times, np.int64)
            entry_ids = np.array([one.entry_id for one in chunk.entries], np.int64)
            delayed = due != NOT_DELAYED
            yield Delayed(chunk.ledger_id, entry_ids[delayed], due[delayed], len(times))

    def _reader(self, wanted: EntryRange) -> TopicReader:
        return TopicReader(self._cluster.service_url, self._cluster.access, wanted.topic)

    def _was_trimmed(self, wanted: EntryRange) -> bool:
        """True if the ledger is gone because every subscription has acknowledged it."""
        topic = TopicName.parse(wanted.topic)
        with Admin(self._cluster.admin_url, self._cluster.access) as admin:
            state = parse_state(topic, admin.internal_stats(topic))
        return all(ledger.ledger_id != wanted.ledger.ledger_id for ledger in state.ledgers)


def _within(stretches: Int64Array, entry_ids: Int64Array) -> BoolArray:
    """A mask of the ids inside one of these ascending, disjoint (first, last)."""
    if not len(stretches):
        return np.zeros(len(entry_ids), np.bool_)
    at = np.searchsorted(stretches[:, 0], entry_ids, side="right") - 1
    found: BoolArray = (at >= 0) & (entry_ids <= stretches[np.maximum(at, 0), 1])
    return found


class _Live:
    """Finds entries outside some ascending stretches; ask with ascending ids only."""

    def __init__(self, acknowledged: Sequence[Stretch]) -> None:
        self._gone = acknowledged
        self._at = 0

    def has(self, entry_id: int) -> bool:
        while self._at < len(self._gone) and self._gone[self._at].last < entry_id:
            self._at += 1
        return self._at == len(self._gone) or entry_id < self._gone[self._at].first

    def of(self, first: int, payloads: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        """(entry_id, payload) of the live ones."""
        numbered = enumerate(payloads, first)
        if not self._gone:
            return numbered
        return ((entry_id, payload) for entry_id, payload in numbered if self.has(entry_id))
