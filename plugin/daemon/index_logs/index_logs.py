"""The index logs of the daemon's streams, shipped while a stream is open; ``restorer`` reads them before.

Invariants:

- only the answer to CLOSE waits for a log's writing, for ``LAST_WORDS_SECONDS``; a log that cannot be written
  costs reading the topic, and says so;
- a log is written only for the current stream of its subscription;
- an idle subscription has no task and asks for nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from tidegate.index import (
    Catalog,
    Chain,
    Clock,
    DelayIndex,
    Identity,
    StorageError,
    TappedStore,
    UnreadableLogError,
)
from tidegate.index.log import (
    NO_LEDGER,
    Home,
    LogOptions,
    LogWriter,
    ObjectHome,
    Pointer,
    RefusedError,
    of_home,
)
from tidegate.plugin.daemon.homes.broker_home import LogRequests
from tidegate.plugin.daemon.homes.homes import Homes
from tidegate.plugin.daemon.index_logs.deletions import Deletions
from tidegate.plugin.daemon.index_logs.fetches import Fetches
from tidegate.plugin.daemon.index_logs.in_doubt import InDoubt
from tidegate.plugin.daemon.index_logs.journal_limit import JournalLimit
from tidegate.plugin.daemon.index_logs.log_failures import LogFailures
from tidegate.plugin.daemon.index_logs.restorer import Restored, Restorer
from tidegate.plugin.daemon.index_logs.stream_log import Former, LogState, Shipping, StreamLog
from tidegate.plugin.daemon.stream import Stream
from tidegate.plugin.daemon.told import told
from tidegate.plugin.telemetry.metrics import Metrics
from tidegate.plugin.wire.messages import Open

if TYPE_CHECKING:
    from tidegate.plugin.daemon.logs import Logger

ResultT = TypeVar("ResultT")
WhenDurable = Callable[[int, Callable[[StorageError | None], None]], None]


class IndexLogs:
    """All index logs of the daemon.

    executor: reads snapshots and writes restored data. homes: of the logs; closed when they stop.

    restorer: reads a log before its stream opens. shipping: the parts that the logs share.
    """

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
        homes: Homes | None = None,
        options: LogOptions | None = None,
        failures: LogFailures | None = None,
    ) -> None:
        self._loop = loop
        self._failures = failures = failures or LogFailures(clock, metrics, log)
        self.shipping = Shipping(loop, options or LogOptions(), failures=failures, metrics=metrics)
        self._catalog = catalog
        self._store = store
        self._clock = clock
        self._executor = executor
        self._homes = homes or Homes()
        self._shipped: WeakKeyDictionary[DelayIndex, int] = WeakKeyDictionary()
        """The ledger that has all of an index's stored data."""
        self._behind: WeakSet[DelayIndex] = WeakSet()
        """Indexes whose log has not been written since its write failed at the end of their stream."""
        self.restorer = Restorer(
            catalog,
            store,
            clock,
            self._homes,
            executor=executor,
            restored=self._on_restored,
            commit_soon=self._commit,
            metrics=metrics,
            log=log,
        )
        self._fetches = Fetches(
            catalog,
            store,
            clock,
            self._homes,
            executor=executor,
            spawn=self._spawn,
            whole=self._all_here,
            failures=failures,
            log=log,
        )
        self._by_id: dict[int, StreamLog] = {}
        self._by_stream: dict[Stream, int] = {}
        self._streams: Counter[int] = Counter()
        """Streams by subscription id: two while a former one is open."""
        self._refused: dict[Stream, LogState] = {}
        """States for streams whose brokers want a log where this daemon keeps none. A URL may contain a
        secret.
        """
        self._in_doubt = InDoubt()
        self._deletions = Deletions(self._spawn, failures)
        self._journal_limit = JournalLimit(catalog, self.shipping)
        self._tasks: set[asyncio.Task[None]] = set()
        self._commit_soon: Callable[[], None] = lambda: None
        self._when_durable: WhenDurable = lambda _, tell: tell(None)  # where nobody commits
        self._pointer_may_come: Callable[[DelayIndex], None] = lambda _: None
        store.on_noted(self._noted)

    def on_change(
        self,
        commit_soon: Callable[[], None],
        *,
        when_durable: WhenDurable,
        landed: Callable[[DelayIndex], None],
        pointer_may_come: Callable[[DelayIndex], None] = lambda _: None,
    ) -> None:
        """Call ``commit_soon`` after a change of the catalog that came in no frame.

        when_durable: commits, and calls its argument once everything up to a token is durable, or with the
            error.
        landed: called with an index when some of its absent blocks are here.
        pointer_may_come: called with an index whose stream has ended with a pointer on its way to a log
            known to its data's chain only.
        """
        self._commit_soon = commit_soon
        self._when_durable = when_durable
        self._fetches.landed = landed
        self._pointer_may_come = pointer_may_come

    def stop(self) -> None:
        """Ship and restore nothing more."""
        self._store.on_noted(lambda: None)
        self._commit_soon = lambda: None
        for one in self._by_id.values():
            one.end()
        for task in self._tasks:
            task.cancel()
        self._homes.close()

    # ---- before a stream

    def _on_restored(self, restored: Restored) -> None:
        index, chain = restored.index, restored.chain
        if restored.former is not None:
            # That index has no owner any more: its log would begin anew, empty, and pass for the new one's.
            former_id = restored.former.own_journal.subscription_id
            self._end_id(former_id)
            self._shipped.pop(restored.former, None)
            self._behind.discard(restored.former)
            self._fetches.stop(restored.former)
        self._fetches.restored(index, chain.home, restored.places)
        # This commit makes data durable that was written without a sync. A later DURABLE may concern nothing
        # else, with the log away when needed.
        self._set_chain(index, chain)
        if not restored.more:
            self._shipped[index] = chain.ledger_id

    def _commit(self) -> None:
        self._commit_soon()

    # ---- a stream's life

    def begin(self, stream: Stream, requests: LogRequests, stream_id: int, request: Open) -> None:
        """Ship the log of a stream that has become its subscription's current one."""
        index = stream.session.index
        subscription_id = index.own_journal.subscription_id
        self._end_id(subscription_id)
        # A better log, if any, is unreadable, and lacks everything that the broker reads from now on.
        self._catalog.chains.believe(index)
        fetching = self._fetches.begin(stream, requests, stream_id, request)
        identity = Identity(index.name, index.incarnation)
        if self._deletions.pop_cleared(identity):
            stream.session.cleared = True  # a last word about a cleared index must not revive it
        try:
            home = self._homes.offered(requests, stream_id, request)
        except RefusedError as error:
            self._failures.report(stream.name, "no index log is written", error)
            self._shipped.pop(index, None)
            self._refused[stream] = LogState("", NO_LEDGER, "", 0, 0, 0.0, str(error))
            return
        if home is None:
            self._shipped.pop(index, None)  # no log has later changes
            return
        current = of_home(request.log_pointer, home.kind).ledger_id
        clean = current == self._shipped.get(index)
        writer = LogWriter(
            identity,
            subscription_id,
            home,
            self._store,
            request.log_pointer,
            options=self.shipping.options,
            dirty_ns=None if clean or index.state.empty else self._clock.monotonic_ns(),
            random=lambda: secrets.randbits(64),
            offload=self._offload,
            catch_up=self._pump,
            may_count=lambda ledger_id: self._may_count(index, ledger_id, home.kind),
            chained=lambda ledger_id: self._set_chain(index, Chain(ledger_id, home.kind)),
            damaged=index.upkeep.met_damage,
            block_bytes=lambda: index.timeline.stored_bytes,
            places=self._fetches.places_in(home, index, request.log_pointer),
            complete=lambda: not index.upkeep.absent_blocks,
            in_doubt=self._in_doubt.pop(identity, request.log_pointer, home.kind),
        )
        deletion = self._deletions.running(identity)
        after = [] if deletion is None else [deletion]
        if fetching is not None and self._fetches.is_elsewhere(home, index):
            after.append(fetching)  # this log would miss the absent blocks
        former = self._former(home, requests, stream_id, request)
        self._by_id[subscription_id] = StreamLog(self.shipping, stream, home, writer, former, after=after)
        self._by_stream[stream] = subscription_id
        self._streams[subscription_id] += 1
        self._store.watch(subscription_id)
        self._by_id[subscription_id].wake()

    def _note_in_doubt(self, log: StreamLog) -> None:
        pointers = log.writer.in_doubt
        if pointers:
            self._in_doubt.note(Identity(log.index.name, log.index.incarnation), pointers)
            self._pointer_may_come(log.index)

    def _former(self, home: Home, requests: LogRequests, stream_id: int, request: Open) -> Former | None:
        with contextlib.suppress(UnreadableLogError, RefusedError):
            pointer = Pointer.parse(request.log_pointer)
            if pointer is not None and pointer.home != home.kind:
                return Former(self._homes.named(pointer.home, requests, stream_id, request), pointer.ledgers)
        return None

    def _all_here(self, index: DelayIndex) -> None:
        """Note that the data here has all of its log: a start may believe it."""
        chain = self._catalog.chains.get(index)
        if chain is not None:
            self._set_chain(index, chain)

    def _set_chain(self, index: DelayIndex, chain: Chain) -> None:
        self._behind.discard(index)
        self._catalog.chains.set(index, chain)
        self._commit_soon()

    async def _may_count(self, index: DelayIndex, ledger_id: int, home: str) -> None:
        """Note durably that the data here has all of the log in a ledger about to count.

        Raises StorageError.
        """
        chain = self._catalog.chains.get(index)
        if chain is None or chain.home != home or chain.ledger_id == NO_LEDGER:
            chain = Chain(ledger_id, home)  # it may lack parts of a former log
        else:
            chain = chain.may_become(ledger_id)
        token = self._catalog.chains.set(index, chain)
        error = await told(partial(self._when_durable, token))
        if error is not None:
            raise error

    def doubt(self, index: DelayIndex) -> None:
        """Have a later start read the log, too: the data here is damaged, and its log is whole."""
        self._catalog.chains.doubt(index)
        self._commit_soon()

    def changed_by_others(self, index: DelayIndex) -> None:
        """Note a change that came from no stream: without a stream, no log has it."""
        self._shipped.pop(index, None)

    def after_last_words(self, stream: Stream, then: Callable[[], None]) -> None:
        """Call ``then`` once all changes of the stream are in its log, or soon."""
        log = self._of(stream)
        if log is None or log.over:
            then()
            return
        self._pump()

        async def wait() -> None:
            await log.ship_last()
            then()

        self._spawn(wait())

    def is_logged(self, stream: Stream, at_ns: int) -> bool:
        """True if the stream's log has everything written up to then, or no log continues."""
        log = self._of(stream)
        if log is None or log.over:
            return True
        self._pump()
        since_ns = log.writer.since_ns
        return since_ns is None or since_ns > at_ns

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def delete(self, stream: Stream) -> None:
        """Delete the log of an ending stream with a cleared index. The broker deletes BookKeeper's.

        Does nothing if another stream continues with the index: the log is then its own.
        """
        log = self._of(stream)
        if log is None or log.stream is not stream or not isinstance(log.home, ObjectHome):
            return
        log.end()
        self._deletions.begin(Identity(stream.name, stream.incarnation), log.home)

    def end(self, stream: Stream) -> None:
        """End the log of a stream that is over."""
        self._refused.pop(stream, None)
        self._fetches.stop(stream.session.index, stream)
        subscription_id = self._by_stream.pop(stream, None)
        if subscription_id is None:
            return
        self._streams[subscription_id] -= 1
        if not self._streams[subscription_id]:
            del self._streams[subscription_id]
            self._end_id(subscription_id)

    def readable(self, stream: Stream) -> bool:
        """True if a log is known to have all of the stream's index, or nearly all."""
        log = self._of(stream)
        return (
            log is not None
            and log.stream is stream
            and not (log.over or log.failure)
            and log.writer.ledger_id != NO_LEDGER
            and log.index not in self._behind
        )

    def has_all(self, index: DelayIndex) -> bool:
        """True if a log has all of an index without a stream."""
        chain = self._catalog.chains.get(index)
        shipped = self._shipped.get(index, NO_LEDGER)
        return chain is not None and NO_LEDGER != shipped == chain.ledger_id

    def leave(self, stream: Stream) -> None:
        """Leave the log of an ending stream as it is; the next stream begins a new one.

        Ignores even the store's writes: for callers amid a change.
        """
        subscription_id = self._by_stream[stream]
        log = self._by_id.pop(subscription_id)
        self._store.unwatch(subscription_id)
        self._shipped.pop(log.index, None)
        self._note_in_doubt(log)
        log.end()

    def _end_id(self, subscription_id: int) -> None:
        log = self._by_id.pop(subscription_id, None)
        if log is None:
            return
        self._pump()
        self._store.unwatch(subscription_id)
        if log.failure:
            self._behind.add(log.index)
        # Later writes are not noted.
        if log.writer.since_ns is None and self._catalog.is_durable(log.index):
            self._shipped[log.index] = log.writer.ledger_id
        else:
            self._shipped.pop(log.index, None)
        self._note_in_doubt(log)
        log.end()

    def state(self, stream: Stream | None) -> LogState | None:
        """The state of a stream's log."""
        self._pump()
        if stream is None:
            return None
        log = self._of(stream)
        return self._refused.get(stream) if log is None else log.state(self._clock.monotonic_ns())

    def states(self) -> list[LogState]:
        """The states of all logs."""
        self._pump()
        now_ns = self._clock.monotonic_ns()
        return [*(log.state(now_ns) for log in self._by_id.values()), *self._refused.values()]

    # ---- helpers of the logs

    async def _offload(self, work: Callable[[], ResultT]) -> ResultT:
        """See ``Offload``."""
        return await self._loop.run_in_executor(self._executor, work)

    def _of(self, stream: Stream) -> StreamLog | None:
        subscription_id = self._by_stream.get(stream)
        return None if subscription_id is None else self._by_id.get(subscription_id)

    def _noted(self) -> None:
        """Schedule a pump. Called in any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: shipping has ended
            self._loop.call_soon_threadsafe(self._pump)

    def _pump(self) -> None:
        """Pass the noted writes to the writers."""
        touched: dict[StreamLog, None] = {}  # in the order in which they have something to ship
        for noted in self._store.pop_noted():
            log = self._by_id.get(noted.subscription_id)
            if log is not None:
                log.writer.note(noted)
                touched[log] = None
        for log in touched:
            self._journal_limit.check(log)
            log.wake()
