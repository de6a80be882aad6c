"""A store that notes the writes of chosen subscriptions, for shipment to index logs.

Several threads write, the core's thread takes. The writes of one thread are noted in their order, each after
it has succeeded: every noted write is in the store.

Invariants: only keys that count in an index log are noted: no intents, no quarantined values, not the place
of the log itself. Unwatched subscriptions leave nothing here.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tidegate.index.clock import Clock
from tidegate.index.format import keys
from tidegate.index.store import Batch, Loss, Store

LOGGED_KINDS = (
    keys.STATE,
    keys.SLICE,
    keys.HELD,
    keys.ACKNOWLEDGED,
    keys.MOVED,
    keys.CARRY,
    keys.BLOCK,
    keys.JOURNAL,
)
"""The kinds of keys that an index log has."""

_LOGGED = frozenset(kind[0] for kind in LOGGED_KINDS)

Operation = tuple[int, bytes, bytes]
"""(kind of `Batch`, key without subscription id, value or end of range without it)."""


class Noted(NamedTuple):
    """The changes that one write has made to one subscription."""

    subscription_id: int
    operations: list[Operation]
    size_bytes: int
    written_ns: int


class TappedStore:
    """Forwards everything to `untapped`; see `Store`."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.untapped = store
        """For writes that must not be noted."""
        self._clock = clock
        self._watched: set[int] = set()
        self._noted: deque[Noted] = deque()
        self._changed = threading.Condition()
        self._begun = 0
        self._writing: set[int] = set()
        self._wake: Callable[[], None] = lambda: None

    def __str__(self) -> str:
        return str(self.untapped)

    # ---- for the core's thread

    def on_noted(self, wake: Callable[[], None]) -> None:
        """Call `wake`, in the writing thread, when the first noted write can be taken."""
        self._wake = wake

    def watch(self, subscription_id: int) -> None:
        """Note the writes of a subscription from now on."""
        self._watched = self._watched | {subscription_id}

    def unwatch(self, subscription_id: int) -> None:
        """Stop noting a subscription."""
        self._watched = self._watched - {subscription_id}

    def pop_noted(self) -> list[Noted]:
        """The writes noted since the last call, of subscriptions still watched."""
        if not self._noted:
            return []
        with self._changed:
            noted, self._noted = self._noted, deque()
        return [each for each in noted if each.subscription_id in self._watched]

    def drain(self) -> None:
        """Wait until every begun write is noted. Not for a writing thread."""
        with self._changed:
            begun = self._begun
            self._changed.wait_for(lambda: not self._writing or min(self._writing) >= begun)

    # ---- Store

    def get(self, key: bytes) -> bytes | None:
        """See `Store`."""
        return self.untapped.get(key)

    def write(self, batch: Batch, *, sync: bool) -> None:
        """See `Store`."""
        # Counted even if unwatched: a watcher may come, and make a snapshot, before the write ends.
        with self._changed:
            number = self._begun
            self._begun += 1
            self._writing.add(number)
        noted: list[Noted] = []
        try:
            self.untapped.write(batch, sync=sync)
            watched = self._watched
            if watched:
                noted = list(_of_subscriptions(batch, watched, self._clock.monotonic_ns()))
        finally:
            with self._changed:
                first = bool(noted) and not self._noted
                self._noted.extend(noted)
                self._writing.discard(number)
                self._changed.notify_all()
        if first:
            self._wake()

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """See `Store`."""
        return self.untapped.scan(start, end)

    def loss(self) -> Loss | None:
        """See `Store`."""
        return self.untapped.loss()

    def settle_loss(self) -> None:
        """See `Store`."""
        self.untapped.settle_loss()

    def tidy(self) -> None:
        """See `Store`."""
        self.untapped.tidy()

    def compacts(self) -> bool:
        """See `Store`."""
        return self.untapped.compacts()

    def disk_bytes(self) -> int:
        """See `Store`."""
        return self.untapped.disk_bytes()

    def close(self) -> None:
        """See `Store`."""
        self.untapped.close()


def _of_subscriptions(batch: Batch, watched: set[int], now_ns: int) -> Iterator[Noted]:
    by_id: dict[int, list[Operation]] = {}
    for kind, key, value in batch.operations:
        if key[0] not in _LOGGED:
            continue
        subscription_id = keys.subscription_id_of(key)
        if subscription_id not in watched:
            continue
        if kind == Batch.DELETE_RANGE:
            # Keys beyond those of this subscription belong to others.
            prefix = keys.subscription_key(key[:1], subscription_id)
            within = value[: len(prefix)] == prefix
            value = keys.stripped(value) if within else keys.after_kind(key[:1])  # noqa: PLW2901
        by_id.setdefault(subscription_id, []).append((kind, keys.stripped(key), value))
    for subscription_id, operations in by_id.items():
        size_bytes = sum(len(key) + len(value) for _, key, value in operations)
        yield Noted(subscription_id, operations, size_bytes, now_ns)
