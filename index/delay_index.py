"""One subscription's delay index: what is due when, what was handed out, what is known acknowledged.

Called by the core's thread only. Nothing here reads the store but for loading a block that is due, and
nothing writes it: changes go to the journal, and a PersistJob turns them into slices.

Invariants (walked by `check`): held and acknowledged are disjoint and above the mark-delete position;
popped is a subset of held; every held position is in staging, in a carried run or in a block of a slice
that is not finished, unless a block is corrupt and the audit for it is still to come. A position always has
the same deliver_at_ms (messages are immutable), so that a second copy of an entry, left over from before an
UNACK, is equal to the first.
"""

from __future__ import annotations

import logging

from tidegate.index.context import Context
from tidegate.index.entry import ENTRY_BYTES, Entries, bounds
from tidegate.index.errors import CorruptBlockError, StorageError, TidegateIndexError
from tidegate.index.format.block import BlockDescriptor, load_block
from tidegate.index.format.keys import SliceId
from tidegate.index.format.manifest import Identity, State
from tidegate.index.journal import JournalLog, RecordType
from tidegate.index.merge import RunHeap, Taken
from tidegate.index.names import SubscriptionName
from tidegate.index.persist import PersistJob, PersistPlan, SlicePlan, choose_runs
from tidegate.index.popped import PoppedLog
from tidegate.index.positions import Position, PositionBatch, PositionSet
from tidegate.index.recovery import Recovered, Replayed
from tidegate.index.slices import Block, BlockOwner, Slice
from tidegate.index.sort import sort_entries
from tidegate.index.staging import Staging
from tidegate.index.stats import IndexStats, SliceStats
from tidegate.index.verify import check_index
from tidegate.index.width import WidthDecision, WidthLook, WidthMemory

_LOG = logging.getLogger(__name__)
_NONE = PositionSet()
_BLOCK_MEMORY_BYTES = 600
_DEAD_SHARE = 8


