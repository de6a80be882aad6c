"""The index log of one stream while it is written, and its state.

Invariants:

- there is a task only while changes wait for shipping, and at most one;
- a log begins in its turn only, the first time and each later time;
- a log that counts continues while the next one waits for its turn, or for its next try.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from tidegate.index import TidegateIndexError
from tidegate.index.log import Home, HomeError, LogOptions, LogWriter, RefusedError, StalePointerError
from tidegate.plugin.daemon.index_logs.log_failures import LogFailures
from tidegate.plugin.daemon.stream import Stream
from tidegate.plugin.telemetry.metrics import Metrics

LAST_WORDS_SECONDS = 1.0
BEGINNINGS_MAX = 4  # snapshots at a time: each costs the home more than its size suggests
RETRY_FIRST_S, RETRY_MAX_S = 0.5, 30.0
RETRY_DOUBLINGS_MAX = 16
NS_PER_SECOND = 1_000_000_000


def retry_pause_s(failures: int) -> float:
    """The pause after so many failures in a row, at least one: twice the one before, up to a maximum."""
    doublings = min(failures - 1, RETRY_DOUBLINGS_MAX)  # a home may be away for days: no number may overflow
    return min(RETRY_FIRST_S * (1 << doublings), RETRY_MAX_S)


class LogState(NamedTuple):
    """A log's state. ``lag_seconds``: the age of the oldest change that it lacks.

    ``home``: empty if the daemon keeps none where the broker wants it; ``failure`` has the reason.
    """

    home: str
    ledger_id: int
    pointer: str
    ledger_bytes: int
    waiting_bytes: int
    lag_seconds: float
    failure: str


class Former(NamedTuple):
    """A log in another home than the current one: deleted when the current one counts."""

    home: Home
    ledgers: tuple[int, ...]


class Shipping:
    """The parts that all logs of a daemon share.

    options: of the logs that begin from now on. beginnings: turns for logs that begin. written: logs with
    something to ship.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        options: LogOptions,
        *,
        failures: LogFailures,
        metrics: Metrics,
    ) -> None:
        self.loop = loop
        self.options = options
        self.failures = failures
        self.metrics = metrics
        self.beginnings = asyncio.Semaphore(BEGINNINGS_MAX)
        self.written: set[StreamLog] = set()


