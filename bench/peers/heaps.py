"""Heaps in memory, an entry a node: the simplest program.

``heapq``: a binary heap of tuples, as Pulsar's in-memory tracker has. ``heapdict``: a heap that also finds
and moves an entry by its position, as a scheduler with cancellation needs.

Durability: none; after a kill everything is read again from the topic. Tick: none, the earliest entry is on
top. Favourable: no file is written. Unfavourable: an entry costs a hundred bytes and more of Python objects,
and passes through the interpreter; figures include turning popped entries into arrays.
"""

from __future__ import annotations

import heapq
from pathlib import Path

from heapdict import heapdict

from bench.peers.base import Peer, PeerInfo
from tidegate.index import Clock, Entries, EntryKey, Int64Array

_NONE = "none, in memory only"


class HeapqPeer(Peer):
    """A list that heapq keeps in order."""

    info = PeerInfo("heapq", "a binary heap of tuples in memory (Python's heapq)", _NONE, survives_kill=False)

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__(folder, clock)
        self._heap: list[EntryKey] = []

    def add(self, entries: Entries, arrive_at_ms: Int64Array) -> None:  # noqa: ARG002
        """Push each."""
        heap, push = self._heap, heapq.heappush
        for key in entries:
            push(heap, key)

    def pop_due(self, now_ms: int, limit: int) -> Entries:
        """Pop while the top is due."""
        heap, pop = self._heap, heapq.heappop
        rows: list[EntryKey] = []
        while heap and heap[0][0] <= now_ms and len(rows) < limit:
            rows.append(pop(heap))
        return Entries.of(rows)

    def next_due_ms(self) -> int | None:
        """The top's time."""
        return self._heap[0][0] if self._heap else None

    def count(self) -> int:
        """The size of the heap."""
        return len(self._heap)


class HeapdictPeer(Peer):
    """A heapdict from position to time."""

    info = PeerInfo(
        "heapdict",
        "a heap in memory that finds an entry by its position (the heapdict package), an entry a node",
        _NONE,
        survives_kill=False,
    )

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__(folder, clock)
        self._heap: heapdict[tuple[int, int], EntryKey] = heapdict()

    def add(self, entries: Entries, arrive_at_ms: Int64Array) -> None:  # noqa: ARG002
        """Set each."""
        heap = self._heap
        for key in entries:
            heap[key[1:]] = key

    def pop_due(self, now_ms: int, limit: int) -> Entries:
        """Pop while the top is due."""
        heap = self._heap
        rows: list[EntryKey] = []
        while heap and heap.peekitem()[1][0] <= now_ms and len(rows) < limit:
            rows.append(heap.popitem()[1])
        return Entries.of(rows)

    def next_due_ms(self) -> int | None:
        """The top's time."""
        return self._heap.peekitem()[1][0] if self._heap else None

    def count(self) -> int:
        """The size of the heap."""
        return len(self._heap)
