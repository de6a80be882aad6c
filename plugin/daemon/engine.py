"""The daemon's heart: streams of all connections on one side, the catalog of indexes on the other.

It runs on one event loop and owns nothing but the wiring. ``session`` has the meaning of a stream,
``handing_out`` and ``held_news`` its messages and their times, ``committer`` and ``durable_news`` the
durability of changes, ``reading_pace`` the rate of reading, ``queries`` the control clients, ``maintenance``
the periodic work, ``retention`` the removal of old subscriptions, ``repairs`` the handling of damage.
Invariants:

- an exception of the index, foreseen or not, ends at most the stream that met it;
- a subscription is handed out to its current stream only;
- while the store fails, changes are refused with ERROR 8, and held entries are still handed out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING

from tidegate.index import (
    ENTRY_BYTES,
    Catalog,
    Clock,
    DelayIndex,
    Entries,
    PositionSet,
    SubscriptionName,
    TidegateIndexError,
)
from tidegate.plugin.daemon.audit_log import AuditLog
from tidegate.plugin.daemon.brokers import Brokers
from tidegate.plugin.daemon.bypasses import Bypasses
from tidegate.plugin.daemon.cancelling import Cancelling
from tidegate.plugin.daemon.committer import Committer
from tidegate.plugin.daemon.disk import look_at_disk
from tidegate.plugin.daemon.drain_rates import DrainRates
from tidegate.plugin.daemon.durable_news import DurableNews
from tidegate.plugin.daemon.failures import Failures
from tidegate.plugin.daemon.handing_out import HandingOut
from tidegate.plugin.daemon.held_news import HeldNews
from tidegate.plugin.daemon.index_logs.index_logs import IndexLogs
from tidegate.plugin.daemon.index_logs.repairs import Repairs
from tidegate.plugin.daemon.index_logs.stream_log import LogState
from tidegate.plugin.daemon.ingestion import Ingestion
from tidegate.plugin.daemon.looking import Looking
from tidegate.plugin.daemon.maintenance import Maintenance
from tidegate.plugin.daemon.message_queries import MessageQueries
from tidegate.plugin.daemon.ownership import Ownership
from tidegate.plugin.daemon.pacing import Pacing
from tidegate.plugin.daemon.peeking import Peeking
from tidegate.plugin.daemon.queries import Queries
from tidegate.plugin.daemon.reading_pace import ReadingPace
from tidegate.plugin.daemon.rescheduling import Rescheduling
from tidegate.plugin.daemon.retention import Retention
from tidegate.plugin.daemon.session import Change
from tidegate.plugin.daemon.settings import Settings
from tidegate.plugin.daemon.standing import worst_of
from tidegate.plugin.daemon.stream import Link, Stream
from tidegate.plugin.daemon.stream_opener import StreamOpener
from tidegate.plugin.daemon.stream_takeover import StreamTakeover
from tidegate.plugin.errors import ErrorCode, ProtocolError, StreamError
from tidegate.plugin.telemetry.health import Health
from tidegate.plugin.telemetry.metrics import Metrics
from tidegate.plugin.telemetry.survey import Surveyor
from tidegate.plugin.wire.messages import (
    Add,
    Cancelled,
    Close,
    Hello,
    Move,
    Peeked,
    Rescheduled,
    Role,
    Welcome,
)

if TYPE_CHECKING:
    import structlog


class DaemonEngine:
    """The rest of the daemon, as a connection sees it."""

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
        self._started_ns = clock.monotonic_ns()
        self._brokers = Brokers(metrics, log)
        self.bypasses = Bypasses(health, log)
        self.ownership = Ownership()
        self._loop = loop
        self._metrics = metrics
        self._logs = logs
        self._log = log
        self.surveyor = Surveyor(catalog, partial(look_at_disk, settings.data), partial(worst_of, self))
        self._reading_pace = ReadingPace(catalog, clock, settings=settings, log=log)
        self.failures = failures = Failures(clock, log)
        self._stopping = False
        self._held_news = HeldNews(catalog, self.ownership, log, on_bug=failures.end)
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
            catalog,
            clock,
            self.ownership,
            settings=settings,
            commit_soon=self._commit_soon,
            log=log,
        )
        self._durable_news = DurableNews(
            clock, self._retention, failures, metrics=metrics, health=health, logs=logs, log=log
        )
        self._committer = committer = Committer(
            catalog.journal,
            clock,
            loop,
            self._durable_news,
            executor=commit_executor,
            interval_s=settings.commit_interval_ms / 1_000,
            entries_max=settings.commit_entries,
            retry_s=settings.storage_retry_ms / 1_000,
        )
        drain_rates = DrainRates(clock)
        looking = Looking(catalog, clock, look_executor, drain_rates)
        self.count_due = looking.count_due
        self.pacing = Pacing(catalog, clock, self.ownership, looking.count_due)
        self._peeking = Peeking(clock, self.ownership)
        self._cancelling = Cancelling(catalog, clock, self.ownership, self, committer=committer, logs=logs)
        self._rescheduling = Rescheduling(
            catalog,
            clock,
            self.ownership,
            self,
            committer=committer,
            logs=logs,
            find=looking.find_entries,
            chunks=self._peeking.chunks,
        )
        messages = MessageQueries(
            catalog,
            clock,
            looking=looking,
            peeking=self._peeking,
            cancelling=self._cancelling,
            rescheduling=self._rescheduling,
            pacing=self.pacing,
            audit_log=AuditLog(
                settings.data,
                settings.audit_bytes,
                clock,
                executor=look_executor,
                metrics=metrics,
                log=log,
            ),
            log=log,
        )
        ingestion = Ingestion(
            catalog,
            self,
            committer=committer,
            held_news=self._held_news,
            retention=self._retention,
            executor=commit_executor,
            log=log,
        )
        self.queries = Queries(
            self,
            ingestion,
            messages,
            loop,
            storage_failing=lambda: self.storage_failing,
            committer=committer,
            log=log,
        )
        self._maintenance = Maintenance(
            catalog,
            clock,
            loop,
            committer=self._committer,
            durable_news=self._durable_news,
            held_news=self._held_news,
            reading_pace=self._reading_pace,
            retention=self._retention,
            drain_rates=drain_rates,
            settings=settings,
            health=health,
            log=log,
        )
        self.opener = StreamOpener(
            catalog,
            self.ownership,
            StreamTakeover(clock, log),
            logs,
            settle=ingestion.settle,
            handing_out=self._handing_out,
            retention=self._retention,
            committer=self._committer,
            failures=failures,
            credit_max=settings.credit_max,
            log=log,
        )
        if logs is not None:
            logs.on_change(
                self._committer.wake,
                when_durable=self._committer.after,
                landed=self._landed,
                pointer_may_come=self._retention.keep,
            )
            catalog.on_corrupt_block(Repairs(clock, loop, self.ownership, logs, log=log).met)

    @property
    def product(self) -> str:
        """The name and version of this program."""
        return self._product()

    @property
    def uptime_seconds(self) -> float:
        """The time since the start."""
        return (self.clock.monotonic_ns() - self._started_ns) / 1e9

    @property
    def brokers(self) -> Mapping[str, Link]:
        """The connections of brokers by name."""
        return self._brokers.connected

    @property
    def lost(self) -> asyncio.Event:
        """Set when the store has lost durable data: the caller has to end this engine and start anew."""
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
        self.opener.stop()
        self.health.block("stopping", "the daemon is shutting down")
        self._handing_out.stop()
        self._maintenance.stop()
        self._committer.commit_now()
        if self._logs is not None:
            self._logs.stop()
        self.queries.stop()
        self.pacing.stop()

    # --- connections ------------------------------------------------------------------------------

    def greet(self, connection: Link, hello: Hello, version: int) -> Welcome:
        """Note a client's HELLO; ``version`` is the version to speak."""
        if self._stopping:
            raise ProtocolError(ErrorCode.SHUTTING_DOWN, "the daemon is shutting down")
        if hello.role == Role.BROKER:
            self._brokers.greet(connection, hello)
        return Welcome(version, self.settings.heartbeat_ms, self.daemon_id, self.product)

    def gone(self, connection: Link, unclosed: int) -> None:
        """Note the end of a connection and its streams, ``unclosed`` of them because the peer is gone."""
        self._handing_out.gone(connection)
        self.queries.gone(connection)
        self._brokers.gone(connection, unclosed)
        self.bypasses.gone(connection)

    def writable(self, connection: Link) -> None:
        """The peer takes data again."""
        self._handing_out.writable(connection)
        self.queries.writable(connection)

    # --- ingestion --------------------------------------------------------------------------------

    @property
    def storage_failing(self) -> bool:
        """See ``ingestion.IngestionOwner``."""
        return self._durable_news.failing or self._reading_pace.memory_full

    def added(self, index: DelayIndex, positions: PositionSet) -> None:
        """See ``ingestion.IngestionOwner``."""
        self._metrics.entries_added.inc(len(positions))
        self._reading_pace.count_read(len(positions) * ENTRY_BYTES)
        self.changed_by_others(index)
        stream = self.ownership.get(index.name)
        if stream is not None:
            stream.session.brought(positions)
            self._handing_out.schedule_look(stream)

    def _commit_soon(self) -> None:
        self._committer.wake()

    def _landed(self, index: DelayIndex) -> None:
        """Absent blocks have come: their entries can be handed out."""
        stream = self.ownership.get(index.name)
        if stream is not None:
            self._handing_out.schedule_look(stream)

    def changed_by_others(self, index: DelayIndex) -> None:
        """See ``ingestion.IngestionOwner``."""
        if self._logs is not None:
            self._logs.changed_by_others(index)

    # --- streams ----------------------------------------------------------------------------------

    def log_of(self, name: SubscriptionName) -> LogState | None:
        """The state of a subscription's index log, None if there is none."""
        return None if self._logs is None else self._logs.state(self.ownership.get(name))

    def log_states(self) -> list[LogState]:
        """The states of all index logs."""
        return [] if self._logs is None else self._logs.states()

    def answer_sent(self, stream: Stream) -> None:
        """Note that the last HELD of the stream is written."""
        self._held_news.answer_sent(stream)
        self._handing_out.schedule_look(stream)

    def ended(self, stream: Stream) -> None:
        """Note the end of the stream."""
        self._handing_out.end(stream)
        self._cancelling.questions.ended(stream)
        self._rescheduling.questions.ended(stream)
        self.pacing.ended(stream)
        self._peeking.questions.ended(stream)
        self._committer.forget(stream)
        if self._logs is not None:
            self._logs.end(stream)
        if self.ownership.get(stream.name) is stream:
            self.ownership.release(stream)
            self._retention.unserved(stream.session.index)

    def apply_change(
        self, stream: Stream, seq: int, change: Change, received_ns: int, *, first_seq: int | None = None
    ) -> None:
        """Apply a frame that changes the index, or those from ``first_seq`` on together.

        A refused one ends its stream. Raises ``ProtocolError`` if it is out of order. Either changes nothing.
        A bug ends the stream, too, and its index is doubted.
        """
        session = stream.session
        try:
            if self._durable_news.failing and not isinstance(change, Close):
                raise StreamError(
                    ErrorCode.STORAGE, "the store is failing, nothing can be made durable: try again later"
                )
            if isinstance(change, Add | Move) and self._reading_pace.memory_full:
                raise StreamError(
                    ErrorCode.STORAGE, "memory is full of entries that cannot be spilled: try again later"
                )
            session.follow(self.catalog.get(session.name))
            entries = session.apply_frame(seq, change, received_ns, first_seq=first_seq)
        except ProtocolError:
            raise
        except (StreamError, TidegateIndexError) as error:
            refusal = error if isinstance(error, StreamError) else self.failures.refused(error)
            stream.connection.end_stream(stream, refusal.code, refusal.message)
            return
        except Exception as error:
            self.failures.end(stream, error)
            return
        if isinstance(change, Add | Move):
            self._reading_pace.count_read(entries * ENTRY_BYTES)
        if isinstance(change, Add):
            self._metrics.entries_added.inc(entries)
            self.queries.recorder.record_arrivals(session.name, change.entries.deliver_at_ms)
        self._committer.note_change(stream, entries)
        # Entries added by a former stream of the connection go out on its successor.
        current = self.ownership.get(session.name) or stream
        if isinstance(change, Add) and current is not stream:
            current.session.brought(PositionSet.of_entries(change.entries))
        self._handing_out.schedule_look(current)

    def read_pause_s(self) -> float:
        """The wait after the last read, 0 for none. Then ask again."""
        if self.storage_failing:
            return 0.0  # entries are refused: a pause would keep credit and acknowledgements away
        return self._reading_pace.pause_s(self.clock.monotonic_ns())

    def decided(self, stream: Stream, seq: int, answer: Cancelled | Rescheduled | Peeked) -> None:
        """Note the broker's answer to a CANCEL, RESCHEDULE or PEEK."""
        if isinstance(answer, Peeked):
            self._peeking.questions.answered(stream, seq, answer)
        elif isinstance(answer, Cancelled):
            self._cancelling.questions.answered(stream, seq, answer)
        else:
            self._rescheduling.questions.answered(stream, seq, answer)

    # --- decisions of the broker -------------------------------------------------------------------

    def acknowledge_cancelled(self, stream: Stream, positions: PositionSet) -> int | None:
        """See ``broker_changes.Owner``."""
        return self._learn(stream, lambda: stream.session.acknowledge(positions), len(positions))

    def moved(self, stream: Stream, entries: Entries) -> int | None:
        """See ``broker_changes.Owner``."""
        return self._learn(stream, lambda: stream.session.move(entries), len(entries))

    def _learn(self, stream: Stream, learn: Callable[[], int | None], entries: int) -> int | None:
        try:
            token = learn()
        except Exception as error:
            # The broker has done it, so a refusal of the index is a bug, too: a repeat cannot be asked for.
            self.failures.end(stream, error)
            return None
        if token is not None:
            self._committer.note_change(stream, entries)
            self._handing_out.schedule_look(stream)
        return token

    # --- other news of a broker --------------------------------------------------------------------

    def credit(self, stream: Stream, more: int) -> None:
        """Note that the broker has room again."""
        stream.session.add_credit(more)
        self._handing_out.schedule_look(stream)
