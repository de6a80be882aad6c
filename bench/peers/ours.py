"""Tidegate's index as its daemon uses it: catalog, RocksDB, group commit in another thread, upkeep.

Durability: each batch is committed and synced before the next (`begin_commit`, the write in an executor
thread, `finish_commit`); what was popped is acknowledged and that is committed as well before the next pop.
Tick: none, the catalog tells when the earliest entry is due. The socket, and the broker behind it, are not
in the figures of any peer here; `lateness` and `failover` measure those.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.peers.base import Peer, PeerInfo
from bench.peers.trackers import OURS
from tidegate.index.catalog import Catalog
from tidegate.index.clock import Clock
from tidegate.index.entry import Entries, Int64Array
from tidegate.index.names import SubscriptionName
from tidegate.index.options import IndexOptions
from tidegate.index.positions import PositionSet
from tidegate.index.rocks import RocksStore

NAME = SubscriptionName("persistent://public/default/bench", "bench")
INCARNATION = bytes(16)
QUIET_S = 0.5


class TidegatePeer(Peer):
    """One subscription of a catalog."""

    info = PeerInfo(
        OURS,
        "this project's index, as its daemon uses it: staging, journal, time slices in RocksDB",
        "synced to disk, each batch and each acknowledgement",
    )

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__(folder, clock)
        self._committing = ThreadPoolExecutor(1)
        self._catalog = Catalog.open(
            RocksStore.open(folder / "index"), clock, IndexOptions(), ThreadPoolExecutor(1)
        )
        self._index = self._catalog.subscription(NAME, INCARNATION)

    def add(self, entries: Entries, arrive_at_ms: Int64Array) -> None:  # noqa: ARG002
        """Stage, and commit."""
        self._commit(self._index.add(entries))

    def pop_due(self, now_ms: int, limit: int) -> Entries:
        """Pop, acknowledge, and commit that."""
        while True:
            popped = self._index.pop_due(now_ms, limit)
            if len(popped):
                self._commit(self._index.acknowledge(PositionSet.of_entries(popped)))
                return popped
            due_ms = self._index.next_due_ms()
            if due_ms is None or due_ms > now_ms:
                return popped

    def next_due_ms(self) -> int | None:
        """What the daemon's timer waits for."""
        first = self._catalog.next_due()
        return None if first is None else first[0]

    def count(self) -> int:
        """How many it holds."""
        return self._catalog.stats().held

    def maintain(self) -> None:
        """Apply and start persists, read ahead."""
        self._catalog.maintain(self.clock.now_ms())

    def settle(self) -> None:
        """Maintain until no persist has ended for half a second."""
        persists, since_s = -1, time.perf_counter()
        while time.perf_counter() - since_s < QUIET_S:
            self.maintain()
            self._catalog.commit()
            if self._catalog.stats().persists != persists:
                persists, since_s = self._catalog.stats().persists, time.perf_counter()
            time.sleep(0.01)

    def close(self) -> None:
        """Close the store."""
        self._catalog.close()

    def _commit(self, token: int) -> None:
        while self._catalog.durable_token < token:
            commit = self._catalog.begin_commit()
            if commit is None:
                raise RuntimeError(f"nothing to commit, yet {token} is not durable")
            self._committing.submit(commit.run).result()
            self._catalog.finish_commit(commit)
