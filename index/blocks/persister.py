"""Persists one subscription: collects a persist's input from the parts, and applies its result.

`PersistJob` does the work and may run in any thread; this is the core thread's part before and after. A job
has only its plan, snapshots and arrays that never change. Its result counts once `finish_persist` has applied
it.

Invariants (tested by `check`): at most one persist is on its way; block ids and versions only grow; stored
versions are known for exactly the ledgers with a bitmap.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from tidegate.index.blocks.absent import AbsentBlocks
from tidegate.index.blocks.block_writer import BlockIds
from tidegate.index.blocks.leftovers import Leftovers
from tidegate.index.blocks.persist import PersistJob, PersistPlan, PersistResult, SlicePlan
from tidegate.index.blocks.quarantine import Quarantine
from tidegate.index.blocks.slice_width import SliceWidth
from tidegate.index.clock import Clock
from tidegate.index.entries.checks import require
from tidegate.index.entries.distinct import ledgers_of
from tidegate.index.entries.entry import Entries
from tidegate.index.entries.sort import SortedEntries
from tidegate.index.errors import StorageError, TidegateIndexError
from tidegate.index.format import keys
from tidegate.index.format.keys import SliceId
from tidegate.index.format.manifest import State
from tidegate.index.journal.journal import Journal, SubscriptionJournal
from tidegate.index.names import SubscriptionName
from tidegate.index.options import IndexOptions
from tidegate.index.state.position_state import ChangedLedgers, PositionState
from tidegate.index.state.positions import PositionSet
from tidegate.index.store import Store
from tidegate.index.timeline.staging import Staging
from tidegate.index.timeline.timeline import Timeline

_LOG = logging.getLogger(__name__)
_DEAD_SHARE = 8


class Persister:
    """One subscription's persists, one after another. ids: block ids, shared with compactions."""

    def __init__(
        self,
        *,
        name: SubscriptionName,
        store: Store,
        options: IndexOptions,
        clock: Clock,
        journal: Journal,
        own_journal: SubscriptionJournal,
        positions: PositionState,
        timeline: Timeline,
        width: SliceWidth,
        quarantine: Quarantine,
        leftovers: Leftovers,
        absent: AbsentBlocks,
    ) -> None:
        self.ids = BlockIds(1)
        self._name = name
        self._store = store
        self._options = options
        self._clock = clock
        self._journal = journal
        self._own_journal = own_journal
        self._positions = positions
        self._timeline = timeline
        self._width = width
        self._quarantine = quarantine
        self._leftovers = leftovers
        self._absent = absent
        self._version = 0
        self._held_versions: dict[int, int] = {}
        self._acknowledged_versions: dict[int, int] = {}
        self._moved_versions: dict[int, int] = {}
        self._carried_ledgers: set[int] = set()
        """Ledgers of the staged entries, besides the changed ones."""
        self._live: PositionSet | None = None
        self._job: PersistJob | None = None
        self._job_is_stale = False
        self._job_has_many_dead = False
        self._job_journal_bytes = 0
        self._job_doubts = 0

    def restore(
        self,
        state: State,
        held_versions: dict[int, int],
        acknowledged_versions: dict[int, int],
        moved_versions: dict[int, int],
        carried: Entries,
    ) -> None:
        """Continue after the last persist in the store."""
        self._carried_ledgers = ledgers_of(carried)
        self._version = state.version
        self.ids = BlockIds(state.next_block_id)
        self._held_versions, self._acknowledged_versions = held_versions, acknowledged_versions
        self._moved_versions = moved_versions

    def clear(self, slices: set[SliceId]) -> None:
        """Note a CLEAR: these slices must be deleted, and a persist on its way does not count."""
        self._job_is_stale = self._job is not None
        self._live = None
        self._leftovers.clear(slices)

    @property
    def wanted(self) -> bool:
        """True if a persist has more to do than spilling."""
        return bool(self._leftovers) or self._looks_for_lost or self._timeline.worth_dropping

    @property
    def _looks_for_lost(self) -> bool:
        """True if a persist must find positions lost to damage: not while blocks are absent."""
        return self._quarantine.pending and not self._absent

    def doubt(self, slices: Iterable[SliceId]) -> None:
        """Have these slices' records written anew."""
        self._leftovers.doubt(slices)

    @property
    def live(self) -> PositionSet | None:
        """The positions held according to the store, if many stored entries are not; else None."""
        return self._live

    def next_version(self) -> int:
        """A number for a persist or a compaction, above all before."""
        self._version += 1
        return self._version

    # ---- one persist

    @property
    def frozen_entries(self) -> int:
        """Entries that the persist on its way has taken and not spilled yet."""
        return 0 if self._job is None else self._job.staged_entries - self._job.spilled_entries

    @property
    def frozen_in_order(self) -> SortedEntries | None:
        """That persist's entries, sorted; None before and after it has them."""
        return None if self._job is None or self._job_is_stale else self._job.in_order

    def begin_persist(self, now_ms: int) -> PersistJob:
        """Take everything for a persist. Cheap: snapshots share their bitmaps, arrays are not copied."""
        if self._job is not None:
            raise TidegateIndexError(f"{self._name}: a persist is on its way already")
        frozen = self._timeline.freeze()
        changed = ChangedLedgers(set(), set())
        try:
            self._timeline.finish_dead_slices()
            changed = self._positions.take_changed()
            many_dead = self._has_many_dead(len(frozen))
            plan = self._plan(frozen, changed, now_ms, many_dead=many_dead)
            job = PersistJob(self._store, self._options, plan, self.ids)
        except BaseException:
            # Otherwise no plan, not even the next one, would have the taken ledgers.
            self._positions.put_back(changed)
            self._timeline.thaw()
            raise
        self._job = job
        self._job_is_stale = False
        self._job_has_many_dead = many_dead
        self._job_journal_bytes = self._own_journal.size_bytes
        self._job_doubts = self._quarantine.doubts if self._looks_for_lost else 0
        return job

    def _has_many_dead(self, frozen: int) -> bool:
        """True if many stored entries are not held; `frozen`: number of entries that the persist takes."""
        stored = sum(each.entries for each in self._timeline.slices if not each.finished)
        return _DEAD_SHARE * (stored + frozen - len(self._positions.held)) > stored

    def _plan(self, frozen: Staging, changed: ChangedLedgers, now_ms: int, *, many_dead: bool) -> PersistPlan:
        positions, timeline = self._positions, self._timeline
        slices = {each.id: SlicePlan(each.descriptors, each.finished) for each in timeline.slices}
        timeline.drops_finished()
        if many_dead or self._looks_for_lost:
            held = positions.held.snapshot()
        else:
            held = positions.held.of_ledgers(changed.held | self._carried_ledgers)
        return PersistPlan(
            subscription_id=self._own_journal.subscription_id,
            state=State(
                self.next_version(),
                self._journal.cut(self._own_journal),
                self.ids.upcoming,
                self._width.width_ms,
                positions.mark,
                self._width.auto,
                positions.generation,
                positions.claim,
            ),
            persisted_before=self._own_journal.persisted_sequence,
            now_ms=now_ms,
            staged=frozen.parts(),
            all_held=frozen.removals == positions.removals,
            held=held,
            acknowledged=positions.acknowledged.of_ledgers(changed.acknowledged),
            moved=positions.moved.snapshot(None if self._looks_for_lost else changed.moved),
            dirty_held=changed.held,
            dirty_acknowledged=changed.acknowledged,
            dirty_moved=changed.moved,
            held_versions=self._versions(self._held_versions, changed.held),
            acknowledged_versions=self._versions(self._acknowledged_versions, changed.acknowledged),
            moved_versions=self._versions(self._moved_versions, changed.moved),
            slices=slices,
            quarantined=self._quarantine.blocks() if self._looks_for_lost else [],
            remains=self._leftovers.remains(),
            audit=self._quarantine.audit and self._looks_for_lost,
            since_ms=self._width.begin_choice(self._clock.monotonic_ns()),
            width_memory=self._width.memory,
        )

    def _versions(self, known: dict[int, int], changed: set[int]) -> dict[int, int]:
        """Versions of the bitmaps that a persist writes anew; it may find damage in any ledger."""
        if self._looks_for_lost:
            return dict(known)
        return {ledger_id: known[ledger_id] for ledger_id in changed if ledger_id in known}

    def finish_persist(self) -> PersistResult | None:
        """Apply the persist's result, but for damage found, which is reported.

        None after a CLEAR meanwhile: the written data is older.
        """
        job = self._end()
        plan, result = job.plan, job.result
        sequence = plan.state.persisted_sequence
        newer_ms = plan.now_ms if self._own_journal.last_sequence > sequence else None
        self._journal.persisted(self._own_journal, sequence, self._job_journal_bytes, newer_ms)
        self._width.apply_decision(result.width, self._name)
        _exchange(self._held_versions, result.held_versions)
        _exchange(self._acknowledged_versions, result.acknowledged_versions)
        _exchange(self._moved_versions, result.moved_versions)
        self._leftovers.done(plan.remains)
        if self._job_is_stale:
            self._carried_ledgers = set()
            self._leftovers.clear(result.exchanged)
            self._positions.put_back(
                ChangedLedgers(
                    set(result.held_versions), set(result.acknowledged_versions), set(result.moved_versions)
                )
            )
        else:
            self._timeline.let_go_of_frozen()
            self._timeline.carry(result.carried)
            self._carried_ledgers = result.carried_ledgers
            self._timeline.exchange(result.exchanged)
            self._quarantine.done(plan.quarantined, self._job_doubts)
            self._live = result.held if self._job_has_many_dead else None
        # Nothing loads the removed blocks any more.
        self._delete_retired(job)
        return None if self._job_is_stale else result

    def abandon_persist(self) -> None:
        """Undo a failed persist, to be tried again."""
        job = self._end()
        # Even its commit may be in the store: a sync can fail after the write.
        self._leftovers.orphan(job.leftovers())
        self._leftovers.doubt(job.result.exchanged)
        self._positions.put_back(
            ChangedLedgers(job.plan.dirty_held, job.plan.dirty_acknowledged, job.plan.dirty_moved)
        )
        self._timeline.thaw()

    def _end(self) -> PersistJob:
        job, self._job = self._job, None
        if job is None:
            raise TidegateIndexError(f"{self._name}: no persist is on its way")
        return job

    def _delete_retired(self, job: PersistJob) -> None:
        batch = job.deletion()
        if len(batch):
            try:
                self._store.write(batch, sync=False)
            except StorageError as error:
                _LOG.warning("%s: cannot delete corrupt blocks, trying again: %s", self._name, error)
                self._leftovers.orphan(key for _, key, _ in batch.operations)

    def check(self) -> None:
        """Raise CheckError if an invariant is broken."""
        for each in self._timeline.slices:
            for descriptor in each.descriptors:
                require(descriptor.block_id < self.ids.upcoming, f"{descriptor} has an id still to come")
        for versions in (self._held_versions, self._acknowledged_versions, self._moved_versions):
            require(
                all(version <= self._version for version in versions.values()),
                "a stored bitmap is of a persist that is still to come",
            )
        self._leftovers.check({each.id for each in self._timeline.slices}, self._stored_keys())

    def _stored_keys(self) -> set[bytes]:
        """Keys of the blocks and bitmaps that count."""
        subscription_id = self._own_journal.subscription_id
        found = {
            keys.block_key(subscription_id, each.id, descriptor.block_id)
            for each in self._timeline.slices
            for descriptor in each.descriptors
        }
        for kind, versions in (
            (keys.HELD, self._held_versions),
            (keys.ACKNOWLEDGED, self._acknowledged_versions),
            (keys.MOVED, self._moved_versions),
        ):
            found.update(
                keys.bitmap_key(kind, subscription_id, ledger_id, version)
                for ledger_id, version in versions.items()
            )
        return found


def _exchange(versions: dict[int, int], changes: dict[int, int | None]) -> None:
    """Note the versions written by a persist, or deleted (None)."""
    for ledger_id, version in changes.items():
        if version is None:
            del versions[ledger_id]
        else:
            versions[ledger_id] = version
