"""One subscription's delay index: due times, entries handed out, acknowledgements.

Two objects know what there is: `PositionState` the state of each position, `Timeline` the due times.
`Changes` applies a change to both, and this class appends it to the journal. `Upkeep` has the work of
background threads; `Parts` makes all of them.

Called by the core's thread only. This class reads the store only for a block that is due, and writes it only
to delete blocks that a job has replaced: changes go to the journal, and jobs on other threads turn them into
slices.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from tidegate.index.blocks.quarantine import Quarantine
from tidegate.index.blocks.slice_width import SliceWidth
from tidegate.index.entries.entry import BoolArray, Entries
from tidegate.index.errors import BlockAwayError, CheckError
from tidegate.index.format.manifest import Identity
from tidegate.index.format.records import RecordType
from tidegate.index.journal.journal import SubscriptionJournal
from tidegate.index.journal.recovery import Recovered
from tidegate.index.names import SubscriptionName
from tidegate.index.state.claim import Claim
from tidegate.index.state.moved import MovedSnapshot
from tidegate.index.state.position_state import PositionState
from tidegate.index.state.positions import Position, PositionSet
from tidegate.index.stats import IndexStats
from tidegate.index.subscription.appender import Appender
from tidegate.index.subscription.context import Context, Notices
from tidegate.index.subscription.parts import Parts
from tidegate.index.timeline.page_reader import PageReader
from tidegate.index.timeline.tide import Outline


class DelayIndex:
    """All entries of one subscription. Obtained from Catalog only."""

    def __init__(
        self,
        context: Context[DelayIndex],
        identity: Identity,
        own_journal: SubscriptionJournal,
        width: SliceWidth,
        *,
        positions: PositionState | None = None,
        quarantine: Quarantine | None = None,
    ) -> None:
        self.name: SubscriptionName = identity.name
        self.incarnation = identity.incarnation
        self.own_journal = own_journal
        self.damaged = False
        """Whether something of it was found damaged or missing, and a copy is better, as its index log. Set
        when it is opened, and by who has heard of a block, see `Catalog.on_corrupt_block`; reset by who goes
        on with it for want of a copy."""
        self._context = context
        self._notices = Notices(context, self)
        self._appender = Appender(context.journal, own_journal, context.clock)
        self._width = width
        self._state = positions or PositionState()
        self._quarantine = quarantine or Quarantine()
        self._parts = parts = Parts(
            self.name, context, own_journal, self._state, self._quarantine, width, self._notices
        )
        self._timeline = parts.timeline
        self._changes = parts.changes
        self._absent = parts.absent
        self._blocks = parts.blocks
        self._persister = parts.persister
        self.upkeep = parts.upkeep
        """What background work does for it; the catalog decides when."""

    @classmethod
    def restored(
        cls, context: Context[DelayIndex], found: Recovered, absent: Iterable[int] = ()
    ) -> DelayIndex:
        """The index as recovered from the store, with its journal replayed.

        absent: ids of blocks that are not in the store yet.
        """
        state = found.state
        own_journal = context.journal.recovered_subscription(found.subscription_id, state.persisted_sequence)
        index = cls(
            context,
            found.identity,
            own_journal,
            SliceWidth(state.slice_width_ms, state.slice_width_auto, chosen=bool(found.slices)),
            positions=PositionState(
                found.held,
                found.acknowledged,
                state.mark_delete,
                state.generation,
                state.claim,
                moved=found.moved,
            ),
            quarantine=Quarantine(audit=found.audit),
        )
        index._parts.restore(found, absent)
        context.journal.replayed(
            own_journal, found.reader.last_sequence, found.reader.size_bytes, context.clock.now_ms()
        )
        index.upkeep.tell_wishes()
        if found.damaged or found.reader.damaged:
            index.damaged = True
            index._notices.want_persist()
        return index

    # ---- entries

    def add(self, entries: Entries) -> int:
        """Stage entries; ignore those held, acknowledged or up to the mark-delete position.

        Returns a token: the entries are durable when `Catalog.durable_token` has reached it.
        Raises InvalidEntriesError if an id is out of range; nothing is added then.
        """
        fresh = self._changes.add(entries.validated())
        if not len(fresh):
            return self._appender.nothing()
        self._context.added_entries += len(fresh)
        token = self._appender.entries(fresh)
        self._notices.due_changed()
        return token

    def move(self, entries: Entries) -> int:
        """Have these times hold in place of the entries' own, until they are acknowledged.

        Positions not held are held from now on, unless acknowledged or up to the mark-delete position.
        `pop_due` has all of them again, also those in flight. Returns a token as of `add`. Raises
        InvalidEntriesError if an id is out of range; nothing changes then.
        """
        changed = self._changes.move(entries.validated())
        self._notices.due_changed()
        if not len(changed):
            return self._appender.nothing()
        return self._appender.entries(changed, RecordType.MOVE)

    def pop_due(self, now_ms: int, limit: int) -> Entries:
        """Hand out entries with deliver_at_ms <= now_ms, in (deliver_at_ms, ledger_id, entry_id) order.

        At most `limit` are handed out, and are in flight from then on. Fewer means that no more are due,
        unless `next_due_ms() <= now_ms` still: then call again. (To bound the pause, one call looks at a
        limited number of entries, and may leave the last few of a `limit` of a thousand or more where several
        runs overlap.) Raises StorageError if a block cannot be read, BlockAwayError if it has not arrived
        yet; nothing is lost then.
        """
        if limit <= 0:
            return Entries.empty()
        try:
            return self._timeline.pop(now_ms, limit)
        finally:
            self._changes.finish_slices()
            self._notices.due_changed()

    def next_due_ms(self) -> int | None:
        """Due time of the earliest entry not in flight, or a lower bound of it; None if there is none."""
        return self._timeline.next_due_ms()

    def next_load_ms(self) -> int | None:
        """Due time of the earliest entry that is not in memory, or a lower bound of it; None without one."""
        return self._timeline.next_load_ms()

    def prefetch(self, now_ms: int) -> None:
        """Load the next block that is due within the prefetch time."""
        with contextlib.suppress(BlockAwayError):
            if self._timeline.prefetch(now_ms):
                self._changes.finish_slices()
                self._notices.due_changed()

    def rewind(self, in_flight: PositionSet) -> None:
        """Hand out everything held once more, but for the positions `in_flight`."""
        self._state.rewind(in_flight)
        self._timeline.rewind()
        self._notices.due_changed()

    def mark_in_flight(self, positions: PositionSet) -> None:
        """Note that the broker has these positions already: do not hand them out before a rewind."""
        self._state.mark_in_flight(positions)

    # ---- positions

    def held(self) -> PositionSet:
        """The positions that the index answers for: a snapshot, at the cost of a pointer."""
        return self._state.held.snapshot()

    def held_among(self, positions: PositionSet) -> PositionSet:
        """Those of `positions` that the index answers for. No snapshot: the next change copies nothing."""
        return positions.intersection(self._state.held)

    def acknowledged_among(self, positions: PositionSet) -> PositionSet:
        """Those of `positions` that are known acknowledged, or up to mark-delete. No snapshot."""
        above = positions.snapshot()
        above.discard_up_to(*self._state.mark)
        known = above.intersection(self._state.acknowledged)
        known.update(positions.difference(above))
        return known

    def holds(self, entries: Entries) -> BoolArray:
        """For each entry, True if the index answers for its position; a bool array of the same length."""
        return self._state.held.contains(entries)

    def moved(self) -> MovedSnapshot:
        """The moved positions and the times that hold for them: a snapshot. O(ledgers)."""
        return self._state.moved.snapshot()

    def moved_to(self, entries: Entries) -> BoolArray:
        """For each entry, True if its position is moved to its time; a bool array of the same length."""
        return self._state.moved.holds(entries)

    def moved_among(self, positions: PositionSet) -> PositionSet:
        """Those of `positions` that are moved. No snapshot."""
        return positions.intersection(self._state.moved.positions)

    @property
    def stored_bytes(self) -> int:
        """Bytes of the index's blocks. O(slices)."""
        return sum(each.size_bytes for each in self._timeline.slices)

    @property
    def empty(self) -> bool:
        """True if nothing is held, moved or known acknowledged."""
        positions = self._state
        return not (positions.held or positions.acknowledged or positions.moved)

    def acknowledged(self) -> PositionSet:
        """Positions known acknowledged, above the mark-delete position: a snapshot, as `held`."""
        return self._state.acknowledged.snapshot()

    def acknowledge(self, positions: PositionSet) -> int:
        """Move positions from held (if they are there) to acknowledged; a token as of `add`."""
        if positions.issubset(self._state.acknowledged):
            return self._appender.nothing()
        self._changes.acknowledge(positions)
        self._notices.due_changed()
        return self._appender.positions(RecordType.ACKNOWLEDGE, positions)

    def unacknowledge(self, positions: PositionSet) -> int:
        """Forget acknowledgements (the cursor was reset); the broker will add what it reads again."""
        if positions.isdisjoint(self._state.acknowledged):
            return self._appender.nothing()
        self._changes.unacknowledge(positions)
        return self._appender.positions(RecordType.UNACKNOWLEDGE, positions)

    def mark_delete(self, ledger_id: int, entry_id: int) -> int:
        """Set the cursor's persisted mark-delete position; forget everything up to it.

        The position may go back (a seek): positions above it can then be added again, and all
        acknowledgements are forgotten, because the cursor forgets them in a seek.
        """
        before = self._state.mark
        if (ledger_id, entry_id) == before:
            return self._appender.nothing()
        self._changes.mark_delete(ledger_id, entry_id)
        self._notices.due_changed()
        token = self._appender.numbers(RecordType.MARK_DELETE, ledger_id, entry_id)
        if (ledger_id, entry_id) < before:
            # Joined with a later record, this one would not show that it went back.
            self._appender.cut()
        return token

    def begin_generation(self, generation: int) -> int:
        """Learn acknowledgements from now on under the cursor's seal `generation`.

        Acknowledgements learned under another seal are forgotten: a reset of the cursor may have taken them
        back. 0 stands for no seal, under which no earlier acknowledgement is believed. Returns a token as of
        `add`. Raises ValueError if the number does not fit into 63 bits.
        """
        if not 0 <= generation < 1 << 63:
            raise ValueError(f"a generation is a number of 63 bits, not {generation}")
        if generation == self.generation and (generation or not self._state.acknowledged):
            return self._appender.nothing()
        self._changes.begin_generation(generation)
        return self._appender.numbers(RecordType.GENERATION, generation)

    def begin_claim(self, claim: Claim) -> int:
        """Note the owner of the subscription that tells all further changes. Returns a token as of `add`.

        Raises ValueError if its epoch does not fit into 63 bits, or its number into 32.
        """
        if not (0 <= claim.epoch < 1 << 63 and 0 <= claim.number < 1 << 32):
            raise ValueError(f"a claim is an epoch of 63 bits and a number of 32, not {claim}")
        if claim == self.claim:
            return self._appender.nothing()
        self._changes.begin_claim(claim)
        return self._appender.numbers(RecordType.CLAIM, *claim)

    def forget_acknowledgements(self) -> int:
        """Forget all acknowledgements and the mark-delete position: a change that took them back may be lost.

        Returns a token as of `add`. The broker tells seal and mark-delete position again when it opens the
        subscription.
        """
        self.damaged = True
        self.begin_generation(0)
        return self.mark_delete(-1, -1)

    def clear(self) -> int:
        """Forget every entry and acknowledgement; mark-delete position, generation, claim and width stay."""
        self._changes.clear()
        self._absent.applied()
        self._notices.due_changed()
        return self._appender.numbers(RecordType.CLEAR)

    def set_slice_width(self, width_ms: int, *, auto: bool = False) -> int:
        """Set the width, in ms, of the slices for entries spilled from now on; existing slices keep theirs.

        With `auto` it is the first width: each persist may choose another. Returns a token as of `add`.
        Raises ValueError if the width is not positive.
        """
        if not 1 <= width_ms < 1 << 53:
            raise ValueError(f"a slice is 1 ms or wider, not {width_ms}")
        if (width_ms, auto) == (self._width.width_ms, self._width.auto):
            return self._appender.nothing()
        self._changes.set_width(width_ms, auto=auto)
        return self._appender.numbers(RecordType.WIDTH, width_ms, int(auto))

    @property
    def slice_width_ms(self) -> int:
        """Width of the slices for entries spilled from now on."""
        return self._width.width_ms

    @property
    def slice_width_auto(self) -> bool:
        """True if each persist chooses that width anew."""
        return self._width.auto

    @property
    def mark_delete_position(self) -> Position:
        """The last persisted mark-delete position that was told, (-1, -1) before."""
        return self._state.mark

    @property
    def generation(self) -> int:
        """The cursor's seal under which the acknowledgements were learned; 0 if unknown."""
        return self._state.generation

    @property
    def claim(self) -> Claim:
        """The claim of the owner that told the latest changes; `claim.UNKNOWN` before the first claim,
        `claim.LOST` if it is damaged."""
        return self._state.claim

    @property
    def last_position(self) -> Position:
        """The last position that is held or known acknowledged, (-1, -1) if there is none."""
        return self._state.last()

    def take_unheld(self) -> PositionSet:
        """Positions lost to corrupt blocks since the last call: no longer held, and to be read again."""
        self._notices.told_lost()
        return self._quarantine.take_unheld()

    def disown(self, positions: PositionSet) -> tuple[PositionSet, int]:
        """Stop answering for these positions: they are to be read again.

        Returns those that were held, and a token as of `add`.
        """
        gone = positions.intersection(self._state.held)
        if not gone:
            return gone, self._appender.nothing()
        self._changes.lose(gone)
        self._changes.finish_slices()
        self._notices.due_changed()
        token = self._appender.positions(RecordType.DISOWN, gone)
        return gone, token

    def doubt(self) -> None:
        """Distrust the state, because a change may have been half made. No acknowledgement is believed, and a
        persist looks for held positions without an entry: those are lost, as to a corrupt block."""
        self._quarantine.doubt()
        self.forget_acknowledgements()
        self._notices.want_persist()

    def page_reader(self, *, with_moved: bool) -> PageReader:
        """Everything stored or staged now, also entries that are no longer held. O(blocks).

        with_moved: with the entries of moved positions, at the times that hold for them.

        Raises BlockAwayError while blocks are absent.
        """
        if self._absent:
            raise BlockAwayError("a part of it")
        return PageReader(
            self._context.store,
            self.own_journal.subscription_id,
            self._timeline.parts(),
            self._timeline.blocks(),
            self.moved(),
            with_moved=with_moved,
        )

    def outline(self) -> Outline:
        """The places of everything held, for counting by time. O(blocks); the next change copies a bitmap.

        Raises BlockAwayError while blocks are absent.
        """
        if self._absent:
            raise BlockAwayError("a part of it")
        parts, blocks = self._timeline.outline()
        store, subscription_id = self._context.store, self.own_journal.subscription_id
        return Outline(store, subscription_id, self.held(), parts, blocks, moved=self.moved())

    def remove(self) -> None:
        """Give the subscription's share of the journal back: it is gone."""
        self._context.journal.remove(self.own_journal)
        self._notices.removed()

    # ---- telling

    def stats(self) -> IndexStats:
        """Numbers for metrics and status. O(containers of the bitmaps + slices)."""
        positions, timeline = self._state, self._timeline
        slices = timeline.slices
        return IndexStats(
            name=self.name,
            held=len(positions.held),
            in_flight=len(positions.in_flight),
            acknowledged=len(positions.acknowledged),
            moved=len(positions.moved),
            staged=timeline.staged_or_frozen,
            slices_in_memory=sum(each.active and not each.finished for each in slices),
            slices_on_disk=len(slices),
            slices_crowded=timeline.crowded_slices,
            blocks=sum(len(each.blocks) for each in slices),
            blocks_quarantined=self._quarantine.blocks_total,
            blocks_absent=len(self._absent),
            memory_bytes=timeline.memory_bytes() + positions.memory_bytes(),
            disk_bytes=self.stored_bytes + self.own_journal.size_bytes,
            journal_bytes=self.own_journal.size_bytes,
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
            self._state.check()
            self._timeline.check(
                self._blocks.look, complete=not self._quarantine.pending and not self._absent
            )
            self._persister.check()
            self._absent.check()
            self._quarantine.check()
            self._context.journal.check(self.own_journal)
        except CheckError as error:
            raise CheckError(f"{self.name}: {error}\n{self.stats()}") from error
