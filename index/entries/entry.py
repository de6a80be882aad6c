"""Entries: three equal-length columns (deliver_at_ms, ledger_id, entry_id), and their total order.

Invariants: the columns are one-dimensional int64 arrays of equal length, never changed after construction.
The order of entries is (deliver_at_ms, ledger_id, entry_id): first in, first out for one delay level.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.index.errors import InvalidEntriesError

LITTLE_INT64 = np.dtype("<i8")
Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

ENTRY_BYTES = 24
"""Bytes of one entry in memory: three int64."""

FEW = 24
"""Up to so many entries plain Python is faster than NumPy, at a microsecond or more a call."""

ENTRY_ID_MAX = (1 << 32) - 1
"""Entry ids are kept in 32-bit roaring bitmaps, as in Java."""

EntryKey = tuple[int, int, int]
"""(deliver_at_ms, ledger_id, entry_id) as Python integers."""


@dataclass(frozen=True, eq=False)
class Entries:
    """A batch of entries, in no particular order unless the caller says so."""

    deliver_at_ms: Int64Array
    ledger_id: Int64Array
    entry_id: Int64Array

    def __post_init__(self) -> None:
        if not (self.deliver_at_ms.shape == self.ledger_id.shape == self.entry_id.shape) or (
            self.deliver_at_ms.ndim != 1
        ):
            raise InvalidEntriesError(
                "the columns of entries must be one-dimensional and of equal length, not "
                f"{self.deliver_at_ms.shape}, {self.ledger_id.shape}, {self.entry_id.shape}"
            )

    @classmethod
    def empty(cls) -> Entries:
        """No entries."""
        none = np.empty(0, dtype=np.int64)
        return cls(none, none, none)

    @classmethod
    def of(cls, rows: Iterable[EntryKey]) -> Entries:
        """Entries from (deliver_at_ms, ledger_id, entry_id) tuples."""
        table = np.array(list(rows), dtype=np.int64).reshape(-1, 3)
        return cls(table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy())

    @classmethod
    def from_records(cls, records: Any) -> Entries:
        """Entries from protocol records: rows of (ledger_id, entry_id, deliver_at_ms).

        `records`: a bytes-like object of little-endian int64 triples, or an int64 array of shape (n, 3).
        Raises InvalidEntriesError if the size is not a multiple of 24 bytes.
        """
        if isinstance(records, np.ndarray):
            table = records.astype(np.int64, copy=False)
        else:
            size_bytes = memoryview(records).nbytes
            if size_bytes % ENTRY_BYTES:
                raise InvalidEntriesError(
                    f"{size_bytes} bytes of records are not a multiple of {ENTRY_BYTES}"
                )
            table = np.frombuffer(records, dtype=LITTLE_INT64).reshape(-1, 3)
        if table.ndim != 2 or table.shape[1] != 3:
            raise InvalidEntriesError(f"records must have the shape (n, 3), not {table.shape}")
        ledger_id, entry_id, deliver_at_ms = np.ascontiguousarray(table.T)
        return cls(deliver_at_ms, ledger_id, entry_id)

    def to_records(self) -> Int64Array:
        """The entries as little-endian int64 rows (ledger_id, entry_id, deliver_at_ms), shape (n, 3)."""
        table = np.empty((len(self), 3), dtype=LITTLE_INT64)
        table[:, 0] = self.ledger_id
        table[:, 1] = self.entry_id
        table[:, 2] = self.deliver_at_ms
        return table

    @classmethod
    def concat(cls, parts: Iterable[Entries]) -> Entries:
        """All entries of `parts`, one after another."""
        kept = [part for part in parts if len(part)]
        if not kept:
            return cls.empty()
        if len(kept) == 1:
            return kept[0]
        return cls(
            np.concatenate([part.deliver_at_ms for part in kept]),
            np.concatenate([part.ledger_id for part in kept]),
            np.concatenate([part.entry_id for part in kept]),
        )

    def __len__(self) -> int:
        return int(self.deliver_at_ms.shape[0])

    def __iter__(self) -> Iterator[EntryKey]:
        """Yield (deliver_at_ms, ledger_id, entry_id) as Python integers."""
        return zip(self.deliver_at_ms.tolist(), self.ledger_id.tolist(), self.entry_id.tolist(), strict=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Entries):
            return NotImplemented
        return (
            np.array_equal(self.deliver_at_ms, other.deliver_at_ms)
            and np.array_equal(self.ledger_id, other.ledger_id)
            and np.array_equal(self.entry_id, other.entry_id)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if len(self) > 8:
            return f"Entries({len(self)} entries from {self.key(0)} to {self.key(len(self) - 1)})"
        return f"Entries.of({list(self)})"

    def key(self, at: int) -> EntryKey:
        """(deliver_at_ms, ledger_id, entry_id) of the entry at index `at`."""
        return int(self.deliver_at_ms[at]), int(self.ledger_id[at]), int(self.entry_id[at])

    def part(self, start: int, stop: int) -> Entries:
        """The entries start … stop-1; a view, not a copy."""
        return Entries(self.deliver_at_ms[start:stop], self.ledger_id[start:stop], self.entry_id[start:stop])

    def take(self, which: BoolArray | npt.NDArray[np.intp]) -> Entries:
        """The entries chosen by a boolean mask or by indices; a copy."""
        return Entries(self.deliver_at_ms[which], self.ledger_id[which], self.entry_id[which])

    def unique(self) -> Entries:
        """Sorted entries, of equal ones one."""
        return _without_repeats(self)

    def is_sorted(self) -> bool:
        """True if the entries are in (deliver_at_ms, ledger_id, entry_id) order."""
        if len(self) < 2:
            return True
        d, ledger, e = self.deliver_at_ms, self.ledger_id, self.entry_id
        equal_d = d[1:] == d[:-1]
        equal_l = equal_d & (ledger[1:] == ledger[:-1])
        ascending = (d[1:] > d[:-1]) | (equal_d & (ledger[1:] > ledger[:-1])) | (equal_l & (e[1:] >= e[:-1]))
        return bool(ascending.all())

    def validated(self) -> Entries:
        """Self. Raises InvalidEntriesError if a ledger id is negative or an entry id not in 0 … 2^32 - 1."""
        if len(self):
            ledger_id, _ = bounds(self.ledger_id)
            if ledger_id < 0:
                raise InvalidEntriesError(f"ledger ids are 0 or more, found {ledger_id}")
            low, high = bounds(self.entry_id)
            if low < 0 or high > ENTRY_ID_MAX:
                raise InvalidEntriesError(f"entry ids are 0 … {ENTRY_ID_MAX}, found {low} … {high}")
        return self


def bounds(column: Int64Array) -> tuple[int, int]:
    """(least, greatest) of a column that is not empty."""
    if len(column) <= FEW:
        values = column.tolist()
        return min(values), max(values)
    return int(column.min()), int(column.max())


def _without_repeats(entries: Entries) -> Entries:
    d, ledger, e = entries.deliver_at_ms, entries.ledger_id, entries.entry_id
    fresh = (d[1:] != d[:-1]) | (ledger[1:] != ledger[:-1]) | (e[1:] != e[:-1])
    return entries if fresh.all() else entries.take(np.concatenate(([True], fresh)))
