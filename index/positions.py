"""Sets of positions: a roaring bitmap of entry ids for each ledger.

Invariants: no bitmap in a set is empty; a bitmap that a snapshot shares is never changed in place (copy on
write, a ledger at a time), so a snapshot costs a pointer a ledger and another thread may read it meanwhile.
`dirty` names the ledgers changed since `take_dirty`, for writing only those.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from tidegate.index.entry import ENTRY_ID_MAX, BoolArray, Entries, Int64Array
from tidegate.index.errors import CorruptRecordError

Position = tuple[int, int]
"""(ledger_id, entry_id)."""

_SMALL = 48
"""Up to this many look-ups a loop over the bitmap is faster than building a second bitmap."""

_SCATTERED_MAX = 4_096

_COUNT = struct.Struct("<I")
_LEDGER = struct.Struct("<qI")


class PositionSet:
    """A set of (ledger_id, entry_id), `len` is its cardinality."""

    __slots__ = ("_bitmaps", "_shared", "dirty")

    def __init__(self) -> None:
        self._bitmaps: dict[int, BitMap] = {}
        self._shared: set[int] = set()
        self.dirty: set[int] = set()

    # ---- making one

    @classmethod
    def of(cls, positions: Iterable[Position]) -> PositionSet:
        """A set of (ledger_id, entry_id) tuples."""
        made = cls()
        for ledger_id, entry_id in positions:
            made._own(ledger_id).add(entry_id)
        return made

    @classmethod
    def of_entries(cls, entries: Entries) -> PositionSet:
        """The positions of `entries`."""
        made = cls()
        made.add(entries)
        return made

    @classmethod
    def of_bitmaps(cls, bitmaps: dict[int, BitMap]) -> PositionSet:
        """A set that takes over `bitmaps` (nobody else may use them); empty ones are left out."""
        made = cls()
        made._bitmaps = {ledger_id: bitmap for ledger_id, bitmap in bitmaps.items() if bitmap}
        return made

    def snapshot(self) -> PositionSet:
        """An independent set with the same positions; bitmaps are shared until either side changes them."""
        made = PositionSet()
        made._bitmaps = dict(self._bitmaps)
        made._shared = set(made._bitmaps)
        self._shared = set(made._bitmaps)
        return made

    def within(self, low: int, high: int) -> PositionSet:
        """The positions of the ledgers low … high."""
        made = self.snapshot()
        for ledger_id in [known for known in made._bitmaps if not low <= known <= high]:
            made._remove_ledger(ledger_id)
        return made

    # ---- reading

    def __len__(self) -> int:
        return sum(map(len, self._bitmaps.values()))

    def __bool__(self) -> bool:
        return bool(self._bitmaps)

    def __contains__(self, position: Position) -> bool:
        bitmap = self._bitmaps.get(position[0])
        return bitmap is not None and position[1] in bitmap

    def __iter__(self) -> Iterator[Position]:
        """Yield (ledger_id, entry_id) ascending."""
        for ledger_id in sorted(self._bitmaps):
            for entry_id in self._bitmaps[ledger_id]:
                yield ledger_id, entry_id

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PositionSet):
            return NotImplemented
        return self._bitmaps == other._bitmaps

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"{ledger_id}: {len(bitmap)}" for ledger_id, bitmap in list(self.items())[:8])
        return f"PositionSet({len(self)} in {len(self._bitmaps)} ledgers: {shown})"

    def ledgers(self) -> list[int]:
        """The ledger ids, ascending."""
        return sorted(self._bitmaps)

    def items(self) -> Iterator[tuple[int, BitMap]]:
        """Yield (ledger_id, bitmap of entry ids), ledger ids ascending. Do not change the bitmaps."""
        for ledger_id in sorted(self._bitmaps):
            yield ledger_id, self._bitmaps[ledger_id]

    def bitmap(self, ledger_id: int) -> BitMap | None:
        """The entry ids of one ledger, None if there are none. Do not change it."""
        return self._bitmaps.get(ledger_id)

    def contains(self, entries: Entries) -> BoolArray:
        """For each entry whether its position is in the set; bool array of the same length."""
        if _is_scattered(entries.ledger_id):
            get = self._bitmaps.get
            pairs = zip(entries.ledger_id.tolist(), entries.entry_id.tolist(), strict=True)
            return np.array([entry_id in get(ledger_id, ()) for ledger_id, entry_id in pairs], dtype=np.bool_)
        mask = np.zeros(len(entries), dtype=np.bool_)
        if self._bitmaps:
            for ledger_id, where in _by_ledger(entries.ledger_id):
                bitmap = self._bitmaps.get(ledger_id)
                if bitmap is not None:
                    mask[where] = _contains(bitmap, entries.entry_id[where])
        return mask

    def isdisjoint(self, other: PositionSet) -> bool:
        """Whether no position is in both."""
        small, large = sorted((self._bitmaps, other._bitmaps), key=len)
        return all(
            ledger_id not in large or bitmap.isdisjoint(large[ledger_id])
            for ledger_id, bitmap in small.items()
        )

    def issubset(self, other: PositionSet) -> bool:
        """Whether every position is in `other` too."""
        return all(
            ledger_id in other._bitmaps and bitmap.issubset(other._bitmaps[ledger_id])
            for ledger_id, bitmap in self._bitmaps.items()
        )

    # ---- set algebra, returning new sets

    def intersection(self, other: PositionSet) -> PositionSet:
        """The positions in both."""
        small, large = sorted((self._bitmaps, other._bitmaps), key=len)
        return PositionSet.of_bitmaps(
            {
                ledger_id: bitmap & large[ledger_id]
                for ledger_id, bitmap in small.items()
                if ledger_id in large
            }
        )

    def difference(self, other: PositionSet) -> PositionSet:
        """The positions that are not in `other`."""
        made = self.snapshot()
        made.difference_update(other)
        return made

    # ---- changing it

    def add(self, entries: Entries) -> None:
        """Put the positions of `entries` in."""
        if _is_scattered(entries.ledger_id):
            self._add_new_singly(entries, PositionSet())
            return
        for ledger_id, where in _by_ledger(entries.ledger_id):
            self._own(ledger_id).update(entries.entry_id[where].astype(np.uint32))

    def add_new(self, entries: Entries, known: PositionSet) -> BoolArray:
        """Put positions in that are neither here nor in `known`.

        Returns a bool array of the same length: which entries were put in (of a repeated position the first).
        """
        if _is_scattered(entries.ledger_id):
            return self._add_new_singly(entries, known)
        mask = np.ones(len(entries), dtype=np.bool_)
        for ledger_id, where in _by_ledger(entries.ledger_id):
            entry_id = entries.entry_id[where].astype(np.uint32)
            fresh = BitMap(entry_id)
            if len(fresh) != len(entry_id):
                first = np.zeros(len(entry_id), dtype=np.bool_)
                first[np.unique(entry_id, return_index=True)[1]] = True
                mask[where] &= first
            for there in (self._bitmaps.get(ledger_id), known._bitmaps.get(ledger_id)):
                if there is not None and not there.isdisjoint(fresh):
                    mask[where] &= ~_contains(there, entries.entry_id[where])
                    fresh -= there
            if fresh:
                mine = self._own(ledger_id)
                mine |= fresh
        return mask

    def _add_new_singly(self, entries: Entries, known: PositionSet) -> BoolArray:
        """As `add_new`, one position after another."""
        bitmaps, shared, theirs = self._bitmaps, self._shared, known._bitmaps
        fresh = []
        for ledger_id, entry_id in zip(entries.ledger_id.tolist(), entries.entry_id.tolist(), strict=True):
            mine = bitmaps.get(ledger_id)
            is_fresh = (mine is None or entry_id not in mine) and entry_id not in theirs.get(ledger_id, ())
            if is_fresh:
                if mine is None or ledger_id in shared:
                    mine = self._own(ledger_id)
                else:
                    self.dirty.add(ledger_id)
                mine.add(entry_id)
            fresh.append(is_fresh)
        return np.array(fresh, dtype=np.bool_)

    def update(self, other: PositionSet) -> None:
        """Put all positions of `other` in."""
        for ledger_id, bitmap in other._bitmaps.items():
            mine = self._own(ledger_id)
            mine |= bitmap

    def difference_update(self, other: PositionSet) -> None:
        """Take all positions of `other` out."""
        bitmaps, shared = self._bitmaps, self._shared
        small = bitmaps if len(bitmaps) < len(other._bitmaps) else other._bitmaps
        # This runs for every acknowledgement, over as many ledgers as it has: no calls that can be spared.
        for ledger_id in list(small):
            mine, theirs = bitmaps.get(ledger_id), other._bitmaps.get(ledger_id)
            if mine is None or theirs is None or mine.isdisjoint(theirs):
                continue
            if ledger_id in shared:
                shared.discard(ledger_id)
                mine = bitmaps[ledger_id] = mine.copy()
            mine -= theirs
            self.dirty.add(ledger_id)
            if not mine:
                del bitmaps[ledger_id]

    def discard_up_to(self, ledger_id: int, entry_id: int) -> None:
        """Take out every position up to and including (ledger_id, entry_id)."""
        for below in [known for known in self._bitmaps if known < ledger_id]:
            self._remove_ledger(below)
        bitmap = self._bitmaps.get(ledger_id)
        if bitmap is not None and bitmap.min() <= entry_id:
            self._own(ledger_id).remove_range(0, min(entry_id, ENTRY_ID_MAX) + 1)
            self._drop_if_empty(ledger_id)

    def clear(self) -> None:
        """Take everything out."""
        self.dirty.update(self._bitmaps)
        self._bitmaps = {}
        self._shared = set()

    def take_dirty(self) -> set[int]:
        """The ledgers changed since the last call, and forget them."""
        taken, self.dirty = self.dirty, set()
        return taken

    def _own(self, ledger_id: int) -> BitMap:
        """The bitmap of a ledger, safe to change in place; it is marked dirty."""
        self.dirty.add(ledger_id)
        bitmap = self._bitmaps.get(ledger_id)
        if bitmap is None:
            bitmap = self._bitmaps[ledger_id] = BitMap()
        elif ledger_id in self._shared:
            bitmap = self._bitmaps[ledger_id] = bitmap.copy()
        self._shared.discard(ledger_id)
        return bitmap

    def _remove_ledger(self, ledger_id: int) -> None:
        del self._bitmaps[ledger_id]
        self._shared.discard(ledger_id)
        self.dirty.add(ledger_id)

    def _drop_if_empty(self, ledger_id: int) -> None:
        if not self._bitmaps[ledger_id]:
            self._remove_ledger(ledger_id)

    # ---- bytes

    def serialize(self) -> bytes:
        """`positions` of docs/protocol.md: ledgers ascending, portable roaring bitmaps."""
        parts = [_COUNT.pack(len(self._bitmaps))]
        for ledger_id, bitmap in self.items():
            data = serialize_bitmap(bitmap)
            parts.append(_LEDGER.pack(ledger_id, len(data)))
            parts.append(data)
        return b"".join(parts)

    @classmethod
    def deserialize(cls, data: bytes | memoryview) -> PositionSet:
        """Read what `serialize` wrote; all of `data` must be used. Raises CorruptRecordError."""
        view = memoryview(data)
        try:
            (ledgers,) = _COUNT.unpack_from(view, 0)
            at = _COUNT.size
            bitmaps: dict[int, BitMap] = {}
            last = -1
            for _ in range(ledgers):
                ledger_id, size_bytes = _LEDGER.unpack_from(view, at)
                at += _LEDGER.size
                if ledger_id <= last or at + size_bytes > len(view):
                    raise CorruptRecordError("positions: ledger ids must ascend and sizes must fit")
                bitmaps[ledger_id] = deserialize_bitmap(bytes(view[at : at + size_bytes]))
                at += size_bytes
                last = ledger_id
        except struct.error as error:
            raise CorruptRecordError(f"positions are cut short: {error}") from error
        if at != len(view):
            raise CorruptRecordError(f"positions: {len(view) - at} bytes too many")
        if not all(bitmaps.values()):
            raise CorruptRecordError("positions: an empty bitmap")
        return cls.of_bitmaps(bitmaps)

    def memory_bytes(self) -> int:
        """An upper estimate of the memory of the bitmaps: 2 B an entry, 8 KiB a container of 65,536."""
        return sum(
            128 + min(2 * count, 8192 * ((count >> 16) + 1)) for count in map(len, self._bitmaps.values())
        )


def serialize_bitmap(bitmap: BitMap) -> bytes:
    """Portable roaring bytes of one ledger's entry ids, with run containers where they are smaller."""
    copy = bitmap.copy()
    copy.run_optimize()
    return bytes(copy.serialize())


