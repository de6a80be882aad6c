"""The positions of a batch of entries as bitmaps, made once for several look-ups in position sets.

A page is 2^32 ledger ids, so that its positions fit a 64-bit bitmap: the low halves of ledger id and entry id
make the key. In practice a topic has one page.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from tidegate.index.entries.distinct import distinct
from tidegate.index.entries.entry import BoolArray, Entries

Uint64Array = npt.NDArray[np.uint64]

_KEY_MAX = (1 << 64) - 1
_RANGE_ENTRIES = 64
"""From about so many entries on, adding a range is faster."""


class BatchPart(NamedTuple):
    """The positions of a batch on one page: their indices in the batch, their keys, and a bitmap of these."""

    page: int
    where: slice | npt.NDArray[np.intp]
    keys: Uint64Array
    bitmap: BitMap64

    def found_in(self, bitmap: BitMap64) -> BoolArray:
        """For each key, True if it is in `bitmap`."""
        if self.bitmap.issubset(bitmap):
            return np.ones(len(self.keys), dtype=np.bool_)
        found = np.frombuffer((self.bitmap & bitmap).to_array(), dtype=np.uint64)
        if not len(found):
            return np.zeros(len(self.keys), dtype=np.bool_)
        at = np.searchsorted(found, self.keys)
        same: BoolArray = found[np.minimum(at, len(found) - 1)] == self.keys
        return same


class PositionBatch:
    """The positions of entries, in parts by page. Cost: a sort, up to 70 ns an entry, unless they ascend."""

    __slots__ = ("count", "parts")

    def __init__(self, entries: Entries) -> None:
        self.count = len(entries)
        self.parts = list(parts_of(entries))

    @classmethod
    def of(cls, entries: Entries | PositionBatch) -> PositionBatch:
        """A batch of entries, or the given batch."""
        return entries if isinstance(entries, PositionBatch) else cls(entries)


def parts_of(entries: Entries) -> Iterator[BatchPart]:
    """Yield the positions of entries by page, in the entries' order."""
    if not len(entries):
        return
    pages = entries.ledger_id >> 32
    first = int(pages[0])
    if bool((pages == first).all()):
        yield _part(first, slice(None), entries)
        return
    for page in sorted(distinct(pages)):
        where = np.flatnonzero(pages == page)
        yield _part(page, where, entries.take(where))


def _part(page: int, where: slice | npt.NDArray[np.intp], entries: Entries) -> BatchPart:
    keys = (entries.ledger_id << 32 | entries.entry_id).view(np.uint64)
    # A broker reads positions in order: the test for order takes a sixtieth of the time of a sort.
    ascending = keys if bool((keys[1:] >= keys[:-1]).all()) else np.sort(keys)
    return BatchPart(page, where, keys, _bitmap(ascending))


def _bitmap(ascending: Uint64Array) -> BitMap64:
    """The bitmap of at least one key.

    A broker reads mostly consecutive positions; added as ranges they take a fortieth of the time.
    """
    ends = np.flatnonzero(ascending[1:] - ascending[:-1] > 1)
    if len(ends) * _RANGE_ENTRIES > len(ascending) or int(ascending[-1]) == _KEY_MAX:  # no range reaches it
        # An array is copied at once; from anything else each key becomes an object of Python's first.
        return BitMap64(array("Q", ascending.tobytes()), optimize=False)
    starts = [int(ascending[0]), *ascending[ends + 1].tolist()]
    lasts = [*ascending[ends].tolist(), int(ascending[-1])]
    bitmap = BitMap64(range(starts[0], lasts[0] + 1))
    for start, last in zip(starts[1:], lasts[1:], strict=True):
        bitmap.add_range(start, last + 1)
    return bitmap
