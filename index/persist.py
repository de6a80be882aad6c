"""A persist: everything that one subscription has in memory becomes durable in slices, in one commit.

`run` is a pure function of what was taken at its start, but for reading and writing the store; it may run
in any thread. Blocks and bitmaps are written ahead in pieces, each with the list of its keys (the intent);
the last, synced batch makes them count: slice records, state, carry-over, and the removal of what they
replace. A crash before that leaves only keys that recovery deletes.

Invariants: what is left out as dead is dead in the very `held` bitmaps that the same commit writes; a slice
is dropped only if nothing of it is in them; block ids and versions are never used twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tidegate.index.damaged_values import set_aside
from tidegate.index.entry import ENTRY_BYTES, Entries, EntryKey
from tidegate.index.errors import CorruptBlockError, CorruptRecordError
from tidegate.index.format import keys
from tidegate.index.format.block import BlockDescriptor, describe, encode_block, load_block
from tidegate.index.format.envelope import seal
from tidegate.index.format.keys import SliceId
from tidegate.index.format.manifest import State, encode_keys, encode_slice
from tidegate.index.format.packing import pack_entries
from tidegate.index.in_flight import InFlightLog
from tidegate.index.merge import Item, RunHeap, Taken
from tidegate.index.options import IndexOptions
from tidegate.index.positions import PositionSet
from tidegate.index.run import Run
from tidegate.index.sort import SortedEntries, sort_entries
from tidegate.index.store import Batch, Store
from tidegate.index.width import WidthDecision, WidthEvidence, WidthMemory, by_second, choose

_FOREVER_MS = (1 << 63) - 1
_LOOK_UP_ENTRIES = 262_144

StoredBlock = tuple[SliceId, BlockDescriptor]


@dataclass(frozen=True)
class SlicePlan:
    """A slice as it was when the persist began, and what is to be done with it."""

    blocks: list[BlockDescriptor]
    merge_runs: frozenset[int] = frozenset()
    finished: bool = False


@dataclass(frozen=True)
class PersistPlan:
    """All that a persist works on; taken on the core's thread, not changed afterwards.

    state: what the commit will say of the subscription, but for next_block_id, the first id to use.
    persisted_before: the persisted sequence number until then.
    all_held: nothing of what is staged has been acknowledged or forgotten since.
    many_dead: a good part of the stored entries is not held any more.
    held, acknowledged: snapshots.
    dirty_held, dirty_acknowledged: ledgers whose bitmaps must be written.
    held_versions, acknowledged_versions: which version of each ledger's bitmap is stored now.
    cleared: slices of before a CLEAR, to be deleted.
    quarantined: blocks known to be corrupt.
    orphans: keys that a failed persist has left.
    uncertain: slices whose records a failed persist has written, if it was applied all the same.
    audit: find held positions that no readable entry has, though no block is known to be corrupt.
    since_ms: milliseconds since the last persist, None if there was none since the start.
    width_memory: what the last choice of an automatic slice width left behind.
    """

    subscription_id: int
    state: State
    persisted_before: int
    now_ms: int
    staged: list[Entries]
    all_held: bool
    many_dead: bool
    held: PositionSet
    acknowledged: PositionSet
    dirty_held: set[int]
    dirty_acknowledged: set[int]
    held_versions: dict[int, int]
    acknowledged_versions: dict[int, int]
    slices: dict[SliceId, SlicePlan]
    cleared: set[SliceId]
    quarantined: list[StoredBlock]
    orphans: list[bytes]
    uncertain: set[SliceId]
    audit: bool
    since_ms: int | None
    width_memory: WidthMemory


@dataclass
class PersistResult:
    """What a persist did, for the core to apply.

    written_ahead: keys that do not count unless the commit succeeded, those that went with it included.
    retired: keys of blocks that the commit has replaced, for the core to delete when it no longer loads them
    (recovery deletes them otherwise).
    width: which slice width was chosen, None if it is not automatic or nothing was spilled.
    """

    next_block_id: int
    exchanged: dict[SliceId, tuple[list[int], list[BlockDescriptor]]] = field(default_factory=dict)
    carried: Entries = field(default_factory=Entries.empty)
    lost: PositionSet = field(default_factory=PositionSet)
    corrupt: list[StoredBlock] = field(default_factory=list)
    held_versions: dict[int, int] = field(default_factory=dict)
    acknowledged_versions: dict[int, int] = field(default_factory=dict)
    written_ahead: list[bytes] = field(default_factory=list)
    retired: list[bytes] = field(default_factory=list)
    width: WidthDecision | None = None


class _SlicePart:
    """The staged entries of one slice; unpacked when they are needed."""

    __slots__ = ("_staged", "ranges")

    def __init__(self, staged: SortedEntries) -> None:
        self._staged = staged
        self.ranges: list[tuple[int, int]] = []

    def entries(self) -> Entries:
        """All of them."""
        return Entries.concat(self._staged.entries(start, stop) for start, stop in self.ranges)

    def pieces(self, size: int) -> Iterable[Entries]:
        """All of them, at most `size` at a time."""
        if len(self.ranges) > 1:
            together = self.entries()
            yield from (
                together.part(at, min(len(together), at + size)) for at in range(0, len(together), size)
            )
            return
        for start, stop in self.ranges:
            yield from (self._staged.entries(at, min(stop, at + size)) for at in range(start, stop, size))


class _AheadWriter:
    """Writes values before their commit, in pieces that do not hold up other threads."""

    def __init__(self, store: Store, plan: PersistPlan, piece_bytes: int, written: list[bytes]) -> None:
        self._store = store
        self._plan = plan
        self._piece_bytes = piece_bytes
        self._piece = 0
        self._written = written
        self._batch = Batch()

    def put(self, key: bytes, value: bytes) -> None:
        self._batch.put(key, value)
        if self._batch.size_bytes >= self._piece_bytes:
            written = [key for _, key, _ in self._batch.operations]
            self._batch.put(
                keys.intent_key(self._plan.subscription_id, self._plan.state.version, self._piece),
                encode_keys(written),
            )
            self._written.extend(written)
            self._store.write(self._batch, sync=False)
            self._batch = Batch()
            self._piece += 1

    def unwritten(self) -> Batch:
        """What is not written yet; it goes with the commit."""
        return self._batch


class _MergedBlock:
    """A stored block as a source of a merge."""

    def __init__(self, job: PersistJob, stored: StoredBlock) -> None:
        self._job = job
        self._stored = stored
        self.in_flight = InFlightLog()

    def open(self) -> Iterable[tuple[EntryKey, Item]]:
        entries = self._job.read(self._stored)
        if entries is None:
            return []
        run = Run(entries, self)
        return [(run.key(), run)]

    def consumed(self, run: Run, count: int) -> None:
        """A merge is not rewound."""


class PersistJob:
    """One persist of one subscription. `run` raises StorageError if the store fails; nothing counts then."""

    def __init__(self, store: Store, options: IndexOptions, plan: PersistPlan) -> None:
        self._store = store
        self._options = options
        self.plan = plan
        self.result = PersistResult(plan.state.next_block_id)
        self._state = plan.state
        self._held = plan.held
        self._dirty_held = set(plan.dirty_held)
        self._writer = _AheadWriter(store, plan, options.write_piece_bytes, self.result.written_ahead)
        self._commit = Batch()

    def run(self) -> None:
        """Do the whole persist."""
        staged = SortedEntries.of(self._live(), unique=True)
        self._find_lost(staged)
        near = self._near(staged)
        self.result.carried = staged.entries(*near)
        self._delete_cleared()
        self._choose_width(staged, near)
        parts = _by_slice(staged, near, self._state.slice_width_ms)
        changed = {
            slice_id for slice_id, plan in self.plan.slices.items() if plan.finished or plan.merge_runs
        }
        changed.update(slice_id for slice_id, _ in self.plan.quarantined)
        changed.update(self.plan.uncertain)
        for slice_id in sorted(changed | parts.keys()):
            self._rewrite(slice_id, parts.get(slice_id))
        self._put_bitmaps()
        self._quarantine()
        self._write_commit()

    def read(self, stored: StoredBlock) -> Entries | None:
        """The entries of a block; None if it is corrupt, which is noted."""
        slice_id, descriptor = stored
        try:
            return load_block(self._store, self.plan.subscription_id, slice_id, descriptor)
        except CorruptBlockError:
            self.result.corrupt.append(stored)
            return None

    def _choose_width(self, staged: SortedEntries, near: tuple[int, int]) -> None:
        """An automatic slice width follows what is spilled; it counts from this very persist on."""
        if not self._state.slice_width_auto or near == (0, len(staged)):
            return
        skipped = self.plan.width_memory.skipped()
        if skipped is not None:
            self.result.width = WidthDecision(self._state.slice_width_ms, skipped)
            return
        size = _LOOK_UP_ENTRIES
        seconds, counts = by_second(
            staged.deliver_at_ms(at, min(stop, at + size))
            for start, stop in ((0, near[0]), (near[1], len(staged)))
            for at in range(start, stop, size)
        )
        slices = [
            (slice_id, sum(block.entries for block in plan.blocks))
            for slice_id, plan in self.plan.slices.items()
            if not plan.finished
        ]
        evidence = WidthEvidence(
            self._state.slice_width_ms, self.plan.now_ms, seconds, counts, slices, self.plan.since_ms
        )
        self.result.width = choose(evidence, self.plan.width_memory, self._options)
        self._state = self._state._replace(slice_width_ms=self.result.width.width_ms)

    # ---- entries into blocks

    def _live(self) -> list[Entries]:
        """What is staged and held."""
        if self.plan.all_held:
            return self.plan.staged
        # Looked up a good number at a time: fewer cost more each, and all at once costs memory.
        live = []
        group: list[Entries] = []
        for part in [*self.plan.staged, None]:
            if part is not None:
                group.append(part)
            if group and (part is None or sum(map(len, group)) >= _LOOK_UP_ENTRIES):
                together = Entries.concat(group)
                live.append(together.take(self._held.contains(together)))
                group = []
        return live

    def _near(self, staged: SortedEntries) -> tuple[int, int]:
        """(start, stop) of what stays staged: due within carry_ms of now, if that is little enough."""
        start = staged.index_of(self.plan.now_ms - self._options.carry_ms)
        stop = staged.index_of(self.plan.now_ms + self._options.carry_ms + 1)
        if stop - start > self._options.staging_budget_bytes // (4 * ENTRY_BYTES):
            return start, start
        return start, stop

    def _rewrite(self, slice_id: SliceId, part: _SlicePart | None) -> None:
        """Give a slice its new blocks: finished ones out, runs merged, new entries in."""
        plan = self.plan.slices.get(slice_id, SlicePlan([]))
        gone = {block.block_id for at, block in self.plan.quarantined if at == slice_id}
        merged = [b for b in plan.blocks if b.run_id in plan.merge_runs and b.block_id not in gone]
        if plan.finished:
            gone.update(block.block_id for block in plan.blocks)
            merged = []
        corrupt_before = len(self.result.corrupt)
        added = self._encode(slice_id, merged, part)
        kept_corrupt = {block.block_id for _, block in self.result.corrupt[corrupt_before:]}
        gone.update(block.block_id for block in merged if block.block_id not in kept_corrupt)
        blocks = [block for block in plan.blocks if block.block_id not in gone] + added
        removed = [block.block_id for block in plan.blocks if block.block_id in gone]
        self.result.exchanged[slice_id] = (removed, added)
        subscription_id = self.plan.subscription_id
        if plan.finished:
            self._delete_blocks_before(slice_id)
        else:
            # They may still be loaded until the core has heard of this persist.
            self.result.retired.extend(
                keys.block_key(subscription_id, slice_id, block_id) for block_id in removed
            )
        key = keys.slice_key(subscription_id, slice_id)
        if blocks:
            self._commit.put(key, encode_slice(blocks))
        else:
            self._commit.delete(key)

    def _encode(
        self, slice_id: SliceId, merged: list[BlockDescriptor], part: _SlicePart | None
    ) -> list[BlockDescriptor]:
        """Write one run of blocks from stored blocks and new entries, in one pass over both."""
        if not merged:
            if part is None:
                return []
            pieces = part.pieces(self._options.block_entries)
        else:
            pieces = self._merge(slice_id, merged, None if part is None else part.entries())
        run_id = self.result.next_block_id
        added = []
        for entries in pieces:
            block_id = self.result.next_block_id
            self.result.next_block_id += 1
            value = encode_block(entries)
            self._writer.put(keys.block_key(self.plan.subscription_id, slice_id, block_id), value)
            added.append(describe(entries, len(value), block_id, run_id))
        return added

    def _merge(
        self, slice_id: SliceId, merged: list[BlockDescriptor], part: Entries | None
    ) -> Iterable[Entries]:
        """The entries of stored blocks and of `part` in order, a block's worth at a time.

        Dead ones are left out only if there are many: looking them up costs as much as all the rest, and they
        do no harm but for the room they take until their slice is dropped.
        """
        heap = RunHeap()
        for block in merged:
            heap.push(block.first, _MergedBlock(self, (slice_id, block)))
        if part is not None:
            heap.push_run(Run(part, _MergedBlock(self, (slice_id, merged[0]))))

        def live(taken: Taken) -> Entries:
            entries = sort_entries(Entries.concat(part for _, part in taken))
            return entries.take(self._held.contains(entries)) if self.plan.many_dead else entries

        while len(heap):
            batch = heap.pop(_FOREVER_MS, self._options.block_entries, _FOREVER_MS, live).unique()
            if len(batch):
                yield batch

    # ---- positions

    def _find_lost(self, staged: SortedEntries) -> None:
        """Held positions that neither staging nor a readable block has, if a block was found corrupt."""
        corrupt = list(self.plan.quarantined)
        if not corrupt and not self.plan.audit:
            return
        blocks = [
            (slice_id, block)
            for slice_id, plan in self.plan.slices.items()
            if not plan.finished  # dropped by this very persist: what it has is not held, or is elsewhere too
            for block in plan.blocks
            if (slice_id, block) not in corrupt
        ]
        lost = self._held.snapshot()
        lost.difference_update(PositionSet.of_entries(staged.entries()))
        if not self.plan.audit:
            low = min(block.min_ledger_id for _, block in corrupt)
            high = max(block.max_ledger_id for _, block in corrupt)
            lost = lost.within(low, high)
        for stored in blocks:
            if any(stored[1].min_ledger_id <= at <= stored[1].max_ledger_id for at in lost.ledgers()):
                # A block that turns out corrupt here is quarantined by the next persist, which audits again.
                entries = self.read(stored)
                if entries is not None:
                    lost.difference_update(PositionSet.of_entries(entries))
        self.result.lost = lost
        self._held = self._held.difference(lost)
        self._dirty_held.update(lost.ledgers())

    def _put_bitmaps(self) -> None:
        for kind, positions, dirty, old, new in (
            (
                keys.HELD,
                self._held,
                self._dirty_held,
                self.plan.held_versions,
                self.result.held_versions,
            ),
            (
                keys.ACKNOWLEDGED,
                self.plan.acknowledged,
                self.plan.dirty_acknowledged,
                self.plan.acknowledged_versions,
                self.result.acknowledged_versions,
            ),
        ):
            new.update(old)
            for ledger_id in sorted(dirty & old.keys()):
                self._commit.delete(
                    keys.bitmap_key(kind, self.plan.subscription_id, ledger_id, old[ledger_id])
                )
                del new[ledger_id]
            version = self.plan.state.version
            for ledger_id, data in positions.portable_of(dirty):
                key = keys.bitmap_key(kind, self.plan.subscription_id, ledger_id, version)
                self._writer.put(key, seal(kind, data))
                new[ledger_id] = version

    # ---- the commit

    def _delete_blocks_before(self, slice_id: SliceId) -> None:
        """Delete all blocks of a slice that were there before this persist."""
        subscription_id = self.plan.subscription_id
        self._commit.delete_range(
            keys.block_key(subscription_id, slice_id, 0),
            keys.block_key(subscription_id, slice_id, self.plan.state.next_block_id),
        )

    def _delete_cleared(self) -> None:
        for slice_id in sorted(self.plan.cleared):
            self._delete_blocks_before(slice_id)
            self._commit.delete(keys.slice_key(self.plan.subscription_id, slice_id))

    def _quarantine(self) -> None:
        """Keep the bytes of corrupt blocks aside; their keys go with `_rewrite`."""
        if not self.plan.quarantined:
            return
        damaged = []
        for slice_id, block in self.plan.quarantined:
            key = keys.block_key(self.plan.subscription_id, slice_id, block.block_id)
            try:
                value = self._store.get(key)
            except CorruptRecordError:
                continue  # the store itself cannot read it: there are no bytes to keep
            if value is not None:
                damaged.append((key, value))
        self._commit.extend(set_aside(self._store, damaged, self._options.quarantine_budget_bytes))

    def deletion(self) -> Batch:
        """Deletes the retired blocks; to be written once nothing loads them."""
        batch = Batch()
        if self.result.retired:
            for key in self.result.retired:
                batch.delete(key)
            batch.delete(self._retired_key())
        return batch

    def _retired_key(self) -> bytes:
        return keys.intent_key(self.plan.subscription_id, self.plan.state.version, keys.RETIRED_PIECE)

    def _write_commit(self) -> None:
        subscription_id = self.plan.subscription_id
        batch = self._writer.unwritten()
        has_intents = bool(self.result.written_ahead)
        # The commit may be applied and yet be reported as failed: these do not count then either.
        self.result.written_ahead.extend(key for _, key, _ in batch.operations)
        batch.extend(self._commit)
        for key in self.plan.orphans:
            batch.delete(key)
        if has_intents or self.plan.orphans:
            batch.delete_range(*keys.subscription_range(keys.INTENT, subscription_id))
        if self.result.retired:
            batch.put(self._retired_key(), encode_keys(self.result.retired))
        if self.plan.state.persisted_sequence > self.plan.persisted_before:
            batch.delete_range(
                keys.journal_key(subscription_id, 0, 0),
                keys.journal_key(subscription_id, self.plan.state.persisted_sequence + 1, 0),
            )
        carry = keys.subscription_key(keys.CARRY, subscription_id)
        if len(self.result.carried):
            batch.put(carry, seal(keys.CARRY, pack_entries(self.result.carried, compress=False)))
        else:
            batch.delete(carry)
        state = self._state._replace(next_block_id=self.result.next_block_id)
        batch.put(keys.subscription_key(keys.STATE, subscription_id), state.encode())
        self._store.write(batch, sync=True)


def choose_runs(blocks: Iterable[BlockDescriptor], runs_max: int) -> frozenset[int]:
    """Which runs of a slice to merge: none below `runs_max`, else two or more small ones of similar size.

    Merging sizes that are alike keeps the work logarithmic: a large run is not rewritten for each small one.
    """
    sizes: dict[int, int] = {}
    for block in blocks:
        sizes[block.run_id] = sizes.get(block.run_id, 0) + block.entries
    if len(sizes) < runs_max:
        return frozenset()
    ascending = sorted(sizes, key=lambda run_id: (sizes[run_id], run_id))
    total = 0
    for count, run_id in enumerate(ascending):
        if count >= 2 and sizes[run_id] > 2 * total:
            return frozenset(ascending[:count])
        total += sizes[run_id]
    return frozenset(ascending)


def _by_slice(staged: SortedEntries, near: tuple[int, int], width_ms: int) -> dict[SliceId, _SlicePart]:
    """Split everything but `near` by slice."""
    parts: dict[SliceId, _SlicePart] = {}
    for start, end in ((0, near[0]), (near[1], len(staged))):
        at = start
        while at < end:
            slice_id = SliceId(width_ms, staged.first_ms(at) // width_ms)
            stop = min(end, staged.index_of(slice_id.start_ms + width_ms))
            parts.setdefault(slice_id, _SlicePart(staged)).ranges.append((at, stop))
            at = stop
    return parts
