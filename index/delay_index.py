"""One subscription's delay index: what is due when, what was handed out, what is known acknowledged.

The facade over its parts: `PositionState` knows where each position stands, `Timeline` what is due when,
`Persisting` turns changes that are in the journal into slices, `Compacting` merges what is in them,
`SliceWidth` and `Quarantine` are what their names say. A change is made in the parts and told to the journal;
replay makes the same changes and tells nobody.

Called by the core's thread only. Nothing here reads the store but for loading a block that is due, and
nothing writes it: changes go to the journal, and jobs that other threads run turn them into slices.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from tidegate.index.compacting import Compacting
from tidegate.index.context import Context
from tidegate.index.entry import Entries
from tidegate.index.errors import CheckError, CorruptBlockError
from tidegate.index.format.block import load_block
from tidegate.index.format.manifest import Identity
from tidegate.index.journal import RECORD_ENTRIES_MAX, JournalLog, RecordType
from tidegate.index.leftovers import Leftovers
from tidegate.index.names import SubscriptionName
from tidegate.index.pacing import Merge
from tidegate.index.persist import PersistJob, PersistResult, StoredBlock
from tidegate.index.persisting import Persisting
from tidegate.index.position_state import PositionState
from tidegate.index.positions import Position, PositionSet
from tidegate.index.quarantine import Quarantine
from tidegate.index.reading import Reading
from tidegate.index.recovery import Recovered, Replayed
from tidegate.index.slice_width import SliceWidth
from tidegate.index.slices import Block
from tidegate.index.stats import IndexStats
from tidegate.index.timeline import Crowding, Timeline

_LOG = logging.getLogger(__name__)


class DelayIndex:
    """All entries of one subscription. Obtained from Catalog only."""

    def __init__(
        self,
        context: Context[DelayIndex],
        identity: Identity,
        log: JournalLog,
        width: SliceWidth,
        *,
        positions: PositionState | None = None,
        quarantine: Quarantine | None = None,
    ) -> None:
        self.name: SubscriptionName = identity.name
        self.incarnation = identity.incarnation
        self.log = log
        self._context = context
        self._positions = positions or PositionState()
        self.damaged = False
        """Whether something of it was found damaged or missing when it was opened: another copy is better."""
        self._quarantine = quarantine or Quarantine()
        self._width = width
        self._timeline = Timeline(self._positions, context.options, context.clock, self._load)
        leftovers = Leftovers()
        self._persisting = Persisting(
            name=self.name,
            store=context.store,
            options=context.options,
            clock=context.clock,
            journal=context.journal,
            log=log,
            positions=self._positions,
            timeline=self._timeline,
            width=width,
            quarantine=self._quarantine,
            leftovers=leftovers,
        )
        self._compacting = Compacting(
            name=self.name,
            subscription_id=log.subscription_id,
            store=context.store,
            options=context.options,
            timeline=self._timeline,
            persisting=self._persisting,
            leftovers=leftovers,
        )

    @classmethod
    def restored(cls, context: Context[DelayIndex], found: Recovered) -> DelayIndex:
        """The index as recovered from the store, with its journal replayed."""
        state = found.state
        log = context.journal.recovered_log(found.subscription_id, state.persisted_sequence)
        index = cls(
            context,
            found.identity,
            log,
            SliceWidth(state.slice_width_ms, state.slice_width_auto, settled=bool(found.slices)),
            positions=PositionState(found.held, found.acknowledged, state.mark_delete, state.generation),
            quarantine=Quarantine(audit=found.audit),
        )
        index._persisting.restore(state, found.held_versions, found.acknowledged_versions)
        index._timeline.stage(found.carried)
        index._timeline.restore(found.slices)
        for record in _joined(found.reader.records()):
            index._replay(record)
        context.journal.replayed(
            log, found.reader.last_sequence, found.reader.size_bytes, context.clock.now_ms()
        )
        index._tell_wishes()
        if found.damaged or found.reader.damaged:
            index.damaged = True
            context.wanting[index] = None
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

        They are in flight from then on. At most `limit`. Fewer means that there are no more, unless
        `next_due_ms() <= now_ms` still: then call again (only so many entries are looked at in one call, to
        bound the pause, and the last few of a `limit` of a thousand or more may be left where several runs
        overlap). Raises StorageError if a block cannot be read; nothing is lost then.
        """
        if limit <= 0:
            return Entries.empty()
        try:
            return self._timeline.pop(now_ms, limit)
        finally:
            self._finish_slices()
            self._context.due_changed(self)

    def next_due_ms(self) -> int | None:
        """When the earliest entry not in flight is due, or a lower bound of it; None if there is none."""
        return self._timeline.next_due_ms()

    def next_load_ms(self) -> int | None:
        """When the earliest entry that is not in memory is due, or a lower bound of it; None without one."""
        return self._timeline.next_load_ms()

    def prefetch(self, now_ms: int) -> None:
        """Load the next block that is due within the prefetch time."""
        if self._timeline.prefetch(now_ms):
            self._finish_slices()
            self._context.due_changed(self)

    def rewind(self, in_flight: PositionSet) -> None:
        """Hand out again everything held, but for the positions `in_flight`."""
        self._positions.rewind(in_flight)
        self._timeline.rewind()
        self._context.due_changed(self)

    def mark_in_flight(self, positions: PositionSet) -> None:
        """The broker has these positions already: do not hand them out before a rewind."""
        self._positions.mark_in_flight(positions)

    # ---- positions

    def held(self) -> PositionSet:
        """Positions the index answers for: a snapshot, made at the cost of a pointer a ledger."""
        return self._positions.held.snapshot()

    def held_among(self, positions: PositionSet) -> PositionSet:
        """Those of `positions` that the index answers for. No snapshot: the next change copies nothing."""
        return positions.intersection(self._positions.held)

    def acknowledged(self) -> PositionSet:
        """Positions known acknowledged, above the mark-delete position: a snapshot, as `held`."""
        return self._positions.acknowledged.snapshot()

    def acknowledge(self, positions: PositionSet) -> int:
        """Move positions from held (if they are there) to acknowledged; a token as of `add`."""
        journal = self._context.journal
        if positions.issubset(self._positions.acknowledged):
            return journal.appended_token
        self._apply_acknowledge(positions)
        self._context.due_changed(self)
        return journal.positions(self.log, RecordType.ACKNOWLEDGE, positions, self._context.clock.now_ms())

    def unacknowledge(self, positions: PositionSet) -> int:
        """Forget acknowledgements (the cursor was reset); the broker will add what it reads again."""
        journal = self._context.journal
        if positions.isdisjoint(self._positions.acknowledged):
            return journal.appended_token
        self._positions.unacknowledge(positions)
        return journal.positions(self.log, RecordType.UNACKNOWLEDGE, positions, self._context.clock.now_ms())

    def mark_delete(self, ledger_id: int, entry_id: int) -> int:
        """Set the cursor's persisted mark-delete position; everything up to it leaves held and acknowledged.

        It may go back (a seek): positions above it can then be added again, and nothing is known
        acknowledged, because a seek makes the cursor forget that.
        """
        journal, before = self._context.journal, self._positions.mark
        if (ledger_id, entry_id) == before:
            return journal.appended_token
        self._apply_mark_delete(ledger_id, entry_id)
        self._context.due_changed(self)
        token = journal.numbers(
            self.log, RecordType.MARK_DELETE, ledger_id, entry_id, self._context.clock.now_ms()
        )
        if (ledger_id, entry_id) < before:
            # Joined with a later one, it would not be known that it went back and what that made forgotten.
            journal.cut(self.log)
        return token

    def begin_generation(self, generation: int) -> int:
        """What is acknowledged from now on is true as long as the cursor has the seal `generation`.

        Acknowledgements that were learned under another one are forgotten: a reset of the cursor may have
        taken them back. 0 stands for no seal, under which nothing learned before is believed. A token as of
        `add`. Raises ValueError if the number does not fit into 63 bits.
        """
        if not 0 <= generation < 1 << 63:
            raise ValueError(f"a generation is a number of 63 bits, not {generation}")
        if generation == self.generation and (generation or not self._positions.acknowledged):
            return self._context.journal.appended_token
        self._positions.begin_generation(generation)
        return self._context.journal.numbers(
            self.log, RecordType.GENERATION, generation, 0, self._context.clock.now_ms()
        )

    def forget_acknowledgements(self) -> int:
        """Believe no acknowledgement and no mark-delete position: what took them back may be lost.

        A token as of `add`. The broker tells seal and mark-delete position again when it opens the
        subscription.
        """
        self.damaged = True
        self.begin_generation(0)
        return self.mark_delete(-1, -1)

    def clear(self) -> int:
        """Forget every entry and acknowledgement; mark-delete position, generation and width stay."""
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
        if (width_ms, auto) == (self._width.width_ms, self._width.auto):
            return self._context.journal.appended_token
        self._width.set(width_ms, auto)
        return self._context.journal.numbers(
            self.log, RecordType.WIDTH, width_ms, int(auto), self._context.clock.now_ms()
        )

    @property
    def slice_width_ms(self) -> int:
        """Width of the slices that entries spilled from now on go to."""
        return self._width.width_ms

    @property
    def slice_width_auto(self) -> bool:
        """Whether that width is chosen anew by each persist."""
        return self._width.auto

    @property
    def mark_delete_position(self) -> Position:
        """The persisted mark-delete position as last told, (-1, -1) before."""
        return self._positions.mark

    @property
    def generation(self) -> int:
        """Under which seal of the cursor the acknowledgements were learned; 0 if that is unknown."""
        return self._positions.generation

    def take_unheld(self) -> PositionSet:
        """Positions lost to corrupt blocks since the last call: they are no longer held, read them again."""
        return self._quarantine.take_unheld()

    def disown(self, positions: PositionSet) -> PositionSet:
        """Answer no longer for these positions: they are to be read again; returns those that were held.

        Durable with the next persist: a crash before it brings them back, which costs a look at the cursor.
        """
        gone = positions.intersection(self._positions.held)
        self._lose(gone)
        self._finish_slices()
        self._context.wanting[self] = None
        self._context.due_changed(self)
        return gone

    def doubt(self) -> None:
        """A change may have been made by half. No acknowledgement is believed, and a persist looks for held
        positions that no entry has: those are lost, as to a corrupt block."""
        self._quarantine.audit = True
        self.forget_acknowledgements()
        self._context.wanting[self] = None

    def reading(self) -> Reading:
        """Everything that is stored or staged now, also what is not held any more. O(blocks)."""
        return Reading(
            self._context.store, self.log.subscription_id, self._timeline.parts(), self._timeline.blocks()
        )

    # ---- the changes themselves, also made by replay

    def _replay(self, record: Replayed) -> None:
        """Apply a journal record. Doing so twice changes nothing."""
        match record.record_type, record.content:
            case RecordType.ADD, Entries() as entries:
                self._apply_add(entries)
            case RecordType.ACKNOWLEDGE, PositionSet() as positions:
                self._apply_acknowledge(positions)
            case RecordType.UNACKNOWLEDGE, PositionSet() as positions:
                self._positions.unacknowledge(positions)
            case RecordType.MARK_DELETE, (int() as ledger_id, int() as entry_id):
                self._apply_mark_delete(ledger_id, entry_id)
            case RecordType.WIDTH, (int() as width_ms, int() as auto):
                self._width.set(width_ms, bool(auto))
            case RecordType.GENERATION, (int() as generation, _):
                self._positions.begin_generation(generation)
            case RecordType.CLEAR, _:
                self._apply_clear()
            case _:
                # A damaged record may have taken an acknowledgement or the mark-delete position back, or
                # begun a generation. Keeping them could ignore an entry that is added again; forgetting
                # costs a redelivery.
                self._positions.forget_acknowledgements()

    def _apply_add(self, entries: Entries) -> Entries:
        """Stage the entries that are new; returns them."""
        fresh = self._positions.add(entries)
        self._timeline.stage(fresh)
        return fresh

    def _apply_acknowledge(self, positions: PositionSet) -> None:
        self._positions.acknowledge(positions)
        self._timeline.depart(positions)
        self._finish_slices()

    def _apply_mark_delete(self, ledger_id: int, entry_id: int) -> None:
        self._positions.mark_delete(ledger_id, entry_id)
        self._timeline.depart_up_to((ledger_id, entry_id))
        self._finish_slices()

    def _apply_clear(self) -> None:
        self._positions.clear()
        self._compacting.clear()
        self._persisting.clear(self._timeline.clear())
        self._quarantine.clear()
        self._tell_wishes()

    def _finish_slices(self) -> None:
        """After anything that may have made a slice useless."""
        self._timeline.finish_slices()
        if self._timeline.worth_dropping:
            self._context.wanting[self] = None

    # ---- damage

    def _load(self, block: Block) -> Entries | None:
        """Read a block that is due; a corrupt one is put aside for the next persist."""
        try:
            return self._read(block)
        except CorruptBlockError as error:
            self._timeline.touch(block.of)
            self._report_corrupt(block, str(error))
            return None

    def _read(self, block: Block) -> Entries:
        return load_block(self._context.store, self.log.subscription_id, block.of.id, block.descriptor)

    def _report_corrupt(self, block: Block, reason: str) -> None:
        if self._quarantine.report(block):
            _LOG.error("%s: %s; its positions will be read again", self.name, reason)
            self._context.corrupt_records += 1
            self._context.wanting[self] = None

    def _take_damage(self, result: PersistResult) -> None:
        """What a persist has found: positions that nobody has, and blocks that it could not read."""
        if result.lost:
            gone = result.lost.intersection(self._positions.held)
            gone.difference_update(self._timeline.staged_positions())
            self._lose(gone)
            _LOG.error("%s: %d positions are no longer held", self.name, len(gone))
        self._report_all(result.corrupt)

    def _lose(self, positions: PositionSet) -> None:
        """Nobody has the entries of these positions any more."""
        self._positions.lose(positions)
        self._timeline.depart(positions)
        self._quarantine.lose(positions)

    def _report_all(self, blocks: Iterable[StoredBlock]) -> None:
        for slice_id, descriptor in blocks:
            of = self._timeline.get(slice_id)
            block = None if of is None else of.blocks.get(descriptor.block_id)
            if block is not None:
                self._report_corrupt(block, f"block {descriptor.block_id} of slice {slice_id} is corrupt")

    # ---- persisting; the catalog decides when

    @property
    def staged_entries(self) -> int:
        """Entries in staging that a persist would take (not those it has taken)."""
        return self._timeline.staged_entries

    @property
    def frozen_entries(self) -> int:
        """Entries that the persist on its way has taken and not spilled yet."""
        return self._persisting.frozen_entries

    @property
    def oldest_change_ms(self) -> int | None:
        """Since when there has been something that no persist has taken up; None if there is nothing."""
        found = [at for at in (self.log.oldest_ms, self._timeline.finished_since_ms) if at is not None]
        return min(found, default=None)

    def begin_persist(self, now_ms: int) -> PersistJob:
        """Take everything for a persist, to be run by any thread."""
        job = self._persisting.begin(now_ms)
        self._context.wanting.pop(self, None)
        return job

    def finish_persist(self) -> None:
        """Apply what the persist did."""
        result = self._persisting.finish()
        if result is not None:
            self._take_damage(result)
        self._finish_slices()
        self._tell_wishes()
        self._context.due_changed(self)

    def abandon_persist(self) -> None:
        """A persist has failed: everything is as before it, and will be tried again."""
        self._persisting.abandon()
        self._context.wanting[self] = None
        self._tell_wishes()
        self._context.due_changed(self)

    @property
    def crowding(self) -> Crowding | None:
        """How crowded the slice is that most wants to be compacted; None if nothing can be done for any."""
        return self._compacting.crowding

    @property
    def has_merged(self) -> bool:
        """Whether a compaction has paused that has something to commit."""
        return self._compacting.has_merged

    def begin_compaction(self, *, commits: bool = True) -> Merge | None:
        """What goes on with a compaction, or a new one; None if nothing wants to be compacted.

        To be called in any thread, also several times, until `finish_compaction`. Without `commits` it may
        run beside a persist of this index, and only merges.
        """
        return self._compacting.begin(commits=commits)

    @property
    def compaction_paused(self) -> bool:
        """Whether there is a compaction to go on with."""
        return self._compacting.paused

    def finish_compaction(self, *, failed: bool = False) -> int:
        """Apply what the compaction did before it ended, paused or failed; how many slices it compacted."""
        result = self._compacting.finish(failed=failed)
        self._report_all(result.corrupt)
        if failed:
            self._context.wanting[self] = None
        self._finish_slices()
        self._tell_wishes()
        self._context.due_changed(self)
        return len(result.exchanged)

    def remove(self) -> None:
        """The subscription is gone: give its share of the journal back."""
        self._context.journal.remove(self.log)
        self._context.wanting.pop(self, None)

    def _tell_wishes(self) -> None:
        """Let the catalog know what this index would have done besides spilling."""
        if self._persisting.wanted:
            self._context.wanting[self] = None
        self._context.crowding_changed(self)

    # ---- telling

    def stats(self) -> IndexStats:
        """Numbers for metrics and status. O(containers of the bitmaps + slices)."""
        positions, timeline = self._positions, self._timeline
        slices = timeline.slices
        return IndexStats(
            name=self.name,
            held=len(positions.held),
            in_flight=len(positions.in_flight),
            acknowledged=len(positions.acknowledged),
            staged=timeline.staged_or_frozen,
            slices_in_memory=sum(each.active and not each.finished for each in slices),
            slices_on_disk=len(slices),
            slices_crowded=timeline.crowded_slices,
            blocks=sum(len(each.blocks) for each in slices),
            blocks_quarantined=self._quarantine.blocks_total,
            memory_bytes=timeline.memory_bytes() + positions.memory_bytes(),
            disk_bytes=sum(each.size_bytes for each in slices) + self.log.size_bytes,
            journal_bytes=self.log.size_bytes,
            next_due_ms=self.next_due_ms(),
            slice_width_ms=self._width.width_ms,
            slice_width_auto=self._width.auto,
            slice_width_reason=self._width.reason(),
            slices=timeline.slice_stats(),
        )

    def check(self) -> None:
        """Walk every invariant of every part, reading every block. O(everything).

        Raises CheckError with the state.
        """
        try:
            self._positions.check()
            self._timeline.check(self._read_or_none, complete=not self._quarantine.pending)
            self._persisting.check()
        except CheckError as error:
            raise CheckError(f"{self.name}: {error}\n{self.stats()}") from error

    def _read_or_none(self, block: Block) -> Entries | None:
        try:
            return self._read(block)
        except CorruptBlockError:
            return None


def _joined(records: Iterator[Replayed]) -> Iterator[Replayed]:
    """The same records, those that add joined where they follow each other: each costs more than entries."""
    parts: list[Entries] = []
    count = 0
    for record in records:
        adds = record.content if record.record_type is RecordType.ADD else None
        if isinstance(adds, Entries):
            parts.append(adds)
            count += len(adds)
        if parts and (adds is None or count >= RECORD_ENTRIES_MAX):
            yield Replayed(RecordType.ADD, Entries.concat(parts))
            parts, count = [], 0
        if adds is None:
            yield record
    if parts:
        yield Replayed(RecordType.ADD, Entries.concat(parts))
