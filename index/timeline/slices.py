"""Slices and their blocks: the entries in the store, and how far they have been popped.

An inactive slice is one item in the heap; an active one has its blocks as items; a block whose first entry is
due is loaded and becomes a run. A slice whose blocks are all consumed is exhausted, and finished once none of
its entries is held.

Invariants: the blocks of an inactive slice are untouched; an active slice's block is in the heap (itself or
its run) unless it is consumed; a finished slice has no held entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from tidegate.index.entries.checks import require, require_run
from tidegate.index.entries.entry import Entries, EntryKey, bounds
from tidegate.index.format.block import BlockDescriptor
from tidegate.index.format.keys import SliceId
from tidegate.index.timeline.in_flight import InFlightEntries
from tidegate.index.timeline.merge import Item, RunHeap
from tidegate.index.timeline.part import Part
from tidegate.index.timeline.run import Run
from tidegate.index.timeline.sources import Sources

Load = Callable[["Block"], Entries | None]
"""Reads a block; None if it is corrupt (the loader has reported it)."""


class Block:
    """A packed block of a slice and how far it is popped."""

    __slots__ = ("consumed", "descriptor", "of", "run")
    stored = True

    def __init__(self, of: Slice, descriptor: BlockDescriptor) -> None:
        self.of = of
        self.descriptor = descriptor
        self.run: Run | None = None
        self.consumed = False

    def open_item(self) -> Iterable[tuple[EntryKey, Item]]:
        """Load the block as a run."""
        entries = self.of.load(self)
        if entries is None:
            self.consumed = True
            return []
        self.run = Run(entries, BlockOwner(self))
        return [(self.run.key(), self.run)]

    def unload(self, heap: RunHeap) -> None:
        """Remove the block from the heap and its entries from memory."""
        heap.discard(self)
        if self.run is not None:
            heap.discard(self.run)
            self.run = None


class BlockOwner:
    """The owner of a loaded block's run."""

    __slots__ = ("block", "in_flight")

    def __init__(self, block: Block) -> None:
        self.block = block
        self.in_flight = block.of.in_flight

    def consumed(self, run: Run, count: int) -> None:  # noqa: ARG002 a block has no counter
        """Release a consumed run."""
        if not len(run):
            self.block.run = None
            self.block.consumed = True


