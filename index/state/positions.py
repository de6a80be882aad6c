"""Sets of positions: roaring bitmaps of ledger and entry id together, one 64-bit bitmap for every 2^32 ledger
ids, of which a topic has one (docs/decisions/one-bitmap.md). A batch of positions is such a set, too.

Invariants: no bitmap in a set is empty; a bitmap shared with a snapshot never changes in place (copy on
write), so a snapshot costs a pointer and another thread may read it meanwhile. A tracked set knows the
ledgers changed since `take_dirty`, so that only those are written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import numpy as np
from pyroaring import BitMap, BitMap64

from tidegate.index.entries.distinct import first_of_each
from tidegate.index.entries.entry import ENTRY_ID_MAX, FEW, BoolArray, Entries
from tidegate.index.errors import CorruptRecordError
from tidegate.index.state import roaring
from tidegate.index.state.position_batch import PositionBatch, parts_of

Position = tuple[int, int]
"""(ledger_id, entry_id)."""

_COPIES = 8
"""Copying one ledger's positions costs as much as copying those of so many together."""

_CONTAINER_BYTES = 64
_PORTABLE_CONTAINER_BYTES = 28
"""The cost of a container besides its content, if its ledger has no other."""

_LEDGER_MASK = (1 << 32) - 1
_KEY_MAX = (1 << 64) - 1
_COUNT = struct.Struct("<I")
_LEDGER = struct.Struct("<qI")


