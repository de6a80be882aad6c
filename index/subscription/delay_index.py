"""One subscription's delay index: its parts, and the changes that concern more than one.

Callers ask `state` for the state of a position, `timeline` for due times. `Changes` applies a change to both,
and this class appends it to the journal. `upkeep` has the work of background threads; `Parts` makes all of
them.

Called by the core's thread only. This class reads the store only for a due block, and writes it only to
delete blocks that a job has replaced: jobs on other threads turn the journal's changes into slices.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.index.blocks.quarantine import Quarantine
from tidegate.index.blocks.slice_width import SliceWidth
from tidegate.index.entries.entry import Entries
from tidegate.index.errors import BlockAwayError, CheckError
from tidegate.index.format.manifest import Identity
from tidegate.index.format.records import RecordType
from tidegate.index.journal.journal import SubscriptionJournal
from tidegate.index.journal.recovery import Recovered
from tidegate.index.names import SubscriptionName
from tidegate.index.state.claim import Claim
from tidegate.index.state.position_state import PositionState
from tidegate.index.state.positions import PositionSet
from tidegate.index.stats import IndexStats
from tidegate.index.subscription.context import Context, Notices
from tidegate.index.subscription.parts import Parts
from tidegate.index.timeline.page_reader import PageReader
from tidegate.index.timeline.tide import Frozen, Outline


class DelayIndex:
    """All entries of one subscription. Made by Catalog only."""

    def __init__(
        self,
        context: Context[DelayIndex],
        identity: Identity,
        own_journal: SubscriptionJournal,
        width: SliceWidth,
        *,
        state: PositionState | None = None,
        quarantine: Quarantine | None = None,
    ) -> None:
        self.name: SubscriptionName = identity.name
        self.incarnation = identity.incarnation
        self.own_journal = own_journal
        self.damaged = False
        """True if a part is damaged or missing, so that the index log is the better copy. Set on opening, and
        through `Catalog.on_corrupt_block`; reset when work goes on without a better copy.
        """
        self.state = state or PositionState()
        """The held, in-flight, acknowledged and moved positions, and the owner. Ask it, do not change it."""
        self.width = width
        """The slice width for entries spilled from now on. Ask it, do not change it."""
        self._context = context
        self._journal = context.journal
        self._notices = Notices(context, self)
        self._quarantine = quarantine or Quarantine()
        self._parts = parts = Parts(
            self.name, context, own_journal, self.state, self._quarantine, width, self._notices
        )
        self.timeline = parts.timeline
        """The entries by due time, to hand out."""
        self.upkeep = parts.upkeep
        """The background work, at times that the catalog chooses."""
        self._changes = parts.changes
        self._absent = parts.absent
        self._blocks = parts.blocks
        self._persister = parts.persister

    @classmethod
    def restored(
        cls, context: Context[DelayIndex], found: Recovered, absent: Iterable[int] = ()
    ) -> DelayIndex:
        """The index as recovered from the store, its journal replayed.

        absent: ids of blocks that are not in the store yet.
        """
        stored = found.state
        own_journal = context.journal.recovered_subscription(found.subscription_id, stored.persisted_sequence)
        index = cls(
            context,
            found.identity,
            own_journal,
            SliceWidth(stored.slice_width_ms, stored.slice_width_auto, chosen=bool(found.slices)),
            state=PositionState(
                found.held,
                found.acknowledged,
                stored.mark_delete,
                stored.generation,
                stored.claim,
                moved=found.moved,
            ),
            quarantine=Quarantine(audit=found.audit),
        )
        index._parts.restore(found, absent)
        context.journal.replayed(own_journal, found.reader.last_sequence, found.reader.size_bytes)
        index.upkeep.tell_wishes()
        if found.damaged or found.reader.damaged:
            index.damaged = True
            index._notices.want_persist()
        return index

    # ---- entries

    def add(self, entries: Entries) -> int:
        """Stage entries; ignore those held, acknowledged or up to the mark-delete position.

        Returns a token: the entries are durable once `Journal.durable_token` reaches it. Raises
        InvalidEntriesError if an id is out of range; nothing is added then.
        """
        fresh = self._changes.stage_new(entries.validated())
        if not len(fresh):
            return self._journal.appended_token
        self._context.added_entries += len(fresh)
        return self._journal.append_entries(self.own_journal, fresh)

    def move(self, entries: Entries) -> int:
        """Let these times hold instead of the entries' own, until their acknowledgement.

        Positions not held become held, unless acknowledged or up to the mark-delete position.
        `Timeline.pop_due` has all of them again, also those in flight. Returns a token as of `add`. Raises
        InvalidEntriesError if an id is out of range; nothing changes then.
        """
        changed = self._changes.move(entries.validated())
        if not len(changed):
            return self._journal.appended_token
        return self._journal.append_entries(self.own_journal, changed, RecordType.MOVE)

    def rewind(self, in_flight: PositionSet) -> None:
        """Hand out everything held once more, except the positions `in_flight`."""
        self.state.rewind(in_flight)
        self.timeline.rewind()

    # ---- positions

    def acknowledge(self, positions: PositionSet) -> int:
        """Move positions from held (if there) to acknowledged; returns a token as of `add`."""
        if positions.issubset(self.state.acknowledged):
            return self._journal.appended_token
        self._changes.acknowledge(positions)
        return self._journal.append_positions(self.own_journal, RecordType.ACKNOWLEDGE, positions)

    def unacknowledge(self, positions: PositionSet) -> int:
        """Forget acknowledgements (the cursor was reset); the broker adds these positions again."""
        if positions.isdisjoint(self.state.acknowledged):
            return self._journal.appended_token
        self._changes.unacknowledge(positions)
        return self._journal.append_positions(self.own_journal, RecordType.UNACKNOWLEDGE, positions)

    def mark_delete(self, ledger_id: int, entry_id: int) -> int:
        """Set the cursor's persisted mark-delete position; forget everything up to it.

        It may go back (a seek): positions above it can then be added again, and all acknowledgements are
        forgotten, as a seek clears them in the cursor.
        """
        before = self.state.mark
        if (ledger_id, entry_id) == before:
            return self._journal.appended_token
        self._changes.mark_delete(ledger_id, entry_id)
        token = self._journal.append_numbers(self.own_journal, RecordType.MARK_DELETE, ledger_id, entry_id)
        if (ledger_id, entry_id) < before:
            # Joined with a later record, this one would hide that it went back.
            self._journal.cut(self.own_journal)
        return token

    def begin_generation(self, generation: int) -> int:
        """Learn acknowledgements from now on under the cursor's seal `generation`.

        Those learned under another seal are forgotten: a reset of the cursor may have taken them back. 0 is
        no seal: no earlier acknowledgement counts then. Returns a token as of `add`. Raises ValueError if the
        number does not fit into 63 bits.
        """
        if not 0 <= generation < 1 << 63:
            raise ValueError(f"a generation is a number of 63 bits, not {generation}")
        if generation == self.state.generation and (generation or not self.state.acknowledged):
            return self._journal.appended_token
        self._changes.begin_generation(generation)
        return self._journal.append_numbers(self.own_journal, RecordType.GENERATION, generation)

    def begin_claim(self, claim: Claim) -> int:
        """Note the subscription's owner, the source of all further changes. Returns a token as of `add`.

        Raises ValueError if its epoch does not fit into 63 bits, or its number into 32.
        """
        if not (0 <= claim.epoch < 1 << 63 and 0 <= claim.number < 1 << 32):
            raise ValueError(f"a claim is an epoch of 63 bits and a number of 32, not {claim}")
        if claim == self.state.claim:
            return self._journal.appended_token
        self._changes.begin_claim(claim)
        return self._journal.append_numbers(self.own_journal, RecordType.CLAIM, *claim)

    def forget_acknowledgements(self) -> int:
        """Forget all acknowledgements and the mark-delete position: a change that took them back may be lost.

        Returns a token as of `add`. On opening, the broker repeats seal and mark-delete position.
        """
        self.damaged = True
        self.begin_generation(0)
        return self.mark_delete(-1, -1)

    def clear(self) -> int:
        """Forget every entry and acknowledgement; mark-delete position, generation, claim and width stay."""
        self._changes.clear()
        self._absent.applied()
        return self._journal.append_numbers(self.own_journal, RecordType.CLEAR)

    def set_slice_width(self, width_ms: int, *, auto: bool = False) -> int:
        """Set the slice width, in ms, for entries spilled from now on; existing slices keep theirs.

        With `auto` it is the first width: each persist may choose another. Returns a token as of `add`.
        Raises ValueError if the width is not positive.
        """
        if not 1 <= width_ms < 1 << 53:
            raise ValueError(f"a slice is 1 ms or wider, not {width_ms}")
        if (width_ms, auto) == (self.width.width_ms, self.width.auto):
            return self._journal.appended_token
        self._changes.set_width(width_ms, auto=auto)
        return self._journal.append_numbers(self.own_journal, RecordType.WIDTH, width_ms, int(auto))

    def take_unheld(self) -> PositionSet:
        """Positions lost to corrupt blocks since the last call: no longer held, to be read from the topic
        again.
        """
        self._notices.told_lost()
        return self._quarantine.take_unheld()

    def disown(self, positions: PositionSet) -> tuple[PositionSet, int]:
        """Stop answering for these positions: the topic is read for them again.

        Returns those that were held, and a token as of `add`.
        """
        gone = positions.intersection(self.state.held)
        if not gone:
            return gone, self._journal.appended_token
        self._changes.lose(gone)
        self.timeline.finish_slices()
        token = self._journal.append_positions(self.own_journal, RecordType.DISOWN, gone)
        return gone, token

    def doubt(self) -> None:
        """Distrust the state: a change may be half made.

        No acknowledgement counts, and a persist looks for held positions without an entry: those are lost, as
        to a corrupt block.
        """
        self._quarantine.doubt()
        self.forget_acknowledgements()
        self._notices.want_persist()

    def page_reader(self, *, with_moved: bool) -> PageReader:
        """Everything stored or staged now, also entries no longer held. O(blocks).

        with_moved: with the entries of moved positions, at the times that hold for them.

        Raises BlockAwayError while blocks are absent.
        """
        if self._absent:
            raise BlockAwayError("a part of it")
        return PageReader(
            self._context.store,
            self.own_journal.subscription_id,
            self.timeline.parts(),
            self.timeline.blocks(),
            self.state.moved.snapshot(),
            with_moved=with_moved,
        )

    def outline(self) -> Outline:
        """The places of everything held, for counting by time. O(blocks); the next change copies a bitmap.

        Raises BlockAwayError while blocks are absent.
        """
        if self._absent:
            raise BlockAwayError("a part of it")
        parts, frozen, blocks = self.timeline.outline()
        store, subscription_id = self._context.store, self.own_journal.subscription_id
        held, moved = self.state.held.snapshot(), self.state.moved.snapshot()
        taken = Frozen(frozen, self._persister.frozen_in_order)
        return Outline(store, subscription_id, held, parts, blocks, moved=moved, frozen=taken)

    def remove(self) -> None:
        """Give back the share of the journal of a subscription that is gone."""
        self._journal.remove(self.own_journal)
        self._notices.removed()

    # ---- telling

    def stats(self) -> IndexStats:
        """Figures for metrics and status. O(containers of the bitmaps + slices)."""
        positions, timeline = self.state, self.timeline
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
            slices_crowded=len(timeline.crowded),
            blocks=sum(len(each.blocks) for each in slices),
            blocks_quarantined=self._quarantine.blocks_total,
            blocks_absent=len(self._absent),
            memory_bytes=timeline.memory_bytes() + positions.memory_bytes(),
            disk_bytes=timeline.stored_bytes + self.own_journal.size_bytes,
            journal_bytes=self.own_journal.size_bytes,
            next_due_ms=timeline.next_due_ms() if len(positions.held) > len(positions.in_flight) else None,
            slice_width_ms=self.width.width_ms,
            slice_width_auto=self.width.auto,
            slice_width_reason=self.width.reason(),
            slices=timeline.slice_stats(),
        )

    def check(self) -> None:
        """Check every invariant of every part, reading every block. O(everything).

        Raises CheckError with the state.
        """
        try:
            self.state.check()
            self.timeline.check(self._blocks.look, complete=not self._quarantine.pending and not self._absent)
            self._persister.check()
            self._absent.check()
            self._quarantine.check()
            self._journal.check(self.own_journal)
        except CheckError as error:
            raise CheckError(f"{self.name}: {error}\n{self.stats()}") from error