class Slice:
    """The blocks of one slice."""

    __slots__ = (
        "active",
        "blocks",
        "descriptors",
        "entries",
        "finished",
        "id",
        "in_flight",
        "load",
        "run_entries",
        "size_bytes",
    )
    stored = True

    def __init__(self, slice_id: SliceId, load: Load) -> None:
        self.id = slice_id
        self.load = load
        self.blocks: dict[int, Block] = {}
        self.descriptors: tuple[BlockDescriptor, ...] = ()
        self.run_entries: dict[int, int] = {}
        """Entries of each run, by its id; runs may overlap each other."""
        self.entries = 0
        """Entries stored, dead ones too."""
        self.size_bytes = 0
        """Bytes of the packed blocks."""
        self.in_flight = InFlightEntries()
        self.active = False
        self.finished = False

    def first_key(self) -> EntryKey:
        """Key of the first entry. There must be a block."""
        return min(block.descriptor.first for block in self.blocks.values())

    def open_item(self) -> Iterable[tuple[EntryKey, Item]]:
        """Activate the slice: its blocks become items of their own."""
        self.active = True
        return [(block.descriptor.first, block) for block in self.blocks.values() if not block.consumed]

    def exhausted(self) -> bool:
        """True if every block is consumed."""
        return self.active and all(block.consumed for block in self.blocks.values())

    def exchange(self, removed: Iterable[int], added: Iterable[BlockDescriptor], heap: RunHeap) -> None:
        """Replace blocks, also while active; entries in flight are filtered when popped again."""
        added = list(added)
        if added and self.finished and self.active:
            for block in self.blocks.values():
                block.consumed = True  # none of their entries is held, and they are not in the heap
        for block_id in removed:
            block = self.blocks.pop(block_id)
            block.unload(heap)
            self._count(block.descriptor, -1)
        for descriptor in added:
            block = self.blocks[descriptor.block_id] = Block(self, descriptor)
            self._count(descriptor, 1)
            self.finished = False
            if self.active:
                heap.push(descriptor.first, block)
        self.descriptors = tuple(block.descriptor for block in self.blocks.values())
        self.enter(heap)

    def _count(self, descriptor: BlockDescriptor, sign: int) -> None:
        self.entries += sign * descriptor.entries
        self.size_bytes += sign * descriptor.size_bytes
        of_run = self.run_entries.get(descriptor.run_id, 0) + sign * descriptor.entries
        if of_run:
            self.run_entries[descriptor.run_id] = of_run
        else:
            del self.run_entries[descriptor.run_id]

    def enter(self, heap: RunHeap) -> None:
        """Put an inactive slice into the heap, under the key of its first block."""
        if not self.active and not self.finished and self.blocks:
            heap.push(self.first_key(), self)

    def finish(self, heap: RunHeap) -> None:
        """Finish a slice without held entries: none of them will be popped."""
        self.leave(heap)
        self.in_flight.pop_all()
        self.finished = True

    def leave(self, heap: RunHeap) -> None:
        """Remove the slice, its blocks and its runs from the heap."""
        heap.discard(self)
        for block in self.blocks.values():
            block.unload(heap)

    def rewind(self, heap: RunHeap) -> None:
        """Make everything poppable again."""
        if self.active and not self.finished:
            self.leave(heap)
            for block in self.blocks.values():
                block.consumed = False
            self.in_flight.pop_all()
            self.active = False
            self.enter(heap)

    def check(self, sources: Sources, read: Load) -> None:
        """Raise CheckError if an invariant does not hold; add the entries to `sources`. Reads every block."""
        require(bool(self.blocks), f"slice {self.id} has no blocks")
        sizes: dict[int, int] = {}
        for descriptor in self.descriptors:
            sizes[descriptor.run_id] = sizes.get(descriptor.run_id, 0) + descriptor.entries
        require(
            sizes == self.run_entries and sum(sizes.values()) == self.entries,
            f"slice {self.id} counts {self.entries} entries in the runs {self.run_entries}, not {sizes}",
        )
        if not self.active:
            key, wanted = sources.reach(self), None if self.finished else self.first_key()
            require(key == wanted, f"slice {self.id} is in the heap at {key}, not at {wanted}")
            require(not len(self.in_flight), f"slice {self.id} is not active but has entries in flight")
        for part in self.in_flight.parts():
            sources.found.add(part)
        for block in self.blocks.values():
            entries = read(block)
            if entries is None:
                sources.reach(block)
            else:
                self._check_block(block, entries, sources)

    def _check_block(self, block: Block, entries: Entries, sources: Sources) -> None:
        descriptor = block.descriptor
        require_run(entries, str(descriptor))
        numbers = np.floor_divide(entries.deliver_at_ms, self.id.width_ms)
        require(bool((numbers == self.id.number).all()), f"{descriptor} is not of slice {self.id}")
        require(
            (*bounds(entries.ledger_id), int(entries.deliver_at_ms[-1]))
            == (descriptor.min_ledger_id, descriptor.max_ledger_id, descriptor.last_deliver_at_ms),
            f"{descriptor} does not describe its block",
        )
        if self.finished:
            return  # its held positions were added again, and must be found elsewhere
        sources.found.add(entries)
        if not self.active:
            sources.coming.add(entries)
        elif block.run is not None:
            block.run.check(sources.reach(block.run))
            sources.coming.add(block.run.entries.part(block.run.at, len(block.run.entries)))
        elif not block.consumed:
            key = sources.reach(block)
            require(key == descriptor.first, f"block {descriptor} is in the heap at {key}")
            sources.coming.add(entries)

    def outline(self) -> tuple[list[Part], list[BlockDescriptor]]:
        """The entries in memory, as immutable arrays, and the blocks of which nothing was consumed."""
        if not self.active:
            return [], list(self.descriptors)
        loaded = [Part(part) for part in self.in_flight.parts()]
        untouched = []
        for block in self.blocks.values():
            if block.run is not None:
                if len(block.run):
                    loaded.append(
                        Part.of_sorted(block.run.entries.part(block.run.at, len(block.run.entries)))
                    )
            elif not block.consumed:
                untouched.append(block.descriptor)
        return loaded, untouched

    def loaded_entries(self) -> int:
        """Entries in memory: of loaded blocks and in flight."""
        return len(self.in_flight) + sum(
            len(block.run.entries) for block in self.blocks.values() if block.run is not None
        )

    def state(self) -> str:
        """`stored`, `active` or `finished`."""
        if self.finished:
            return "finished"
        return "active" if self.active else "stored"
