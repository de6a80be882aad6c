"""The timeline of one subscription: the due times of all entries, staged or stored.

New entries are staged; a persist freezes the staged entries and replaces them by runs of blocks in slices.
Staged, frozen and stored entries are items of one heap, which pops them in exact order. Called by the core's
thread only. Nothing here writes the store, and only the load of a due block reads it. Callers that hand out
ask the timeline directly; all other changes come through `Changes` or `Upkeep`.

Example, with due times in seconds and slices of 60 s:

    add 130, 70, 62         staging: chunk {130 70 62}
    persist                 frozen, sorted and split: slice 1 has a run of 62 70, slice 2 one of 130
    add 65                  staging: chunk {65}; the heap has slice 1 at 62, the chunk at 65, slice 2 at 130
    pop_due at 71           slice 1 opens into its block, the block loads, the chunk sorts: 62 65 70
    acknowledge 62 65 70    slice 1 has no held entry: finished
    persist                 drops slice 1 with one range delete

A second persist between add 65 and pop_due would have written a second run, of 65, into slice 1: compactions
merge such runs once a slice has `merge_runs` of them.

Invariants (walked by `check`): every held position is in staging, in frozen staging, or in a block of an
unfinished slice, unless a block is corrupt and its audit is still to come; everything in the heap belongs to
one of them; `next_load_changed` was called at each change of `next_load_ms`. A second copy of an entry, left
over from before an UNACK, equals the first, unless a broker with levels has rounded it anew: then the
position comes out once, at the earlier time, which is not before the message's own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping

from tidegate.index.clock import Clock
from tidegate.index.entries.checks import require
from tidegate.index.entries.entry import ENTRY_BYTES, Entries, EntryKey
from tidegate.index.entries.sort import merge_runs
from tidegate.index.errors import BlockAwayError
from tidegate.index.format.block import BlockDescriptor
from tidegate.index.format.keys import SliceId
from tidegate.index.options import IndexOptions
from tidegate.index.state.holding import Holding
from tidegate.index.state.positions import Position, PositionSet
from tidegate.index.stats import SliceStats
from tidegate.index.timeline.crowding import CrowdedSlices
from tidegate.index.timeline.exhausted import Exhausted
from tidegate.index.timeline.finished import FinishedSlices
from tidegate.index.timeline.in_flight import InFlightEntries
from tidegate.index.timeline.merge import RunHeap, Taken
from tidegate.index.timeline.part import Part
from tidegate.index.timeline.run import Run
from tidegate.index.timeline.slices import Block, BlockOwner, Load, Slice
from tidegate.index.timeline.sources import Sources
from tidegate.index.timeline.staging import Staging

_BLOCK_MEMORY_BYTES = 600
_STALE_MOVED_MAX = 4_096

Exchanged = Mapping[SliceId, tuple[list[int], list[BlockDescriptor]]]
"""Exchanged blocks by slice: ids of those removed, descriptors of those added."""


class Timeline:
    """Heap, staging and slices of one subscription. Of the state it knows the `Holding`.

    next_load_changed: called when `next_load_ms` changes. want_persist: called when finished slices are worth
    a persist for their own sake.
    """

    def __init__(
        self,
        holding: Holding,
        options: IndexOptions,
        clock: Clock,
        load: Load,
        *,
        next_load_changed: Callable[[], None],
        want_persist: Callable[[], None],
    ) -> None:
        self._holding = holding
        self._options = options
        self._load = load
        self._next_load_changed = next_load_changed
        self._want_persist = want_persist
        self._told_load_key: EntryKey | None = None
        self._heap = RunHeap()
        self._staging = self._new_staging()
        self._frozen: Staging | None = None
        self._moved = self._new_staging()
        """Entries of moved positions, at the times that hold and some that held before. No slice has these
        entries: slices keep the messages' own times, which hold again when a move ends.
        """
        self._slices: dict[SliceId, Slice] = {}
        self._touched: dict[Slice, None] = {}
        """Active slices with something consumed since the last look."""
        self._exhausted = Exhausted()
        self._finished = FinishedSlices(clock, options.drop_entries)
        self.crowded = CrowdedSlices(options.merge_runs)
        """The slices in need of compaction. Ask it, do not change it."""

    # ---- entries

    def stage(self, entries: Entries) -> None:
        """Stage new entries, in any order."""
        if len(entries):
            self._staging.add_unsorted(entries)

    def stage_moved(self, entries: Entries) -> None:
        """Stage held entries of moved positions, at the times that hold."""
        if len(entries):
            self._moved.add_unsorted(entries)
            self._renew_moved()

    def _renew_moved(self) -> None:
        """Stage the moved entries anew when most staged ones no longer count. O(1) amortised."""
        moved = self._holding.moved
        if len(self._moved) <= 2 * len(moved) + _STALE_MOVED_MAX:
            return
        self._moved.leave_heap()
        self._moved = self._new_staging()
        entries = moved.snapshot().entries()
        entries = entries.take(self._holding.held.contains(entries))
        in_flight = self._holding.in_flight.contains(entries)
        self._moved.in_flight.append(entries.take(in_flight), self._holding.held)
        self._moved.add_unsorted(entries.take(~in_flight))

    def carry(self, entries: Entries) -> None:
        """Stage entries that a persist leaves staged: sorted, without repeats."""
        self._staging.add_run(entries)

    def pop_due(self, now_ms: int, limit: int) -> Entries:
        """Hand out entries with deliver_at_ms <= now_ms, in (deliver_at_ms, ledger_id, entry_id) order.

        At most `limit`, which are in flight from then on. Fewer means that no more are due, unless
        `next_due_ms() <= now_ms` still: then call again. (To bound the pause, one call examines a limited
        number of entries and blocks, and may leave the last few of a `limit` of a thousand or more where
        several runs overlap.) Raises StorageError if a block cannot be read, BlockAwayError if it has not
        arrived yet; nothing is lost then.
        """
        if limit <= 0:
            return Entries.empty()
        try:
            return self._heap.pop_entries(now_ms, limit, self._options.pop_scan_entries, self._accept)
        finally:
            self.finish_slices()

    def next_due_ms(self) -> int | None:
        """Due time of the earliest entry not in flight, or a lower bound; None without one."""
        key = self._heap.first_key()
        return None if key is None else key[0]

    def next_load_ms(self) -> int | None:
        """Due time of the earliest entry that is not in memory, or a lower bound; None without one."""
        key = self._heap.first_stored_key()
        return None if key is None else key[0]

    def load_next(self, now_ms: int) -> None:
        """Load the next block due within the prefetch time, unless it is absent.

        Loads none while memory has enough entries to pop: a week's overdue entries without consumers, or
        entries all due at one instant, must not be loaded at once.
        """
        in_memory = self._heap.entries_in_runs - self._moved.entries_in_runs
        if in_memory >= self._options.merge_runs * self._options.block_entries:
            return
        with contextlib.suppress(BlockAwayError):
            if self._heap.open_next(now_ms + self._options.prefetch_ms + 1):
                self.finish_slices()

    def rewind(self) -> None:
        """Make everything held poppable again."""
        if self._frozen is not None:
            self._frozen.rewind()
        self._staging.rewind()
        self._moved.rewind()
        for each in self._slices.values():
            each.rewind(self._heap)
        for each in self._exhausted:
            if not each.active:
                self._exhausted.discard(each)
        self._tell_next_load()

    def clear(self) -> set[SliceId]:
        """Forget everything; returns the slices until now."""
        self._staging.leave_heap()
        self._staging = self._new_staging()
        self._moved.leave_heap()
        self._moved = self._new_staging()
        self.let_go_of_frozen()
        for each in self._slices.values():
            each.leave(self._heap)
        gone = set(self._slices)
        self._slices.clear()
        self.crowded.clear()
        self._exhausted.clear()
        self._touched.clear()
        self._finished.count(self._slices.values())
        self._tell_next_load()
        return gone

    def _accept(self, taken: Taken) -> Entries:
        """The entries to hand out of consumed parts, in order. Their owners keep all held entries."""
        by_owner: dict[InFlightEntries, list[Entries]] = {}
        for run, part in taken:
            run.owner.consumed(run, len(part))
            by_owner.setdefault(run.owner.in_flight, []).append(part)
            if isinstance(run.owner, BlockOwner):
                self._touched[run.owner.block.of] = None
        accepted = []
        moved = self._holding.moved
        for in_flight, parts in by_owner.items():
            entries = Entries.concat(parts)
            if moved or in_flight is self._moved.in_flight:
                of_moved = in_flight is self._moved.in_flight
                counts = moved.holds(entries) if of_moved else ~moved.positions.contains(entries)
                entries = entries.take(counts)
            kept, positions, handed_out = self._holding.hand_out(entries)
            in_flight.append(kept, self._holding.held, positions)
            accepted.append(handed_out)
        live = Entries.concat(accepted)
        return merge_runs(live) if len(taken) > 1 else live

    # ---- finishing slices

    def depart(self, positions: PositionSet) -> None:
        """Note that these positions are no longer held. Call it before `finish_slices`."""
        self._exhausted.depart(positions)

    def depart_up_to(self, last: Position) -> None:
        """Note that positions up to this one are no longer held. Call it before `finish_slices`."""
        self._exhausted.depart_up_to(last)

    def finish_slices(self) -> None:
        """Find slices without held entries, after a change that may have finished one.

        O(1) amortised for each departed position.
        """
        self._renew_moved()
        held, departed = self._holding.held, self._holding.departed
        for each in self._touched:
            if each.exhausted() and not each.finished:
                self._exhausted.add(each, departed)
        self._touched.clear()
        if not held and self._slices:
            for each in self._slices.values():
                self._finish(each)
            self._exhausted.clear()
        for each in self._exhausted.take_finished(held, departed):
            self._finish(each)
        if self._finished.entries and self.worth_dropping:
            self._want_persist()
        self._tell_next_load()

    def _tell_next_load(self) -> None:
        key = self._heap.first_stored_key()
        if key != self._told_load_key:
            self._told_load_key = key
            self._next_load_changed()

    def finish_dead_slices(self) -> None:
        """Finish slices without a block that can hold a held ledger, whenever they are due."""
        lowest = self._holding.held.first_ledger()
        for each in self._slices.values():
            if not each.finished and (
                lowest is None
                or all(block.descriptor.max_ledger_id < lowest for block in each.blocks.values())
            ):
                self._finish(each)
                self._exhausted.discard(each)
        self._tell_next_load()

    def _finish(self, each: Slice) -> None:
        if not each.finished:
            each.finish(self._heap)
            self.crowded.rank(each)
            self._finished.add(each)

    @property
    def worth_dropping(self) -> bool:
        """True if the finished slices are worth a persist for their own sake: many entries, or all."""
        return self._finished.worth_dropping(all_dead=not self._holding.held)

    @property
    def finished_since_ms(self) -> int | None:
        """Since when finished slices have waited for a persist; None without one."""
        return self._finished.since_ms

    # ---- persisting

    @property
    def staged_entries(self) -> int:
        """Entries in staging, without frozen ones."""
        return len(self._staging)

    @property
    def slices(self) -> Collection[Slice]:
        """The slices, in no order. Only methods of this class may change them."""
        return self._slices.values()

    def get(self, slice_id: SliceId) -> Slice | None:
        """A slice, None if there is none."""
        return self._slices.get(slice_id)

    def freeze(self) -> Staging:
        """Freeze the staging for a persist: it stays poppable and gets no new entries."""
        self._frozen, self._staging = self._staging, self._new_staging()
        return self._frozen

    def thaw(self) -> None:
        """Stage the frozen entries again, after a failed persist."""
        if self._frozen is not None:
            self._staging.absorb(self._frozen)
            self._frozen = None
        self._finished.count(self._slices.values())

    def let_go_of_frozen(self) -> None:
        """Drop the frozen staging: slices have its entries now."""
        if self._frozen is not None:
            self._frozen.leave_heap()
            self._frozen = None

    def drops_finished(self) -> None:
        """Note that a persist begins, which drops all finished slices: they are no reason for another one."""
        self._finished.drop()

    def restore(self, slices: dict[SliceId, list[BlockDescriptor]]) -> None:
        """Add the recovered slices."""
        for slice_id, blocks in slices.items():
            each = self._slice(slice_id)
            each.exchange((), blocks, self._heap)
            self.crowded.rank(each)
        self._tell_next_load()

    def exchange(self, exchanged: Exchanged, *, compacted: bool = False) -> None:
        """Replace blocks, by slice (ids of those removed, those added); a slice without blocks goes.

        compacted: the added entries are old, so that a finished slice stays finished.
        """
        for slice_id, (removed, added) in exchanged.items():
            each = self._slice(slice_id)
            finished = each.finished
            each.exchange(removed, added, self._heap)
            if compacted and finished:
                each.finish(self._heap)
            self._exhausted.discard(each)
            self._touched[each] = None
            if not each.blocks:
                self._touched.pop(each, None)
                each.leave(self._heap)
                del self._slices[slice_id]
            self.crowded.rank(each)
        self._finished.count(self._slices.values())
        self._tell_next_load()

    # ---- compacting

    def descriptors(self, slice_id: SliceId) -> tuple[BlockDescriptor, ...]:
        """The blocks of a slice; none if it is missing."""
        each = self._slices.get(slice_id)
        return () if each is None else each.descriptors

    def still_has(self, slice_id: SliceId, blocks: Iterable[BlockDescriptor]) -> bool:
        """True if a slice is not finished and has all of these blocks."""
        each = self._slices.get(slice_id)
        return (
            each is not None and not each.finished and all(block.block_id in each.blocks for block in blocks)
        )

    def staged_positions(self) -> PositionSet:
        """The positions in staging, without frozen ones."""
        found = PositionSet()
        for part in self._staging.parts():
            found.add(part)
        return found

    def parts(self) -> list[Entries]:
        """All entries that no slice has yet, in flight or not, in no order, as immutable arrays."""
        stagings = filter(None, (self._staging, self._frozen))
        return [part for staging in stagings for part in staging.parts()]

    @property
    def stored_bytes(self) -> int:
        """Bytes of all blocks. O(slices)."""
        return sum(each.size_bytes for each in self._slices.values())

    def blocks(self) -> list[tuple[SliceId, BlockDescriptor]]:
        """The blocks of all slices that may have held entries."""
        return [
            (each.id, block.descriptor)
            for each in self._slices.values()
            if not each.finished
            for block in each.blocks.values()
        ]

    def outline(self) -> tuple[list[Part], list[Part], list[tuple[SliceId, BlockDescriptor]]]:
        """Entries with their own times that may be held: in memory, frozen, and untouched blocks."""
        parts, blocks = self._staging.outline(), []
        for each in self._slices.values():
            if not each.finished:
                loaded, untouched = each.outline()
                parts += loaded
                blocks += [(each.id, descriptor) for descriptor in untouched]
        return parts, [] if self._frozen is None else self._frozen.outline(), blocks

    def _slice(self, slice_id: SliceId) -> Slice:
        each = self._slices.get(slice_id)
        if each is None:
            each = self._slices[slice_id] = Slice(slice_id, self._load_block)
        return each

    def _load_block(self, block: Block) -> Entries | None:
        entries = self._load(block)
        if entries is None:
            self._touched[block.of] = None  # the block is consumed, though nothing was popped
        return entries

    def _new_staging(self) -> Staging:
        staging = Staging(self._heap, self._holding.held, self._options.chunk_entries)
        staging.removals = self._holding.removals
        return staging

    # ---- telling

    @property
    def entries_in_memory(self) -> int:
        """Entries staged, frozen, moved, loaded and in flight."""
        return (
            len(self._moved)
            + self.staged_or_frozen
            + sum(each.loaded_entries() for each in self._slices.values() if each.active)
        )

    @property
    def staged_or_frozen(self) -> int:
        """Entries that no slice has yet."""
        return len(self._staging) + (0 if self._frozen is None else len(self._frozen))

    def memory_bytes(self) -> int:
        """Estimated memory of entries and block descriptors. O(blocks)."""
        blocks = sum(len(each.blocks) for each in self._slices.values())
        return self.entries_in_memory * ENTRY_BYTES + blocks * _BLOCK_MEMORY_BYTES

    def slice_stats(self) -> list[SliceStats]:
        """The slices in the order of their time. O(blocks)."""
        return [
            SliceStats(each.id.start_ms, each.id.width_ms, each.entries, each.state())
            for each in sorted(self._slices.values(), key=lambda each: (each.id.start_ms, each.id.width_ms))
        ]

    def check(self, read: Load, *, complete: bool) -> None:
        """Raise CheckError if an invariant does not hold.

        read: as `load`, but without a report of damage.
        complete: True if every held entry must be somewhere (no block is known to be corrupt).
        """
        items = self._heap.items()
        require(
            self._heap.entries_in_runs == sum(len(item) for item, _ in items if isinstance(item, Run)),
            f"{self._heap.entries_in_runs} entries are counted in runs",
        )
        sources = Sources(items)
        stagings: Iterable[Staging] = filter(None, (self._staging, self._frozen))
        for staging in stagings:
            staging.check(sources)
        for each in self._slices.values():
            each.check(sources, read)
        moved = self._holding.moved
        sources.forget(moved.positions)
        self._moved.check(sources, moved.holds)
        sources.require_complete()
        self._exhausted.check(self._holding.held)
        self.crowded.check(self._slices.values())
        if complete:
            sources.require_all(self._holding.held, self._holding.in_flight)
