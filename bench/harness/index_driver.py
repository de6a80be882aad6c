"""The daemon's answering thread without its sockets: it adds, pops, commits and maintains.

The event loop's work happens in turns: a group commit begins when large enough or its interval is over, an
executor writes it, a later turn accounts for it; upkeep runs at the daemon's interval, and at once when a
persist is done while staging is over its budget. Rules and defaults are ``plugin.daemon``'s.

Invariants: every call of the index is timed as a pause, a full garbage collection within it as another; the
thread waits, without a pause, only where a broker would: with ``UNCOMMITTED_MAX`` entries not durable, or as
long as admission demands.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

from bench.harness.meters import Pauses
from tidegate.index import (
    ENTRY_BYTES,
    Catalog,
    Commit,
    DelayIndex,
    Entries,
    ManualClock,
    PositionSet,
    Store,
    SubscriptionName,
)
from tidegate.plugin.daemon.admission import Admission
from tidegate.plugin.daemon.allocator import give_back_memory
from tidegate.plugin.daemon.maintenance import LOOK_GAP_MAX_S, LOOK_SHARE
from tidegate.plugin.daemon.serve import index_options, open_store
from tidegate.plugin.daemon.settings import Settings

UNCOMMITTED_MAX = 200_000  # entries; a broker's shim may keep so many until they are durable
QUIET_S = 0.3
FULL = 2  # the generation of a collection of everything
COLLECTION = "full garbage collection"
INCARNATION = bytes(16)


def subscription_name(number: int = 0) -> SubscriptionName:
    """The name of the ``number``-th subscription."""
    return SubscriptionName(f"persistent://public/default/bench-{number}", "bench")


class IndexDriver:
    """Drives a catalog as the daemon does. Made by ``opened``."""

    def __init__(
        self,
        catalog: Catalog,
        store: Store,
        clock: ManualClock,
        settings: Settings,
        commits: ThreadPoolExecutor,
    ) -> None:
        self.catalog = catalog
        self.store = store
        self.clock = clock
        self.settings = settings
        self.pauses = Pauses()
        self.unspilled_bytes_max = 0
        self.waited_s = 0.0
        self.commits = 0
        self._executor = commits
        self._commit: Commit | None = None
        self._writing: Future[None] | None = None
        self._uncommitted = 0
        self._committing = 0
        self._commit_at_s = 0.0
        self._look_at_s = 0.0
        self._gap_s = 0.0
        self._busy_at_s = 0.0
        self._collect_ns = 0
        self._over_budget = False
        self._admission = Admission(settings.staging_bytes, settings.staging_bytes_max)

    @classmethod
    @contextmanager
    def opened(
        cls, folder: Path, clock: ManualClock, open_store: Callable[[Settings], Store] = open_store
    ) -> Iterator[IndexDriver]:
        """Open the index in ``folder`` with the daemon's defaults; nothing is persisted at the end."""
        give_back_memory()
        settings = Settings(data=folder)
        with ThreadPoolExecutor(2) as work, ThreadPoolExecutor(1) as commits:
            store = open_store(settings)
            catalog = Catalog.open(store, clock, index_options(settings), work)
            driver = cls(catalog, store, clock, settings, commits)
            gc.callbacks.append(driver._collected)
            try:
                yield driver
            finally:
                gc.callbacks.remove(driver._collected)

    def subscription(self, number: int = 0) -> DelayIndex:
        """The index of the ``number``-th subscription."""
        return self.catalog.subscription(subscription_name(number), INCARNATION)

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        """Python's own pauses: it visits every object, in whichever call it happens."""
        if info["generation"] == FULL:
            if phase == "start":
                self._collect_ns = time.perf_counter_ns()
            else:
                self.pauses.note(COLLECTION, time.perf_counter_ns() - self._collect_ns)

    # ---- calls of the index

    def add(self, index: DelayIndex, entries: Entries) -> None:
        """Add a batch; durable only after a later turn."""
        began_ns = time.perf_counter_ns()
        index.add(entries)
        self.pauses.note("add", time.perf_counter_ns() - began_ns)
        self._admission.count_read(len(entries) * ENTRY_BYTES)
        self._appended(len(entries))

    def pop(self, index: DelayIndex, limit: int) -> Entries:
        """Take the entries due now."""
        began_ns = time.perf_counter_ns()
        entries = index.timeline.pop_due(self.clock.now_ms(), limit)
        self.pauses.note("pop", time.perf_counter_ns() - began_ns)
        return entries

    def acknowledge(self, index: DelayIndex, positions: PositionSet) -> None:
        """Acknowledge the positions of a frame; durable only after a later turn."""
        began_ns = time.perf_counter_ns()
        index.acknowledge(positions)
        self.pauses.note("acknowledge", time.perf_counter_ns() - began_ns)
        self._appended(len(positions))

    def _appended(self, entries: int) -> None:
        if not self._uncommitted:
            self._commit_at_s = time.perf_counter() + self.settings.commit_interval_ms / 1e3
        self._uncommitted += entries

    # ---- turns

    def turn(self) -> None:
        """The event loop's work between two frames: commits and upkeep, as far as they are due."""
        now_s = time.perf_counter()
        if self._writing is not None and self._writing.done():
            self._finish_commit()
        wanted = self._uncommitted >= self.settings.commit_entries or now_s >= self._commit_at_s
        if wanted and self._uncommitted and self._writing is None:
            self._begin_commit()
        persisting = self.catalog.background.running
        if persisting is not None and persisting.done():
            self._look_at_s = min(self._look_at_s, 0.0 if self._over_budget else now_s + self._gap_s)
        if now_s >= self._look_at_s:
            self._look()

    def wait_for_room(self) -> None:
        """Wait as long as the daemon would stop reading."""
        while pause_s := self._admission.pause_s(time.monotonic_ns()):
            self._wait(time.perf_counter() + pause_s)
        while self._uncommitted + self._committing > UNCOMMITTED_MAX:
            self._wait()

    def commit_all(self) -> None:
        """Wait until everything is durable."""
        while self._uncommitted or self._writing is not None:
            self._commit_at_s = 0.0
            self._wait()

    def pause_until(self, at_s: float) -> None:
        """Do only upkeep and commits until that instant of ``time.perf_counter``."""
        while time.perf_counter() < at_s:
            self._wait(at_s)

    def settle(self) -> None:
        """Wait until upkeep has begun no persist for longer than it ever rests."""
        self.commit_all()
        self._busy_at_s = time.perf_counter()
        while time.perf_counter() - self._busy_at_s < LOOK_GAP_MAX_S + QUIET_S:
            self._wait()
            self.commit_all()

    def _wait(self, until_s: float = math.inf) -> None:
        """Let the executors work until one of them is done, upkeep is due, or ``until_s``."""
        began_s = time.perf_counter()
        begun = (self._writing, self.catalog.background.running)
        running = [each for each in begun if each is not None and not each.done()]
        timeout_s = max(0.001, min(0.1, self._look_at_s - began_s, until_s - began_s))
        if running:
            wait(running, timeout=timeout_s, return_when=FIRST_COMPLETED)
        else:
            time.sleep(timeout_s)  # no work is under way: only time can pass
        self.waited_s += time.perf_counter() - began_s
        self.turn()

    def _begin_commit(self) -> None:
        with self.pauses.timed("begin commit"):
            self._commit = self.catalog.journal.begin_commit()
        self._committing, self._uncommitted = self._uncommitted, 0
        if self._commit is None:
            self._committing = 0
            return
        self._writing = self._executor.submit(self._commit.run)

    def _finish_commit(self) -> None:
        assert self._commit is not None and self._writing is not None
        self._writing.result()
        with self.pauses.timed("finish commit"):
            self.catalog.journal.finish_commit(self._commit)
        self.commits += 1
        self._commit, self._writing, self._committing = None, None, 0
        self._commit_at_s = time.perf_counter() + self.settings.commit_interval_ms / 1e3

    def _look(self) -> None:
        began_s = time.perf_counter()
        with self.pauses.timed("maintain"):
            self.catalog.maintain(self.clock.now_ms())
        if self.catalog.background.running is not None or self.catalog.background.tidying is not None:
            self._busy_at_s = time.perf_counter()
        unspilled_bytes = self.catalog.background.unspilled_entries * ENTRY_BYTES
        self._admission.tell(unspilled_bytes, time.monotonic_ns())
        self.unspilled_bytes_max = max(self.unspilled_bytes_max, unspilled_bytes)
        self._over_budget = unspilled_bytes > self.settings.staging_bytes
        ended_s = time.perf_counter()
        self._gap_s = min((ended_s - began_s) * LOOK_SHARE, LOOK_GAP_MAX_S)
        interval_s = self.settings.maintain_interval_ms / 1_000
        self._look_at_s = ended_s + (interval_s if self._over_budget else max(interval_s, self._gap_s))
