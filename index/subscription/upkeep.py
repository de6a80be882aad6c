"""The background work on one subscription: begins and applies persists and compactions.

The catalog chooses the time; between begin and finish a job runs in any thread. Called by the core's thread
only.

Invariant: applying a job reports its damage, and in the same step removes the positions lost with it from
held.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Generic

from tidegate.index.blocks.absent import AbsentBlocks
from tidegate.index.blocks.block_reader import BlockReader
from tidegate.index.blocks.compactor import Compactor
from tidegate.index.blocks.pacing import Merge
from tidegate.index.blocks.persist import PersistJob, StoredBlock
from tidegate.index.blocks.persister import Persister
from tidegate.index.blocks.quarantine import Quarantine
from tidegate.index.format import keys
from tidegate.index.format.keys import SliceId
from tidegate.index.journal.journal import SubscriptionJournal
from tidegate.index.names import SubscriptionName
from tidegate.index.state.position_state import ChangedLedgers, PositionState
from tidegate.index.state.positions import PositionSet
from tidegate.index.subscription.changes import Changes, IndexT
from tidegate.index.subscription.context import Notices
from tidegate.index.timeline.crowding import Crowding
from tidegate.index.timeline.timeline import Timeline

_LOG = logging.getLogger(__name__)


class Upkeep(Generic[IndexT]):
    """Begins and applies the work on one index."""

    def __init__(
        self,
        name: SubscriptionName,
        own_journal: SubscriptionJournal,
        positions: PositionState,
        timeline: Timeline,
        blocks: BlockReader,
        *,
        absent: AbsentBlocks,
        persister: Persister,
        compactor: Compactor,
        changes: Changes[IndexT],
        quarantine: Quarantine,
        notices: Notices[IndexT],
    ) -> None:
        self._name = name
        self._own_journal = own_journal
        self._positions = positions
        self._timeline = timeline
        self._blocks = blocks
        self._absent = absent
        self._persister = persister
        self._compactor = compactor
        self._changes = changes
        self._quarantine = quarantine
        self._notices = notices
        self._damaged: set[bytes] = set()
        """Keys of damaged values but blocks, as noted."""

    # ---- persists

    @property
    def staged_entries(self) -> int:
        """Entries in staging for the next persist, without those already taken."""
        return self._timeline.staged_entries

    @property
    def frozen_entries(self) -> int:
        """Entries that the persist on its way has taken and not spilled yet."""
        return self._persister.frozen_entries

    @property
    def oldest_change_ms(self) -> int | None:
        """Time of the oldest change that no persist has taken; None without one."""
        found = [
            at for at in (self._own_journal.oldest_ms, self._timeline.finished_since_ms) if at is not None
        ]
        return min(found, default=None)

    def begin_persist(self, now_ms: int) -> PersistJob:
        """Take everything for a persist, for any thread to run."""
        job = self._persister.begin_persist(now_ms)
        self._notices.persist_begins()
        return job

    def finish_persist(self) -> None:
        """Apply the persist's result."""
        result = self._persister.finish_persist()
        if result is not None:
            self._lose(result.lost)
            self._report(result.corrupt)
        self._applied()

    def abandon_persist(self) -> None:
        """Undo a failed persist, which will be tried again."""
        self._persister.abandon_persist()
        self._notices.want_persist()
        self.tell_wishes()

    # ---- compactions

    @property
    def crowding(self) -> Crowding | None:
        """The crowding of the slice that most needs compacting; None if none can be compacted."""
        return self._compactor.crowding

    @property
    def has_merged(self) -> bool:
        """True if a paused compaction has merged slices to commit."""
        return self._compactor.has_merged

    @property
    def compaction_paused(self) -> bool:
        """True if a paused compaction can be resumed."""
        return self._compactor.paused

    def begin_compaction(self, *, commits: bool = True) -> Merge | None:
        """Resume the paused compaction, or begin one; None if nothing needs compacting.

        Any thread may call the returned function, also several times, until `finish_compaction`. Without
        `commits` it may run beside a persist of this index, and only merges.
        """
        return self._compactor.begin_compaction(commits=commits)

    def finish_compaction(self, *, failed: bool = False) -> int:
        """Apply the work of a compaction that ended, paused or failed; returns the number of compacted
        slices.
        """
        result = self._compactor.finish_compaction(failed=failed)
        self._report(result.corrupt)
        if failed:
            self._notices.want_persist()
        self._applied()
        return len(result.exchanged)

    # ---- absent blocks

    @property
    def absent_blocks(self) -> int:
        """Number of blocks in the index log and not yet in the store."""
        return len(self._absent)

    def is_absent(self, block_id: int) -> bool:
        """True if a block is absent."""
        return block_id in self._absent

    def absent_in_order(self) -> list[StoredBlock]:
        """The absent blocks, the earliest due first. O(blocks)."""
        return self._absent.in_order()

    def land(self, stored: Iterable[bytes]) -> None:
        """Note that absent blocks are in the store now, under these keys."""
        self._absent.arrived(stored)
        self.tell_wishes()

    def lose_absent(self, blocks: Iterable[StoredBlock], reason: str) -> None:
        """Treat these blocks, which will never arrive, as corrupt."""
        blocks = [each for each in blocks if each[1].block_id in self._absent]
        self._absent.give_up(descriptor.block_id for _, descriptor in blocks)
        for number, (slice_id, descriptor) in enumerate(blocks):
            more = f" (and {len(blocks) - 1} more)" if len(blocks) > 1 else ""
            self._report_block(slice_id, descriptor.block_id, reason + more, quietly=number > 0, logged=False)
        self.tell_wishes()

    def look_for_lost(self) -> None:
        """Have the next persist find the positions of missing blocks that will never arrive."""
        self._quarantine.doubt()
        self._notices.want_persist()

    # ---- damage found elsewhere

    def met_damage(self, damaged: Iterable[bytes]) -> None:
        """Note damaged stored values, by their keys: the next persist repairs them.

        It loses a corrupt block's entries; all else is in memory, and written anew.
        """
        for key in damaged:
            kind = key[:1]
            if kind == keys.BLOCK:
                self._report_block(keys.parse_slice_key(key), keys.parse_block_key(key), "is corrupt")
                continue
            if kind == keys.SLICE:
                self._persister.doubt({keys.parse_slice_key(key)})
            elif kind == keys.HELD:
                self._positions.put_back(ChangedLedgers({keys.parse_bitmap_key(key)[0]}, set()))
            elif kind == keys.ACKNOWLEDGED:
                self._positions.put_back(ChangedLedgers(set(), {keys.parse_bitmap_key(key)[0]}))
            elif kind == keys.MOVED:
                self._positions.put_back(ChangedLedgers(set(), set(), {keys.parse_bitmap_key(key)[0]}))
            if key in self._damaged:
                self._notices.want_persist()
            else:
                self._damaged.add(key)
                self._notices.corrupt_value()
                _LOG.error(
                    "%s: stored value %s is corrupt; it is written anew from memory", self._name, key.hex()
                )

    # ---- both

    def tell_wishes(self) -> None:
        """Tell the catalog if a persist has more to do than spilling."""
        self._notices.work_changed(persist=self._persister.wanted)

    def _applied(self) -> None:
        self._absent.applied()
        self._timeline.finish_slices()
        self.tell_wishes()

    def _lose(self, lost: PositionSet) -> None:
        """Lose positions in no block, unless staged again meanwhile."""
        if lost:
            gone = lost.intersection(self._positions.held)
            gone.difference_update(self._timeline.staged_positions())
            gone.difference_update(self._positions.moved.positions)
            self._changes.lose(gone)
            _LOG.error("%s: %d positions are no longer held", self._name, len(gone))

    def _report(self, corrupt: Iterable[StoredBlock]) -> None:
        for slice_id, descriptor in corrupt:
            self._report_block(slice_id, descriptor.block_id, "is corrupt")

    def _report_block(
        self, slice_id: SliceId, block_id: int, reason: str, *, quietly: bool = False, logged: bool = True
    ) -> None:
        of = self._timeline.get(slice_id)
        block = None if of is None else of.blocks.get(block_id)
        if block is not None:
            what = f"block {block_id} of slice {slice_id} {reason}"
            self._blocks.report(block, what, quietly=quietly, logged=logged)
