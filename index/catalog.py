"""All subscriptions of one data directory."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor

from heapdict import heapdict
from tidegate.index.clock import Clock
from tidegate.index.delay_index import DelayIndex
from tidegate.index.names import SubscriptionName
from tidegate.index.options import IndexOptions
from tidegate.index.stats import CatalogStats
from tidegate.index.store import Store


class Catalog:
    """All subscriptions of one data directory, and what they share."""

    def __init__(self, store: Store, clock: Clock, options: IndexOptions, executor: Executor | None) -> None:
        self._store = store
        self._clock = clock
        self._options = options
        self._executor = executor
        self._indexes: dict[SubscriptionName, DelayIndex] = {}
        self._due: heapdict = heapdict()
        self._token = 0
        self.durable_token = 0

    @classmethod
    def open(
        cls, store: Store, clock: Clock, options: IndexOptions | None = None, executor: Executor | None = None
    ) -> Catalog:
        """Recover the subscriptions that `store` holds."""
        return cls(store, clock, options or IndexOptions(), executor)

    def subscription(self, name: SubscriptionName, incarnation: bytes) -> DelayIndex:
        """The index of a subscription, made if it is new, emptied if its incarnation differs."""
        index = self._indexes.get(name)
        if index is None or index.incarnation != incarnation:
            self.remove(name)
            index = DelayIndex(name, incarnation, self._options.slice_width_ms, self._changed)
            self._indexes[name] = index
        return index

    def get(self, name: SubscriptionName) -> DelayIndex | None:
        """The index of a subscription, None if there is none."""
        return self._indexes.get(name)

    def remove(self, name: SubscriptionName) -> None:
        """Forget a subscription."""
        index = self._indexes.pop(name, None)
        if index is not None:
            self._due.pop(index, None)

    def __iter__(self) -> Iterator[DelayIndex]:
        return iter(list(self._indexes.values()))

    def next_due(self) -> tuple[int, DelayIndex] | None:
        """The earliest due time of all subscriptions, and whose it is."""
        if not self._due:
            return None
        index, due_ms = self._due.peekitem()
        return due_ms, index

    def commit(self) -> int:
        """Make everything appended so far durable."""
        self.durable_token = self._token
        return self.durable_token

    def maintain(self, now_ms: int) -> None:
        """Start and finish background work."""

    def stats(self) -> CatalogStats:
        """Numbers for metrics."""
        each = [index.stats() for index in self]
        return CatalogStats(
            len(each), sum(s.held for s in each), sum(s.popped for s in each),
            sum(s.acknowledged for s in each), sum(s.staged for s in each), 0, 0, 0, 0, 0, 0, 0, 0,
            self.durable_token, self._token, 0, 0, None,
        )  # fmt: skip

    def close(self) -> None:
        """Persist everything and close the store."""
        self.commit()
        self._store.close()

    def _changed(self, index: DelayIndex) -> int:
        due_ms = index.next_due_ms()
        if due_ms is None:
            if index in self._due:
                del self._due[index]
        else:
            self._due[index] = due_ms
        self._token += 1
        return self._token
