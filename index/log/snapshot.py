"""A snapshot: everything that the store has of a subscription, to begin an index log with.

It is fuzzy: the kinds of keys are looked at one after another while other threads write. Whoever puts it into
a log adds every write that was noted since before it was begun. Writes are puts and deletions of whole
values, so what is applied a second time changes nothing, and the sum is what the store has then.

Of blocks that lie elsewhere it has the places, and their values are not read. Then the blocks are not looked
for in the store, which would be to read them: they are those that slices name, and those that are written
ahead, which the intents name. The intents come first: what is committed after them is named by a slice.

Invariant: no damaged value is in it. A block or a bitmap that is damaged is left out, and told: whoever reads
the log answers for none of its positions, so that they are read from the topic. Without any other value the
rest would say something else, so that there is no snapshot before it has been put right.
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
from tidegate.index.store import Batch, Store
from tidegate.index.tap import LOGGED_KINDS, Operation

_LEFT_OUT = (keys.BLOCK, keys.HELD, keys.ACKNOWLEDGED)

Rows = Iterator[tuple[bytes, bytes]]


class Snapshot:
    """Begun when its first piece is taken; any one thread may take them.

    places: of blocks whose values are not read; None if all are to be. Not to be changed meanwhile.
    met: the keys, without the subscription id, of those that it has named.
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
        """All of them, also those that no slice names yet; where the store cannot read on, the named ones."""
        last = b""
        with contextlib.suppress(StorageError):
            for row in rows:
                last = row[0]
                yield row
            # What is still to come is not in the store.
            yield from self._values(key for key in self._named if keys.stripped(key) in self._missing())
            return
        yield from self._values(key for key in self._named if key > last)

    def _missing(self) -> set[bytes]:
        """Those with places that were not met."""
        return self._places.keys() - self.met

    def _written_ahead(self) -> list[bytes] | None:
        """The blocks that intents name; None if one of them is damaged. Raises StorageError."""
        found: list[bytes] = []
        try:
            for _, value in self._scan(keys.INTENT):
                found += (each for each in decode_keys(value) if each[:1] == keys.BLOCK)
        except CorruptRecordError:
            return None
        return found

    def _named_blocks(self, ahead: Iterable[bytes]) -> Rows:
        """Those with a place have no value here."""
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