def deserialize_bitmap(data: bytes) -> BitMap:
    """Read what `serialize_bitmap` wrote; all of `data` must be used. Raises CorruptRecordError."""
    try:
        bitmap = BitMap.deserialize(data)
    except (ValueError, IndexError) as error:
        raise CorruptRecordError(f"not a portable roaring bitmap of {len(data)} bytes") from error
    if len(bitmap.serialize()) != len(data):
        raise CorruptRecordError(f"a roaring bitmap of {len(data)} bytes has bytes too many")
    return bitmap


def _is_scattered(ledger_id: Int64Array) -> bool:
    """Whether the entries are few and of so many ledgers that grouping them costs more than it saves."""
    return len(ledger_id) <= _SCATTERED_MAX and 4 * len(set(ledger_id.tolist())) > len(ledger_id)


def _by_ledger(ledger_id: Int64Array) -> Iterator[tuple[int, npt.NDArray[np.intp] | slice]]:
    """Yield (ledger id, where it is): slices if the ledgers are ascending, else index arrays."""
    if not len(ledger_id):
        return
    low, high = int(ledger_id.min()), int(ledger_id.max())
    if low == high:
        yield low, slice(None)
        return
    steps = np.flatnonzero(ledger_id[1:] != ledger_id[:-1]) + 1
    if bool((ledger_id[steps] > ledger_id[steps - 1]).all()):
        starts = [0, *steps.tolist()]
        for start, stop in zip(starts, [*starts[1:], len(ledger_id)], strict=True):
            yield int(ledger_id[start]), slice(start, stop)
        return
    # A radix sort (16-bit keys) is many times faster than a comparison sort of 64-bit ones.
    keys = (ledger_id - low).astype(np.uint16) if high - low < 1 << 16 else ledger_id
    order = np.argsort(keys, kind="stable")
    ordered = ledger_id[order]
    starts = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist()]
    for start, stop in zip(starts, [*starts[1:], len(ledger_id)], strict=True):
        yield int(ordered[start]), order[start:stop]


def _contains(bitmap: BitMap, entry_id: Int64Array) -> BoolArray:
    """For each entry id whether it is in `bitmap`."""
    if len(entry_id) <= _SMALL:
        return np.fromiter((at in bitmap for at in entry_id.tolist()), dtype=np.bool_, count=len(entry_id))
    asked = BitMap(entry_id.astype(np.uint32))
    if asked.issubset(bitmap):
        return np.ones(len(entry_id), dtype=np.bool_)
    found = np.frombuffer((asked & bitmap).to_array(), dtype=np.uint32)
    if not len(found):
        return np.zeros(len(entry_id), dtype=np.bool_)
    at = np.searchsorted(found, entry_id)
    same: BoolArray = found[np.minimum(at, len(found) - 1)] == entry_id
    return same
