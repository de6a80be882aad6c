"""Persisting one subscription: takes what a persist works on from its parts, and gives them what it did.

`PersistJob` does the work and may run in any thread; here is what the core's thread does before and after.
The rule for that thread: a job has only what its plan says, snapshots and arrays that nobody changes, and of
an index nothing else. What it did counts when `finish` has applied it.

Invariants (walked by `check`): at most one persist is on its way; block ids and versions only grow; the
stored version of a ledger's bitmap is known for exactly the ledgers that have one.
"""

from __future__ import annotations

import logging

from tidegate.index.checks import require
from tidegate.index.clock import Clock
from tidegate.index.errors import StorageError, TidegateIndexError
from tidegate.index.format.keys import SliceId
from tidegate.index.format.manifest import State
from tidegate.index.journal import Journal, JournalLog
from tidegate.index.names import SubscriptionName
from tidegate.index.options import IndexOptions
from tidegate.index.persist import PersistJob, PersistPlan, PersistResult, SlicePlan, choose_runs
from tidegate.index.position_state import ChangedLedgers, PositionState
from tidegate.index.quarantine import Quarantine
from tidegate.index.slice_width import SliceWidth
from tidegate.index.store import Store
from tidegate.index.timeline import Timeline

_LOG = logging.getLogger(__name__)
_DEAD_SHARE = 8


