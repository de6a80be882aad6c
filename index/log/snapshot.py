"""A snapshot: everything that the store has of a subscription, to begin an index log with.

It is fuzzy: the kinds of keys are looked at one after another while other threads write. Whoever puts it into
a log adds every write that was noted since before it was begun. Writes are puts and deletions of whole
values, so what is applied a second time changes nothing, and the sum is what the store has then.
"""

from __future__ import annotations

from tidegate.index.format import keys
from tidegate.index.log.records import PIECE_BYTES, encode_operations
from tidegate.index.store import Batch, Store
from tidegate.index.tap import LOGGED_KINDS, Operation


class Snapshot:
    """Begun when it is made; any one thread may take its pieces."""

    def __init__(self, store: Store, subscription_id: int) -> None:
        self._rows = [store.scan(*keys.subscription_range(kind, subscription_id)) for kind in LOGGED_KINDS]

    def next_piece(self) -> bytes | None:
        """Operations for the next record, None at the end. Raises StorageError, DamagedDirectoryError."""
        operations: list[Operation] = []
        size_bytes = 0
        while self._rows and size_bytes < PIECE_BYTES:
            row = next(self._rows[0], None)
            if row is None:
                del self._rows[0]
                continue
            operations.append((Batch.PUT, keys.stripped(row[0]), row[1]))
            size_bytes += len(row[0]) + len(row[1])
        return encode_operations(operations) if operations else None
