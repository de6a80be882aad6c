"""A snapshot: all stored data of a subscription, the beginning of an index log.

It is fuzzy: it scans one kind of keys after another while other threads write. So the log also gets every
write noted since before its begin; applying a write twice changes nothing, because writes are puts and
deletions of whole values.

It has places instead of blocks that lie elsewhere, and then takes only blocks named by slices, or written
ahead and named by intents. The intents come first: a slice names any block committed after that.

Invariant: no damaged value. A damaged block or bitmap is omitted and reported; the log's reader does not
answer for its positions. Damage of any other value would change the meaning of the rest, so no snapshot is
made before a repair.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from tidegate.index.errors import CorruptRecordError, StorageError
from tidegate.index.format import keys
from tidegate.index.format.envelope import unwrap
from tidegate.index.format.manifest import decode_keys, decode_slice
from tidegate.index.log.places import Places
from tidegate.index.log.records import PIECE_BYTES, PLACE
from tidegate.index.log.tap import LOGGED_KINDS, Operation
from tidegate.index.store import Batch, Store

_LEFT_OUT = (keys.BLOCK, keys.HELD, keys.ACKNOWLEDGED)

Rows = Iterator[tuple[bytes, bytes]]


class Snapshot:
    """Begins when its first piece is taken; any one thread may take pieces.

    places: of blocks with unread values; None to read all. Must not change meanwhile. met: the keys, without
    the subscription id, of the blocks with a place.
    """

    def __init__(self, store: Store, subscription_id: int, places: Places | None = None) -> None:
        self.met: set[bytes] = set()
        self._store = store
        self._subscription_id = subscription_id
        self._reads_all = places is None
        self._places = places or {}
        self._named: list[bytes] = []
        self._damaged: list[bytes] = []
        self._rows: list[Rows] | None = None

    def next_piece(self) -> list[Operation] | None:
        """Operations for the next record, None at the end.

        Raises StorageError, DamagedDirectoryError, CorruptRecordError.
        """
        if self._rows is None:
            self._rows = self._begin()
        operations: list[Operation] = []
        size_bytes = 0
        while self._rows and size_bytes < PIECE_BYTES:
            row = next(self._rows[0], None)
            if row is None:
                del self._rows[0]
                continue
            key = keys.stripped(row[0])
            place = self._places.get(key)
            if place is not None:
                self.met.add(key)
                operations.append((PLACE, key, place.encode()))
                size_bytes += len(key) + len(operations[-1][2])
            elif self._is_intact(*row):
                operations.append((Batch.PUT, key, row[1]))
                size_bytes += len(row[0]) + len(row[1])
        return operations or None

    def take_damaged(self) -> list[bytes]:
        """The keys of damaged values met since the last call."""
        damaged, self._damaged = self._damaged, []
        return damaged

    def _begin(self) -> list[Rows]:
        ahead = None if self._reads_all else self._written_ahead()
        rows = {kind: self._scan(kind) for kind in LOGGED_KINDS}
        if ahead is None:
            rows[keys.BLOCK] = self._blocks(rows[keys.BLOCK])
        else:
            rows[keys.BLOCK] = self._named_blocks(ahead)
        return list(rows.values())

    def _scan(self, kind: bytes) -> Rows:
        return self._store.scan(*keys.subscription_range(kind, self._subscription_id))

    def _is_intact(self, key: bytes, value: bytes) -> bool:
        kind = key[:1]
        try:
            unwrap(kind, value)
        except CorruptRecordError:
            self._damaged.append(key)
            if kind not in _LEFT_OUT:
                raise
            return False
        if kind == keys.SLICE:
            self._named += (keys.block_of_slice(key, block.block_id) for block in decode_slice(value))
        return True

    def _blocks(self, rows: Rows) -> Rows:
        """All blocks, also those in no slice yet; only the named ones if the scan fails."""
        last = b""
        with contextlib.suppress(StorageError):
            for row in rows:
                last = row[0]
                yield row
            # Absent blocks are not in the store.
            yield from self._values(key for key in self._named if keys.stripped(key) in self._missing())
            return
        yield from self._values(key for key in self._named if key > last)

    def _missing(self) -> set[bytes]:
        """The blocks with places that were not met."""
        return self._places.keys() - self.met

    def _written_ahead(self) -> list[bytes] | None:
        """The blocks of intents; None if one intent is damaged. Raises StorageError."""
        found: list[bytes] = []
        try:
            for _, value in self._scan(keys.INTENT):
                found += (each for each in decode_keys(value) if each[:1] == keys.BLOCK)
        except CorruptRecordError:
            return None
        return found

    def _named_blocks(self, ahead: Iterable[bytes]) -> Rows:
        """The blocks of slices or intents; those with a place have no value here."""
        yield from self._values(dict.fromkeys([*ahead, *self._named]))

    def _values(self, wanted: Iterable[bytes]) -> Rows:
        for key in sorted(wanted):
            if keys.stripped(key) in self._places:
                yield key, b""
                continue
            try:
                value = self._store.get(key)
            except CorruptRecordError:
                self._damaged.append(key)
                continue
            if value is not None:
                yield key, value
