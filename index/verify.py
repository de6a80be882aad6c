"""`check()`: walks every invariant of an index, with all its blocks, and says what does not hold.

For tests and for a doubtful data directory; it reads everything and is as slow as that.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from tidegate.index.entry import Entries, EntryKey
from tidegate.index.errors import CheckError, CorruptBlockError
from tidegate.index.format.block import load_block
from tidegate.index.format.keys import SliceId
from tidegate.index.journal import JournalLog
from tidegate.index.merge import RunHeap
from tidegate.index.names import SubscriptionName
from tidegate.index.positions import PositionSet
from tidegate.index.run import Run
from tidegate.index.slices import Block, Slice
from tidegate.index.staging import Staging
from tidegate.index.stats import IndexStats
from tidegate.index.store import Store


class Storage(Protocol):
    """Where the blocks are."""

    store: Store


class Checked(Protocol):
    """An index with the private parts that the walk looks into."""

    name: SubscriptionName
    log: JournalLog
    _heap: RunHeap
    _held: PositionSet
    _acknowledged: PositionSet
    _popped: PositionSet
    _mark: tuple[int, int]
    _staging: Staging
    _frozen: Staging | None
    _slices: dict[SliceId, Slice]
    _quarantined: list[Block]
    _audit: bool

    @property
    def _context(self) -> Storage: ...

    def stats(self) -> IndexStats:
        """The state, for the message."""
        ...


def check_index(index: Checked) -> None:
    """Raise CheckError, with the state, if an invariant of `index` does not hold."""
    _Check(index).run()


class _Check:
    """One walk. It may look into the private parts of what it checks."""

    def __init__(self, index: Checked) -> None:
        self._index = index
        self._in_heap: dict[object, EntryKey] = dict(index._heap.items())
        self._found = PositionSet()
        """Positions that some source has."""
        self._coming = PositionSet()
        """Positions that will be popped without a rewind."""

    def run(self) -> None:
        self._positions()
        self._stagings()
        for each in self._index._slices.values():
            self._slice(each)
        self._require(not self._in_heap, f"the heap has items that nobody owns: {list(self._in_heap)}")
        self._sources()

    def _positions(self) -> None:
        index = self._index
        held, acknowledged, popped = index._held, index._acknowledged, index._popped
        self._require(held.isdisjoint(acknowledged), "a position is held and acknowledged")
        self._require(popped.issubset(held), "a popped position is not held")
        for name, positions in (("held", held), ("acknowledged", acknowledged), ("popped", popped)):
            self._require(all(bitmap for _, bitmap in positions.items()), f"{name} has an empty bitmap")
            above = positions.snapshot()
            above.discard_up_to(*index._mark)
            self._require(above == positions, f"{name} has positions up to the mark-delete position")

    def _stagings(self) -> None:
        for staging in (self._index._staging, self._index._frozen):
            if staging is None:
                continue
            parts = staging.parts()
            self._require(sum(map(len, parts)) == len(staging), f"staging counts {len(staging)} entries")
            for item in staging.items():
                key = self._in_heap.pop(item, None)
                self._require(key is not None, f"{item} of staging is not in the heap")
                if isinstance(item, Run):
                    self._run(item, key)
                else:
                    chunk = Entries.concat(item.parts())  # type: ignore[attr-defined]
                    self._require(
                        key == (int(chunk.deliver_at_ms.min()), -1, -1), "a chunk has another minimum"
                    )
            for part in parts:
                self._found.add(part)
            for part in staging.waiting():
                self._coming.add(part)

    def _slice(self, each: Slice) -> None:
        index = self._index
        self._require(bool(each.blocks), f"slice {each.id} has no blocks")
        if not each.active:
            key = self._in_heap.pop(each, None)
            wanted = None if each.finished else each.first_key()
            self._require(key == wanted, f"slice {each.id} is in the heap at {key}, not at {wanted}")
            self._require(not len(each.popped), f"slice {each.id} is not active but has popped entries")
        for part in each.popped.parts():
            self._found.add(part)
        for block in each.blocks.values():
            descriptor = block.descriptor
            try:
                entries = load_block(index._context.store, index.log.subscription_id, each.id, descriptor)
            except CorruptBlockError:
                self._in_heap.pop(block, None)
                continue
            self._require(entries.is_sorted(), f"{descriptor} is not sorted")
            self._require(len(entries.unique()) == len(entries), f"{descriptor} has repeats")
            numbers = np.floor_divide(entries.deliver_at_ms, each.id.width_ms)
            self._require(bool((numbers == each.id.number).all()), f"{descriptor} is not of slice {each.id}")
            self._require(
                (int(entries.ledger_id.min()), int(entries.ledger_id.max()), int(entries.deliver_at_ms[-1]))
                == (descriptor.min_ledger_id, descriptor.max_ledger_id, descriptor.last_deliver_at_ms),
                f"{descriptor} does not describe its block",
            )
            if each.finished:
                continue  # what is held of it was added again and must be found elsewhere
            self._found.add(entries)
            if not each.active:
                self._coming.add(entries)
            elif block.run is not None:
                self._run(block.run, self._in_heap.pop(block.run, None))
                self._coming.add(block.run.entries.part(block.run.at, len(block.run.entries)))
            elif not block.consumed:
                key = self._in_heap.pop(block, None)
                self._require(key == descriptor.first, f"block {descriptor} is in the heap at {key}")
                self._coming.add(entries)

    def _run(self, run: Run, key: EntryKey | None) -> None:
        self._require(run.at < len(run.entries), "a consumed run is in use")
        self._require(key == run.key(), f"a run that starts at {run.key()} is in the heap at {key}")
        self._require(run.entries.is_sorted(), "a run is not sorted")
        self._require(len(run.entries.unique()) == len(run.entries), "a run has repeats")

    def _sources(self) -> None:
        index = self._index
        if index._quarantined or index._audit:
            return
        missing = index._held.difference(self._found)
        self._require(not missing, f"held but nowhere to be found: {missing} {list(missing)[:5]}")
        stuck = index._held.difference(index._popped).difference(self._coming)
        self._require(not stuck, f"held and not popped, but will not be popped: {stuck} {list(stuck)[:5]}")

    def _require(self, holds: bool, message: str) -> None:
        if not holds:
            raise CheckError(f"{self._index.name}: {message}\n{self._index.stats()}")
