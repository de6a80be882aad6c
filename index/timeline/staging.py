"""Staging: entries that are not in slices yet.

New entries lie unsorted in chunks; a chunk is sorted into a run when its minimum is due, or never if a
persist takes it before. Entries in flight stay here until a persist or a prune.

Invariants: every held entry that was added and not persisted is in exactly one chunk, one run or
in flight; every chunk and every unconsumed run is in the heap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from tidegate.index.entries.checks import require
from tidegate.index.entries.entry import BoolArray, Entries, EntryKey, bounds
from tidegate.index.entries.sort import sort_entries
from tidegate.index.state.positions import PositionSet
from tidegate.index.timeline.in_flight import InFlightEntries
from tidegate.index.timeline.merge import Item, RunHeap
from tidegate.index.timeline.part import Part
from tidegate.index.timeline.run import Run
from tidegate.index.timeline.sources import Sources

_PART_MIN = 1_024
_BUFFER_MIN = 16
_NO_ROWS = np.empty((3, 0), dtype=np.int64)


class Chunk:
    """Unsorted entries with a known minimum deliver_at_ms.

    Small additions are copied together: an array for each would take ten times the memory of its entries.
    """

    __slots__ = ("_buffer", "_buffered", "_parts", "_staging", "count", "first_ms", "last_ms")
    stored = False

    def __init__(self, staging: Staging) -> None:
        self._staging = staging
        self._parts: list[Entries] = []
        self._buffer = _NO_ROWS
        self._buffered = 0
        self.count = 0
        self.first_ms = 0
        self.last_ms = 0

    def append(self, entries: Entries) -> None:
        """Add entries (at least one)."""
        first_ms, last_ms = bounds(entries.deliver_at_ms)
        self.first_ms = min(self.first_ms, first_ms) if self.count else first_ms
        self.last_ms = max(self.last_ms, last_ms) if self.count else last_ms
        self.count += len(entries)
        if len(entries) >= _PART_MIN:
            self._parts.append(entries)
            return
        start, stop = self._buffered, self._buffered + len(entries)
        if stop > self._buffer.shape[1]:
            grown = np.empty((3, max(2 * stop, _BUFFER_MIN)), dtype=np.int64)
            grown[:, :start] = self._buffer[:, :start]
            self._buffer = grown
        self._buffer[0, start:stop] = entries.deliver_at_ms
        self._buffer[1, start:stop] = entries.ledger_id
        self._buffer[2, start:stop] = entries.entry_id
        self._buffered = stop

    def parts(self) -> list[Entries]:
        """All entries, as arrays that later additions do not change."""
        if not self._buffered:
            return list(self._parts)
        deliver_at_ms, ledger_id, entry_id = self._buffer[:, : self._buffered]
        return [*self._parts, Entries(deliver_at_ms, ledger_id, entry_id)]

    def open_item(self) -> Iterable[tuple[EntryKey, Item]]:
        """Sort the chunk into a run."""
        run = self._staging.sorted_run(self)
        return [(run.key(), run)]


class Staging:
    """Chunks, runs and entries in flight of one subscription; its items are in the subscription's heap."""

    def __init__(self, heap: RunHeap, held: PositionSet, chunk_entries: int) -> None:
        self._heap = heap
        self._held = held
        self._chunk_entries = chunk_entries
        self._open_chunk: Chunk | None = None
        self._chunks: dict[Chunk, None] = {}  # both keep their order, so that a simulation is repeatable
        self._runs: dict[Run, None] = {}
        self.in_flight = InFlightEntries()
        self.removals = 0
        """The index's count of removals when the oldest entry here was added."""
        self._waiting = 0

    def __len__(self) -> int:
        """Entries in memory, also dead ones and those in flight."""
        return self._waiting + len(self.in_flight)

    def add_unsorted(self, entries: Entries) -> None:
        """Stage entries in any order."""
        for start in range(0, len(entries), self._chunk_entries):
            part = entries.part(start, min(len(entries), start + self._chunk_entries))
            chunk = self._open_chunk
            if chunk is None or chunk.count + len(part) > self._chunk_entries:
                chunk = self._open_chunk = Chunk(self)
                self._chunks[chunk] = None
            before = chunk.first_ms if chunk.count else None
            chunk.append(part)
            if chunk.first_ms != before:
                self._heap.push((chunk.first_ms, -1, -1), chunk)  # a lower bound of its first key
            self._waiting += len(part)

    def add_run(self, entries: Entries) -> None:
        """Stage entries that are sorted and without repeats."""
        if len(entries):
            run = Run(entries, self)
            self._runs[run] = None
            self._waiting += len(entries)
            self._heap.push_run(run)

    def sorted_run(self, chunk: Chunk) -> Run:
        """Turn a chunk into a run (the heap exchanges the two)."""
        # First, because it may run out of memory: the entries are always in one of the two.
        run = Run(sort_entries(Entries.concat(chunk.parts()), unique=True), self)
        self._chunks.pop(chunk, None)
        if chunk is self._open_chunk:
            self._open_chunk = None
        self._waiting -= chunk.count - len(run)
        self._runs[run] = None
        return run

    def consumed(self, run: Run, count: int) -> None:
        """Count entries popped from `run`; release a consumed run."""
        self._waiting -= count
        if not len(run):
            self._runs.pop(run, None)

    @property
    def entries_in_runs(self) -> int:
        """Entries that can be popped without sorting a chunk. O(runs)."""
        return sum(map(len, self._runs))

    def parts(self) -> list[Entries]:
        """All staged entries, in no order, as immutable arrays."""
        return self.waiting() + self.in_flight.parts()

    def waiting(self) -> list[Entries]:
        """All entries that will be popped without a rewind, in no order."""
        return [part for chunk in self._chunks for part in chunk.parts()] + [run.left() for run in self._runs]

    def outline(self) -> list[Part]:
        """As `parts`, with the known bounds of their times."""
        found = [
            Part(part, chunk.first_ms, chunk.last_ms) for chunk in self._chunks for part in chunk.parts()
        ]
        found += [Part.of_sorted(run.left()) for run in self._runs if len(run)]
        return found + [Part(part) for part in self.in_flight.parts()]

    def rewind(self) -> None:
        """Stage the entries in flight once more."""
        for part in self.in_flight.pop_all():
            self.add_unsorted(part)

    def leave_heap(self) -> None:
        """Remove every item from the heap and release the entries; the staging must not be used afterwards.

        Chunks and runs refer to their staging. Uncleared, their entries would stay in memory until the
        garbage collector walks all objects, the more rarely the fewer objects are made.
        """
        for chunk in self._chunks:
            self._heap.discard(chunk)
        for run in self._runs:
            self._heap.discard(run)
        self._chunks.clear()
        self._runs.clear()
        self._open_chunk = None

    def absorb(self, other: Staging) -> None:
        """Take over everything of `other`, which must not be used afterwards."""
        self.removals = min(self.removals, other.removals)
        parts = other.waiting()
        other.leave_heap()
        for part in parts:
            self.add_unsorted(part)
        for part in other.in_flight.pop_all():
            self.in_flight.append(part, self._held)

    def check(self, sources: Sources, counts: Callable[[Entries], BoolArray] | None = None) -> None:
        """Raise CheckError if an invariant does not hold; add the staged entries to `sources`.

        counts: selects among the entries; None for all.
        """
        parts = self.parts()
        require(sum(map(len, parts)) == len(self), f"staging counts {len(self)} entries")
        for run in self._runs:
            run.check(sources.reach(run))
        for chunk in self._chunks:
            first_ms, _ = bounds(Entries.concat(chunk.parts()).deliver_at_ms)
            key = sources.reach(chunk)
            require(key == (first_ms, -1, -1), f"a chunk from {first_ms} on is in the heap at {key}")
        for part in parts:
            sources.found.add(part if counts is None else part.take(counts(part)))
        for part in self.waiting():
            sources.coming.add(part if counts is None else part.take(counts(part)))
