"""The daemon's heart: streams of all connections on one side, the catalog of indexes on the other.

It runs on one event loop and owns nothing but the wiring. ``session`` has the meaning of a stream,
``handing_out`` and ``held_news`` its messages and their times, ``committer`` and ``durable_news`` the
durability of changes, ``reading_pace`` the rate of reading, ``queries`` the control clients, ``maintenance``
the periodic work, ``retention`` the removal of old subscriptions, ``repairs`` the handling of damage.
Invariants:

- an exception of the index, foreseen or not, ends at most the stream in which it was raised;
- a subscription is handed out to its current stream only;
- while the store fails, changes are refused with ERROR 8, and held entries are still handed out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING

from tidegate.index import (
    UNCLAIMED,
    Catalog,
    Clock,
    DelayIndex,
    Entries,
    PositionSet,
    RocksStore,
    StorageError,
    SubscriptionName,
    TidegateIndexError,
)
from tidegate.plugin.api.api import Api
from tidegate.plugin.daemon.audit_log import AuditLog
from tidegate.plugin.daemon.brokers import Brokers
from tidegate.plugin.daemon.bypasses import Bypasses
from tidegate.plugin.daemon.cancelling import Cancelling
from tidegate.plugin.daemon.committer import Committer
from tidegate.plugin.daemon.durable_news import DurableNews
from tidegate.plugin.daemon.failures import Failures
from tidegate.plugin.daemon.handing_out import HandingOut
from tidegate.plugin.daemon.held_news import HeldNews
from tidegate.plugin.daemon.index_logs.index_logs import IndexLogs
from tidegate.plugin.daemon.index_logs.repairs import Repairs
from tidegate.plugin.daemon.index_logs.restorer import RestoreRequest
from tidegate.plugin.daemon.index_logs.stream_log import LogState
from tidegate.plugin.daemon.ingestion import Ingestion
from tidegate.plugin.daemon.looking import Looking
from tidegate.plugin.daemon.maintenance import Maintenance
from tidegate.plugin.daemon.ownership import Ownership
from tidegate.plugin.daemon.pacing import Pacing
from tidegate.plugin.daemon.queries import Queries
from tidegate.plugin.daemon.reading_pace import ReadingPace
from tidegate.plugin.daemon.rescheduling import Rescheduling
from tidegate.plugin.daemon.retention import Retention
from tidegate.plugin.daemon.session import Change, Session
from tidegate.plugin.daemon.settings import Settings
from tidegate.plugin.daemon.stream import Link, Stream
from tidegate.plugin.daemon.stream_takeover import StreamTakeover
from tidegate.plugin.errors import ErrorCode, ProtocolError, StreamError
from tidegate.plugin.telemetry.health import Health
from tidegate.plugin.telemetry.metrics import Metrics
from tidegate.plugin.telemetry.survey import Surveyor
from tidegate.plugin.wire.messages import (
    NAME_BYTES_MAX,
    Add,
    Bypassed,
    Cancelled,
    Close,
    Hello,
    HttpRequest,
    HttpResponse,
    Ingest,
    Move,
    Open,
    Paced,
    Rescheduled,
    Role,
    Welcome,
)

if TYPE_CHECKING:
    import structlog


class DaemonEngine:
    """Implements ``stream.Engine`` over a catalog."""

    def __init__(
        self,
        catalog: Catalog,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        *,
        commit_executor: Executor | None,
        settings: Settings,
        metrics: Metrics,
        health: Health,
        log: structlog.typing.FilteringBoundLogger,
        product: Callable[[], str],
        daemon_id: int,
        logs: IndexLogs | None = None,
        look_executor: Executor | None = None,
    ) -> None:
        self.catalog = catalog
        self.clock = clock
        self.settings = settings
        self.health = health
        self._product = product
        self.daemon_id = daemon_id
        self.started_at_ms = clock.now_ms()
        self._brokers = Brokers(metrics, log)
        self.bypasses = Bypasses(health, log)
        self.ownership: Ownership[Stream] = Ownership()
        self._loop = loop
        self._metrics = metrics
        self._logs = logs
        self._log = log
        self.surveyor = Surveyor(catalog, partial(RocksStore.aside_bytes, settings.data))
        self._takeover = StreamTakeover(clock, log)
        self._reading_pace = ReadingPace(catalog, clock, settings=settings, log=log)
        self._failures = failures = Failures(clock, log)
        self._held_news = HeldNews(catalog, self.ownership, log, on_bug=failures.end)
        self._stopping = False
        self._maintenance = Maintenance(catalog, clock, loop, self, settings=settings, health=health, log=log)
        self._cancelling = Cancelling(catalog, clock, self.ownership, self)
        looking = Looking(catalog, clock, look_executor)
        self._rescheduling = Rescheduling(catalog, clock, self.ownership, self, looking.find_entries)
        self.count_due = looking.count_due
        self._pacing = Pacing(catalog, clock, self.ownership, looking.count_due)
        self._queries = Queries(
            self,
            Ingestion(catalog, self, executor=commit_executor, log=log),
            looking,
            self._cancelling,
            self._rescheduling,
            loop,
            audit_log=AuditLog(
                settings.data,
                settings.audit_bytes,
                clock,
                executor=look_executor,
                metrics=metrics,
                log=log,
            ),
            pacing=self._pacing,
            log=log,
        )
        self._handing_out = HandingOut(
            catalog,
            clock,
            loop,
            self.ownership,
            settings=settings,
            metrics=metrics,
            health=health,
            log=log,
            on_bug=failures.end,
        )
        self._retention = Retention(
            catalog, clock, self.ownership, settings=settings, commit_soon=self.commit_soon, log=log
        )
        self._durable_news = DurableNews(
            clock, self._retention, failures, metrics=metrics, health=health, logs=logs, log=log
        )
        self._committer: Committer[Stream] = Committer(
            catalog,
            clock,
            loop,
            self._durable_news,
            executor=commit_executor,
            interval_s=settings.commit_interval_ms / 1_000,
            entries_max=settings.commit_entries,
            retry_s=settings.storage_retry_ms / 1_000,
        )
        if logs is not None:
            logs.on_change(self._committer.wake, when_durable=self._committer.after, landed=self._landed)
            catalog.on_corrupt_block(Repairs(clock, loop, self.ownership, logs, log=log).met)

    @property
    def product(self) -> str:
        """The name and version of this program."""
        return self._product()

    @property
    def brokers(self) -> Mapping[str, Link]:
        """The connections of brokers by name."""
        return self._brokers.connected

    @property
    def lost(self) -> asyncio.Event:
        """Set when the store has lost durable data: the caller has to end this and start anew."""
        return self._durable_news.lost

    @property
    def uncommitted_entries(self) -> int:
        """Entries and positions received that no commit covers yet."""
        return self._committer.uncommitted_entries

    # --- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin the upkeep; the daemon is ready."""
        for index in self.catalog:
            self._retention.unserved(index)
        self._maintenance.start()
        self.health.clear("starting")

    def stop(self) -> None:
        """Commit all changes, and hand out nothing more."""
        self._stopping = True
        self.health.block("stopping", "the daemon is shutting down")
        self._handing_out.stop()
        self._maintenance.stop()
        self._committer.commit_now()
        if self._logs is not None:
            self._logs.stop()
        self._queries.stop()
        self._pacing.stop()

    # --- connections ------------------------------------------------------------------------------

    def greet(self, connection: Link, hello: Hello, version: int) -> Welcome:
        """See ``stream.Engine``."""
        if self._stopping:
            raise ProtocolError(ErrorCode.SHUTTING_DOWN, "the daemon is shutting down")
        if hello.role == Role.BROKER:
            self._brokers.greet(connection, hello)
        return Welcome(version, self.settings.heartbeat_ms, self.daemon_id, self.product)

    def gone(self, connection: Link) -> None:
        """See ``stream.Engine``."""
        self._handing_out.gone(connection)
        self._queries.gone(connection)
        self._brokers.gone(connection)
        self.bypasses.gone(connection)

    def bypassed(self, connection: Link, told: Bypassed) -> None:
        """See ``stream.Engine``."""
        self.bypasses.tell(connection, told)

    def writable(self, connection: Link) -> None:
        """See ``stream.Engine``."""
        self._handing_out.writable(connection)
        self._queries.writable(connection)

    def query(self, connection: Link, request: dict[str, object], reply: Callable[[bytes], None]) -> None:
        """See ``stream.Engine``."""
        self._queries.ask(connection, request, reply)

    @property
    def api(self) -> Api:
        """The HTTP interface, for whoever reads requests."""
        return self._queries.api

    def respond(
        self, connection: Link, request: HttpRequest, respond: Callable[[HttpResponse], None]
    ) -> None:
        """See ``stream.Engine``."""
        self._queries.respond(connection, request, respond)

    def ingest(self, connection: Link, message: Ingest, reply: Callable[[bytes], None]) -> None:
        """See ``stream.Engine``."""
        self._queries.ingest(connection, message, reply)

    # --- ingestion --------------------------------------------------------------------------------

    @property
    def storage_failing(self) -> bool:
        """See ``ingestion.IngestionOwner``."""
        return self._durable_news.failing or self._reading_pace.memory_full

    def when_durable(self, token: int, tell: Callable[[StorageError | None], None]) -> None:
        """See ``ingestion.IngestionOwner``."""
        self._committer.after(token, tell)

    async def until_reading_goes_on(self) -> None:
        """See ``ingestion.IngestionOwner``."""
        while (pause_s := self.read_pause_s()) > 0:
            await asyncio.sleep(pause_s)

    def made(self, index: DelayIndex) -> None:
        """See ``ingestion.IngestionOwner``."""
        self._retention.unserved(index)

    def added(self, index: DelayIndex, positions: PositionSet) -> None:
        """See ``ingestion.IngestionOwner``."""
        self._metrics.entries_added.inc(len(positions))
        self._reading_pace.take(len(positions))
        self._changed_by_others(index)
        stream = self.ownership.get(index.name)
        if stream is not None:
            stream.session.brought(positions)
            self._handing_out.schedule(stream)

    def _landed(self, index: DelayIndex) -> None:
        """Absent blocks have come: their entries can be handed out."""
        stream = self.ownership.get(index.name)
        if stream is not None:
            self._handing_out.schedule(stream)

    def let_go(self, index: DelayIndex) -> None:
        """See ``ingestion.IngestionOwner``."""
        self._changed_by_others(index)

    def _changed_by_others(self, index: DelayIndex) -> None:
        if self._logs is not None:
            self._logs.changed_by_others(index)

    def tell_held(self, name: SubscriptionName, positions: PositionSet) -> None:
        """See ``ingestion.IngestionOwner``."""
        self._held_news.tell_held(name, positions)

    # --- streams ----------------------------------------------------------------------------------

    def restoring(self, connection: Link, stream_id: int, request: Open) -> Awaitable[None] | None:
        """See ``stream.Engine``."""
        name = SubscriptionName(request.topic, request.subscription)
        _check(name, request.incarnation)
        self.ownership.admit(name, request.incarnation, request.epoch)
        if self._logs is None or self._stopping:
            return None
        served = self.ownership.get(name)

        def is_wanted() -> bool:
            return self.ownership.get(name) in {None, served} and self.ownership.admits(
                name, request.incarnation, request.epoch
            )

        def came(index: DelayIndex) -> None:
            if served is not None and served.connection is not connection:
                # Its broker believes held positions that this index may lack, should the new stream never
                # begin.
                self._takeover.end(served, connection, request.incarnation)
            # The broker may be gone before the stream begins.
            self._retention.unserved(index)

        return self._logs.restoring(
            RestoreRequest(connection.log_requests, stream_id, request, is_wanted, came)
        )

    def log_of(self, name: SubscriptionName) -> LogState | None:
        """The state of a subscription's index log, None if there is none."""
        return None if self._logs is None else self._logs.state(self.ownership.get(name))

    def log_states(self) -> list[LogState]:
        """The states of all index logs."""
        return [] if self._logs is None else self._logs.states()

    def open(self, connection: Link, stream_id: int, request: Open) -> Stream:
        """See ``stream.Engine``."""
        name = SubscriptionName(request.topic, request.subscription)
        _check(name, request.incarnation)
        self.ownership.admit(name, request.incarnation, request.epoch)
        try:
            index = self.catalog.subscription(name, request.incarnation)
            session = Session(stream_id, index, request, self.settings.credit_max)
        except TidegateIndexError as error:
            raise self._failures.refused(error) from error
        except Exception as error:
            raise self._failures.bug(self.catalog.get(name), str(name), error) from error
        if session.found_break is not None:
            self._log.warning(
                f"{session.found_break.said}. The index begins anew, and the topic is read again",
                topic=name.topic,
                subscription=name.subscription,
                reason=session.found_break.value,
            )
        stream = Stream(connection, session)
        self._begin_log(stream, request)
        previous = self.ownership.take_over(stream)
        self._retention.served(name)
        if previous is not None:
            self._handing_out.discard(previous)
            self._takeover.replace(previous, stream)
        self._committer.note(stream, 0)
        self._log.debug(
            "stream opened", broker=connection.peer_name, topic=name.topic, subscription=name.subscription
        )
        return stream

    def _begin_log(self, stream: Stream, request: Open) -> None:
        if self._logs is None:
            return
        try:
            self._logs.begin(stream, stream.connection.log_requests, stream.session.stream_id, request)
        except Exception as error:
            self._logs.end(stream)
            raise self._failures.bug(stream.session.index, repr(stream.session), error) from error

    def answer_sent(self, stream: Stream) -> None:
        """See ``stream.Engine``."""
        self._held_news.answer_sent(stream)
        self._handing_out.schedule(stream)

    def answer_failed(self, stream: Stream, error: Exception) -> None:
        """See ``stream.Engine``."""
        self._failures.end(stream, error)

    def ended(self, stream: Stream) -> None:
        """See ``stream.Engine``."""
        self._handing_out.end(stream)
        self._cancelling.ended(stream)
        self._rescheduling.ended(stream)
        self._pacing.ended(stream)
        self._committer.forget(stream)
        if self._logs is not None:
            self._logs.end(stream)
        if self.ownership.get(stream.name) is stream:
            self.ownership.release(stream)
            self._retention.unserved(stream.session.index)

    def change(
        self, stream: Stream, seq: int, change: Change, received_ns: int, *, first_seq: int | None = None
    ) -> None:
        """See ``stream.Engine``."""
        if self._durable_news.failing and not isinstance(change, Close):
            raise StreamError(
                ErrorCode.STORAGE, "the store is failing, nothing can be made durable: try again later"
            )
        if isinstance(change, Add | Move) and self._reading_pace.memory_full:
            raise StreamError(
                ErrorCode.STORAGE, "memory is full of entries that cannot be spilled: try again later"
            )
        stream.session.follow(self.catalog.get(stream.name))
        try:
            entries = stream.session.apply(seq, change, received_ns, first_seq=first_seq)
        except TidegateIndexError as error:
            raise self._failures.refused(error) from error
        except (ProtocolError, StreamError):
            raise
        except Exception as error:
            raise self._failures.bug(stream.session.index, repr(stream.session), error) from error
        if isinstance(change, Add | Move):
            self._reading_pace.take(entries)
        if isinstance(change, Add):
            self._metrics.entries_added.inc(entries)
            if self._queries.recorder.active:
                self._queries.recorder.note(stream.name, change.entries.deliver_at_ms)
        self._committer.note(stream, entries)
        # Entries added by a former stream of the connection are handed out on its successor.
        current = self.ownership.get(stream.name) or stream
        if isinstance(change, Add) and current is not stream:
            current.session.brought(PositionSet.of_entries(change.entries))
        self._handing_out.schedule(current)

    def read_pause_s(self) -> float:
        """See ``stream.Engine``."""
        if self.storage_failing:
            return 0.0  # entries are refused: a pause would keep credit and acknowledgements from us
        return self._reading_pace.pause_s()

    def paused(self, seconds: float) -> None:
        """See ``stream.Engine``."""
        self._metrics.read_pause_seconds.inc(seconds)

    def decided(self, stream: Stream, seq: int, answer: Cancelled | Rescheduled) -> None:
        """See ``stream.Engine``."""
        if isinstance(answer, Cancelled):
            self._cancelling.answered(stream, seq, answer)
        else:
            self._rescheduling.answered(stream, seq, answer)

    def paced(self, stream: Stream, seq: int, told: Paced) -> None:
        """See ``stream.Engine``."""
        self._pacing.told(stream, seq, told)

    # --- what the broker decides ------------------------------------------------------------------

    def acknowledge_cancelled(self, stream: Stream, positions: PositionSet) -> int | None:
        """See ``broker_changes.Owner``."""
        token = stream.session.acknowledge(positions)
        if token is None:
            return None
        self._committer.note(stream, len(positions))
        self._handing_out.schedule(stream)
        return token

    def moved(self, stream: Stream, entries: Entries) -> int | None:
        """See ``broker_changes.Owner``."""
        token = stream.session.move(entries)
        self._committer.note(stream, len(entries))
        self._handing_out.schedule(stream)
        return token

    def after_last_words(self, stream: Stream, then: Callable[[], None]) -> None:
        """See ``broker_changes.Owner``."""
        if self._logs is None:
            then()
        else:
            self._logs.after_last_words(stream, then)

    def log_state(self, stream: Stream) -> LogState | None:
        """See ``broker_changes.Owner``."""
        return None if self._logs is None else self._logs.state(stream)

    # --- what a broker says besides ---------------------------------------------------------------

    def credit(self, stream: Stream, more: int) -> None:
        """See ``stream.Engine``."""
        stream.session.add_credit(more)
        self._handing_out.schedule(stream)

    # --- maintenance ------------------------------------------------------------------------------

    def tell_level(self, unspilled_bytes: int) -> None:
        """See ``MaintenanceOwner``."""
        self._reading_pace.tell_level(unspilled_bytes)

    def commit_soon(self) -> None:
        """See ``MaintenanceOwner``."""
        self._committer.wake()

    def store_lost(self) -> None:
        """See ``MaintenanceOwner``."""
        self._durable_news.lost.set()

    def tell_unheld(self, now_ms: int) -> None:  # noqa: ARG002
        """See ``MaintenanceOwner``."""
        self._held_news.tell_unheld()

    def forget_unserved(self, now_ms: int) -> None:  # noqa: ARG002
        """See ``MaintenanceOwner``."""
        self._retention.forget_unserved()


def _check(name: SubscriptionName, incarnation: bytes) -> None:
    """Raises ``StreamError`` for a bad name: that ends this stream only."""
    _check_length("topic", name.topic)
    _check_length("subscription", name.subscription)
    if incarnation == UNCLAIMED:
        # The next owner would take its index for a new one, and its entries for its own.
        raise StreamError(
            ErrorCode.MALFORMED, "its incarnation is zeros, which names no life of a subscription"
        )


def _check_length(what: str, name: str) -> None:
    size_bytes = len(name.encode())
    if size_bytes > NAME_BYTES_MAX:
        raise StreamError(
            ErrorCode.MALFORMED, f"its {what} has {size_bytes} bytes, at most {NAME_BYTES_MAX} are possible"
        )
