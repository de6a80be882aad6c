"""Counts the entries of one subscription by due time, at one moment.

The core's thread takes an outline, at the cost of a pointer a block; any other thread counts. Invariants:
- entries in memory are counted one by one, sorted ones by a search. Each held entry is in memory or in a
  block: if memory and blocks have as many as are held, each is held once, and no look-up is needed;
- a block within one bucket counts by its descriptor; one across an edge counts by the memory of `Borders`, is
  decoded while that is cheap, else its entries are spread evenly over its time;
- an entry of a moved position counts at the time that holds, from memory;
- a count is off by `Tide.inexact` at most, and exact if that is 0: the total of held entries is known, so the
  difference shows stored entries no longer held, or not at their own times.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from tidegate.index.entries.entry import Entries, Int64Array, bounds
from tidegate.index.entries.sort import SortedEntries, sort_entries
from tidegate.index.format.block import BlockDescriptor, load_block, load_times
from tidegate.index.format.keys import SliceId
from tidegate.index.state.moved import MovedSnapshot
from tidegate.index.state.positions import PositionSet
from tidegate.index.store import Store
from tidegate.index.timeline.part import Part

_Piece = TypeVar("_Piece", Int64Array, npt.NDArray[np.uint32])
EXACT_MAX = 1 << 20
"""Up to so many stored entries a tide is exact; decoding 65,536 takes about a millisecond."""
DECODED_MAX = 1 << 18
"""Beyond, a tide decodes so many, less `READ_COST` for each block."""
READ_COST = 1 << 12
"""Reading a block takes as long as decoding so many entries."""
BORDERS_MAX = 1 << 14
PIECE = 1 << 16
"""Entries in memory of one count; their times fit into the processor's cache."""
SPAN_MAX_MS = 1 << 32
"""Within such a span, 49 days, times are counted in 32 bits, in half the time."""
PAIRS_MAX = 1 << 12
"""Up to so many pairs of buckets two times are counted at once."""


class Frozen(NamedTuple):
    """Entries that a persist has taken, in no order; and sorted, as of its begin, once it has sorted them."""

    parts: Sequence[Part]
    in_order: SortedEntries | None


