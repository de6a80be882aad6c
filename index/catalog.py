"""All subscriptions of one data directory, and what they share: store, journal, budget, heap of due times.

The core is single-threaded: every method is called by one thread. What is slow (the write of a commit, a
persist) is an object that is begun here, run anywhere and finished here.

Invariants: at most one persist is on its way; the due heap has exactly the subscriptions that are not
parked and have something to hand out; a subscription id is not used twice while anything is stored under it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future

from heapdict import heapdict

from tidegate.index.clock import Clock
from tidegate.index.context import Context
from tidegate.index.damaged_values import set_aside
from tidegate.index.delay_index import DelayIndex
from tidegate.index.entry import ENTRY_BYTES
from tidegate.index.errors import ClosedError, StorageError
from tidegate.index.format import keys
from tidegate.index.format.manifest import Identity
from tidegate.index.journal import Commit, Journal
from tidegate.index.names import SubscriptionName
from tidegate.index.options import IndexOptions
from tidegate.index.persist import PersistJob
from tidegate.index.recovery import check_format, recover
from tidegate.index.slice_width import SliceWidth
from tidegate.index.stats import CatalogStats, IndexStats
from tidegate.index.store import Batch, Store

_LOG = logging.getLogger(__name__)
_LOOK_INTERVAL_MS = 100
_TIDY_JOURNAL_BYTES = 1 << 20


class Catalog:
    """The indexes of all subscriptions. Obtained by `open`."""

    def __init__(self, store: Store, clock: Clock, options: IndexOptions, executor: Executor | None) -> None:
        self._store = store
        self._clock = clock
        self._options = options
        self._executor = executor
        self._journal = Journal(store, options.write_piece_bytes)
        self._context: Context[DelayIndex] = Context(store, clock, options, self._journal, self._due_changed)
        self._indexes: dict[SubscriptionName, DelayIndex] = {}
        self._due: heapdict = heapdict()
        self._parked: set[DelayIndex] = set()
        self._next_subscription_id = 1
        self._persisting: DelayIndex | None = None
        self._future: Future[None] | None = None
        self._untidy = False
        self._tidying: Future[None] | None = None
        self._retry_at_ms: int | None = None
        self._look_at_ms: int | None = None
        self._staged_entries = 0
        self._persists = 0
        self._persist_failures = 0
        self._last_failure: str | None = None
        self._failing: str | None = None
        self._closed = False

    @classmethod
    def open(
        cls,
        store: Store,
        clock: Clock,
        options: IndexOptions | None = None,
        executor: Executor | None = None,
    ) -> Catalog:
        """Recover the subscriptions that `store` holds. The catalog owns the store from now on.

        executor: runs persists; None runs them inline, as simulation needs it.
        Raises NewerFormatError, ForeignDirectoryError, DamagedDirectoryError, StorageError.
        """
        catalog = cls(store, clock, options or IndexOptions(), executor)
        check_format(store, catalog._options)
        recovery = recover(store, catalog._options)
        catalog._next_subscription_id = recovery.next_subscription_id
        for found in recovery.subscriptions:
            index = DelayIndex.restored(catalog._context, found)
            catalog._indexes[index.name] = index
            catalog._due_changed(index)
        catalog._context.corrupt_records += recovery.damage.count
        batch = recovery.damage.batch
        batch.extend(set_aside(store, recovery.damage.kept, catalog._options.quarantine_budget_bytes))
        if len(batch):
            store.write(batch, sync=True)
        catalog._settle_loss()
        return catalog

    def _settle_loss(self) -> None:
        """What the store has lost may have taken acknowledgements back: believe none. Durable on return."""
        loss = self._store.loss()
        if loss is None:
            return
        self._context.lost_commits = loss.commits
        what = f"at least {loss.commits} commits are gone that had been reported durable"
        _LOG.error(
            "%s: %s (%s). Their messages are read from the topics again, and the acknowledgements of all %d "
            "subscriptions are forgotten: some messages come twice, none is lost. Look at the disk",
            self._store,
            what if loss.commits else "whether durable commits are gone cannot be told",
            loss.reason,
            len(self),
        )
        for index in self:
            index.forget_acknowledgements()
        self.commit()
        self._store.settle_loss()

    # ---- subscriptions

    def subscription(self, name: SubscriptionName, incarnation: bytes) -> DelayIndex:
        """The index of a subscription: made if it is new, emptied first if its stored incarnation differs."""
        self._require_open()
        index = self._indexes.get(name)
        if index is not None and index.incarnation == incarnation:
            return index
        self.remove(name)
        subscription_id = self._next_subscription_id
        self._next_subscription_id += 1
        identity = Identity(name, incarnation)
        batch = Batch()
        batch.put(keys.subscription_key(keys.IDENTITY, subscription_id), identity.encode())
        log = self._journal.new_log(subscription_id, batch)
        width = SliceWidth(self._options.slice_width_ms, self._options.slice_width_auto)
        index = DelayIndex(self._context, identity, log, width)
        self._indexes[name] = index
        return index

    def get(self, name: SubscriptionName) -> DelayIndex | None:
        """The index of a subscription, None if there is none."""
        return self._indexes.get(name)

    def remove(self, name: SubscriptionName) -> None:
        """Forget a subscription and delete what is stored of it, with the next commit."""
        index = self._indexes.pop(name, None)
        if index is not None:
            index.remove()
            self._due.pop(index, None)
            self._parked.discard(index)
            self._delete_stored(index)

    def __iter__(self) -> Iterator[DelayIndex]:
        return iter(list(self._indexes.values()))

    def __len__(self) -> int:
        return len(self._indexes)

    # ---- due times

    def next_due(self) -> tuple[int, DelayIndex] | None:
        """(due ms, index) of the subscription with the earliest due entry, parked ones left out. O(1)."""
        if not self._due:
            return None
        index, due_ms = self._due.peekitem()
        return due_ms, index

    def park(self, index: DelayIndex) -> None:
        """Leave a subscription out of `next_due` until `unpark`: nobody can take what is due (no credit)."""
        self._parked.add(index)
        self._due.pop(index, None)

    def unpark(self, index: DelayIndex) -> None:
        """Count a subscription in `next_due` again."""
        self._parked.discard(index)
        self._due_changed(index)

    # ---- durability

    @property
    def durable_token(self) -> int:
        """Everything whose token is not above this is durable."""
        return self._journal.durable_token

    def commit(self) -> int:
        """Group commit: one synced write of everything appended since the last; the durable token.

        Raises StorageError; what was appended is kept and goes with the next commit.
        """
        self._require_open()
        return self._journal.commit()

    def begin_commit(self) -> Commit | None:
        """Take what is appended, for `Commit.run` in any thread; None if nothing is or one is on its way."""
        self._require_open()
        return self._journal.begin()

    def finish_commit(self, commit: Commit) -> int:
        """Account for a commit that has run; the durable token. Raises StorageError as `commit` does."""
        return self._journal.finish(commit)

    # ---- background work

    @property
    def persist_failure(self) -> str | None:
        """Why persists fail at present, None if the last one succeeded."""
        return self._failing

    @property
    def persisting(self) -> Future[None] | None:
        """The persist on its way, None if there is none. `maintain` applies it once it is done."""
        return self._future

    def maintain(self, now_ms: int) -> None:
        """Apply a finished persist, start the most wanted one, prefetch what is due next. Call often.

        Calling it as soon as `persisting` is done starts the next persist without a pause.
        Raises StorageError if a persist has failed: everything is as before it, and it is tried again after
        `retry_ms`; until it succeeds `persist_failure` tells why. Also if a block cannot be read ahead.
        """
        self._require_open()
        if self._persisting is not None and self._future is not None and self._future.done():
            failure = self._finish_persist()
            if failure is not None:
                raise failure
        if self._persisting is None and (self._retry_at_ms is None or now_ms >= self._retry_at_ms):
            index = self._most_wanted(now_ms)
            # Without its identity in the store, what is persisted would be nobody's after a crash.
            if index is not None and index.log.identity_token <= self._journal.durable_token:
                self._start_persist(index, now_ms)
            elif index is None:
                self._tidy()
        first = self.next_due()
        if first is not None and first[0] <= now_ms + self._options.prefetch_ms:
            first[1].prefetch(now_ms)

    def persist(self, name: SubscriptionName) -> None:
        """Commit, and persist one subscription now, on the calling thread. Raises StorageError."""
        self._drain()
        self.commit()
        index = self._indexes.get(name)
        if index is not None:
            job = index.begin_persist(self._clock.now_ms())
            self._persisting = index
            self._run_inline(job)

    def close(self) -> None:
        """Commit, persist what has a long journal, and close the store. Raises StorageError."""
        if self._closed:
            return
        try:
            self._drain()
            self.commit()
            for index in self:
                if index.log.size_bytes >= self._options.write_piece_bytes:
                    self.persist(index.name)
        finally:
            self._closed = True
            self._store.close()

    def _most_wanted(self, now_ms: int) -> DelayIndex | None:
        """Who is to be persisted next. A removed index, though a late frame made it want, is let go of."""
        if not self._indexes or not self._worth_looking(now_ms):
            return None
        wanting = self._context.wanting
        for gone in [each for each in wanting if self._indexes.get(each.name) is not each]:
            wanting.discard(gone)
        self._look_at_ms = now_ms + _LOOK_INTERVAL_MS
        self._context.added_entries = 0
        self._staged_entries = sum(index.staged_entries for index in self._indexes.values())
        if self._staged_entries * ENTRY_BYTES > self._options.staging_budget_bytes:
            return max(self._indexes.values(), key=lambda index: index.staged_entries)
        if self._journal.size_bytes > self._options.journal_budget_bytes:
            return max(self._indexes.values(), key=lambda index: index.log.size_bytes)
        if wanting:
            return next(iter(wanting))
        return next(
            (
                index
                for index in self._indexes.values()
                if (oldest_ms := index.oldest_change_ms) is not None
                and now_ms - oldest_ms >= self._options.persist_age_ms
            ),
            None,
        )

    def _worth_looking(self, now_ms: int) -> bool:
        """Whether somebody may want a persist. O(1), where looking is O(subscriptions)."""
        added_bytes = (self._staged_entries + self._context.added_entries) * ENTRY_BYTES
        return (
            bool(self._context.wanting)
            or added_bytes > self._options.staging_budget_bytes
            or self._journal.size_bytes > self._options.journal_budget_bytes
            or self._look_at_ms is None
            or now_ms >= self._look_at_ms
        )

    def _tidy(self) -> None:
        """Let the store tidy up after the last persist of many, when it has nothing else to do."""
        if not self._untidy or self._journal.size_bytes > _TIDY_JOURNAL_BYTES:
            return
        if self._executor is None:
            self._untidy = False
            self._run_tidy()
        elif self._tidying is None or self._tidying.done():
            self._untidy = False
            self._tidying = self._executor.submit(self._run_tidy)

    def _run_tidy(self) -> None:
        try:
            self._store.tidy()
        except (StorageError, ClosedError) as error:
            # Nothing depends on it, and writes will meet whatever it has met.
            _LOG.warning("tidying up the store is left for later: %s", error)

    def _start_persist(self, index: DelayIndex, now_ms: int) -> None:
        job = index.begin_persist(now_ms)
        self._persisting = index
        if self._executor is not None:
            self._future = self._executor.submit(job.run)
            return
        self._run_inline(job)

    def _run_inline(self, job: PersistJob) -> None:
        self._future = Future()
        try:
            job.run()
        except BaseException as error:
            self._future.set_exception(error)
        else:
            self._future.set_result(None)
        failure = self._finish_persist()
        if failure is not None:
            raise failure

    def _finish_persist(self) -> StorageError | None:
        """Apply the persist that has run, or put everything back; the storage error if that is why."""
        index, future = self._persisting, self._future
        self._persisting = self._future = None
        if index is None or future is None:
            return None
        error = future.exception()
        self._look_at_ms = None
        if self._indexes.get(index.name) is not index:
            # Removed meanwhile: what the persist wrote is nobody's.
            self._delete_stored(index)
            return None
        if error is None:
            index.finish_persist()
            self._persists += 1
            self._untidy = True
            self._retry_at_ms = None
            self._failing = None
            return None
        index.abandon_persist()
        if not isinstance(error, StorageError):
            raise error
        self._persist_failures += 1
        self._last_failure = self._failing = str(error)
        self._retry_at_ms = self._clock.now_ms() + self._options.retry_ms
        _LOG.error("persisting %s failed, it is tried again: %s", index.name, error)
        return error

    def _drain(self) -> None:
        """Wait for the persist that is on its way."""
        if self._future is not None:
            self._future.exception()
            self._finish_persist()
        if self._tidying is not None:
            self._tidying.exception()

    def _delete_stored(self, index: DelayIndex) -> None:
        subscription_id = index.log.subscription_id
        batch = Batch()
        batch.delete(keys.subscription_key(keys.IDENTITY, subscription_id))
        for kind in keys.SUBSCRIPTION_KINDS:
            batch.delete_range(*keys.subscription_range(kind, subscription_id))
        self._journal.also(batch)

    # ---- telling

    def stats(self, each: Sequence[IndexStats] | None = None) -> CatalogStats:
        """Sums over all subscriptions, and of the store.

        each: what the subscriptions have said already, for a caller that cannot wait for all of them at once.
        """
        if each is None:
            each = [index.stats() for index in self]
        return CatalogStats(
            subscriptions=len(each),
            held=sum(one.held for one in each),
            in_flight=sum(one.in_flight for one in each),
            acknowledged=sum(one.acknowledged for one in each),
            staged=sum(one.staged for one in each),
            slices_in_memory=sum(one.slices_in_memory for one in each),
            slices_on_disk=sum(one.slices_on_disk for one in each),
            blocks=sum(one.blocks for one in each),
            blocks_quarantined=sum(one.blocks_quarantined for one in each),
            corrupt_records=self._context.corrupt_records,
            lost_commits=self._context.lost_commits,
            memory_bytes=sum(one.memory_bytes for one in each),
            disk_bytes=self._store.disk_bytes(),
            journal_bytes=self._journal.size_bytes,
            durable_token=self._journal.durable_token,
            appended_token=self._journal.appended_token,
            persists=self._persists,
            persist_failures=self._persist_failures,
            last_failure=self._last_failure,
        )

    def _due_changed(self, index: DelayIndex) -> None:
        due_ms = index.next_due_ms()
        if due_ms is None or index in self._parked or self._indexes.get(index.name) is not index:
            if index in self._due:
                del self._due[index]
        elif self._due.get(index) != due_ms:
            self._due[index] = due_ms

    def _require_open(self) -> None:
        if self._closed:
            raise ClosedError("the catalog is closed")
