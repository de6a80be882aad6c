"""Counts the entries of one subscription by due time, at one moment.

The core's thread takes an outline, at the cost of a pointer a block; any other thread counts. Invariants:
- entries in memory are counted one by one. Each held entry is in memory or in a block, so if there are as
  many of both as are held, each is held once, and nobody looks them up;
- a block within one bucket counts by its descriptor; one that straddles a border counts by what `Borders`
  remembers of it, is decoded while that is cheap, else its entries are spread over its time;
- an entry of a moved position counts at the time that holds for it, from memory;
- a count is off by `Tide.inexact` at most, and exact if that is 0: the total of held entries is known, so
  that stored entries that are no longer held, or not at their own times, show as the difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tidegate.index.entries.entry import Entries, Int64Array, bounds
from tidegate.index.entries.sort import sort_entries
from tidegate.index.format.block import BlockDescriptor, load_block
from tidegate.index.format.keys import SliceId
from tidegate.index.state.moved import MovedSnapshot
from tidegate.index.state.positions import PositionSet
from tidegate.index.store import Store

EXACT_MAX = 1 << 20
"""Up to so many stored entries a tide is exact; decoding 65,536 takes about a millisecond."""
DECODED_MAX = 1 << 18
"""Beyond, so many are decoded for one tide."""
BORDERS_MAX = 1 << 14
PIECE = 1 << 16
"""The number of entries in memory of one count; their times fit into the processor's cache."""


