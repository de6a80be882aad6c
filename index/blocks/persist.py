"""A persist: one commit that moves everything of a subscription from memory into durable slices.

`run` is a pure function of its plan and the store, for any thread. It writes blocks and bitmaps ahead in
pieces (`block_writer`). The last, synced piece makes them count: slice records, state, carry-over, and the
removal of their predecessors. It merges no runs, so its duration depends on the staged entries alone.

Invariants: an entry omitted as dead is dead in the `held` bitmaps of the same commit; a slice is dropped only
if these have none of its entries; block ids and versions are never reused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tidegate.index.blocks.block_writer import BlockIds, BlockWriter
from tidegate.index.blocks.leftovers import Remains
from tidegate.index.blocks.width import (
    WidthDecision,
    WidthEvidence,
    WidthMemory,
    by_second,
    choose,
    may_scatter,
)
from tidegate.index.entries.distinct import ledgers_of
from tidegate.index.entries.entry import ENTRY_BYTES, Entries
from tidegate.index.entries.sort import SortedEntries
from tidegate.index.errors import CorruptBlockError, CorruptRecordError
from tidegate.index.format import keys
from tidegate.index.format.block import BlockDescriptor, load_block
from tidegate.index.format.envelope import wrap
from tidegate.index.format.keys import SliceId
from tidegate.index.format.manifest import State, encode_keys, encode_slice
from tidegate.index.format.moved import encode_moved
from tidegate.index.format.packing import pack_entries
from tidegate.index.journal.damaged_values import set_aside
from tidegate.index.options import IndexOptions
from tidegate.index.state.moved import MovedSnapshot
from tidegate.index.state.positions import PositionSet
from tidegate.index.store import Batch, Store

_LOOK_UP_ENTRIES = 262_144
_UNBROKEN_ENTRIES = 65_536

StoredBlock = tuple[SliceId, BlockDescriptor]


@dataclass(frozen=True)
class SlicePlan:
    """A slice at the persist's begin, to be dropped if `finished`."""

    blocks: Sequence[BlockDescriptor] = ()
    finished: bool = False


@dataclass(frozen=True)
class PersistPlan:
    """The input of a persist; made on the core's thread, never changed afterwards.

    state: the subscription's state for the commit, but for next_block_id, the first id to use.
    persisted_before: the persisted sequence number until then.
    all_held: True if no staged entry was acknowledged or forgotten since its staging.
    held, acknowledged: snapshots, at least of the ledgers that have changed or have carried entries.
    moved: at least of the ledgers that have changed; all if the persist looks for damage.
    dirty_held, dirty_acknowledged, dirty_moved: ledgers whose bitmaps, or moved positions, must be written.
    held_versions, acknowledged_versions, moved_versions: stored versions of these ledgers' values, if any; of
        all ledgers if the persist looks for damage.
    quarantined: blocks known to be corrupt.
    remains: leftovers of other jobs in the store, to be repaired.
    audit: find held positions without a readable entry, though no block is known to be corrupt.
    since_ms: milliseconds since the last persist, None without one since the start.
    width_memory: the memory of the last choice of an automatic slice width.
    """

    subscription_id: int
    state: State
    persisted_before: int
    now_ms: int
    staged: list[Entries]
    all_held: bool
    held: PositionSet
    acknowledged: PositionSet
    moved: MovedSnapshot
    dirty_held: set[int]
    dirty_acknowledged: set[int]
    dirty_moved: set[int]
    held_versions: dict[int, int]
    acknowledged_versions: dict[int, int]
    moved_versions: dict[int, int]
    slices: dict[SliceId, SlicePlan]
    quarantined: list[StoredBlock]
    remains: Remains
    audit: bool
    since_ms: int | None
    width_memory: WidthMemory


@dataclass
class PersistResult:
    """The result of a persist, for the core to apply.

    held: the positions held according to the commit, of the ledgers in the plan.
    held_versions, acknowledged_versions, moved_versions: new versions of ledgers' values, None for a ledger
        that has none any more.
    carried_ledgers: the ledgers of `carried`.
    retired: keys of replaced blocks, for the core to delete once it no longer loads them, else for recovery.
    width: the chosen slice width, None if it is not automatic or nothing was spilled.
    """

    exchanged: dict[SliceId, tuple[list[int], list[BlockDescriptor]]] = field(default_factory=dict)
    carried: Entries = field(default_factory=Entries.empty)
    carried_ledgers: set[int] = field(default_factory=set)
    lost: PositionSet = field(default_factory=PositionSet)
    corrupt: list[StoredBlock] = field(default_factory=list)
    held_versions: dict[int, int | None] = field(default_factory=dict)
    acknowledged_versions: dict[int, int | None] = field(default_factory=dict)
    moved_versions: dict[int, int | None] = field(default_factory=dict)
    held: PositionSet = field(default_factory=PositionSet)
    retired: list[bytes] = field(default_factory=list)
    width: WidthDecision | None = None