class Borders:
    """Counts of a block's entries due before an edge, kept from one tide to the next.

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
        """Keep these counts."""
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
        parts: Sequence[Part],
        blocks: Sequence[tuple[SliceId, BlockDescriptor]],
        *,
        moved: MovedSnapshot,
        frozen: Frozen,
    ) -> None:
        self._store = store
        self._subscription_id = subscription_id
        self._held = held
        self._parts = (*parts, *frozen.parts)
        self._unfrozen = parts
        self._in_order = frozen.in_order
        self._blocks = blocks
        self._moved = moved

    @property
    def last_ms(self) -> int | None:
        """An upper bound of the due times; None if there is no entry."""
        times = [block.last_deliver_at_ms for _, block in self._blocks]
        for part in (*self._parts, Part(self._moved.entries())):
            if part.last_ms is not None:
                times.append(part.last_ms)
            elif len(part.entries):
                times.append(int(part.entries.deliver_at_ms.max()))
        return max(times, default=None)

    def tide(self, edges: Int64Array, borders: Borders | None = None) -> Tide:
        """Count the entries by bucket; edges: ascending times in ms, at least two.

        borders: counts of former tides, and of this one afterwards. Raises CorruptBlockError if a block
        cannot be read, perhaps because a persist has replaced it since, and StorageError.
        """
        borders = Borders() if borders is None else borders
        sizes = np.array([block.entries for _, block in self._blocks], dtype=np.int64)
        stored = int(sizes.sum())
        parts: Sequence[Part] = self._parts
        counts = np.zeros(len(edges) + 1, dtype=np.int64)
        inexact = 0
        if self._moved or _size(parts) + stored != len(self._held):
            held = self._held_of([part.entries for part in parts])
            inexact = abs(len(held) + stored - len(self._held))  # stored entries that are no longer held
            parts = [Part(held)]
        elif self._in_order is not None and len(self._in_order) + _size(self._unfrozen) == _size(parts):
            # If all frozen entries are here once and held, they are those that the persist has sorted.
            counts += _counts(list(map(self._in_order.index_of, edges.tolist())), len(self._in_order))
            parts = self._unfrozen
        if inexact and stored <= EXACT_MAX:
            entries = self._held_of(
                [*(part.entries for part in self._parts), *(self._load(*one) for one in self._blocks)]
            )
            return _counted(_histogram(entries.deliver_at_ms, edges), 0)
        counts += _count(parts, edges)
        first = _places(np.array([block.first[0] for _, block in self._blocks], dtype=np.int64), edges)
        last = _places(
            np.array([block.last_deliver_at_ms for _, block in self._blocks], dtype=np.int64), edges
        )
        within = first == last
        counts += np.bincount(first[within], sizes[within], minlength=len(edges) + 1).astype(np.int64)
        left = DECODED_MAX
        straddling = np.flatnonzero(~within)
        found = [0] * (len(edges) + 1)  # Python's numbers: two or three of a block are too few for an array
        for at, start, stop in zip(
            straddling.tolist(), first[straddling].tolist(), last[straddling].tolist(), strict=True
        ):
            slice_id, block = self._blocks[at]
            times = edges[start:stop].tolist()
            below = borders.find(self._subscription_id, slice_id, block, times)
            if below is None and (stored <= EXACT_MAX or block.entries + READ_COST <= left):
                left -= block.entries + READ_COST
                times_ms = load_times(self._store, self._subscription_id, slice_id, block)
                below = np.searchsorted(times_ms, edges[start:stop]).tolist()
                borders.note(self._subscription_id, slice_id, block, times, below)
            if below is None:
                below = _spread(block, times)
                inexact += block.entries
            before = 0
            for bucket, count in enumerate((*below, block.entries), start):
                found[bucket] += count - before
                before = count
        counts += np.array(found, dtype=np.int64)
        return _counted(counts, inexact)

    def find(self, positions: PositionSet) -> Entries:
        """The entries of these positions, once each, sorted; reads each block that may have one.

        Moved positions have the times that hold. Raises the errors of `tide`.
        """
        moved = self._moved.entries()
        moved = moved.take(positions.contains(moved))
        unmoved = positions.difference(self._moved.positions)
        return sort_entries(Entries.concat((moved, self.find_own(unmoved))), unique=True)

    def find_own(self, positions: PositionSet) -> Entries:
        """As `find`, with the messages' own times; without entries that never had these here."""
        ledgers = positions.ledgers()
        parts = [part.entries for part in self._parts]
        found = [part.take(positions.contains(part)) for part in parts]
        for slice_id, block in self._blocks:
            if any(block.min_ledger_id <= one <= block.max_ledger_id for one in ledgers):
                entries = self._load(slice_id, block)
                found.append(entries.take(positions.contains(entries)))
        return sort_entries(Entries.concat(found), unique=True)

    def _load(self, slice_id: SliceId, block: BlockDescriptor) -> Entries:
        return load_block(self._store, self._subscription_id, slice_id, block)

    def _held_of(self, parts: Sequence[Entries]) -> Entries:
        """The held entries of these and the moved ones, each once; repeats may differ by rounding only.

        A piece at a time, because making a bitmap keeps all other threads waiting.
        """
        kept, seen, repeated = [], PositionSet(), False
        own = map(self._moved.without, _in_pieces(parts))
        for piece in itertools.chain(own, _in_pieces([self._moved.entries()])):
            entries = piece.take(self._held.contains(piece))
            positions = PositionSet.of_entries(entries)
            repeated = repeated or len(positions) < len(entries) or not seen.isdisjoint(positions)
            seen.update(positions)
            kept.append(entries)
        return sort_entries(Entries.concat(kept), unique=True) if repeated else Entries.concat(kept)


def _in_pieces(parts: Sequence[Entries]) -> Iterator[Entries]:
    """All entries, at most `PIECE` at a time."""
    group: list[Entries] = []
    count = 0
    for part in parts:
        for start in range(0, len(part), PIECE):
            one = part.part(start, min(len(part), start + PIECE))
            if count + len(one) > PIECE:
                yield Entries.concat(group)
                group, count = [], 0
            group.append(one)
            count += len(one)
    if group:
        yield Entries.concat(group)