class StreamLog:
    """Ships the log of one stream, in a task that exists only while changes wait.

    after: tasks that must end first: a deletion of all the subscription's logs, which would take the new one
    along, or the fetching of blocks for the new one.
    """

    def __init__(
        self,
        shipping: Shipping,
        stream: Stream,
        home: Home,
        writer: LogWriter,
        former: Former | None,
        *,
        after: Sequence[asyncio.Task[None]] = (),
    ) -> None:
        self.stream = stream
        self.writer = writer
        self.home = home
        self.index = stream.session.index
        self._former = former
        self._after = list(after)
        self.failure = ""
        self.over = False
        self._shipping = shipping
        self._task: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._failures = 0
        self._changed = asyncio.Event()
        self._last = False
        """True if somebody waits for all to be in the log."""
        self._in_queue = False
        """True while the next log waits for its turn."""
        self._counted_bytes = 0

    def wake(self) -> None:
        """Look for something to ship."""
        self._changed.set()
        if self._task is None and not self.over and self.writer.wants_to_ship:
            self._idle.clear()
            self._shipping.written.add(self)
            self._task = self._shipping.loop.create_task(self._run())

    def end(self) -> None:
        """Ship nothing more."""
        self.over = True
        if self._task is not None:
            self._task.cancel()
            self._shipping.written.discard(self)  # a task that has not begun cannot do it
        self._idle.set()

    async def ship_last(self) -> None:
        """Return when all is shipped, or waiting is pointless."""
        if (self._failures or self._in_queue) and self.writer.since_ns is None:
            return  # the log has all; only the next one is to come
        self._last = True
        self._hurry.set()
        self.wake()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), LAST_WORDS_SECONDS)

    async def _run(self) -> None:
        try:
            while self.writer.wants_to_ship and not self.over:
                pause_s = retry_pause_s(self._failures) if self._failures else self._pause_s
                await self._follow_until(self._shipping.loop.create_task(self._rest(pause_s)))
                self._hurry.clear()
                await self._ship()
                if self._failures and self._hurry.is_set():
                    break
        finally:
            self._task = None
            self._shipping.written.discard(self)
            self._idle.set()

    @property
    def _pause_s(self) -> float:
        shipping = self._shipping
        return max(shipping.options.pause_ms(len(shipping.written)), self.home.interval_ms) / 1_000

    async def _rest(self, pause_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._hurry.wait(), pause_s)

    async def _follow_until(self, done: asyncio.Task[Any]) -> None:
        """Wait for `done`; meanwhile continue a log that counts until there is a next one."""
        try:
            while not done.done() and self.writer.begins and self.writer.ledger_bytes:
                changed = self._shipping.loop.create_task(self._changed.wait())
                try:
                    await asyncio.wait({done, changed}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    changed.cancel()
                if not self._last:
                    await asyncio.wait({done}, timeout=self._pause_s)
                self._changed.clear()
                await self._guarded(self.writer.follow)
                if self._last and self.writer.since_ns is None:
                    self._idle.set()
            await asyncio.wait({done})
        except asyncio.CancelledError:
            done.cancel()
            raise

    async def _ship(self) -> None:
        if self._after:
            await asyncio.wait(self._after)
            self._after = []
        await self._guarded(self._ship_in_turn if self.writer.begins else self._ship_now)

    async def _ship_in_turn(self) -> None:
        turn = self._shipping.loop.create_task(self._shipping.beginnings.acquire())
        try:
            self._in_queue = True
            await self._follow_until(turn)
            self._in_queue = False
            await self._ship_now()
        finally:
            self._in_queue = False
            if turn.done() and not turn.cancelled():
                self._shipping.beginnings.release()
            else:
                turn.cancel()

    async def _ship_now(self) -> None:
        await self.writer.ship()
        self._failures = 0
        self.failure = ""
        await self._delete_former()

    async def _guarded(self, do: Callable[[], Awaitable[None]]) -> None:
        try:
            await do()
        except (StalePointerError, RefusedError) as error:
            self.over = True
            self.failure = str(error)
            self._report("the index log is another owner's now, writing ends", error)
        except (HomeError, TidegateIndexError) as error:
            self._failures += 1
            self.failure = str(error)
            self._report("the index log cannot be written, trying again", error)
        except Exception as error:
            # It would end the task, and nothing would show that writing has stopped.
            self._failures += 1
            self.failure = f"a bug in the daemon: {error!r}"
            self._shipping.failures.report_bug(self.stream.name, error)
        finally:
            self._shipping.metrics.index_log_bytes.inc(self.writer.written_bytes - self._counted_bytes)
            self._counted_bytes = self.writer.written_bytes

    def _report(self, what: str, error: Exception) -> None:
        self._shipping.failures.report(self.stream.name, what, error)

    async def _delete_former(self) -> None:
        former, self._former = self._former, None
        if former is None:
            return
        for ledger_id in former.ledgers:
            try:
                await former.home.delete(ledger_id)
            except HomeError as error:
                self._report("a ledger of a former index log is left behind", error)

    def state(self, now_ns: int) -> LogState:
        """For status and metrics."""
        since_ns = self.writer.since_ns
        return LogState(
            self.home.kind,
            self.writer.ledger_id,
            self.writer.pointer_text,
            self.writer.ledger_bytes,
            self.writer.waiting_bytes,
            0.0 if since_ns is None else max(0, now_ns - since_ns) / NS_PER_SECOND,
            self.failure,
        )
