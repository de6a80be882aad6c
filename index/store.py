"""The store: ordered byte keys, atomic batches, and nothing else.

Invariants of every store (`tests/index/test_store.py`): a batch is applied whole or not at all; its
operations apply in order; a write with `sync=True` makes itself and every earlier write durable; a read sees
the last write; keys are ordered as unsigned bytes. Two threads may call `get` and `write` at once.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from tidegate.index.errors import ClosedError

Put = tuple[bytes, bytes]


class Batch:
    """Operations that a store applies together, in order: (kind, key, value or end of range)."""

    __slots__ = ("operations", "size_bytes")

    PUT = 0
    DELETE = 1
    DELETE_RANGE = 2

    def __init__(self) -> None:
        self.operations: list[tuple[int, bytes, bytes]] = []
        self.size_bytes = 0

    def put(self, key: bytes, value: bytes) -> None:
        """Set `key` to `value`."""
        self._append(Batch.PUT, key, value)

    def delete(self, key: bytes) -> None:
        """Remove `key`, if it is there."""
        self._append(Batch.DELETE, key, b"")

    def delete_range(self, start: bytes, end: bytes) -> None:
        """Remove every key with start <= key < end."""
        self._append(Batch.DELETE_RANGE, start, end)

    def extend(self, other: Batch) -> None:
        """Append the operations of `other`."""
        self.operations.extend(other.operations)
        self.size_bytes += other.size_bytes

    def _append(self, kind: int, key: bytes, value: bytes) -> None:
        self.operations.append((kind, key, value))
        self.size_bytes += len(key) + len(value)

    def __len__(self) -> int:
        return len(self.operations)


class Loss(NamedTuple):
    """Synced writes that an opened store lacks.

    commits: number of lost synced writes, at least; 0 if any loss is uncertain. reason: the sign of the loss,
    for the log.
    """

    commits: int
    reason: str


class Store(Protocol):
    """An ordered key-value store. Methods raise StorageError if the medium fails, ClosedError after close.

    `str` returns its location, for messages to the operator.
    """

    def get(self, key: bytes) -> bytes | None:
        """The value of `key`, None if there is none. Raises CorruptRecordError if it is damaged."""
        ...

    def write(self, batch: Batch, *, sync: bool) -> None:
        """Apply `batch` atomically; with `sync` it and every earlier write are durable on return."""
        ...

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) with start <= key < end, keys ascending, as they are at the time of the call.

        Any thread may iterate, also during writes. Raises DamagedDirectoryError if the medium cannot be read
        on.
        """
        ...

    def loss(self) -> Loss | None:
        """The known loss of durable data, None without one. Returned until settled."""
        ...

    def settle_loss(self) -> None:
        """Note that the loss's consequences are durable: `loss` is None from here on."""
        ...

    def tidy(self) -> None:
        """Free unneeded space, if there is much and the store can. For any thread; slow."""
        ...

    def compacts(self) -> bool:
        """True if the store still frees replaced and deleted values; otherwise it only grows."""
        ...

    def disk_bytes(self) -> int:
        """Estimated bytes on the medium. For any thread at any time; may be slow."""
        ...

    def close(self) -> None:
        """Release the medium. Closing twice is harmless."""
        ...


class MemoryStore:
    """A store in memory, for tests and simulation. It outlives `close`, to simulate restarts."""

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._values: dict[bytes, bytes] = {}
        self._lock = threading.Lock()
        self._closed = False

    def __str__(self) -> str:
        return "in memory"

    def get(self, key: bytes) -> bytes | None:
        """See `Store`."""
        with self._lock:
            self._require_open()
            return self._values.get(key)

    def write(self, batch: Batch, *, sync: bool) -> None:  # noqa: ARG002 memory has nothing to sync
        """See `Store`."""
        with self._lock:
            self._require_open()
            for kind, key, value in batch.operations:
                if kind == Batch.PUT:
                    if key not in self._values:
                        insort(self._keys, key)
                    self._values[key] = value
                elif kind == Batch.DELETE:
                    if self._values.pop(key, None) is not None:
                        del self._keys[bisect_left(self._keys, key)]
                else:
                    low, high = bisect_left(self._keys, key), bisect_left(self._keys, value)
                    for removed in self._keys[low:high]:
                        del self._values[removed]
                    del self._keys[low:high]

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """See `Store`."""
        with self._lock:
            self._require_open()
            keys = self._keys[bisect_left(self._keys, start) : bisect_left(self._keys, end)]
            return iter([(key, self._values[key]) for key in keys])

    def loss(self) -> None:
        """None: memory forgets all or nothing."""

    def settle_loss(self) -> None:
        """Nothing: there is no loss."""

    def tidy(self) -> None:
        """Nothing: deleted values take no room."""

    def compacts(self) -> bool:
        """True: deleted values are gone."""
        return True

    def disk_bytes(self) -> int:
        """See `Store`."""
        with self._lock:
            return sum(len(key) + len(value) for key, value in self._values.items())

    def close(self) -> None:
        """Refuse further use until `reopen`."""
        self._closed = True

    def reopen(self) -> MemoryStore:
        """The same store, open again."""
        self._closed = False
        return self

    def _require_open(self) -> None:
        if self._closed:
            raise ClosedError("the store is closed")
