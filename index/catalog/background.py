"""A catalog's background work: persists, compactions, and tidying up the store.

The core's thread begins and applies each; an executor runs it. Persists come first. A compaction runs when no
persist is wanted, and in persists' pauses as far as `pacing` allows; the tidying runs beside them.

Invariants: at most one persist or compaction runs, and beside a persist at most the merging part of one
compaction; a compaction that runs alone pauses for a persist once it has written a block; failed work is
tried again after `retry_ms`, and until it succeeds `failure` has the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import TypeGuard

from heapdict import heapdict

from tidegate.index.blocks.pacing import CompactionPace, Interleaved, Merge
from tidegate.index.catalog.persist_choice import SHORT_JOURNAL_BYTES, PersistChoice
from tidegate.index.clock import Clock
from tidegate.index.errors import ClosedError, StorageError
from tidegate.index.names import SubscriptionName
from tidegate.index.subscription.context import Context
from tidegate.index.subscription.delay_index import DelayIndex

_LOG = logging.getLogger(__name__)
_TURN_MAX_NS = 20_000_000
"""While a persist waits, a compaction runs alone for at most this long."""

_INTERLEAVED_ENTRIES_MIN = 65_536
"""A persist of fewer entries has no pause for a compaction."""


Work = Callable[[], None]


class _Pause:
    """Makes a compaction that runs alone pause as soon as other work waits."""

    def __init__(self, clock: Clock, at_ns: int | None) -> None:
        self._clock = clock
        self._at_ns = at_ns

    def hurry(self) -> None:
        if self._at_ns is None:
            self._at_ns = self._clock.monotonic_ns()

    def __call__(self) -> bool:
        return self._at_ns is not None and self._clock.monotonic_ns() >= self._at_ns


class _Running:
    """A running persist of an index, compaction of one, or both."""

    def __init__(
        self,
        clock: Clock,
        *,
        persists: DelayIndex | None = None,
        compacts: DelayIndex | None = None,
        pause: _Pause | None = None,
        interleaved: Interleaved | None = None,
    ) -> None:
        self.persists = persists
        self.compacts = compacts
        self.pause = pause
        self.interleaved = interleaved
        self.future: Future[None] = Future()
        self.took_ns = 0
        self._clock = clock

    def timed(self, work: Work) -> None:
        began_ns = self._clock.monotonic_ns()
        try:
            work()
        finally:
            self.took_ns = self._clock.monotonic_ns() - began_ns
            if self.interleaved is not None:
                self.interleaved.end()


class Background:
    """The background work on one catalog's indexes.

    failure: why persists fail at present, None if the last one succeeded. executor: None runs everything at
    once on the calling thread, for simulation. late: called with an index removed while a part of it ran.
    """

    def __init__(
        self,
        context: Context[DelayIndex],
        indexes: Mapping[SubscriptionName, DelayIndex],
        executor: Executor | None,
        late: Callable[[DelayIndex], None],
    ) -> None:
        self.persists = 0
        self.compactions = 0
        self.failures = 0
        self.failure: str | None = None
        self.last_failure: str | None = None
        self._context = context
        self._clock = context.clock
        self._options = context.options
        self._indexes = indexes
        self._executor = executor
        self._late = late
        self._choice = PersistChoice(context, indexes)
        self._pace = CompactionPace(self._options.merge_runs, self._options.runs_max)
        self._crowded: heapdict = heapdict()
        """Indexes with crowded slices, the most crowded first."""
        self._running: _Running | None = None
        self._paused: DelayIndex | None = None
        """The paused compaction's index."""
        self._may_take_turn = False
        """True if a compaction may run alone before the waiting persist."""
        self._untidy = False
        self._tidying: Future[None] | None = None
        self._retry_at_ms: int | None = None

    # ---- knowledge of the indexes

    def crowding_changed(self, index: DelayIndex) -> None:
        """Note that an index may have become more or less crowded."""
        crowding = index.upkeep.crowding
        if crowding is None or not self._is_known(index):
            self._crowded.pop(index, None)
        elif self._crowded.get(index) != crowding:
            self._crowded[index] = crowding

    def forget(self, index: DelayIndex) -> None:
        """Forget an index that was removed."""
        self._crowded.pop(index, None)

    def is_persisting(self, index: DelayIndex) -> bool:
        """True from the begin of an index's persist until it is applied."""
        return self._running is not None and self._running.persists is index

    @property
    def running(self) -> Future[None] | None:
        """The running persist or compaction, None without one; once done, `advance` applies it."""
        return None if self._running is None else self._running.future

    @property
    def tidying(self) -> Future[None] | None:
        """The running tidying of the store, None without one."""
        return None if self._tidying is None or self._tidying.done() else self._tidying

    @property
    def unspilled_entries(self) -> int:
        """Entries in memory and in no slice. O(1); slightly too high if some were acknowledged."""
        persists = None if self._running is None else self._running.persists
        frozen = 0 if persists is None else persists.upkeep.frozen_entries
        return self._choice.staged_entries + frozen

    # ---- running

    def advance(self, now_ms: int) -> None:
        """Apply finished work and start the most wanted. Raises StorageError if the finished work failed."""
        if self._running is not None and self._running.future.done():
            self._apply()
        if self._running is None:
            # A clock that went back does not prolong the wait.
            if self._retry_at_ms is None or not 0 < self._retry_at_ms - now_ms <= self._options.retry_ms:
                self._start(now_ms)
        elif self._running.pause is not None and self._is_ready(self._choice.most_wanted(now_ms)):
            self._running.pause.hurry()

    def persist_now(self, index: DelayIndex) -> None:
        """Persist an index on the calling thread. Nothing may run. Raises StorageError."""
        job = index.upkeep.begin_persist(self._clock.now_ms())
        self._choice.taken(job.staged_entries)
        self._run_here(_Running(self._clock, persists=index), job.run)

    def drain(self) -> None:
        """Wait for the running work, and apply it; a compaction pauses. Failed work is tried again later."""
        if self._running is not None:
            if self._running.pause is not None:
                self._running.pause.hurry()
            self._running.future.exception()
            try:
                self._apply()
            except StorageError as error:
                _LOG.warning("the last background job before the end has failed: %s", error)
        if self._tidying is not None:
            self._tidying.exception()

    def _start(self, now_ms: int) -> None:
        wanted = self._choice.most_wanted(now_ms)
        if not self._is_ready(wanted):
            if not self._start_compaction(None) and wanted is None:
                self._tidy()
            return
        # Before the next persist commit a slice merged beside the last one.
        commits = self._paused is not None and self._paused.upkeep.has_merged
        turn_ns = min(self._pace.allowance_ns, _TURN_MAX_NS)
        if self._may_take_turn and (commits or turn_ns) and self._start_compaction(turn_ns):
            self._may_take_turn = False
        else:
            self._start_persist(wanted, now_ms)

    def _start_persist(self, index: DelayIndex, now_ms: int) -> None:
        self._may_take_turn = True
        try:
            job = index.upkeep.begin_persist(now_ms)
        except Exception as error:
            self._failed(f"beginning to persist {index.name}", error)
            raise
        self._choice.taken(job.staged_entries)
        running = _Running(self._clock, persists=index)
        if job.staged_entries >= _INTERLEAVED_ENTRIES_MIN:
            runs = self._crowded.peekitem()[1].runs if self._crowded else 0
            running.compacts, merge = self._next_compaction(commits=False)
            if merge is not None:
                running.interleaved = Interleaved(self._clock, self._pace, runs, merge)
                job.between = running.interleaved.between
        self._run(running, job.run)

    def _start_compaction(self, allowance_ns: int | None) -> bool:
        """Start a compaction, or resume a paused one; False without any."""
        index, merge = self._next_compaction(commits=True)
        if merge is None:
            return False
        at_ns = None if allowance_ns is None else self._clock.monotonic_ns() + allowance_ns
        pause = _Pause(self._clock, at_ns)
        self._run(_Running(self._clock, compacts=index, pause=pause), lambda: merge(pause))
        return True

    def _next_compaction(self, *, commits: bool) -> tuple[DelayIndex | None, Merge | None]:
        """The paused compaction, or a new one of the most crowded slice; (None, None) without any."""
        while self._paused is not None or self._crowded:
            index: DelayIndex = self._paused or self._crowded.peekitem()[0]
            self._paused = None
            merge = index.upkeep.begin_compaction(commits=commits) if self._is_known(index) else None
            if merge is not None:
                return index, merge
            self.crowding_changed(index)  # finished slices changed its crowding unannounced
        return None, None

    def _run(self, running: _Running, work: Work) -> None:
        if self._executor is None:
            self._run_here(running, work)
        else:
            self._running = running
            running.future = self._executor.submit(running.timed, work)

    def _run_here(self, running: _Running, work: Work) -> None:
        self._running = running
        try:
            running.timed(work)
        except BaseException as error:
            running.future.set_exception(error)
        else:
            running.future.set_result(None)
        self._apply()

    # ---- applying

    def _apply(self) -> None:
        """Apply finished work, or undo it. Raises its error."""
        running, self._running = self._running, None
        if running is None:
            return
        self._choice.look_again()
        persist_error = compaction_error = running.future.exception()
        if running.interleaved is not None:
            compaction_error = running.interleaved.error
        elif running.compacts is not None:
            self._pace.compacted(running.took_ns)
        errors = []
        if running.persists is not None and self._is_wanted(running.persists):
            errors.append(persist_error)
            self._apply_persist(running.persists, running, persist_error)
        if running.compacts is not None and self._is_wanted(running.compacts):
            errors.append(compaction_error)
            self._apply_compaction(running.compacts, compaction_error)
        for error in errors:
            if error is not None:
                raise error

    def _is_wanted(self, index: DelayIndex) -> bool:
        """True if an index is still there. Blocks written for a removed one have no owner."""
        if not self._is_known(index):
            self._late(index)
        return self._is_known(index)

    def _apply_persist(self, index: DelayIndex, running: _Running, error: BaseException | None) -> None:
        if error is not None:
            staged_since = index.upkeep.staged_entries
            index.upkeep.abandon_persist()
            self._choice.given_back(index.upkeep.staged_entries - staged_since)
            self._failed(f"persisting {index.name}", error)
            return
        try:
            index.upkeep.finish_persist()
        except Exception:
            index.doubt()  # it may be half applied
            raise
        self.persists += 1
        self._retry_at_ms = None
        self.failure = None
        self._untidy = True
        if running.interleaved is None and self._crowded:
            self._pace.spilled(running.took_ns, self._crowded.peekitem()[1].runs)

    def _apply_compaction(self, index: DelayIndex, error: BaseException | None) -> None:
        self.compactions += index.upkeep.finish_compaction(failed=error is not None)
        if error is not None:
            self._failed(f"compacting {index.name}", error)
            return
        self._untidy = True
        if index.upkeep.compaction_paused:
            self._paused = index

    def _failed(self, what: str, error: BaseException) -> None:
        self.failures += 1
        self.last_failure = self.failure = str(error) if isinstance(error, StorageError) else repr(error)
        self._retry_at_ms = self._clock.now_ms() + self._options.retry_ms
        _LOG.error("%s failed, trying again: %s", what, self.failure)

    # ---- choosing

    def _is_known(self, index: DelayIndex) -> bool:
        return self._indexes.get(index.name) is index

    def _is_ready(self, index: DelayIndex | None) -> TypeGuard[DelayIndex]:
        """True if an index can be persisted. Without a stored identity, its data has no owner."""
        return index is not None and index.own_journal.identity_token <= self._context.journal.durable_token

    def _tidy(self) -> None:
        """Let the store tidy up when idle after many persists."""
        if not self._untidy:
            return
        if self._context.journal.size_bytes > SHORT_JOURNAL_BYTES and not self._choice.is_quiet():
            return
        if self._executor is None:
            self._untidy = False
            self._run_tidy()
        elif self._tidying is None or self._tidying.done():
            self._untidy = False
            self._tidying = self._executor.submit(self._run_tidy)

    def _run_tidy(self) -> None:
        try:
            self._context.store.tidy()
        except (StorageError, ClosedError) as error:
            # Tidying is optional, and writes will meet the same error.
            _LOG.warning("the store cannot be tidied up now, trying again later: %s", error)
