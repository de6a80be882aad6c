"""The index logs of the daemon's streams: shipped while a stream is open, read before one begins.

Invariants:

- nothing waits for a log but the answer to OPEN, for ``RESTORE_SECONDS`` at most, and the answer to CLOSE,
  for ``LAST_WORDS_SECONDS``; a log that cannot be read or written costs reading the topic, and says so;
- a log is written on behalf of the current stream of its subscription only;
- a subscription to which nothing happens has no task and asks for nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tidegate.index import (
    Catalog,
    Chain,
    Clock,
    DelayIndex,
    Identity,
    SubscriptionName,
    TappedStore,
    TidegateIndexError,
    UnreadableLogError,
)
from tidegate.index.log.home import Home, HomeError, RefusedError, StalePointerError
from tidegate.index.log.log_options import LogOptions
from tidegate.index.log.pointer import NO_LEDGER, Pointer, of_home
from tidegate.index.log.reader import LogText, read_log
from tidegate.index.log.restore import restoration
from tidegate.index.log.writer import LogWriter
from tidegate.plugin.daemon.broker_home import BOOKKEEPER, BrokerHome, LogRequests
from tidegate.plugin.daemon.stream import Stream
from tidegate.plugin.seldom import Seldom
from tidegate.plugin.telemetry.metrics import Metrics
from tidegate.plugin.wire.messages import Open

if TYPE_CHECKING:
    from tidegate.plugin.daemon.logs import Logger

RESTORE_SECONDS = 8.0  # the shim decides alone after ten
LAST_WORDS_SECONDS = 1.0
BEGINNINGS_MAX = 4  # snapshots and restorations at a time: each costs the home more than its size says
RETRY_FIRST_S, RETRY_MAX_S = 0.5, 30.0
PIECE_BYTES = 1 << 20
NS_PER_SECOND = 1_000_000_000

ResultT = TypeVar("ResultT")


class LogState(NamedTuple):
    """What is told of a log. ``lag_seconds``: how old the oldest change is that is not in it."""

    home: str
    ledger_id: int
    ledger_bytes: int
    waiting_bytes: int
    lag_seconds: float
    failure: str


class StreamLog:
    """Ships the log of one stream, in a task that is there only while there is something to ship."""

    def __init__(self, logs: IndexLogs, stream: Stream, home: Home, writer: LogWriter) -> None:
        self.writer = writer
        self.home = home
        self.failure = ""
        self.over = False
        self._logs = logs
        self._name = stream.name
        self._task: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._failures = 0

    def wake(self) -> None:
        """There may be something to ship."""
        if self._task is None and not self.over and self.writer.wants_to_ship:
            self._idle.clear()
            self._task = self._logs.loop.create_task(self._run())

    def end(self) -> None:
        """Ship nothing more."""
        self.over = True
        if self._task is not None:
            self._task.cancel()
        self._idle.set()

    async def ship_last(self) -> None:
        """Return when all is shipped, or it is not worth waiting for."""
        self._hurry.set()
        self.wake()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), LAST_WORDS_SECONDS)

    async def _run(self) -> None:
        try:
            while self.writer.wants_to_ship and not self.over:
                pause_s = self._logs.options.interval_ms / 1_000
                if self._failures:
                    pause_s = min(RETRY_FIRST_S * 2 ** (self._failures - 1), RETRY_MAX_S)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._hurry.wait(), pause_s)
                self._hurry.clear()
                await self._ship()
                if self._failures and self._hurry.is_set():
                    break
        finally:
            self._task = None
            self._idle.set()

    async def _ship(self) -> None:
        before = self.writer.written_bytes
        try:
            if self.writer.ledger_bytes:
                await self.writer.ship()
            else:
                async with self._logs.beginnings:
                    await self.writer.ship()
            self._failures = 0
            self.failure = ""
        except (StalePointerError, RefusedError) as error:
            self.over = True
            self.failure = str(error)
            self._logs.said(
                self._name, "the index log is another owner's now, nothing more is written", error
            )
        except (HomeError, TidegateIndexError) as error:
            self._failures += 1
            self.failure = str(error)
            self._logs.said(self._name, "the index log cannot be written, trying again", error)
        finally:
            self._logs.metrics.index_log_bytes.inc(self.writer.written_bytes - before)

    def state(self, now_ns: int) -> LogState:
        """For status and metrics."""
        since_ns = self.writer.since_ns
        return LogState(
            self.home.kind,
            self.writer.ledger_id,
            self.writer.ledger_bytes,
            self.writer.waiting_bytes,
            0.0 if since_ns is None else max(0, now_ns - since_ns) / NS_PER_SECOND,
            self.failure,
        )


class IndexLogs:
    """All of them. ``executor`` reads snapshots and writes what is restored."""

    def __init__(
        self,
        catalog: Catalog,
        store: TappedStore,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        *,
        executor: Executor,
        metrics: Metrics,
        log: Logger,
        options: LogOptions | None = None,
    ) -> None:
        self.loop = loop
        self.metrics = metrics
        self.options = options or LogOptions()
        self.beginnings = asyncio.Semaphore(BEGINNINGS_MAX)
        self._catalog = catalog
        self._store = store
        self._clock = clock
        self._executor = executor
        self._log = log
        self._seldom = Seldom(clock.monotonic_ns)
        self._by_id: dict[int, StreamLog] = {}
        self._by_stream: dict[Stream, int] = {}
        self._shipped: dict[int, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._commit_soon: Callable[[], None] = lambda: None
        store.on_noted(self._noted)

    def on_change(self, commit_soon: Callable[[], None]) -> None:
        """Call ``commit_soon`` when something was put into the catalog that no frame has brought."""
        self._commit_soon = commit_soon

    def stop(self) -> None:
        """Ship and restore nothing more."""
        self._store.on_noted(lambda: None)
        self._commit_soon = lambda: None
        for one in self._by_id.values():
            one.end()
        for task in self._tasks:
            task.cancel()

    # ---- before a stream

    def restoring(
        self, requests: LogRequests, stream_id: int, request: Open, is_wanted: Callable[[], bool]
    ) -> Awaitable[None] | None:
        """What to wait for before the stream is opened: the log is read. None if there is nothing to read.

        is_wanted: whether the stream may still be opened when the log has been read. If it may not, the index
            that is there stays.
        """
        try:
            pointer = Pointer.parse(request.log_pointer)
        except UnreadableLogError as error:
            self._unreadable(SubscriptionName(request.topic, request.subscription), str(error))
            return None
        if pointer is None or pointer.ledger_id == NO_LEDGER:
            return None
        name = SubscriptionName(request.topic, request.subscription)
        index = self._catalog.get(name)
        if index is not None and index.incarnation == request.incarnation:
            chain = self._catalog.chain(index)
            if chain == Chain(pointer.ledger_id, pointer.home):
                return None  # whoever has written since is this daemon
        home = self._home(requests, stream_id, pointer.home)
        if home is None:
            self._unreadable(name, f"it is in {pointer.home}, which this daemon cannot reach")
            return None
        return self._restore(home, pointer, Identity(name, request.incarnation), is_wanted)

    async def _restore(
        self, home: Home, pointer: Pointer, identity: Identity, is_wanted: Callable[[], bool]
    ) -> None:
        begin_ns = self._clock.monotonic_ns()
        try:
            async with asyncio.timeout(RESTORE_SECONDS), self.beginnings:
                log = await read_log(home, pointer.ledger_id, identity)
                subscription_id = await self._write(log, identity, Chain(pointer.ledger_id, pointer.home))
            if not is_wanted():
                # Another stream has the index meanwhile. What was answered DURABLE there must not go.
                self._catalog.abandon_id(subscription_id)
                self._commit_soon()
                return
            index = self._catalog.adopt(subscription_id)
        except TimeoutError:
            self._unreadable(identity.name, f"it was not read within {RESTORE_SECONDS:g} s")
            return
        except (HomeError, TidegateIndexError) as error:
            self._unreadable(identity.name, str(error))
            return
        self._shipped[subscription_id] = pointer.ledger_id
        took_s = (self._clock.monotonic_ns() - begin_ns) / NS_PER_SECOND
        self.metrics.index_log_restored.inc()
        self.metrics.index_log_restore_seconds.observe(took_s)
        if log.damage:
            self._log.warning(
                "the end of an index log cannot be read, what was in it is read from the topic",
                topic=identity.name.topic,
                subscription=identity.name.subscription,
                damage=log.damage,
            )
        self._log.info(
            "the index was restored from its log",
            topic=identity.name.topic,
            subscription=identity.name.subscription,
            held=len(index.held()),
            log_bytes=log.size_bytes,
            seconds=round(took_s, 3),
        )

    async def _write(self, log: LogText, identity: Identity, chain: Chain) -> int:
        subscription_id = self._catalog.reserve_id()

        def write() -> None:
            # Not synced: a topic waits for this, and what a power cut takes of it is read from the log again.
            for batch in restoration(log.content, identity, chain, subscription_id, PIECE_BYTES):
                self._store.untapped.write(batch, sync=False)

        writing = self.loop.run_in_executor(self._executor, write)
        try:
            await asyncio.shield(writing)
        except BaseException:
            # Who waits has given up; the thread has not. What it still writes goes when it is done.
            writing.add_done_callback(lambda done: self._abandon(subscription_id, done))
            raise
        return subscription_id

    def _abandon(self, subscription_id: int, written: asyncio.Future[None]) -> None:
        if not written.cancelled():
            written.exception()  # told already, to whoever was still waiting
        self._catalog.abandon_id(subscription_id)
        self._commit_soon()

    def _unreadable(self, name: SubscriptionName, why: str) -> None:
        self.metrics.index_log_unreadable.inc()
        self._log.warning(
            "the index log cannot be read, the topic is read again as far as this daemon does not know it",
            topic=name.topic,
            subscription=name.subscription,
            reason=why,
        )

    # ---- a stream's life

    def begin(self, stream: Stream, requests: LogRequests, stream_id: int, request: Open) -> None:
        """The stream is the current one of its subscription: its log is shipped from now on."""
        index = stream.session.index
        subscription_id = index.log.subscription_id
        self._end_id(subscription_id)
        home = self._home(requests, stream_id, request.log_home)
        if home is None:
            if request.log_home:
                self._log.warning(
                    "no index log is written: this daemon cannot reach its home",
                    home=request.log_home,
                    topic=stream.name.topic,
                    subscription=stream.name.subscription,
                )
            return
        current = of_home(request.log_pointer, home.kind).ledger_id
        empty = not index.held() and not index.acknowledged()
        clean = current == self._shipped.get(subscription_id)
        writer = LogWriter(
            Identity(index.name, index.incarnation),
            subscription_id,
            home,
            self._store,
            request.log_pointer,
            options=self.options,
            dirty_ns=None if clean or empty else self._clock.monotonic_ns(),
            random=lambda: secrets.randbits(64),
            offload=self.offload,
            catch_up=self._pump,
            chained=lambda ledger_id: self._set_chain(index, Chain(ledger_id, home.kind)),
        )
        self._by_id[subscription_id] = StreamLog(self, stream, home, writer)
        self._by_stream[stream] = subscription_id
        self._store.watch(subscription_id)
        self._by_id[subscription_id].wake()

    def _set_chain(self, index: DelayIndex, chain: Chain) -> None:
        self._catalog.set_chain(index, chain)
        self._commit_soon()

    def after_last_words(self, stream: Stream, then: Callable[[], None]) -> None:
        """Call ``then`` when what the stream has said is in its log, or soon."""
        log = self._of(stream)
        if log is None or log.over:
            then()
            return
        self._pump()

        async def wait() -> None:
            await log.ship_last()
            then()

        task = self.loop.create_task(wait())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def end(self, stream: Stream) -> None:
        """The stream is over."""
        subscription_id = self._by_stream.pop(stream, None)
        if subscription_id is not None and subscription_id not in self._by_stream.values():
            self._end_id(subscription_id)

    def _end_id(self, subscription_id: int) -> None:
        log = self._by_id.pop(subscription_id, None)
        if log is None:
            return
        self._pump()
        self._store.unwatch(subscription_id)
        if log.writer.since_ns is None:
            self._shipped[subscription_id] = log.writer.ledger_id
        else:
            self._shipped.pop(subscription_id, None)
        log.end()

    def state(self, stream: Stream | None) -> LogState | None:
        """How the log of a stream stands."""
        self._pump()
        log = None if stream is None else self._of(stream)
        return None if log is None else log.state(self._clock.monotonic_ns())

    def states(self) -> list[LogState]:
        """How all logs stand."""
        self._pump()
        now_ns = self._clock.monotonic_ns()
        return [log.state(now_ns) for log in self._by_id.values()]

    # ---- for the logs

    async def offload(self, work: Callable[[], ResultT]) -> ResultT:
        """See ``Offload``."""
        return await self.loop.run_in_executor(self._executor, work)

    def said(self, name: SubscriptionName, what: str, error: Exception) -> None:
        """Something went wrong: a line, but not one for each time and subscription."""
        self.metrics.index_log_failures.inc()
        more = self._seldom.more(what)
        if more is not None:
            self._log.warning(
                what, topic=name.topic, subscription=name.subscription, error=str(error), **more
            )

    def _of(self, stream: Stream) -> StreamLog | None:
        subscription_id = self._by_stream.get(stream)
        return None if subscription_id is None else self._by_id.get(subscription_id)

    def _noted(self) -> None:
        """Called in any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody ships any more
            self.loop.call_soon_threadsafe(self._pump)

    def _pump(self) -> None:
        """Bring what was noted to the writers."""
        touched = set()
        for noted in self._store.take():
            log = self._by_id.get(noted.subscription_id)
            if log is not None:
                log.writer.note(noted)
                touched.add(log)
        for log in touched:
            log.wake()

    def _home(self, requests: LogRequests, stream_id: int, kind: str) -> Home | None:
        return BrokerHome(requests, stream_id) if kind == BOOKKEEPER else None
