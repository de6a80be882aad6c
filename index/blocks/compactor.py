"""Compacts one subscription: the core thread's part before, between and after a compaction's steps.

A paused compaction stays here, its work so far applied, so that a persist can run in between. It resumes only
while its slices still have the merged blocks.

Invariants: at most one compaction is on its way; none begins or resumes while a stored slice record is
uncertain; `Leftovers` gets the leftovers of an abandoned one.
"""

from __future__ import annotations

import logging
from functools import partial

from tidegate.index.blocks.absent import AbsentBlocks
from tidegate.index.blocks.block_writer import BlockWriter
from tidegate.index.blocks.compaction import CompactionJob, CompactionResult, Task
from tidegate.index.blocks.leftovers import Leftovers
from tidegate.index.blocks.pacing import Merge
from tidegate.index.blocks.persister import Persister
from tidegate.index.errors import StorageError, TidegateIndexError
from tidegate.index.names import SubscriptionName
from tidegate.index.options import IndexOptions
from tidegate.index.store import Store
from tidegate.index.timeline.crowding import Crowding
from tidegate.index.timeline.timeline import Timeline

_LOG = logging.getLogger(__name__)


class Compactor:
    """One subscription's compactions, one after another."""

    def __init__(
        self,
        *,
        name: SubscriptionName,
        subscription_id: int,
        store: Store,
        options: IndexOptions,
        timeline: Timeline,
        persister: Persister,
        leftovers: Leftovers,
        absent: AbsentBlocks,
    ) -> None:
        self._name = name
        self._subscription_id = subscription_id
        self._store = store
        self._options = options
        self._timeline = timeline
        self._persister = persister
        self._leftovers = leftovers
        self._absent = absent
        self._job: CompactionJob | None = None
        self._job_is_stale = False
        self._running = False

    @property
    def crowding(self) -> Crowding | None:
        """The crowding of the slice that most needs compacting; None if none can be compacted.

        A paused compaction is always resumed, if only to delete its blocks.
        """
        if not self._may_merge:
            return None
        return self._timeline.crowded.first() or (None if self._job is None else Crowding(0, 0))

    @property
    def _may_merge(self) -> bool:
        """True if no slice record is uncertain and every block that may be merged is here."""
        return self._leftovers.certain and not self._absent

    @property
    def paused(self) -> bool:
        """True if a paused compaction can be resumed."""
        return self._job is not None and not self._running

    @property
    def has_merged(self) -> bool:
        """True if the paused compaction has merged slices to commit."""
        return self.paused and self._job is not None and self._job.has_merged

    def clear(self) -> None:
        """Note a CLEAR: the compaction on its way does not count."""
        if self._job is None:
            return
        if self._running:
            self._job_is_stale = True
        else:
            self._abandon(self._job)

    def begin_compaction(self, *, commits: bool) -> Merge | None:
        """Begin a compaction, or resume the paused one; None if there is nothing to do.

        Any thread may call the returned function, also several times, until `finish_compaction`. commits:
        False beside a persist of this subscription. The next run that commits also commits the slices merged
        until then, see `has_merged`.
        """
        if self._running:
            raise TidegateIndexError(f"{self._name}: a compaction is on its way already")
        if not self._may_merge:
            return None
        job = self._job or self._new_job()
        left = sum(task.entries for task in job.left.values())
        tasks = self._timeline.crowded.to_compact(self._options.compaction_entries - left, job.left)
        job.extend({slice_id: Task(blocks, self._persister.live) for slice_id, blocks in tasks.items()})
        if job.done:
            return None
        self._job, self._running = job, True
        slices = {
            slice_id: self._timeline.descriptors(slice_id)
            for slice_id, task in job.left.items()
            if self._timeline.still_has(slice_id, task.blocks)
        }
        return partial(job.run, slices, commits=commits)

    def finish_compaction(self, *, failed: bool = False) -> CompactionResult:
        """Apply the work of a compaction that ended, paused or failed, except corrupt blocks found."""
        job = self._end()
        result = job.take_result()
        if self._job_is_stale:
            self._leftovers.clear(result.exchanged)
        else:
            self._timeline.exchange(result.exchanged, compacted=True)
        batch = job.deletion(result)  # nothing loads the replaced blocks any more
        if len(batch):
            try:
                self._store.write(batch, sync=False)
            except StorageError as error:
                _LOG.warning("%s: cannot delete compacted blocks, trying again: %s", self._name, error)
                self._leftovers.orphan(key for _, key, _ in batch.operations)
        if failed or self._job_is_stale:
            self._abandon(job)
        elif job.done:
            self._job = None
        return result

    def _new_job(self) -> CompactionJob:
        version = self._persister.next_version()
        writer = BlockWriter(
            self._store,
            self._subscription_id,
            version,
            ids=self._persister.ids,
            piece_bytes=self._options.write_piece_bytes,
        )
        self._job_is_stale = False
        return CompactionJob(self._store, self._options, self._subscription_id, version, writer)

    def _abandon(self, job: CompactionJob) -> None:
        orphans, doubtful = job.leftovers()
        self._leftovers.orphan(orphans)
        self._leftovers.doubt(doubtful)
        self._job = None

    def _end(self) -> CompactionJob:
        job = self._job
        if job is None or not self._running:
            raise TidegateIndexError(f"{self._name}: no compaction is on its way")
        self._running = False
        return job