def _counted(counts: Int64Array, inexact: int) -> Tide:
    return Tide(int(counts[0]), counts[1:-1], int(counts[-1]), inexact)


def _size(parts: Sequence[Part]) -> int:
    return sum(len(part.entries) for part in parts)


def _count(parts: Sequence[Part], edges: Int64Array) -> Int64Array:
    """The entries of all parts by bucket, as `_histogram`."""
    counts = np.zeros(len(edges) + 1, dtype=np.int64)
    first_edge_ms, second_edge_ms, last_edge_ms = int(edges[0]), int(edges[1]), int(edges[-1])
    step_ms = int(edges[-1] - edges[-2])
    origin_ms = second_edge_ms - 2 * step_ms
    even = second_edge_ms - first_edge_ms <= step_ms and not np.any(np.diff(edges[1:]) != step_ms)
    narrow = even and last_edge_ms - origin_ms < SPAN_MAX_MS
    near, far = [], []
    for part in parts:
        times_ms = part.entries.deliver_at_ms
        if part.is_sorted:
            counts += _counts(np.searchsorted(times_ms, edges).tolist(), len(times_ms))
        elif (
            narrow
            and part.first_ms is not None
            and part.last_ms is not None
            and first_edge_ms <= part.first_ms
            and part.last_ms < last_edge_ms
        ):
            near.append(times_ms)
        else:
            far.append(times_ms)
    if near:
        counts += _count_near(near, origin_ms, step_ms, len(edges) + 1)
    piece = np.empty(PIECE if far else 0, dtype=np.int64)
    for times_ms in _pieces(far, piece):
        counts += _histogram(times_ms, edges)
    return counts


def _count_near(parts: Sequence[Int64Array], origin_ms: int, step_ms: int, buckets: int) -> Int64Array:
    """The number of times in each bucket of `step_ms` from the origin on, all within `SPAN_MAX_MS`.

    In 32 bits, and two times together: counting pairs takes half the time.
    """
    in_pairs = buckets * buckets <= PAIRS_MAX
    counts = np.zeros(buckets * buckets if in_pairs else buckets, dtype=np.int64)
    odd = []
    for piece in _pieces(parts, np.empty(PIECE, dtype=np.uint32)):
        np.subtract(piece, np.uint32(origin_ms & (SPAN_MAX_MS - 1)), out=piece)  # right modulo 2^32
        np.floor_divide(piece, np.uint32(step_ms), out=piece)
        half = len(piece) // 2
        if not in_pairs:
            counts += np.bincount(piece, minlength=len(counts))
            continue
        if len(piece) % 2:
            odd.append(int(piece[-1]))
        pairs = np.multiply(piece[:half], np.uint32(buckets), out=piece[:half])
        np.add(pairs, piece[half : 2 * half], out=pairs)
        counts += np.bincount(pairs, minlength=len(counts))
    if not in_pairs:
        return counts
    table = counts.reshape(buckets, buckets)
    last: Int64Array = np.bincount(np.array(odd, dtype=np.int64), minlength=buckets)
    last += table.sum(axis=0) + table.sum(axis=1)
    return last


def _counts(below: Sequence[int], total: int) -> Int64Array:
    """By bucket, from the numbers of entries before each edge."""
    return np.diff(below, prepend=0, append=total)


def _pieces(parts: Sequence[Int64Array], piece: _Piece) -> Iterator[_Piece]:
    """The times of all parts, cast, in one reused array; the caller may overwrite it."""
    count = 0
    for times_ms in parts:
        start = 0
        while start < len(times_ms):
            taken = times_ms[start : start + len(piece) - count]
            piece[count : count + len(taken)] = taken
            start += len(taken)
            count += len(taken)
            if count == len(piece):
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


def _spread(block: BlockDescriptor, edges: Sequence[int]) -> list[int]:
    """The entries of a block before each of some edges within, as if they were due evenly over its time."""
    first_ms, span_ms = block.first[0], block.last_deliver_at_ms + 1 - block.first[0]
    return [round((edge - first_ms) / span_ms * block.entries) for edge in edges]
