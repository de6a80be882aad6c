"""A snapshot: everything that the store has of a subscription, to begin an index log with.

It is fuzzy: the kinds of keys are looked at one after another while other threads write. Whoever puts it into
a log adds every write that was noted since before it was begun. Writes are puts and deletions of whole
values, so what is applied a second time changes nothing, and the sum is what the store has then.

Invariant: no damaged value is in it. A block or a bitmap that is damaged is left out, and told: whoever reads
the log answers for none of its positions, so that they are read from the topic. Without any other value the
rest would say something else, so that there is no snapshot before it has been put right.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tidegate.index.errors import CorruptRecordError, StorageError
from tidegate.index.format import keys
from tidegate.index.format.envelope import unseal
from tidegate.index.format.manifest import decode_slice
from tidegate.index.log.records import PIECE_BYTES, encode_operations
from tidegate.index.store import Batch, Store
from tidegate.index.tap import LOGGED_KINDS, Operation

_LEFT_OUT = (keys.BLOCK, keys.HELD, keys.ACKNOWLEDGED)

Rows = Iterator[tuple[bytes, bytes]]


class Snapshot:
    """Begun when it is made; any one thread may take its pieces."""

    def __init__(self, store: Store, subscription_id: int) -> None:
        self._store = store
        self._named: list[bytes] = []
        self._damaged: list[bytes] = []
        rows = {kind: store.scan(*keys.subscription_range(kind, subscription_id)) for kind in LOGGED_KINDS}
        rows[keys.BLOCK] = self._blocks(rows[keys.BLOCK])
        self._rows = list(rows.values())

    def next_piece(self) -> bytes | None:
        """Operations for the next record, None at the end.

        Raises StorageError, DamagedDirectoryError, CorruptRecordError.
        """
        operations: list[Operation] = []
        size_bytes = 0
        while self._rows and size_bytes < PIECE_BYTES:
            row = next(self._rows[0], None)
            if row is None:
                del self._rows[0]
                continue
            if self._is_intact(*row):
                operations.append((Batch.PUT, keys.stripped(row[0]), row[1]))
                size_bytes += len(row[0]) + len(row[1])
        return encode_operations(operations) if operations else None

    def take_damaged(self) -> list[bytes]:
        """The keys of damaged values met since the last call."""
        damaged, self._damaged = self._damaged, []
        return damaged

    def _is_intact(self, key: bytes, value: bytes) -> bool:
        kind = key[:1]
        try:
            unseal(kind, value)
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
            return
        for key in sorted(key for key in self._named if key > last):
            try:
                value = self._store.get(key)
            except CorruptRecordError:
                self._damaged.append(key)
                continue
            if value is not None:
                yield key, value