class Persisting:
    """The persists of one subscription, one after another."""

    def __init__(
        self,
        *,
        name: SubscriptionName,
        store: Store,
        options: IndexOptions,
        clock: Clock,
        journal: Journal,
        log: JournalLog,
        positions: PositionState,
        timeline: Timeline,
        width: SliceWidth,
        quarantine: Quarantine,
    ) -> None:
        self._name = name
        self._store = store
        self._options = options
        self._clock = clock
        self._journal = journal
        self._log = log
        self._positions = positions
        self._timeline = timeline
        self._width = width
        self._quarantine = quarantine
        self._version = 0
        self._next_block_id = 1
        self._held_versions: dict[int, int] = {}
        self._acknowledged_versions: dict[int, int] = {}
        self._orphans: list[bytes] = []
        self._uncertain: set[SliceId] = set()
        self._cleared: set[SliceId] = set()
        self._job: PersistJob | None = None
        self._job_is_stale = False
        self._job_journal_bytes = 0

    def restore(
        self, state: State, held_versions: dict[int, int], acknowledged_versions: dict[int, int]
    ) -> None:
        """Go on after the persist that the store has."""
        self._version = state.version
        self._next_block_id = state.next_block_id
        self._held_versions, self._acknowledged_versions = held_versions, acknowledged_versions

    def clear(self, slices: set[SliceId]) -> None:
        """A CLEAR: these slices are to be deleted, and what is being persisted does not count."""
        self._job_is_stale = self._job is not None
        self._cleared.update(slices)

    @property
    def wanted(self) -> bool:
        """Whether there is something to do besides spilling."""
        runs_max = self._options.merge_runs
        return (
            bool(self._cleared)
            or self._quarantine.pending
            or self._timeline.worth_dropping
            or any(each.runs() >= runs_max for each in self._timeline.slices)
        )

    # ---- one persist

    def begin(self, now_ms: int) -> PersistJob:
        """Take everything for a persist. Cheap: snapshots share their bitmaps, arrays are not copied."""
        if self._job is not None:
            raise TidegateIndexError(f"{self._name}: a persist is on its way already")
        self._version += 1
        positions, timeline = self._positions, self._timeline
        frozen = timeline.freeze()
        timeline.finish_dead_slices()
        runs_max = self._options.merge_runs
        slices = {}
        for each in timeline.slices:
            blocks = [block.descriptor for block in each.blocks.values()]
            merge = frozenset[int]() if each.finished else choose_runs(blocks, runs_max)
            slices[each.id] = SlicePlan(blocks, merge, each.finished)
        timeline.drops_finished()
        stored = sum(each.entries() for each in timeline.slices if not each.finished)
        changed = positions.take_changed()
        plan = PersistPlan(
            subscription_id=self._log.subscription_id,
            state=State(
                self._version,
                self._journal.cut(self._log),
                self._next_block_id,
                self._width.width_ms,
                positions.mark,
                self._width.auto,
                positions.generation,
            ),
            persisted_before=self._log.persisted_sequence,
            now_ms=now_ms,
            staged=frozen.parts(),
            all_held=frozen.removals == positions.removals,
            many_dead=_DEAD_SHARE * (stored + len(frozen) - len(positions.held)) > stored,
            held=positions.held.snapshot(),
            acknowledged=positions.acknowledged.snapshot(),
            dirty_held=changed.held,
            dirty_acknowledged=changed.acknowledged,
            held_versions=dict(self._held_versions),
            acknowledged_versions=dict(self._acknowledged_versions),
            slices=slices,
            cleared=set(self._cleared),
            quarantined=self._quarantine.blocks(),
            orphans=list(self._orphans),
            uncertain=set(self._uncertain),
            audit=self._quarantine.audit,
            since_ms=self._width.begin_choice(self._clock.monotonic_ns()),
            width_memory=self._width.memory,
        )
        self._job = PersistJob(self._store, self._options, plan)
        self._job_is_stale = False
        self._job_journal_bytes = self._log.size_bytes
        return self._job

    def finish(self) -> PersistResult | None:
        """Apply what the persist did, but for the damage that it has found, which is told.

        None if a CLEAR came meanwhile: then what was written is of before it.
        """
        job = self._end()
        plan, result = job.plan, job.result
        sequence = plan.state.persisted_sequence
        newer_ms = plan.now_ms if self._log.last_sequence > sequence else None
        self._journal.persisted(self._log, sequence, self._job_journal_bytes, newer_ms)
        self._next_block_id = result.next_block_id
        self._width.take(result.width, self._name)
        self._held_versions = result.held_versions
        self._acknowledged_versions = result.acknowledged_versions
        self._orphans = self._orphans[len(plan.orphans) :]
        self._uncertain -= plan.uncertain
        self._cleared -= plan.cleared
        if self._job_is_stale:
            self._cleared.update(result.exchanged)
            self._positions.put_back(
                ChangedLedgers(set(result.held_versions), set(result.acknowledged_versions))
            )
        else:
            self._timeline.let_go_of_frozen()
            self._timeline.carry(result.carried)
            self._timeline.exchange(result.exchanged)
            self._quarantine.done(plan.quarantined)
        # Only now does nobody load the blocks that were replaced.
        self._delete_retired(job)
        return None if self._job_is_stale else result

    def abandon(self) -> None:
        """The persist has failed: everything is as before it, and will be tried again."""
        job = self._end()
        # Even its commit may be in the store: a sync can fail after the write.
        self._orphans.extend(job.result.written_ahead)
        self._uncertain.update(job.result.exchanged)
        self._next_block_id = max(self._next_block_id, job.result.next_block_id)
        self._positions.put_back(ChangedLedgers(job.plan.dirty_held, job.plan.dirty_acknowledged))
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
                _LOG.warning("%s: deleting merged blocks is tried again: %s", self._name, error)
                self._orphans.extend(job.result.retired)

    def check(self) -> None:
        """Raise CheckError if an invariant does not hold."""
        for each in self._timeline.slices:
            for block in each.blocks.values():
                named = f"{block.descriptor} of slice {each.id}"
                require(
                    block.descriptor.block_id < self._next_block_id,
                    f"{named} has an id that is still to come",
                )
        for versions in (self._held_versions, self._acknowledged_versions):
            require(
                all(version <= self._version for version in versions.values()),
                "a stored bitmap is of a persist that is still to come",
            )
