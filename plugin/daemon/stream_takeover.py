"""A stream that takes a subscription from another one, and the news for the replaced stream.

Invariant: epochs order the streams of one life of a subscription. Only the brokers know which of two lives is
over: a replaced stream that has not said CLOSE gets ERROR, so that the living one comes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.index import Clock
from tidegate.plugin.daemon.stream import Link, Stream
from tidegate.plugin.errors import ErrorCode
from tidegate.plugin.shared.seldom import Seldom

if TYPE_CHECKING:
    import structlog


class StreamTakeover:
    """Ends the former stream, silently or with ERROR."""

    def __init__(self, clock: Clock, log: structlog.typing.FilteringBoundLogger) -> None:
        self._seldom = Seldom(clock.monotonic_ns)
        self._log = log

    def replace(self, previous: Stream, stream: Stream) -> None:
        """Note that ``stream`` has the subscription now; ``previous`` had it."""
        of_one_life = previous.incarnation == stream.incarnation
        if previous.connection is stream.connection and (of_one_life or previous.session.closing):
            previous.session.supersede()
        else:
            self.end(previous, stream.connection, stream.incarnation)

    def end(self, previous: Stream, connection: Link, incarnation: bytes) -> None:
        """End ``previous``: ``connection`` serves this life of the subscription, or is about to."""
        if previous.connection is not connection and previous.incarnation != incarnation:
            self._warn_of_two_lives(previous, connection)
        previous.connection.end_stream(
            previous, ErrorCode.STALE_EPOCH, f"{connection.peer_name} serves the subscription now"
        )

    def _warn_of_two_lives(self, previous: Stream, connection: Link) -> None:
        """Warn: two brokers that serve different lives of a subscription take the index from each other."""
        more = self._seldom.more("lives")
        if more is not None:
            self._log.warning(
                "two brokers serve different subscriptions of the same name: if they belong to two "
                "clusters, give each cluster its own daemon",
                topic=previous.name.topic,
                subscription=previous.name.subscription,
                brokers=[previous.connection.peer_name, connection.peer_name],
                **more,
            )