class PositionSet:
    """A set of (ledger_id, entry_id); `len` is its cardinality. Ledger ids are 0 or more."""

    __slots__ = ("_changed", "_containers", "_dirty", "_pages", "_shared")

    def __init__(self, *, tracked: bool = False) -> None:
        self._pages: dict[int, BitMap64] = {}
        # Of thousands of sets most are empty: an empty `set` would be a third of each.
        self._shared: frozenset[int] = frozenset()
        self._changed: PositionSet | None = PositionSet() if tracked else None
        self._dirty: set[int] | None = None
        """Ledgers that count as changed besides those of `_changed`."""
        self._containers: dict[int, roaring.Containers] = {}
        """Containers of the pages asked about."""

    # ---- construction

    @classmethod
    def of(cls, positions: Iterable[Position]) -> PositionSet:
        """A set of (ledger_id, entry_id) tuples."""
        made = cls()
        made.add(Entries.of((0, ledger_id, entry_id) for ledger_id, entry_id in positions))
        return made

    @classmethod
    def of_entries(cls, entries: Entries) -> PositionSet:
        """The positions of `entries`."""
        return cls.of_batch(PositionBatch(entries))

    @classmethod
    def of_batch(cls, batch: PositionBatch) -> PositionSet:
        """The positions of `batch`. Shares the bitmaps: change neither afterwards."""
        made = cls()
        made._pages = {part.page: part.bitmap for part in batch.parts}
        return made

    @classmethod
    def of_bitmaps(cls, bitmaps: dict[int, BitMap]) -> PositionSet:
        """A set from bitmaps of entry ids by ledger id; without empty ones."""
        return cls.of_portable(
            (ledger_id, roaring.serialize_bitmap(bitmaps[ledger_id]))
            for ledger_id in sorted(bitmaps)
            if bitmaps[ledger_id]
        )

    @classmethod
    def of_portable(
        cls, parts: Iterable[tuple[int, bytes | memoryview]], *, tracked: bool = False
    ) -> PositionSet:
        """A set from (ledger_id, portable roaring bytes), ledger ids ascending. Raises CorruptRecordError.

        If tracked, no ledger counts as changed.
        """
        pages: dict[int, list[tuple[int, bytes | memoryview]]] = {}
        for ledger_id, data in parts:
            pages.setdefault(ledger_id >> 32, []).append((ledger_id & _LEDGER_MASK, data))
        made = cls(tracked=tracked)
        made._pages = {page: roaring.join(found) for page, found in pages.items()}
        return made

    def snapshot(self) -> PositionSet:
        """An independent set of the same positions; bitmaps are shared until either side changes them."""
        made = PositionSet()
        made._pages = dict(self._pages)
        made._shared = self._shared = frozenset(made._pages)
        return made

    def of_ledgers(self, ledgers: set[int]) -> PositionSet:
        """The positions of these ledgers, and perhaps of others: a copy if they are few, else a snapshot.

        The next change of a bitmap shared with a snapshot copies all of it, even for one position.
        """
        made = PositionSet()
        by_page: dict[int, list[int]] = {}
        for ledger_id in ledgers:
            by_page.setdefault(ledger_id >> 32, []).append(ledger_id & _LEDGER_MASK)
        for page in by_page.keys() & self._pages.keys():
            if len(by_page[page]) * _COPIES > self._containers_of(page).about(self._pages[page]):
                return self.snapshot()
            found = roaring.of_highs(self._pages[page], by_page[page])
            if found:
                made._pages[page] = found
        return made

    def within(self, low: int, high: int) -> PositionSet:
        """The positions of the ledgers low … high."""
        made = self.snapshot()
        made.discard_up_to(low - 1, ENTRY_ID_MAX)
        for page in [known for known in made._pages if known > high >> 32]:
            made._remove_page(page)
        page, first = (high + 1) >> 32, ((high + 1) & _LEDGER_MASK) << 32
        if page in made._pages and made._pages[page].max() >= first:
            bitmap = made._own(page)
            bitmap.remove_range(first, _KEY_MAX)  # the range excludes its end
            bitmap.discard(_KEY_MAX)
            made._drop_if_empty(page)
        return made

    # ---- reading

    def __len__(self) -> int:
        return sum(map(len, self._pages.values()))

    def __bool__(self) -> bool:
        return bool(self._pages)

    def __contains__(self, position: Position) -> bool:
        bitmap = self._pages.get(position[0] >> 32)
        return bitmap is not None and (position[0] & _LEDGER_MASK) << 32 | position[1] in bitmap

    def __iter__(self) -> Iterator[Position]:
        """Yield (ledger_id, entry_id) ascending."""
        for page in sorted(self._pages):
            for key in self._pages[page]:
                yield page << 32 | key >> 32, key & _LEDGER_MASK

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PositionSet):
            return NotImplemented
        return self._pages == other._pages

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        ledgers = self.ledgers()
        shown = ", ".join(f"{ledger_id}" for ledger_id in ledgers[:8])
        return f"PositionSet({len(self)} in {len(ledgers)} ledgers: {shown})"

    def ledgers(self) -> list[int]:
        """The ledger ids, ascending."""
        return [
            page << 32 | high for page in sorted(self._pages) for high in roaring.highs(self._pages[page])
        ]

    def first_ledger(self) -> int | None:
        """The smallest ledger id, None if the set is empty."""
        if not self._pages:
            return None
        page = min(self._pages)
        return page << 32 | roaring.first(self._pages[page]) >> 32

    def last(self) -> Position | None:
        """The last position, None if the set is empty. Looks at all ledgers."""
        if not self._pages:
            return None
        page = max(self._pages)
        value = self._pages[page].max()
        return page << 32 | value >> 32, value & _LEDGER_MASK

    def portable(self) -> Iterator[tuple[int, bytes]]:
        """Yield (ledger_id, portable roaring bytes of its entry ids), ledger ids ascending."""
        for page in sorted(self._pages):
            for high, data in roaring.split(self._pages[page]):
                yield page << 32 | high, data

    def portable_of(self, ledgers: set[int]) -> Iterator[tuple[int, bytes]]:
        """As `portable`, for those of these ledgers that have positions."""
        for ledger_id in sorted(ledgers):
            bitmap = self._pages.get(ledger_id >> 32)
            data = None if bitmap is None else roaring.part(bitmap, ledger_id & _LEDGER_MASK)
            if data is not None:
                yield ledger_id, data

    def items(self) -> Iterator[tuple[int, BitMap]]:
        """Yield (ledger_id, bitmap of entry ids), ledger ids ascending; copies."""
        for ledger_id, data in self.portable():
            yield ledger_id, roaring.deserialize_bitmap(data)

    def contains(self, entries: Entries | PositionBatch) -> BoolArray:
        """A bool array as long as `entries`: True where the position is in the set."""
        if isinstance(entries, Entries) and len(entries) <= FEW:
            positions = zip(entries.ledger_id.tolist(), entries.entry_id.tolist(), strict=True)
            return np.array([position in self for position in positions], dtype=np.bool_)
        batch = PositionBatch.of(entries)
        mask = np.zeros(batch.count, dtype=np.bool_)
        for part in batch.parts:
            mine = self._pages.get(part.page)
            if mine is not None:
                mask[part.where] = part.found_in(mine)
        return mask

    def isdisjoint(self, other: PositionSet) -> bool:
        """True if no position is in both."""
        return all(
            page not in other._pages or bitmap.isdisjoint(other._pages[page])
            for page, bitmap in self._pages.items()
        )

    def count_in(self, other: PositionSet) -> int:
        """Number of positions that are also in `other`."""
        return sum(
            bitmap.intersection_cardinality(other._pages[page])
            for page, bitmap in self._pages.items()
            if page in other._pages
        )

    def issubset(self, other: PositionSet) -> bool:
        """True if every position is also in `other`."""
        return all(
            page in other._pages and bitmap.issubset(other._pages[page])
            for page, bitmap in self._pages.items()
        )

    # ---- set algebra, returning new sets

    def intersection(self, other: PositionSet) -> PositionSet:
        """The positions in both."""
        made = PositionSet()
        for page, bitmap in self._pages.items():
            if page in other._pages:
                common = bitmap & other._pages[page]
                if common:
                    made._pages[page] = common
        return made

    def difference(self, other: PositionSet) -> PositionSet:
        """The positions that are not in `other`."""
        made = self.snapshot()
        made.difference_update(other)
        return made

    # ---- changes

    def add(self, entries: Entries) -> None:
        """Add the positions of `entries`."""
        for part in parts_of(entries):
            self._put(part.page, part.bitmap)

    def add_new(self, entries: Entries | PositionBatch, known: PositionSet) -> BoolArray:
        """Add positions that are neither here nor in `known`.

        Returns a bool array of the same length: True for each added entry (the first one of a repeated
        position).
        """
        if isinstance(entries, Entries) and len(entries) <= FEW:
            return self._add_few(entries, known)
        batch = PositionBatch.of(entries)
        mask = np.ones(batch.count, dtype=np.bool_)
        for part in batch.parts:
            fresh = part.bitmap
            if len(fresh) != len(part.keys):
                mask[part.where] &= first_of_each(part.keys)
            for there in (self._pages.get(part.page), known._pages.get(part.page)):
                if there is not None and not part.bitmap.isdisjoint(there):
                    mask[part.where] &= ~part.found_in(there)
                    fresh = fresh - (fresh & there)  # avoids a look at all present values
            if fresh:
                self._put(part.page, fresh)
        return mask

    def _add_few(self, entries: Entries, known: PositionSet) -> BoolArray:
        """As `add_new`, one position after another."""
        fresh = []
        changed = self._changed
        for ledger_id, entry_id in zip(entries.ledger_id.tolist(), entries.entry_id.tolist(), strict=True):
            page, key = ledger_id >> 32, (ledger_id & _LEDGER_MASK) << 32 | entry_id
            theirs, mine = known._pages.get(page), self._pages.get(page)
            is_fresh = (mine is None or key not in mine) and (theirs is None or key not in theirs)
            fresh.append(is_fresh)
            if is_fresh:
                self._put_one(page, key)
                if changed is not None:
                    changed._put_one(page, key)
        return np.array(fresh, dtype=np.bool_)

    def _put_one(self, page: int, key: int) -> None:
        if page in self._pages:
            self._own(page).add(key)
        else:
            self._pages[page] = BitMap64([key])

    def update(self, other: PositionSet) -> None:
        """Add all positions of `other`."""
        for page, bitmap in other._pages.items():
            self._put(page, bitmap)

    def difference_update(self, other: PositionSet) -> None:
        """Remove all positions of `other`."""
        for page, theirs in other._pages.items():
            mine = self._pages.get(page)
            if mine is None or mine.isdisjoint(theirs):
                continue
            if self._changed is not None:
                self._changed._put(page, theirs)
            roaring.take_out(self._own(page), theirs, self._containers_of(page))
            self._drop_if_empty(page)

    def discard_up_to(self, ledger_id: int, entry_id: int) -> int:
        """Remove every position up to and including (ledger_id, entry_id); returns their number."""
        removed = 0
        page = ledger_id >> 32
        for below in [known for known in self._pages if known < page]:
            removed += len(self._pages[below])
            self._note_all(below)
            self._remove_page(below)
        bitmap = self._pages.get(page)
        last = ((ledger_id & _LEDGER_MASK) << 32) + min(entry_id, ENTRY_ID_MAX)
        if bitmap is not None and roaring.first(bitmap) <= last:
            if self._changed is not None:
                self.mark_dirty(page << 32 | high for high in roaring.highs(bitmap, last))
            bitmap = self._own(page)
            removed += bitmap.rank(last)
            bitmap.remove_range(0, last)  # the range excludes `last`
            bitmap.discard(last)
            self._drop_if_empty(page)
        return removed

    def clear(self) -> None:
        """Remove everything."""
        for page in self._pages:
            self._note_all(page)
        self._pages = {}
        self._shared = frozenset()
        self._containers = {}

    def mark_dirty(self, ledgers: Iterable[int]) -> None:
        """Count these ledgers as changed, too."""
        if self._dirty is None:
            self._dirty = set(ledgers) or None
        else:
            self._dirty.update(ledgers)

    def take_dirty(self) -> set[int]:
        """Return and forget the ledgers changed since the last call. The set must be tracked."""
        taken = self._dirty or set()
        if self._changed is not None:
            taken.update(self._changed.ledgers())
            self._changed = PositionSet()
        self._dirty = None
        return taken

    def _put(self, page: int, bitmap: BitMap64) -> None:
        """Add a copy of a bitmap's positions."""
        if self._changed is not None:
            self._changed._put(page, bitmap)
        if page not in self._pages:
            self._pages[page] = _copied(bitmap)
            return
        roaring.put(self._own(page), bitmap, self._containers_of(page))

    def _containers_of(self, page: int) -> roaring.Containers:
        known = self._containers.get(page)
        if known is None:
            known = self._containers[page] = roaring.Containers()
        return known

    def _note_all(self, page: int) -> None:
        if self._changed is not None:
            self.mark_dirty(page << 32 | high for high in roaring.highs(self._pages[page]))

    def _own(self, page: int) -> BitMap64:
        """An existing page's bitmap, safe to change in place."""
        bitmap = self._pages[page]
        if page in self._shared:
            bitmap = self._pages[page] = _copied(bitmap)
            self._shared -= {page}
        return bitmap

    def _remove_page(self, page: int) -> None:
        del self._pages[page]
        self._shared -= {page}
        self._containers.pop(page, None)

    def _drop_if_empty(self, page: int) -> None:
        if not self._pages[page]:
            self._remove_page(page)

    # ---- bytes

    def serialize(self) -> bytes:
        """`positions` of docs/protocol.md: ledgers ascending, portable roaring bitmaps."""
        parts = [b""]
        for ledger_id, data in self.portable():
            parts.append(_LEDGER.pack(ledger_id, len(data)))
            parts.append(data)
        parts[0] = _COUNT.pack(len(parts) // 2)
        return b"".join(parts)

    @classmethod
    def deserialize(cls, data: bytes | memoryview) -> PositionSet:
        """Read the bytes of `serialize`; all of `data` must be used. Raises CorruptRecordError."""
        view = memoryview(data)
        try:
            (ledgers,) = _COUNT.unpack_from(view, 0)
            at = _COUNT.size
            parts = []
            last = -1
            for _ in range(ledgers):
                ledger_id, size_bytes = _LEDGER.unpack_from(view, at)
                at += _LEDGER.size
                if ledger_id <= last or at + size_bytes > len(view):
                    raise CorruptRecordError("positions: ledger ids must ascend and sizes must fit")
                parts.append((ledger_id, view[at : at + size_bytes]))
                at += size_bytes
                last = ledger_id
        except struct.error as error:
            raise CorruptRecordError(f"positions are cut short: {error}") from error
        if at != len(view):
            raise CorruptRecordError(f"positions: {len(view) - at} bytes too many")
        return cls.of_portable(parts)

    def memory_bytes(self) -> int:
        """Estimated memory of the bitmaps. O(containers)."""
        return self._size_bytes(_CONTAINER_BYTES)

    def portable_bytes(self) -> int:
        """Estimated size of `serialize`. O(containers)."""
        return self._size_bytes(_PORTABLE_CONTAINER_BYTES)

    def _size_bytes(self, container_bytes: int) -> int:
        total = 0
        for bitmap in self._pages.values():
            statistics = bitmap.get_statistics()
            total += (
                container_bytes * statistics["n_containers"]
                + statistics["n_bytes_array_containers"]
                + statistics["n_bytes_run_containers"]
                + statistics["n_bytes_bitset_containers"]
            )
        return total


def _copied(bitmap: BitMap64) -> BitMap64:
    """An exact copy. `BitMap64.copy` also looks for runs, which takes four times as long."""
    return BitMap64(bitmap, optimize=False)