class _SlicePart:
    """The staged entries of one slice; unpacked on demand."""

    __slots__ = ("_staged", "ranges")

    def __init__(self, staged: SortedEntries) -> None:
        self._staged = staged
        self.ranges: list[tuple[int, int]] = []

    def entries(self) -> Entries:
        """All entries."""
        return Entries.concat(self._staged.entries(start, stop) for start, stop in self.ranges)

    def pieces(self, size: int) -> Iterable[Entries]:
        """All entries, at most `size` at a time."""
        if len(self.ranges) > 1:
            together = self.entries()
            yield from (
                together.part(at, min(len(together), at + size)) for at in range(0, len(together), size)
            )
            return
        for start, stop in self.ranges:
            yield from (self._staged.entries(at, min(stop, at + size)) for at in range(start, stop, size))


class PersistJob:
    """One persist of one subscription. If the store fails, `run` raises StorageError and nothing counts."""

    def __init__(self, store: Store, options: IndexOptions, plan: PersistPlan, ids: BlockIds) -> None:
        self._store = store
        self._options = options
        self.plan = plan
        self.result = PersistResult()
        self._state = plan.state
        self._held = plan.held
        self._dirty_held = set(plan.dirty_held)
        self._quarantined: dict[SliceId, list[int]] = {}
        for slice_id, block in plan.quarantined:
            self._quarantined.setdefault(slice_id, []).append(block.block_id)
        self._writer = BlockWriter(
            store, plan.subscription_id, plan.state.version, ids=ids, piece_bytes=options.write_piece_bytes
        )
        self._commit = Batch()
        self.staged_entries = sum(map(len, plan.staged))
        self._unbroken = 0
        self.spilled_entries = 0
        """How many of `staged_entries` are written. Read by the core's thread meanwhile."""
        self.in_order: SortedEntries | None = None
        """The staged entries that are held, sorted, while `run` has them; for any thread."""
        self.between: Callable[[], None] = lambda: None
        """Called by `run` now and then."""

    def run(self) -> None:
        """Do the whole persist."""
        try:
            self._run()
        finally:
            self.in_order = None

    def _run(self) -> None:
        staged = self.in_order = SortedEntries.of(self._live(), unique=True)
        self._find_lost(staged)
        near = self._near(staged)
        self.result.carried = staged.entries(*near)
        self.result.carried_ledgers = ledgers_of(self.result.carried)
        self._delete_cleared()
        self._choose_width(staged, near)
        parts = _by_slice(staged, near, self._state.slice_width_ms)
        changed = {slice_id for slice_id, plan in self.plan.slices.items() if plan.finished}
        changed.update(slice_id for slice_id, _ in self.plan.quarantined)
        changed.update(self.plan.remains.uncertain)
        for slice_id in sorted(changed | parts.keys()):
            self._rewrite(slice_id, parts.get(slice_id))
        self._put_bitmaps()
        self._quarantine()
        self._write_commit()

    def read(self, stored: StoredBlock) -> Entries | None:
        """A block's entries; None, and a note, if it is corrupt."""
        slice_id, descriptor = stored
        try:
            return load_block(self._store, self.plan.subscription_id, slice_id, descriptor)
        except CorruptBlockError:
            self.result.corrupt.append(stored)
            return None

    def _choose_width(self, staged: SortedEntries, near: tuple[int, int]) -> None:
        """Choose an automatic slice width for the spilled entries, in force from this persist on."""
        if not self._state.slice_width_auto or near == (0, len(staged)):
            return
        width_ms = self._state.slice_width_ms
        skipped = self.plan.width_memory.skipped()
        if skipped is not None and not self._may_scatter(staged, near):
            self.result.width = WidthDecision(width_ms, skipped)
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
        evidence = WidthEvidence(width_ms, self.plan.now_ms, seconds, counts, slices, self.plan.since_ms)
        self.result.width = choose(evidence, self.plan.width_memory, self._options)
        self._state = self._state._replace(slice_width_ms=self.result.width.width_ms)

    def _may_scatter(self, staged: SortedEntries, near: tuple[int, int]) -> bool:
        """True if the present width may be far too narrow for the spilled entries that are not overdue."""
        start = max(near[1], staged.index_of(self.plan.now_ms))
        if start >= len(staged):
            return False
        over_ms = staged.first_ms(len(staged) - 1) - self.plan.now_ms
        return may_scatter(self._state.slice_width_ms, over_ms, len(staged) - start)

    # ---- entries into blocks

    def _live(self) -> list[Entries]:
        if self.plan.all_held:
            return self.plan.staged
        # Smaller groups cost more an entry, a single one costs memory.
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
        """(start, stop) of the entries to stay staged: due within carry_ms of now, if few enough."""
        start = staged.index_of(self.plan.now_ms - self._options.carry_ms)
        stop = staged.index_of(self.plan.now_ms + self._options.carry_ms + 1)
        if stop - start > self._options.staging_budget_bytes // (4 * ENTRY_BYTES):
            return start, start
        return start, stop

    def _rewrite(self, slice_id: SliceId, part: _SlicePart | None) -> None:
        """Give a slice its new blocks: drop finished or corrupt ones, add new entries."""
        plan = self.plan.slices.get(slice_id, SlicePlan())
        gone = set(self._quarantined.get(slice_id, ()))
        if plan.finished:
            gone.update(block.block_id for block in plan.blocks)
        added = [] if part is None else self._spill(slice_id, part)
        removed = [block.block_id for block in plan.blocks if block.block_id in gone]
        self.result.exchanged[slice_id] = (removed, added)
        subscription_id = self.plan.subscription_id
        if plan.finished:
            self._delete_blocks_before(slice_id)
        else:
            # The core may load them until it applies this persist.
            self.result.retired.extend(
                keys.block_key(subscription_id, slice_id, block_id) for block_id in removed
            )
        key = keys.slice_key(subscription_id, slice_id)
        blocks = [block for block in plan.blocks if block.block_id not in gone] + added
        if blocks:
            self._commit.put(key, encode_slice(blocks))
        else:
            self._commit.delete(key)

    def _spill(self, slice_id: SliceId, part: _SlicePart) -> list[BlockDescriptor]:
        run_id = self._writer.ids.upcoming
        added = []
        for entries in part.pieces(self._options.block_entries):
            added.append(self._writer.block(slice_id, run_id, entries))
            self.spilled_entries += len(entries)
            self._unbroken += len(entries)
            if self._unbroken >= _UNBROKEN_ENTRIES:
                self._unbroken = 0
                self.between()
        return added

    # ---- positions

    def _find_lost(self, staged: SortedEntries) -> None:
        """Find held positions without an entry in staging or a readable block, once a block is corrupt."""
        corrupt = set(self.plan.quarantined)
        if not corrupt and not self.plan.audit:
            return
        blocks = [
            (slice_id, block)
            for slice_id, plan in self.plan.slices.items()
            if not plan.finished  # this persist drops it: its positions are not held, or elsewhere, too
            for block in plan.blocks
            if (slice_id, block) not in corrupt
        ]
        lost = self._held.snapshot()
        lost.difference_update(PositionSet.of_entries(staged.entries()))
        lost.difference_update(self.plan.moved.positions)
        if not self.plan.audit:
            low = min(block.min_ledger_id for _, block in corrupt)
            high = max(block.max_ledger_id for _, block in corrupt)
            lost = lost.within(low, high)
        for stored in blocks:
            if any(stored[1].min_ledger_id <= at <= stored[1].max_ledger_id for at in lost.ledgers()):
                # The next persist quarantines a block found corrupt here, and audits again.
                entries = self.read(stored)
                if entries is not None:
                    lost.difference_update(PositionSet.of_entries(entries))
        self.result.lost = lost
        self._held = self._held.difference(lost)
        self._dirty_held.update(lost.ledgers())

    def _put_bitmaps(self) -> None:
        for kind, values, dirty, old, new in (
            (
                keys.HELD,
                self._held.portable_of(self._dirty_held),
                self._dirty_held,
                self.plan.held_versions,
                self.result.held_versions,
            ),
            (
                keys.ACKNOWLEDGED,
                self.plan.acknowledged.portable_of(self.plan.dirty_acknowledged),
                self.plan.dirty_acknowledged,
                self.plan.acknowledged_versions,
                self.result.acknowledged_versions,
            ),
            (
                keys.MOVED,
                self._packed_moved(),
                self.plan.dirty_moved,
                self.plan.moved_versions,
                self.result.moved_versions,
            ),
        ):
            for ledger_id in sorted(dirty & old.keys()):
                self._commit.delete(
                    keys.bitmap_key(kind, self.plan.subscription_id, ledger_id, old[ledger_id])
                )
                new[ledger_id] = None
            version = self.plan.state.version
            for ledger_id, data in values:
                key = keys.bitmap_key(kind, self.plan.subscription_id, ledger_id, version)
                self._writer.put(key, data if kind == keys.MOVED else wrap(kind, data))
                new[ledger_id] = version

    def _packed_moved(self) -> Iterable[tuple[int, bytes]]:
        for ledger_id in sorted(self.plan.dirty_moved):
            entries = self.plan.moved.of_ledger(ledger_id)
            if len(entries):
                yield ledger_id, encode_moved(entries)

    # ---- the commit

    def _delete_blocks_before(self, slice_id: SliceId) -> None:
        """Delete all blocks of a slice that are older than this persist."""
        subscription_id = self.plan.subscription_id
        self._commit.delete_range(
            keys.block_key(subscription_id, slice_id, 0),
            keys.block_key(subscription_id, slice_id, self.plan.state.next_block_id),
        )

    def _delete_cleared(self) -> None:
        for slice_id in sorted(self.plan.remains.cleared):
            self._delete_blocks_before(slice_id)
            self._commit.delete(keys.slice_key(self.plan.subscription_id, slice_id))

    def _quarantine(self) -> None:
        """Set the bytes of corrupt blocks aside; `_rewrite` deletes their keys."""
        if not self.plan.quarantined:
            return
        damaged = []
        for slice_id, block in self.plan.quarantined:
            key = keys.block_key(self.plan.subscription_id, slice_id, block.block_id)
            try:
                value = self._store.get(key)
            except CorruptRecordError:
                continue  # the store itself cannot read it: no bytes to keep
            if value is not None:
                damaged.append((key, value))
        self._commit.extend(set_aside(self._store, damaged, self._options.quarantine_budget_bytes))

    def deletion(self) -> Batch:
        """Deletes the retired blocks; write it once nothing loads them."""
        batch = Batch()
        if self.result.retired:
            for key in self.result.retired:
                batch.delete(key)
            batch.delete(self._retired_key())
        return batch

    def _retired_key(self) -> bytes:
        return keys.intent_key(self.plan.subscription_id, self.plan.state.version, keys.RETIRED_PIECE)

    def leftovers(self) -> list[bytes]:
        """Keys that may be stored without counting after `run` has failed: the commit may be there."""
        return [*self._writer.leftovers(), self._retired_key()]

    def _write_commit(self) -> None:
        subscription_id = self.plan.subscription_id
        commit = self._commit
        for key in self.plan.remains.orphans:
            commit.delete(key)
        if self.result.retired:
            commit.put(self._retired_key(), encode_keys(self.result.retired))
        if self.plan.state.persisted_sequence > self.plan.persisted_before:
            commit.delete_range(
                keys.journal_key(subscription_id, 0, 0),
                keys.journal_key(subscription_id, self.plan.state.persisted_sequence + 1, 0),
            )
        carry = keys.subscription_key(keys.CARRY, subscription_id)
        if len(self.result.carried):
            commit.put(carry, wrap(keys.CARRY, pack_entries(self.result.carried, compress=False)))
        else:
            commit.delete(carry)
        state = self._state._replace(next_block_id=self._writer.ids.upcoming)
        commit.put(keys.subscription_key(keys.STATE, subscription_id), state.encode())
        self.result.held = self._held
        self._writer.commit(commit)
        self._writer.write(sync=True)


def _by_slice(staged: SortedEntries, near: tuple[int, int], width_ms: int) -> dict[SliceId, _SlicePart]:
    parts: dict[SliceId, _SlicePart] = {}
    for start, end in ((0, near[0]), (near[1], len(staged))):
        at = start
        while at < end:
            slice_id = SliceId(width_ms, staged.first_ms(at) // width_ms)
            stop = min(end, staged.index_of(slice_id.start_ms + width_ms))
            parts.setdefault(slice_id, _SlicePart(staged)).ranges.append((at, stop))
            at = stop
    return parts
