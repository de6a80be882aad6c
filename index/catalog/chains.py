"""The index logs that have the data of the subscriptions, as stored and as set since.

Invariant: while blocks of a subscription are absent, its stored chain does not change: a start would find
incomplete data, and has to read the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidegate.index.errors import CorruptRecordError, StorageError
from tidegate.index.format import keys
from tidegate.index.format.chain import Chain
from tidegate.index.journal.journal import Journal
from tidegate.index.store import Batch, Store
from tidegate.index.subscription.delay_index import DelayIndex


class Chains:
    """The chain of each subscription. is_here: False for an index that the catalog does not have."""

    def __init__(self, store: Store, journal: Journal, is_here: Callable[[DelayIndex], bool]) -> None:
        self._store = store
        self._journal = journal
        self._is_here = is_here
        self._set: dict[DelayIndex, Chain] = {}
        """Chains set since the start: the stored ones may be older until the next commit."""
        self._read: dict[DelayIndex, Chain] = {}
        """Other chains as read, for times when the store refuses reads."""

    def get(self, index: DelayIndex) -> Chain | None:
        """The index log that has the data of a subscription; None if unknown."""
        known = self._set.get(index)
        return self._stored(index) if known is None else known

    def set(self, index: DelayIndex, chain: Chain) -> int:
        """Note that this index log has the data of a subscription; the token. Durable with the next commit.

        Not stored while blocks are absent.
        """
        if not self._is_here(index):
            return self._journal.durable_token
        self._set[index] = chain
        if index.upkeep.absent_blocks:
            return self._journal.durable_token
        batch = Batch()
        batch.put(_key(index), chain.encode())
        return self._journal.also(batch)

    def doubt(self, index: DelayIndex) -> None:
        """Note damage in the data of a subscription that has `damaged`; a persist will repair it.

        Durable with the next commit.
        """
        if self._is_here(index) and index.damaged:
            self._journal.also(self._doubted(index))

    def doubt_damaged(self, indexes: Iterable[DelayIndex]) -> None:
        """Doubt the chains of damaged subscriptions. Durable on return. Raises StorageError.

        Their stored values are repaired next, so the following start would find no damage.
        """
        batch = Batch()
        for index in indexes:
            if index.damaged:
                batch.extend(self._doubted(index))
        if len(batch):
            self._store.write(batch, sync=True)

    def believe(self, index: DelayIndex) -> None:
        """Note that a stream uses the local data: its log is no longer the better copy."""
        chain = self.get(index)
        if chain is not None and (index.damaged or not chain.whole):
            self.set(index, chain._replace(whole=True))
        index.damaged = False

    def forget(self, index: DelayIndex) -> None:
        """Forget a subscription that the catalog removes."""
        self._set.pop(index, None)
        self._read.pop(index, None)

    def _stored(self, index: DelayIndex) -> Chain | None:
        try:
            value = self._store.get(_key(index))
            chain = None if value is None else Chain.decode(value)
        except CorruptRecordError:
            return None
        except StorageError:
            return self._read.get(index)
        if chain is not None and self._is_here(index):
            self._read[index] = chain
        return chain

    def _doubted(self, index: DelayIndex) -> Batch:
        batch = Batch()
        chain = self.get(index)
        if chain is not None and not index.upkeep.absent_blocks:
            doubted = chain._replace(whole=False)
            batch.put(_key(index), doubted.encode())
            if index in self._read:
                self._read[index] = doubted
        return batch


def _key(index: DelayIndex) -> bytes:
    return keys.subscription_key(keys.CHAIN, index.own_journal.subscription_id)
