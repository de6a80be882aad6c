"""The opening of streams: an index brought here, a session begun, the former stream replaced.

Invariants: a subscription has one stream, that of the owner admitted last; an exception of the index ends
only the opening.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tidegate.index import UNCLAIMED, Catalog, DelayIndex, Position, SubscriptionName, TidegateIndexError
from tidegate.plugin.daemon.committer import Committer
from tidegate.plugin.daemon.failures import Failures
from tidegate.plugin.daemon.handing_out import HandingOut
from tidegate.plugin.daemon.histories import claim_of
from tidegate.plugin.daemon.index_logs.index_logs import IndexLogs
from tidegate.plugin.daemon.index_logs.restorer import RestoreRequest
from tidegate.plugin.daemon.ownership import Ownership
from tidegate.plugin.daemon.retention import Retention
from tidegate.plugin.daemon.session import Session
from tidegate.plugin.daemon.stream import Link, Stream
from tidegate.plugin.daemon.stream_takeover import StreamTakeover
from tidegate.plugin.errors import ErrorCode, StreamError
from tidegate.plugin.wire.messages import NAME_BYTES_MAX, Open

if TYPE_CHECKING:
    import structlog


class StreamOpener:
    """Opens streams.

    settle: called with an index and the topic's end before another owner's stream begins. Raises
    TidegateIndexError.
    credit_max: the most entries that a stream may have on their way.
    """

    def __init__(
        self,
        catalog: Catalog,
        ownership: Ownership,
        takeover: StreamTakeover,
        logs: IndexLogs | None,
        *,
        settle: Callable[[DelayIndex, Position], None],
        handing_out: HandingOut,
        retention: Retention,
        committer: Committer,
        failures: Failures,
        credit_max: int,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._catalog = catalog
        self._ownership = ownership
        self._takeover = takeover
        self._logs = logs
        self._settle = settle
        self._handing_out = handing_out
        self._retention = retention
        self._committer = committer
        self._failures = failures
        self._credit_max = credit_max
        self._log = log
        self._stopping = False

    def stop(self) -> None:
        """Stop bringing indexes here."""
        self._stopping = True

    def restoring(self, connection: Link, stream_id: int, request: Open) -> Awaitable[None] | None:
        """Brings the index here; wait for it before ``begin_stream``. Raises ``StreamError``."""
        name = SubscriptionName(request.topic, request.subscription)
        _check(name, request.incarnation)
        self._ownership.admit(name, request.incarnation, request.epoch)
        if self._logs is None or self._stopping:
            return None
        served = self._ownership.get(name)

        def is_wanted() -> bool:
            return self._ownership.get(name) in {None, served} and self._ownership.admits(
                name, request.incarnation, request.epoch
            )

        def came(index: DelayIndex) -> None:
            if served is not None and served.connection is not connection:
                # Its broker believes held positions that this index may lack, should the new stream never
                # begin.
                self._takeover.end(served, connection, request.incarnation)
            # The broker may be gone before the stream begins.
            self._retention.unserved(index)

        return self._logs.restorer.restoring(
            RestoreRequest(connection.log_requests, stream_id, request, is_wanted, came)
        )

    def begin_stream(self, connection: Link, stream_id: int, request: Open) -> Stream:
        """A new stream. Raises ``StreamError``."""
        name = SubscriptionName(request.topic, request.subscription)
        _check(name, request.incarnation)
        self._ownership.admit(name, request.incarnation, request.epoch)
        try:
            index = self._catalog.subscription(name, request.incarnation)
            if claim_of(request) not in {None, index.state.claim}:
                self._settle(index, request.end)
            session = Session(stream_id, index, request, self._credit_max)
        except TidegateIndexError as error:
            raise self._failures.refused(error) from error
        except Exception as error:
            raise self._failures.bug(self._catalog.get(name), str(name), error) from error
        if session.found_break is not None:
            self._log.warning(
                f"{session.found_break.said}. The index begins anew, and the topic is read again",
                topic=name.topic,
                subscription=name.subscription,
                reason=session.found_break.value,
            )
        stream = Stream(connection, session)
        self._begin_log(stream, request)
        previous = self._ownership.take_over(stream)
        self._retention.served(name)
        if previous is not None:
            self._handing_out.end(previous)
            self._takeover.replace(previous, stream)
        self._committer.note_change(stream, 0)
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


def _check(name: SubscriptionName, incarnation: bytes) -> None:
    """Raise ``StreamError`` for a bad name: that ends this stream only."""
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
