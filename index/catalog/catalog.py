"""All subscriptions of one data directory, and their common store, journal and budget.

Single-threaded: one thread calls every method but `disk_bytes`. Slow work (a commit's write, a persist, a
compaction) is an object, begun here, run anywhere and finished here.

Invariants: at most one persist or compaction runs at a time; a compaction stops for a persist once it has
written a block, unless `pacing` gives it time before; a subscription id is not reused while data is stored
under it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor

from tidegate.index.blocks.slice_width import SliceWidth
from tidegate.index.catalog.background import Background
from tidegate.index.catalog.chains import Chains
from tidegate.index.catalog.loading_ahead import LoadingAhead
from tidegate.index.clock import Clock
from tidegate.index.errors import ClosedError, StorageError
from tidegate.index.format import keys
from tidegate.index.format.manifest import Identity
from tidegate.index.journal.damage import Damage
from tidegate.index.journal.damaged_values import set_aside
from tidegate.index.journal.journal import Journal
from tidegate.index.journal.recovery import check_format, recover, recover_one
from tidegate.index.names import SubscriptionName
from tidegate.index.options import IndexOptions
from tidegate.index.stats import CatalogStats, IndexStats
from tidegate.index.store import Batch, Store
from tidegate.index.subscription.context import Context
from tidegate.index.subscription.delay_index import DelayIndex

UNCLAIMED = bytes(16)
"""The incarnation of an index filled before its subscription was opened; the first opener owns it."""

_LOG = logging.getLogger(__name__)


class Catalog:
    """The indexes of all subscriptions. Made by `open`."""

    def __init__(self, store: Store, clock: Clock, options: IndexOptions, executor: Executor | None) -> None:
        self._store = store
        self._clock = clock
        self._options = options
        self.journal = Journal(store, clock, options.write_piece_bytes)
        """The changes of all subscriptions. Commit through it, and ask it; an index appends to it."""
        self._indexes: dict[SubscriptionName, DelayIndex] = {}
        self.chains = Chains(store, self.journal, self._is_here)
        self.ahead = LoadingAhead(clock, options.prefetch_ms, self._is_here)
        self._context: Context[DelayIndex] = Context(
            store, clock, options, self.journal, self.ahead.next_load_changed
        )
        self._next_subscription_id = 1
        self.background = Background(
            self._context,
            self._indexes,
            executor,
            lambda index: self._delete_stored(index.own_journal.subscription_id),
        )
        self._context.crowding_changed = self.background.crowding_changed
        self._closed = False

    @classmethod
    def open(
        cls,
        store: Store,
        clock: Clock,
        options: IndexOptions | None = None,
        executor: Executor | None = None,
        *,
        parked: bool = False,
    ) -> Catalog:
        """Recover the subscriptions in `store`; the catalog owns it from now on.

        executor: two threads, for persists and compactions, and beside them the store's `tidy`. None runs
        them inline, for simulation. parked: park all subscriptions, see `LoadingAhead.park`: for a start
        without anybody to hand out to.

        Raises NewerFormatError, ForeignDirectoryError, DamagedDirectoryError, StorageError.
        """
        catalog = cls(store, clock, options or IndexOptions(), executor)
        check_format(store, catalog._options)
        recovery = recover(store, catalog._options)
        for found in recovery.subscriptions:
            # A name has one id. Should it ever have two, the later one counts.
            catalog.remove(found.identity.name)
            index = DelayIndex.restored(catalog._context, found)
            catalog._indexes[index.name] = index
            if parked:
                catalog.ahead.park(index)
            else:
                catalog.ahead.next_load_changed(index)
            catalog.background.crowding_changed(index)
        catalog._next_subscription_id = recovery.finish()
        catalog._context.corrupt_records += recovery.damage.count
        catalog.chains.doubt_damaged(catalog)
        catalog._write_damage(recovery.damage)
        catalog._settle_loss()
        return catalog

    def _write_damage(self, damage: Damage) -> None:
        batch = damage.batch
        batch.extend(set_aside(self._store, damage.kept, self._options.quarantine_budget_bytes))
        if len(batch):
            self._store.write(batch, sync=True)

    def _settle_loss(self) -> None:
        """Believe no acknowledgement: the lost writes may have taken some back. Durable on return."""
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
        self.chains.doubt_damaged(self)
        self.commit()
        self._store.settle_loss()

    # ---- subscriptions

    def subscription(self, name: SubscriptionName, incarnation: bytes) -> DelayIndex:
        """The index of a subscription: made if new, emptied first if its stored incarnation differs."""
        self._require_open()
        index = self._indexes.get(name)
        if index is not None and index.incarnation == UNCLAIMED != incarnation:
            self._claim(index, incarnation)
        if index is not None and index.incarnation == incarnation:
            return index
        self.remove(name)
        subscription_id = self._next_subscription_id
        self._next_subscription_id += 1
        identity = Identity(name, incarnation)
        batch = Batch()
        batch.put(keys.subscription_key(keys.IDENTITY, subscription_id), identity.encode())
        own_journal = self.journal.new_subscription(subscription_id, batch)
        width = SliceWidth(self._options.slice_width_ms, self._options.slice_width_auto)
        index = DelayIndex(self._context, identity, own_journal, width)
        self._indexes[name] = index
        return index

    def reserve_id(self) -> int:
        """An id for the caller to write a subscription under; `adopt` must follow."""
        self._require_open()
        subscription_id = self._next_subscription_id
        self._next_subscription_id += 1
        return subscription_id

    def landed(self, subscription_id: int, identity: Identity, absent: Iterable[int] = ()) -> DelayIndex:
        """The index of a subscription stored without its identity; `adopt` or `abandon` must follow.

        absent: ids of blocks still to be written there, see `Upkeep.land`.

        Raises StorageError: nothing has changed then, and the caller must abandon the id.
        """
        self._require_open()
        found, damage = recover_one(self._store, self._options, subscription_id, identity)
        index = DelayIndex.restored(self._context, found, absent)
        try:
            self._write_damage(damage)
        except StorageError:
            index.remove()
            raise
        index.damaged = False  # there is no better copy
        self._context.corrupt_records += damage.count
        return index

    def adopt(self, index: DelayIndex) -> None:
        """Take in an index that has `landed`; it replaces the one of the same name.

        The next commit switches to it atomically, together with all changes before.
        """
        self._require_open()
        self.remove(index.name)
        batch = Batch()
        identity = Identity(index.name, index.incarnation)
        batch.put(keys.subscription_key(keys.IDENTITY, index.own_journal.subscription_id), identity.encode())
        self.journal.identify(index.own_journal, batch)
        self._indexes[index.name] = index
        self.ahead.next_load_changed(index)
        self.background.crowding_changed(index)

    def abandon(self, index: DelayIndex) -> None:
        """Reject an index that has `landed`; the caller must still abandon its id."""
        index.remove()
        self.background.forget(index)

    def abandon_id(self, subscription_id: int) -> None:
        """Give up a reserved id: the next commit deletes everything stored under it."""
        if not self._closed:
            self._delete_stored(subscription_id)

    def _claim(self, index: DelayIndex, incarnation: bytes) -> None:
        """Give entries from before the subscription's first open to its first owner."""
        index.incarnation = incarnation
        key = keys.subscription_key(keys.IDENTITY, index.own_journal.subscription_id)
        batch = Batch()
        batch.put(key, Identity(index.name, incarnation).encode())
        self.journal.also(batch)

    def get(self, name: SubscriptionName) -> DelayIndex | None:
        """The index of a subscription, None if there is none."""
        return self._indexes.get(name)

    def remove(self, name: SubscriptionName) -> None:
        """Forget a subscription; the next commit deletes its stored data."""
        index = self._indexes.pop(name, None)
        if index is not None:
            index.remove()
            self.ahead.forget(index)
            self.background.forget(index)
            self.chains.forget(index)
            self._delete_stored(index.own_journal.subscription_id)

    def __iter__(self) -> Iterator[DelayIndex]:
        return iter(list(self._indexes.values()))

    def __len__(self) -> int:
        return len(self._indexes)

    # ---- losses

    def on_corrupt_block(self, met: Callable[[DelayIndex], None]) -> None:
        """Call ``met`` with an index of which a damaged block may be whole in its index log.

        The call comes amid other work: ``met`` must not call the catalog or the index. The index's next
        persist loses the entries that only that block had.
        """
        self._context.corrupt_block = met

    def unheld(self) -> list[DelayIndex]:
        """The subscriptions with unheld positions to take, see `take_unheld`. O(of these)."""
        return [each for each in self._context.unheld if self._is_here(each)]

    # ---- durability

    def is_durable(self, index: DelayIndex) -> bool:
        """True if all changes of an index are durable."""
        return self.journal.is_durable(index.own_journal)

    def commit(self) -> int:
        """Group commit: one synced write of everything appended since the last; returns the durable token.

        Raises StorageError; the appended records go with the next commit.
        """
        self._require_open()
        return self.journal.commit()

    # ---- background work

    def maintain(self, now_ms: int) -> None:
        """Apply finished work, start the most wanted, prefetch the blocks due next. Call often.

        A call as soon as `Background.running` is done starts the next work without a pause. The next commit
        deletes blocks written for a subscription removed meanwhile: look at `Journal.pending`.

        Raises StorageError if a block cannot be read ahead, or a persist or compaction has failed: its
        changes are undone, it is tried again after `retry_ms`, and until it succeeds `Background.failure` has
        the reason.
        """
        self._require_open()
        self.background.advance(now_ms)
        self.ahead.load(now_ms)

    def want_persist(self, index: DelayIndex) -> bool:
        """Persist a subscription soon, even if nothing else calls for it.

        False while a persist of it runs: the remainder is still unknown.
        """
        if self.background.is_persisting(index):
            return False
        if self._is_here(index):
            self._context.wanting[index] = None
        return True

    def persist(self, name: SubscriptionName) -> None:
        """Commit, and persist one subscription now, on the calling thread. Raises StorageError."""
        self.background.drain()
        self.commit()
        index = self._indexes.get(name)
        if index is not None:
            self.background.persist_now(index)

    def close(self) -> None:
        """Commit, persist the subscriptions with long journals, and close the store. Raises StorageError."""
        if self._closed:
            return
        try:
            self.background.drain()
            self.commit()
            for index in self:
                if index.own_journal.size_bytes >= self._options.write_piece_bytes:
                    self.persist(index.name)
        finally:
            self._closed = True
            self.journal.close()
            self._store.close()

    def _delete_stored(self, subscription_id: int) -> None:
        batch = Batch()
        batch.delete(keys.subscription_key(keys.IDENTITY, subscription_id))
        for kind in keys.SUBSCRIPTION_KINDS:
            batch.delete_range(*keys.subscription_range(kind, subscription_id))
        self.journal.also(batch)

    # ---- telling

    def disk_bytes(self) -> int:
        """Estimated bytes of the store. For any thread; slow, because it looks at every file."""
        return self._store.disk_bytes()

    def stats(self, each: Sequence[IndexStats] | None = None, disk_bytes: int | None = None) -> CatalogStats:
        """Sums over all subscriptions, and figures of the store.

        each: `stats` of the subscriptions, from a caller that cannot wait for all at once. disk_bytes: a
        result of `disk_bytes`, from a caller that cannot wait for the disk.
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
            slices_crowded=sum(one.slices_crowded for one in each),
            blocks=sum(one.blocks for one in each),
            blocks_quarantined=sum(one.blocks_quarantined for one in each),
            blocks_absent=sum(one.blocks_absent for one in each),
            corrupt_records=self._context.corrupt_records,
            lost_commits=self._context.lost_commits,
            memory_bytes=sum(one.memory_bytes for one in each),
            disk_bytes=self.disk_bytes() if disk_bytes is None else disk_bytes,
            journal_bytes=self.journal.size_bytes,
            durable_token=self.journal.durable_token,
            appended_token=self.journal.appended_token,
            persists=self.background.persists,
            persist_failures=self.background.failures,
            compactions=self.background.compactions,
            store_compactions_disabled=not self._store.compacts(),
            last_failure=self.background.last_failure,
        )

    def _is_here(self, index: DelayIndex) -> bool:
        """False for an index removed, replaced, or not adopted yet."""
        return self._indexes.get(index.name) is index

    def _require_open(self) -> None:
        if self._closed:
            raise ClosedError("the catalog is closed")
