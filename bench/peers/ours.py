"""Tidegate's index as its daemon uses it: catalog, RocksDB, group commit in another thread, upkeep.

Durability: each batch is committed and synced before the next (`begin_commit`, the write in an executor
thread, `finish_commit`). Popped entries are acknowledged; acknowledgements are committed and synced together,
in the same thread, during the next pops. Tick: none, the catalog gives the earliest due time. Favourable:
batches come as arrays, as from the daemon's socket. No peer's figures include socket or broker; `lateness`
and `failover` measure those.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from bench.harness.trackers import OURS
from bench.peers.base import Peer, PeerInfo
from tidegate.index import (
    Catalog,
    Clock,
    Commit,
    Entries,
    IndexOptions,
    Int64Array,
    PositionSet,
    RocksStore,
    SubscriptionName,
)

NAME = SubscriptionName("persistent://public/default/bench", "bench")
INCARNATION = bytes(16)
QUIET_S = 0.5
OPTIONS = IndexOptions(prefetch_ms=10_000, slice_width_auto=True)
"""As the daemon makes them of its settings' defaults; its module would make this process start slower."""


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
        self._in_flight: tuple[Commit, Future[None]] | None = None
        self._catalog = Catalog.open(RocksStore.open(folder / "index"), clock, OPTIONS, ThreadPoolExecutor(1))
        self._index = self._catalog.subscription(NAME, INCARNATION)

    def add(self, entries: Entries, arrive_at_ms: Int64Array) -> None:  # noqa: ARG002
        """Stage, and wait for the commit."""
        self._index.add(entries)
        self.flush()

    def pop_due(self, now_ms: int, limit: int) -> Entries:
        """Pop; several pops in a row may be empty."""
        while True:
            popped = self._index.timeline.pop_due(now_ms, limit)
            due_ms = None if len(popped) else self._index.timeline.next_due_ms()
            if due_ms is None or due_ms > now_ms:
                return popped

    def done(self, popped: Entries) -> None:
        """Acknowledge; a commit is written meanwhile, and acknowledgements during it go with the next."""
        self._index.acknowledge(PositionSet.of_entries(popped))
        self._next_commit()

    def flush(self) -> None:
        """Wait for the commit of everything."""
        while self._in_flight is not None or self._next_commit():
            self._finish_commit()

    def next_due_ms(self) -> int | None:
        """The time that the daemon's timer waits for."""
        return self._index.timeline.next_due_ms()

    def count(self) -> int:
        """The number of held entries."""
        return self._catalog.stats().held

    def maintain(self) -> None:
        """Apply and start persists, read ahead, write pending commits."""
        self._next_commit()
        self._catalog.maintain(self.clock.now_ms())

    def settle(self) -> None:
        """Maintain until no persist has ended for half a second."""
        self.flush()
        persists, since_s = -1, time.perf_counter()
        while time.perf_counter() - since_s < QUIET_S:
            self.maintain()
            self.flush()
            if self._catalog.stats().persists != persists:
                persists, since_s = self._catalog.stats().persists, time.perf_counter()
            time.sleep(0.01)  # the absence of work is no event

    def close(self) -> None:
        """Close the store."""
        self.flush()
        self._catalog.close()

    def _next_commit(self) -> bool:
        """Begin to write the appended records, unless a commit is under way; returns true if one is."""
        if self._in_flight is not None:
            if not self._in_flight[1].done():
                return True
            self._finish_commit()
        commit = self._catalog.journal.begin_commit()
        if commit is not None:
            self._in_flight = (commit, self._committing.submit(commit.run))
        return commit is not None

    def _finish_commit(self) -> None:
        if self._in_flight is not None:
            commit, written = self._in_flight
            self._in_flight = None
            written.result()
            self._catalog.journal.finish_commit(commit)