class DelayIndex:
    """All entries of one subscription. Obtained from Catalog only."""

    def __init__(
        self,
        context: Context[DelayIndex],
        identity: Identity,
        log: JournalLog,
        width_ms: int,
        width_auto: bool,
    ) -> None:
        self.name: SubscriptionName = identity.name
        self.incarnation = identity.incarnation
        self.log = log
        self._context = context
        self._held = PositionSet(tracked=True)
        self._acknowledged = PositionSet(tracked=True)
        self._popped = PositionSet()
        self._mark = (-1, -1)
        self._width_ms = width_ms
        self._width_auto = width_auto
        self._width_memory = WidthMemory()
        self._width_look: WidthLook | None = None
        self._width_was_set = False
        self._persisted_ns: int | None = None
        self._heap = RunHeap()
        self._removals = 0
        """Changes that may have taken staged entries out of `held`."""
        self._staging = self._new_staging()
        self._frozen: Staging | None = None
        self._slices: dict[SliceId, Slice] = {}
        self._cleared: set[SliceId] = set()
        self._settling: set[Slice] = set()
        self._finished_entries = 0
        self._consumed: set[Slice] = set()
        self._quarantined: list[Block] = []
        self._quarantined_total = 0
        self._audit = False
        self._unheld = PositionSet()
        self._acknowledgements = 0
        self._version = 0
        self._next_block_id = 1
        self._held_versions: dict[int, int] = {}
        self._acknowledged_versions: dict[int, int] = {}
        self._orphans: list[bytes] = []
        self._uncertain: set[SliceId] = set()
        self._job: PersistJob | None = None
        self._job_is_stale = False
        self._width_was_set = False
        self._job_journal_bytes = 0

    @classmethod
    def restored(cls, context: Context[DelayIndex], found: Recovered) -> DelayIndex:
        """The index as recovered from the store, with its journal replayed."""
        state = found.state
        log = JournalLog(found.subscription_id)
        index = cls(context, found.identity, log, state.slice_width_ms, state.slice_width_auto)
        index._width_memory = WidthMemory(settled=bool(found.slices))
        index.log.persisted_sequence = found.state.persisted_sequence
        index._version = found.state.version
        index._next_block_id = found.state.next_block_id
        index._mark = found.state.mark_delete
        index._held, index._held_versions = found.held, found.held_versions
        index._acknowledged, index._acknowledged_versions = found.acknowledged, found.acknowledged_versions
        index._staging = index._new_staging()
        index._staging.add(found.carried)
        for slice_id, blocks in found.slices.items():
            made = index._slices[slice_id] = Slice(slice_id, index._held, index._load)
            made.exchange((), blocks, index._heap)
        index._audit = found.audit
        for record in found.reader.records():
            index._replay(record)
        index.log.last_sequence = found.reader.last_sequence
        index.log.size_bytes = found.reader.size_bytes
        index.log.oldest_ms = context.clock.now_ms() if found.reader.size_bytes else None
        context.journal.size_bytes += found.reader.size_bytes
        index._want_if_useful()
        if found.damaged or found.reader.damaged:
            context.wanting.add(index)
        return index

    # ---- entries

    def add(self, entries: Entries) -> int:
        """Stage entries; those held, acknowledged or up to the mark-delete position are ignored.

        Returns a token: the entries are durable when `Catalog.durable_token` has reached it.
        Raises InvalidEntriesError if an id is out of range; nothing is added then.
        """
        fresh = self._apply_add(entries.validated())
        journal = self._context.journal
        if not len(fresh):
            return journal.appended_token
        self._context.added_entries += len(fresh)
        token = journal.add(self.log, fresh, self._context.clock.now_ms())
        self._context.due_changed(self)
        return token

    def pop_due(self, now_ms: int, limit: int) -> Entries:
        """Hand out entries with deliver_at_ms <= now_ms, in (deliver_at_ms, ledger_id, entry_id) order.

        At most `limit`. Fewer means that there are no more, unless `next_due_ms() <= now_ms` still: then call
        again (only so many entries are looked at in one call, to bound the pause, and the last few of a
        `limit` of a thousand or more may be left where several runs overlap).
        Raises StorageError if a block cannot be read; nothing is lost then.
        """
        if limit <= 0:
            return Entries.empty()
        try:
            return self._heap.pop(now_ms, limit, self._context.options.pop_scan_entries, self._accept)
        finally:
            self._settle()
            self._context.due_changed(self)

    def next_due_ms(self) -> int | None:
        """When the earliest entry not handed out is due, or a lower bound of it; None if there is none."""
        key = self._heap.first_key()
        return None if key is None else key[0]

    def prefetch(self, now_ms: int) -> None:
        """Load or sort the next one that is due within the prefetch time."""
        key = self._heap.first_key()
        before_ms = now_ms + self._context.options.prefetch_ms
        if key is not None and key[0] <= before_ms and self._heap.open_next(before_ms + 1):
            self._settle()
            self._context.due_changed(self)

    def rewind(self, in_flight: PositionSet) -> None:
        """Hand out again everything held, but for the positions `in_flight`."""
        self._popped = in_flight.intersection(self._held)
        if self._frozen is not None:
            self._frozen.rewind()
        self._staging.rewind()
        for each in self._slices.values():
            each.rewind(self._heap)
        self._settling = {each for each in self._settling if each.active}
        self._context.due_changed(self)

    def mark_popped(self, positions: PositionSet) -> None:
        """The broker has these positions already: do not hand them out before a rewind."""
        self._popped.update(positions.intersection(self._held))

    # ---- positions

    def held(self) -> PositionSet:
        """Positions the index answers for: a snapshot, made at the cost of a pointer a ledger."""
        return self._held.snapshot()

    def acknowledged(self) -> PositionSet:
        """Positions known acknowledged, above the mark-delete position: a snapshot, as `held`."""
        return self._acknowledged.snapshot()

    def acknowledge(self, positions: PositionSet) -> int:
        """Move positions from held (if they are there) to acknowledged; a token as of `add`."""
        journal = self._context.journal
        if positions.issubset(self._acknowledged):
            return journal.appended_token
        self._apply_acknowledge(positions)
        self._context.due_changed(self)
        return journal.positions(self.log, RecordType.ACKNOWLEDGE, positions, self._context.clock.now_ms())

    def unacknowledge(self, positions: PositionSet) -> int:
        """Forget acknowledgements (the cursor was reset); the broker will add what it reads again."""
        journal = self._context.journal
        if positions.isdisjoint(self._acknowledged):
            return journal.appended_token
        self._acknowledged.difference_update(positions)
        return journal.positions(self.log, RecordType.UNACKNOWLEDGE, positions, self._context.clock.now_ms())

    def mark_delete(self, ledger_id: int, entry_id: int) -> int:
        """Set the cursor's persisted mark-delete position; everything up to it leaves held and acknowledged.

        It may go back (a seek): positions above it can then be added again, and nothing is known
        acknowledged, because a seek makes the cursor forget that.
        """
        journal = self._context.journal
        if (ledger_id, entry_id) == self._mark:
            return journal.appended_token
        goes_back = (ledger_id, entry_id) < self._mark
        self._apply_mark_delete(ledger_id, entry_id)
        self._context.due_changed(self)
        token = journal.numbers(
            self.log, RecordType.MARK_DELETE, ledger_id, entry_id, self._context.clock.now_ms()
        )
        if goes_back:
            # Joined with a later one, it would not be known that it went back and what that made forgotten.
            journal.cut(self.log)
        return token

    def clear(self) -> int:
        """Forget every entry and acknowledgement; the mark-delete position and the width stay."""
        self._apply_clear()
        self._context.due_changed(self)
        return self._context.journal.numbers(self.log, RecordType.CLEAR, 0, 0, self._context.clock.now_ms())

    def set_slice_width(self, width_ms: int, *, auto: bool = False) -> int:
        """Width, in ms, of the slices that entries spilled from now on go to; slices that exist keep theirs.

        With `auto` it is the width to begin with: each persist may choose another. Returns a token as of
        `add`. Raises ValueError if the width is not positive.
        """
        if not 1 <= width_ms < 1 << 53:
            raise ValueError(f"a slice is 1 ms or wider, not {width_ms}")
        if (width_ms, auto) == (self._width_ms, self._width_auto):
            return self._context.journal.appended_token
        self._apply_width(width_ms, auto)
        return self._context.journal.numbers(
            self.log, RecordType.WIDTH, width_ms, int(auto), self._context.clock.now_ms()
        )

    @property
    def slice_width_ms(self) -> int:
        """Width of the slices that entries spilled from now on go to."""
        return self._width_ms

    @property
    def slice_width_auto(self) -> bool:
        """Whether that width is chosen anew by each persist."""
        return self._width_auto

    @property
    def mark_delete_position(self) -> Position:
        """The persisted mark-delete position as last told, (-1, -1) before."""
        return self._mark

    def take_unheld(self) -> PositionSet:
        """Positions lost to corrupt blocks since the last call: they are no longer held, read them again."""
        taken, self._unheld = self._unheld, PositionSet()
        return taken

    # ---- the changes themselves, also made by replay

    def _replay(self, record: Replayed) -> None:
        """Apply a journal record. Doing so twice changes nothing."""
        match record.record_type, record.content:
            case RecordType.ADD, Entries() as entries:
                self._apply_add(entries)
            case RecordType.ACKNOWLEDGE, PositionSet() as positions:
                self._apply_acknowledge(positions)
            case RecordType.UNACKNOWLEDGE, PositionSet() as positions:
                self._acknowledged.difference_update(positions)
            case RecordType.MARK_DELETE, (int() as ledger_id, int() as entry_id):
                self._apply_mark_delete(ledger_id, entry_id)
            case RecordType.WIDTH, (int() as width_ms, int() as auto):
                self._apply_width(width_ms, bool(auto))
            case RecordType.CLEAR, _:
                self._apply_clear()
            case _:
                # A damaged record may have taken an acknowledgement or the mark-delete position back.
                # Keeping either could ignore an entry that is added again; forgetting costs a redelivery.
                self._acknowledged.clear()
                self._mark = (-1, -1)

    def _apply_add(self, entries: Entries) -> Entries:
        """Stage the entries that are new; returns them."""
        ledger_id, entry_id = self._mark
        if len(entries) and bounds(entries.ledger_id)[0] <= ledger_id:
            above = (entries.ledger_id > ledger_id) | (
                (entries.ledger_id == ledger_id) & (entries.entry_id > entry_id)
            )
            entries = entries.take(above)
        fresh = self._held.add_new(entries, self._acknowledged)
        if not fresh.all():
            entries = entries.take(fresh)
        if len(entries):
            self._staging.add(entries)
        return entries

    def _apply_acknowledge(self, positions: PositionSet) -> None:
        self._removals += 1
        self._held.difference_update(positions)
        self._popped.difference_update(positions)
        above = positions.snapshot()
        above.discard_up_to(*self._mark)
        self._acknowledged.update(above)
        self._acknowledgements += len(positions)
        self._settle()

    def _apply_mark_delete(self, ledger_id: int, entry_id: int) -> None:
        if (ledger_id, entry_id) < self._mark:
            self._acknowledged.clear()
        self._mark = (ledger_id, entry_id)
        self._removals += 1
        self._acknowledgements += self._held.discard_up_to(ledger_id, entry_id)
        self._acknowledged.discard_up_to(ledger_id, entry_id)
        self._popped.discard_up_to(ledger_id, entry_id)
        self._settle()

    def _apply_width(self, width_ms: int, auto: bool) -> None:
        self._width_ms, self._width_auto = width_ms, auto
        self._width_memory, self._width_look = WidthMemory(), None
        self._width_was_set = True

    def _apply_clear(self) -> None:
        self._removals += 1
        for positions in (self._held, self._acknowledged, self._popped):
            positions.clear()
        self._staging.leave_heap()
        self._staging = self._new_staging()
        if self._frozen is not None:
            self._frozen.leave_heap()
            self._frozen = None
        self._job_is_stale = self._job is not None
        for each in self._slices.values():
            each.leave(self._heap)
        self._cleared.update(self._slices)
        self._slices.clear()
        self._finished_entries = 0
        self._settling.clear()
        self._consumed.clear()
        self._quarantined = []
        self._audit = False
        self._unheld = PositionSet()
        self._want_if_useful()

    def _accept(self, taken: Taken) -> Entries:
        """What of consumed parts is handed out, in order: held, not popped. Owners keep all that is held."""
        by_log: dict[PoppedLog, list[Entries]] = {}
        for run, part in taken:
            run.owner.consumed(run, len(part))
            by_log.setdefault(run.owner.popped, []).append(part)
            if isinstance(run.owner, BlockOwner):
                self._consumed.add(run.owner.block.of)
        accepted = [self._accept_into(log, Entries.concat(parts)) for log, parts in by_log.items()]
        live = Entries.concat(accepted)
        return sort_entries(live) if len(taken) > 1 else live

    def _accept_into(self, log: PoppedLog, entries: Entries) -> Entries:
        """What of consumed entries is handed out; their log keeps all that is held."""
        batch = PositionBatch(entries)
        held = self._held.contains(batch)
        if not held.all():
            entries = entries.take(held)
            batch = PositionBatch(entries)
        log.append(entries, self._held, batch.positions())
        fresh = self._popped.add_new(batch, _NONE)
        return entries if fresh.all() else entries.take(fresh)

    def _load(self, block: Block) -> Entries | None:
        """Read a block that is due; a corrupt one is put aside for the next persist."""
        try:
            return load_block(self._context.store, self.log.subscription_id, block.of.id, block.descriptor)
        except CorruptBlockError as error:
            self._consumed.add(block.of)
            self._report_corrupt(block, str(error))
            return None

    def _report_corrupt(self, block: Block, reason: str) -> None:
        if block not in self._quarantined:
            _LOG.error("%s: %s; its positions will be read again", self.name, reason)
            self._quarantined.append(block)
            self._quarantined_total += 1
            self._context.corrupt_records += 1
            self._context.wanting.add(self)

    def _settle(self) -> None:
        """Find slices of which nothing is held any more. O(1) amortised for each acknowledgement."""
        for each in self._consumed:
            if each.used_up() and not each.finished:
                self._settling.add(each)
                each.settle_at = self._acknowledgements
        self._consumed.clear()
        if not self._held and self._slices:
            for each in self._slices.values():
                self._finish(each)
            self._settling.clear()
            self._context.wanting.add(self)
        for each in [each for each in self._settling if each.settle_at <= self._acknowledgements]:
            left = each.popped.prune(self._held)
            if left:
                each.settle_at = self._acknowledgements + left
            else:
                self._finish(each)
                self._settling.discard(each)
        if self._worth_dropping():
            self._context.wanting.add(self)

    def _finish(self, each: Slice) -> None:
        if not each.finished:
            each.finish(self._heap)
            self._finished_entries += each.entries()
            if self.log.oldest_ms is None:
                # Nothing need be in the journal for it to be dropped one day.
                self.log.oldest_ms = self._context.clock.now_ms()

    def _count_finished(self) -> None:
        self._finished_entries = sum(each.entries() for each in self._slices.values() if each.finished)

    def _worth_dropping(self) -> bool:
        """Whether the finished slices are large enough to be dropped for their own sake."""
        return self._finished_entries >= self._context.options.drop_entries

    # ---- persisting; the catalog decides when

    @property
    def staged_entries(self) -> int:
        """Entries in staging that a persist would take (not those it has taken)."""
        return len(self._staging)

    def begin_persist(self, now_ms: int) -> PersistJob:
        """Take everything for a persist. Cheap: snapshots share their bitmaps, arrays are not copied."""
        if self._job is not None:
            raise TidegateIndexError(f"{self.name}: a persist is on its way already")
        self._context.wanting.discard(self)
        self._version += 1
        self._frozen, self._staging = self._staging, self._new_staging()
        self._finish_dead_slices()
        runs_max = self._context.options.merge_runs
        slices = {}
        for each in self._slices.values():
            blocks = [block.descriptor for block in each.blocks.values()]
            merge = frozenset[int]() if each.finished else choose_runs(blocks, runs_max)
            slices[each.id] = SlicePlan(blocks, merge, each.finished)
        self._finished_entries = 0  # this persist drops them
        stored = sum(each.entries() for each in self._slices.values() if not each.finished)
        plan = PersistPlan(
            subscription_id=self.log.subscription_id,
            state=State(
                self._version,
                self._context.journal.cut(self.log),
                self._next_block_id,
                self._width_ms,
                self._mark,
                self._width_auto,
            ),
            persisted_before=self.log.persisted_sequence,
            now_ms=now_ms,
            staged=self._frozen.parts(),
            all_held=self._frozen.removals == self._removals,
            many_dead=_DEAD_SHARE * (stored + len(self._frozen) - len(self._held)) > stored,
            held=self._held.snapshot(),
            acknowledged=self._acknowledged.snapshot(),
            dirty_held=self._held.take_dirty(),
            dirty_acknowledged=self._acknowledged.take_dirty(),
            held_versions=dict(self._held_versions),
            acknowledged_versions=dict(self._acknowledged_versions),
            slices=slices,
            cleared=set(self._cleared),
            quarantined=[(block.of.id, block.descriptor) for block in self._quarantined],
            orphans=list(self._orphans),
            uncertain=set(self._uncertain),
            audit=self._audit,
            since_ms=self._since_persist_ms(),
            width_memory=self._width_memory,
        )
        self._job = PersistJob(self._context.store, self._context.options, plan)
        self._job_is_stale = False
        self._width_was_set = False
        self._job_journal_bytes = self.log.size_bytes
        return self._job

    def finish_persist(self) -> None:
        """Apply what the persist did."""
        job = self._job
        if job is None:
            raise TidegateIndexError(f"{self.name}: no persist is on its way")
        self._job = None
        plan, result = job.plan, job.result
        sequence = plan.state.persisted_sequence
        newer = plan.now_ms if self.log.last_sequence > sequence else None
        self._context.journal.persisted(self.log, sequence, self._job_journal_bytes, newer)
        self._next_block_id = result.next_block_id
        self._take_width(result.width)
        self._held_versions = result.held_versions
        self._acknowledged_versions = result.acknowledged_versions
        self._orphans = self._orphans[len(plan.orphans) :]
        self._uncertain -= plan.uncertain
        self._cleared -= plan.cleared
        if self._job_is_stale:
            # A CLEAR came meanwhile: what was just written is of before it.
            self._cleared.update(result.exchanged)
            self._held.dirty.update(result.held_versions)
            self._acknowledged.dirty.update(result.acknowledged_versions)
        else:
            if self._frozen is not None:
                self._frozen.leave_heap()
                self._frozen = None
            self._staging.add_run(result.carried)
            self._exchange(result.exchanged)
            self._audit = False
            done = set(plan.quarantined)
            self._quarantined = [b for b in self._quarantined if (b.of.id, b.descriptor) not in done]
            self._lose(result.lost)
            for slice_id, descriptor in result.corrupt:
                of = self._slices.get(slice_id)
                block = None if of is None else of.blocks.get(descriptor.block_id)
                if block is not None:
                    self._report_corrupt(block, f"block {descriptor.block_id} of slice {slice_id} is corrupt")
        self._delete_retired(job)
        self._settle()
        self._want_if_useful()
        self._context.due_changed(self)

    def _since_persist_ms(self) -> int | None:
        """Milliseconds since this was last called, None the first time."""
        now_ns, before_ns = self._context.clock.monotonic_ns(), self._persisted_ns
        self._persisted_ns = now_ns
        return None if before_ns is None else (now_ns - before_ns) // 1_000_000

    def _take_width(self, decision: WidthDecision | None) -> None:
        """What a persist has decided about the width, unless somebody has set one meanwhile."""
        if decision is None or self._width_was_set:
            return
        if decision.width_ms != self._width_ms:
            why = "" if decision.look is None else f": {decision.look.reason()}"
            _LOG.info("%s: slice width %d ms, was %d ms%s", self.name, decision.width_ms, self._width_ms, why)
        self._width_ms, self._width_memory = decision.width_ms, decision.memory
        self._width_look = decision.look or self._width_look

    def abandon_persist(self) -> None:
        """A persist has failed: everything is as before it, and will be tried again."""
        job = self._job
        if job is None:
            raise TidegateIndexError(f"{self.name}: no persist is on its way")
        self._job = None
        # Even its commit may be in the store: a sync can fail after the write.
        self._orphans.extend(job.result.written_ahead)
        self._uncertain.update(job.result.exchanged)
        self._next_block_id = max(self._next_block_id, job.result.next_block_id)
        self._count_finished()
        self._held.dirty |= job.plan.dirty_held
        self._acknowledged.dirty |= job.plan.dirty_acknowledged
        if self._frozen is not None:
            self._staging.absorb(self._frozen)
            self._frozen = None
        self._context.wanting.add(self)
        self._context.due_changed(self)

    def remove(self) -> None:
        """The subscription is gone: give its share of the journal back."""
        self._context.journal.persisted(self.log, self.log.last_sequence, self.log.size_bytes, None)
        self.log.removed = True
        self._context.wanting.discard(self)

    def _delete_retired(self, job: PersistJob) -> None:
        batch = job.deletion()
        if len(batch):
            try:
                self._context.store.write(batch, sync=False)
            except StorageError as error:
                _LOG.warning("%s: deleting merged blocks is tried again: %s", self.name, error)
                self._orphans.extend(job.result.retired)

    def _exchange(self, exchanged: dict[SliceId, tuple[list[int], list[BlockDescriptor]]]) -> None:
        for slice_id, (removed, added) in exchanged.items():
            each = self._slices.get(slice_id)
            if each is None:
                each = self._slices[slice_id] = Slice(slice_id, self._held, self._load)
            each.exchange(removed, added, self._heap)
            if each.blocks:
                self._consumed.add(each)
                self._settling.discard(each)
            else:
                each.leave(self._heap)
                self._settling.discard(each)
                del self._slices[slice_id]
        self._count_finished()

    def _lose(self, lost: PositionSet) -> None:
        if lost:
            gone = lost.intersection(self._held)
            for part in self._staging.parts():
                gone.difference_update(PositionSet.of_entries(part))
            self._removals += 1
            self._held.difference_update(gone)
            self._popped.difference_update(gone)
            self._unheld.update(gone)
            _LOG.error("%s: %d positions are no longer held", self.name, len(gone))

    def _finish_dead_slices(self) -> None:
        """Slices with no block that can hold a held ledger are finished, whenever they are due."""
        lowest = self._held.first_ledger()
        for each in self._slices.values():
            if not each.finished and (
                lowest is None
                or all(block.descriptor.max_ledger_id < lowest for block in each.blocks.values())
            ):
                self._finish(each)
                self._settling.discard(each)

    # ---- telling

    def stats(self) -> IndexStats:
        """Numbers for metrics and status. O(ledgers + blocks)."""
        frozen = 0 if self._frozen is None else len(self._frozen)
        staged = len(self._staging) + frozen
        slices = list(self._slices.values())
        loaded = sum(each.loaded_entries() for each in slices if each.active)
        blocks = [block.descriptor for each in slices for block in each.blocks.values()]
        bitmaps = (self._held, self._acknowledged, self._popped)
        return IndexStats(
            name=self.name,
            held=len(self._held),
            popped=len(self._popped),
            acknowledged=len(self._acknowledged),
            staged=staged,
            slices_in_memory=sum(each.active and not each.finished for each in slices),
            slices_on_disk=len(slices),
            blocks=len(blocks),
            blocks_quarantined=self._quarantined_total,
            memory_bytes=(staged + loaded) * ENTRY_BYTES
            + sum(positions.memory_bytes() for positions in bitmaps)
            + len(blocks) * _BLOCK_MEMORY_BYTES,
            disk_bytes=sum(block.size_bytes for block in blocks) + self.log.size_bytes,
            journal_bytes=self.log.size_bytes,
            next_due_ms=self.next_due_ms(),
            slice_width_ms=self._width_ms,
            slice_width_auto=self._width_auto,
            slice_width_reason=self._width_reason(),
            slices=[
                SliceStats(each.id.start_ms, each.id.width_ms, each.entries(), each.state())
                for each in sorted(slices, key=lambda each: (each.id.start_ms, each.id.width_ms))
            ],
        )

    def _width_reason(self) -> str:
        if not self._width_auto:
            return "fixed"
        return (
            "no spill has been looked at since the start"
            if self._width_look is None
            else self._width_look.reason()
        )

    def check(self) -> None:
        """Walk every invariant, reading every block. Raises CheckError with the state. O(everything)."""
        check_index(self)

    def _want_if_useful(self) -> None:
        runs_max = self._context.options.merge_runs
        if (
            self._cleared
            or self._quarantined
            or self._audit
            or self._worth_dropping()
            or any(each.runs() >= runs_max for each in self._slices.values())
        ):
            self._context.wanting.add(self)

    def _new_staging(self) -> Staging:
        staging = Staging(self._heap, self._held, self._context.options.seal_entries)
        staging.removals = self._removals
        return staging
