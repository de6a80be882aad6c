"""The daemon's periodic work: persists the index, tells the lag of spilling and lost positions.

Invariants:

- while staging is over its budget, a persist begins as soon as the last one is done; otherwise upkeep takes
  only a small share of the time, because it looks at every subscription;
- each part runs even if another fails; a failure is logged and stands in ``/readyz``;
- changes that upkeep leaves for a commit are committed even in silence; like a commit, upkeep notices a store
  that has lost data;
- a failing persist stands in ``/readyz`` until one has succeeded, not only at the instant of the failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from tidegate.index import ENTRY_BYTES, Catalog, Clock, LostCommitsError, StorageError
from tidegate.plugin.daemon.committer import Committer
from tidegate.plugin.daemon.drain_rates import DrainRates
from tidegate.plugin.daemon.durable_news import DurableNews
from tidegate.plugin.daemon.held_news import HeldNews
from tidegate.plugin.daemon.reading_pace import ReadingPace
from tidegate.plugin.daemon.retention import Retention
from tidegate.plugin.daemon.settings import Settings
from tidegate.plugin.telemetry.health import Health

if TYPE_CHECKING:
    from tidegate.plugin.daemon.logs import Logger

LOOK_SHARE = 20  # unawaited upkeep takes at most this part of the time
LOOK_GAP_MAX_S = 1.0
BUG_STANDS_MS = 60_000  # a bug has no visible end: it stands for so long after its last occurrence


class Maintenance:
    """Runs from ``start`` to ``stop``, every ``maintain_interval_ms`` or more."""

    def __init__(
        self,
        catalog: Catalog,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        *,
        committer: Committer,
        durable_news: DurableNews,
        held_news: HeldNews,
        reading_pace: ReadingPace,
        retention: Retention,
        drain_rates: DrainRates,
        settings: Settings,
        health: Health,
        log: Logger,
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._loop = loop
        self._committer = committer
        self._durable_news = durable_news
        self._held_news = held_news
        self._reading_pace = reading_pace
        self._retention = retention
        self._drain_rates = drain_rates
        self._settings = settings
        self._health = health
        self._log = log
        self._timer: asyncio.TimerHandle | None = None
        self._running = False
        self._gap_s = 0.0
        self._unspilled_bytes = 0
        self._following: Future[None] | None = None
        self._failure: str | None = None
        self._bug_at_ms: dict[str, int] = {}

    def start(self) -> None:
        """Look for the first time now."""
        self._running = True
        self._look()

    def stop(self) -> None:
        """Stop looking."""
        self._running = False
        if self._timer is not None:
            self._timer.cancel()

    def _follow(self) -> None:
        running = self._catalog.background.running
        if running is not None and running is not self._following:
            self._following = running
            running.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._done))

    def _done(self) -> None:
        """Apply a finished persist or compaction; begin the next one at once if staging is over budget."""
        self._look_in(0.0 if self._over_budget else self._gap_s)

    @property
    def _over_budget(self) -> bool:
        return self._unspilled_bytes > self._settings.staging_bytes

    def _look_in(self, delay_s: float) -> None:
        if not self._running:
            return
        if self._timer is not None:
            if self._timer.when() <= self._loop.time() + delay_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, self._look)

    def _look(self) -> None:
        self._timer = None
        begin_ns = self._clock.monotonic_ns()
        now_ms = self._clock.now_ms()
        try:
            for part in (
                self._maintain,
                self._budget,
                self._held_news.tell_unheld,
                self._retention.forget_unserved,
                self._note_drain,
            ):
                self._run(part, now_ms)
        finally:
            self._follow()
            took_s = (self._clock.monotonic_ns() - begin_ns) / 1e9
            self._gap_s = min(took_s * LOOK_SHARE, LOOK_GAP_MAX_S)
            interval_s = self._settings.maintain_interval_ms / 1_000
            self._look_in(interval_s if self._over_budget else max(interval_s, self._gap_s))

    def _run(self, part: Callable[[], None], now_ms: int) -> None:
        name = part.__name__.lstrip("_")
        reason = f"bug in {name}"
        try:
            part()
        except Exception as error:
            if reason not in self._bug_at_ms:
                self._log.error("upkeep failed unexpectedly, trying again", part=name, exc_info=error)
            self._bug_at_ms[reason] = now_ms
            self._health.block(
                reason,
                f"a bug in the daemon's upkeep ({name}), trying again: {error!r}; report it with the log",
            )
            return
        bug_at_ms = self._bug_at_ms.get(reason)
        if bug_at_ms is not None and not bug_at_ms <= now_ms < bug_at_ms + BUG_STANDS_MS:
            del self._bug_at_ms[reason]
            self._health.clear(reason)

    def _maintain(self) -> None:
        failure: str | None = None
        try:
            self._catalog.maintain(self._clock.now_ms())
        except StorageError as error:
            failure = str(error)
            if isinstance(error, LostCommitsError):
                self._durable_news.lost.set()
        finally:
            if self._catalog.journal.pending:
                self._committer.wake()
        failure = failure or self._catalog.background.failure
        if failure is None:
            self._health.clear("maintain")
        else:
            self._health.block(
                "maintain", f"entries cannot be moved from the journal to slices, trying again: {failure}"
            )
            if failure != self._failure:
                self._log.error("upkeep of the index failed, trying again", error=failure)
        self._failure = failure

    def _note_drain(self) -> None:
        self._drain_rates.note(self._catalog)

    def _budget(self) -> None:
        self._unspilled_bytes = self._catalog.background.unspilled_entries * ENTRY_BYTES
        self._reading_pace.tell_level(self._unspilled_bytes)
