"""Sorts entries: all three columns in one 64-bit key if their ranges fit.

np.sort of such keys is many times faster than any argsort, and needs no gather: the keys unpack into the
columns, in parts if there are many. Few entries are sorted as tuples, in a third of the time.

Invariants: a SortedEntries is in (deliver_at_ms, ledger_id, entry_id) order and does not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.index.entries.entry import FEW, Entries, Int64Array

SortKind = Literal["quicksort", "stable"]
MERGE: SortKind = "stable"
"""NumPy's stable sort is a Timsort of keys as long as these: it finds runs and merges them."""

_KEY_BITS = 64
_INT64_MAX = (1 << 63) - 1


class _Layout(NamedTuple):
    """The layout of a key: the lowest value of each column, and the number of bits of the lower two."""

    low: tuple[int, int, int]
    ledger_bits: int
    entry_bits: int

    @property
    def deliver_at_shift(self) -> int:
        return self.ledger_bits + self.entry_bits


class SortedEntries:
    """Entries in order, as keys of 8 bytes if the layout allows, else as columns. Made by `of`."""

    __slots__ = ("_columns", "_keys", "_layout")

    def __init__(
        self, keys: npt.NDArray[np.uint64] | None, layout: _Layout | None, columns: Entries | None
    ) -> None:
        self._keys = keys
        self._layout = layout
        self._columns = columns

    @classmethod
    def of(
        cls, parts: Sequence[Entries], *, unique: bool = False, kind: SortKind = "quicksort"
    ) -> SortedEntries:
        """Sort the entries of `parts` together; with `unique` equal ones are kept once. O(n log n)."""
        parts = [part for part in parts if len(part)]
        layout = _layout(parts)
        if layout is None:
            together = Entries.concat(parts)
            order = np.lexsort((together.entry_id, together.ledger_id, together.deliver_at_ms))
            ordered = together.take(order)
            return cls(None, None, ordered.unique() if unique else ordered)
        keys = np.empty(sum(map(len, parts)), dtype=np.uint64)
        at = 0
        for part in parts:
            _pack(part, layout, keys[at : at + len(part)])
            at += len(part)
        keys.sort(kind=kind)
        if unique and len(keys):
            fresh = keys[1:] != keys[:-1]
            if not fresh.all():
                keys = keys[np.concatenate(([True], fresh))]
        return cls(keys, layout, None)

    def __len__(self) -> int:
        if self._keys is not None:
            return len(self._keys)
        return 0 if self._columns is None else len(self._columns)

    def first_ms(self, at: int) -> int:
        """deliver_at_ms of the entry at index `at`."""
        if self._keys is None or self._layout is None:
            return 0 if self._columns is None else int(self._columns.deliver_at_ms[at])
        return (int(self._keys[at]) >> self._layout.deliver_at_shift) + self._layout.low[0]

    def index_of(self, deliver_at_ms: int) -> int:
        """Index of the first entry that is due at `deliver_at_ms` or later."""
        if self._keys is None or self._layout is None:
            columns = Entries.empty() if self._columns is None else self._columns
            if deliver_at_ms > _INT64_MAX:  # a slice may end beyond the largest time
                return len(columns)
            return int(np.searchsorted(columns.deliver_at_ms, max(deliver_at_ms, ~_INT64_MAX), side="left"))
        key = (deliver_at_ms - self._layout.low[0]) << self._layout.deliver_at_shift
        if key <= 0:
            return 0
        if key >= 1 << _KEY_BITS:
            return len(self._keys)
        return int(np.searchsorted(self._keys, np.uint64(key), side="left"))

    def deliver_at_ms(self, start: int, stop: int) -> Int64Array:
        """Due times of the entries start … stop-1."""
        if self._keys is None or self._layout is None:
            columns = Entries.empty() if self._columns is None else self._columns
            return columns.deliver_at_ms[start:stop]
        if self._layout.deliver_at_shift >= _KEY_BITS:
            return np.full(stop - start, self._layout.low[0], dtype=np.int64)
        differences = self._keys[start:stop] >> np.uint64(self._layout.deliver_at_shift)
        return _shifted(differences, self._layout.low[0])

    def entries(self, start: int = 0, stop: int | None = None) -> Entries:
        """The entries start … stop-1 (all by default), as columns."""
        if self._keys is None or self._layout is None:
            columns = Entries.empty() if self._columns is None else self._columns
            return columns.part(start, len(columns) if stop is None else stop)
        return _unpack(self._keys[start:stop], self._layout)


def sort_entries(entries: Entries, *, unique: bool = False) -> Entries:
    """Sort by (deliver_at_ms, ledger_id, entry_id); with `unique` equal entries are kept once."""
    if len(entries) <= FEW:
        return _few_sorted(entries, unique=unique)
    return SortedEntries.of([entries], unique=unique).entries()


def merge_runs(entries: Entries, *, unique: bool = False) -> Entries:
    """`sort_entries` for runs, each in order, one after another: a fifth of the time for 27 runs of 300."""
    if len(entries) <= FEW:
        return _few_sorted(entries, unique=unique)
    return SortedEntries.of([entries], unique=unique, kind=MERGE).entries()


def _few_sorted(entries: Entries, *, unique: bool) -> Entries:
    if len(entries) < 2:
        return entries
    return Entries.of(sorted(set(entries) if unique else entries))


def _layout(parts: Sequence[Entries]) -> _Layout | None:
    """A layout that all parts fit into, None if there is none."""
    if not parts:
        return _Layout((0, 0, 0), 0, 0)
    low, bits = [], []
    for columns in (
        [part.deliver_at_ms for part in parts],
        [part.ledger_id for part in parts],
        [part.entry_id for part in parts],
    ):
        smallest = min(int(column.min()) for column in columns)
        low.append(smallest)
        bits.append((max(int(column.max()) for column in columns) - smallest).bit_length())
    if sum(bits) > _KEY_BITS:
        return None
    return _Layout((low[0], low[1], low[2]), bits[1], bits[2])


def _pack(entries: Entries, layout: _Layout, keys: npt.NDArray[np.uint64]) -> None:
    # Two's complement differences are right modulo 2^64, whatever the signs are.
    np.subtract(entries.deliver_at_ms, layout.low[0], out=keys.view(np.int64))
    if layout.deliver_at_shift < _KEY_BITS:
        keys <<= np.uint64(layout.deliver_at_shift)
    if layout.ledger_bits:
        keys |= (entries.ledger_id - layout.low[1]).view(np.uint64) << np.uint64(layout.entry_bits)
    if layout.entry_bits:
        keys |= (entries.entry_id - layout.low[2]).view(np.uint64)


def _unpack(keys: npt.NDArray[np.uint64], layout: _Layout) -> Entries:
    deliver_at = np.zeros_like(keys)
    if layout.deliver_at_shift < _KEY_BITS:
        deliver_at = keys >> np.uint64(layout.deliver_at_shift)
    ledger = np.zeros_like(keys)
    if layout.ledger_bits:
        ledger = (keys >> np.uint64(layout.entry_bits)) & np.uint64((1 << layout.ledger_bits) - 1)
    entry = keys & np.uint64((1 << layout.entry_bits) - 1)
    return Entries(
        _shifted(deliver_at, layout.low[0]), _shifted(ledger, layout.low[1]), _shifted(entry, layout.low[2])
    )


def _shifted(differences: npt.NDArray[np.uint64], low: int) -> Int64Array:
    column = differences.view(np.int64)
    if low:
        column += low
    return column