class Borders:
    """Counts of a block's entries due before a border, remembered from one tide to the next.

    Blocks never change. At most `maximum` counts stay, some 200 bytes each; the oldest go first. One thread
    at a time.
    """

    def __init__(self, maximum: int = BORDERS_MAX) -> None:
        self._maximum = maximum
        self._counts: dict[tuple[int, SliceId, BlockDescriptor, int], int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def find(
        self, subscription_id: int, slice_id: SliceId, block: BlockDescriptor, edges: Sequence[int]
    ) -> list[int] | None:
        """The entries due before each of these times; None if one is unknown."""
        found = [self._counts.get((subscription_id, slice_id, block, edge)) for edge in edges]
        known = [count for count in found if count is not None]
        return known if len(known) == len(found) else None

    def note(
        self,
        subscription_id: int,
        slice_id: SliceId,
        block: BlockDescriptor,
        edges: Sequence[int],
        counts: Sequence[int],
    ) -> None:
        """Remember them."""
        for edge, count in zip(edges, counts, strict=True):
            self._counts[subscription_id, slice_id, block, edge] = count
        while len(self._counts) > self._maximum:
            del self._counts[next(iter(self._counts))]


class Tide(NamedTuple):
    """Held entries by bucket; bucket i has ``edges[i] <= deliver_at_ms < edges[i + 1]``.

    before, after: entries outside of all buckets. inexact: maximum number of entries that may belong to
        another bucket, or be held no more.
    """

    before: int
    counts: Int64Array
    after: int
    inexact: int


class Outline:
    """The places of the held entries of one subscription, at one moment."""

    def __init__(
        self,
        store: Store,
        subscription_id: int,
        held: PositionSet,
        parts: Sequence[Entries],
        blocks: Sequence[tuple[SliceId, BlockDescriptor]],
        *,
        moved: MovedSnapshot,
    ) -> None:
        self._store = store
        self._subscription_id = subscription_id
        self._held = held
        self._parts = parts
        self._blocks = blocks
        self._moved = moved

    @property
    def last_ms(self) -> int | None:
        """An upper bound of the due times; None if there is no entry."""
        times = [block.last_deliver_at_ms for _, block in self._blocks]
        parts = (*self._parts, self._moved.entries())
        times += [int(part.deliver_at_ms.max()) for part in parts if len(part)]
        return max(times, default=None)

    def tide(self, edges: Int64Array, borders: Borders | None = None) -> Tide:
        """Count the entries by bucket; edges: ascending times in ms, at least two.

        borders: counts of former tides, and of this one afterwards. Raises CorruptBlockError if a block
        cannot be read, perhaps because a persist has replaced it since, and StorageError.
        """
        borders = Borders() if borders is None else borders
        sizes = np.array([block.entries for _, block in self._blocks], dtype=np.int64)
        stored = int(sizes.sum())
        parts = self._parts
        inexact = 0
        if self._moved or sum(map(len, parts)) + stored != len(self._held):
            parts = [self._held_of(parts)]
            inexact = abs(len(parts[0]) + stored - len(self._held))  # stored entries that are held no more
        if inexact and stored <= EXACT_MAX:
            entries = self._held_of([*self._parts, *(self._load(*one) for one in self._blocks)])
            return _counted(_histogram(entries.deliver_at_ms, edges), 0)
        counts = np.zeros(len(edges) + 1, dtype=np.int64)
        for times_ms in _pieces(parts):
            counts += _histogram(times_ms, edges)
        first = _places(np.array([block.first[0] for _, block in self._blocks], dtype=np.int64), edges)
        last = _places(
            np.array([block.last_deliver_at_ms for _, block in self._blocks], dtype=np.int64), edges
        )
        within = first == last
        counts += np.bincount(first[within], sizes[within], minlength=len(edges) + 1).astype(np.int64)
        left = max(stored, DECODED_MAX) if stored <= EXACT_MAX else DECODED_MAX
        for at in np.flatnonzero(~within).tolist():
            slice_id, block = self._blocks[at]
            inner = edges[first[at] : last[at]]
            times = inner.tolist()
            below = borders.find(self._subscription_id, slice_id, block, times)
            if below is None and block.entries <= left:
                left -= block.entries
                below = np.searchsorted(self._load(slice_id, block).deliver_at_ms, inner).tolist()
                borders.note(self._subscription_id, slice_id, block, times, below)
            if below is None:
                counts += _spread(block, edges)
                inexact += block.entries
            else:
                counts[first[at] : last[at] + 1] += np.diff(below, prepend=0, append=block.entries)
        return _counted(counts, inexact)

    def find(self, positions: PositionSet) -> Entries:
        """The entries of these positions, once each, sorted; reads each block that may have one.

        Those of moved positions have the times that hold. Raises the errors of `tide`.
        """
        moved = self._moved.entries()
        moved = moved.take(positions.contains(moved))
        unmoved = positions.difference(self._moved.positions)
        return sort_entries(Entries.concat((moved, self.find_own(unmoved))), unique=True)

    def find_own(self, positions: PositionSet) -> Entries:
        """As `find`, with the messages' own times; without entries that were never here with these."""
        ledgers = positions.ledgers()
        found = [part.take(positions.contains(part)) for part in self._parts]
        for slice_id, block in self._blocks:
            if any(block.min_ledger_id <= one <= block.max_ledger_id for one in ledgers):
                entries = self._load(slice_id, block)
                found.append(entries.take(positions.contains(entries)))
        return sort_entries(Entries.concat(found), unique=True)

    def _load(self, slice_id: SliceId, block: BlockDescriptor) -> Entries:
        return load_block(self._store, self._subscription_id, slice_id, block)

    def _held_of(self, parts: Sequence[Entries]) -> Entries:
        """The held entries of these and the moved ones, each once; repeats may differ by rounding only."""
        entries = Entries.concat((self._moved.without(Entries.concat(parts)), self._moved.entries()))
        entries = entries.take(self._held.contains(entries))
        if PositionSet.of_entries(entries).count_in(self._held) == len(entries):
            return entries
        return sort_entries(entries, unique=True)


def _counted(counts: Int64Array, inexact: int) -> Tide:
    return Tide(int(counts[0]), counts[1:-1], int(counts[-1]), inexact)


def _pieces(parts: Sequence[Entries]) -> Iterator[Int64Array]:
    """The times of all parts, in one array again and again; the caller may overwrite it."""
    piece = np.empty(PIECE, dtype=np.int64)  # one for all: fresh pages would take longer than the counting
    count = 0
    for part in parts:
        start = 0
        while start < len(part):
            taken = part.deliver_at_ms[start : start + PIECE - count]
            piece[count : count + len(taken)] = taken
            start += len(taken)
            count += len(taken)
            if count == PIECE:
                yield piece
                count = 0
    if count:
        yield piece[:count]


def _histogram(times_ms: Int64Array, edges: Int64Array) -> Int64Array:
    """Number of times before the first edge, in each bucket, and from the last edge on. Overwrites the times.

    Steps of one length, but perhaps the first, cost a tenth.
    """
    step_ms = int(edges[-1] - edges[-2])
    if not len(times_ms) or np.any(np.diff(edges[1:]) != step_ms) or edges[1] - edges[0] > step_ms:
        return np.bincount(_places(times_ms, edges), minlength=len(edges) + 1)
    first_ms, last_ms = bounds(times_ms)
    before = np.count_nonzero(times_ms < edges[0]) if first_ms < edges[0] else 0
    origin_ms = int(edges[1]) - 2 * step_ms  # of a bucket before the first one
    times_ms -= origin_ms
    times_ms //= step_ms
    if first_ms < origin_ms + step_ms or last_ms >= edges[-1]:
        np.clip(times_ms, 1, len(edges), out=times_ms)
    counts = np.bincount(times_ms, minlength=len(edges) + 1)
    counts[0] += before
    counts[1] -= before
    return counts


def _places(times_ms: Int64Array, edges: Int64Array) -> Int64Array:
    """The bucket of each time: 0 before the first edge, the number of edges from the last one on."""
    return np.searchsorted(edges, times_ms, side="right")


def _spread(block: BlockDescriptor, edges: Int64Array) -> Int64Array:
    """The entries of a block by bucket, as if they were due evenly between its first and its last."""
    first, last = block.first[0], block.last_deliver_at_ms + 1
    share = (np.clip(edges, first, last) - first) / (last - first)
    up_to = np.rint(share * block.entries).astype(np.int64)
    return np.diff(up_to, prepend=0, append=block.entries)
