"""A stream that takes a subscription from another one: who is told.

Invariant: epochs order the streams of one life of a subscription. Which of two lives is over only their
broker knows: who is replaced and has not said CLOSE is told, so that the one that lives comes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.index import Clock
from tidegate.plugin.daemon.stream import Stream
from tidegate.plugin.errors import ErrorCode
from tidegate.plugin.seldom import Seldom

if TYPE_CHECKING:
    import structlog


class Replacing:
    """Ends the former stream, in silence or with a word."""

    def __init__(self, clock: Clock, log: structlog.typing.FilteringBoundLogger) -> None:
        self._seldom = Seldom(clock.monotonic_ns)
        self._log = log

    def replace(self, previous: Stream, stream: Stream) -> None:
        """``stream`` has the subscription now, ``previous`` had it."""
        of_one_life = previous.incarnation == stream.incarnation
        if previous.connection is not stream.connection:
            if not of_one_life:
                self._warn_of_two_lives(previous, stream)
        elif of_one_life or previous.session.closing:
            previous.session.supersede()
            return
        previous.connection.end_stream(
            previous, ErrorCode.STALE_EPOCH, f"{stream.connection.peer_name} serves the subscription now"
        )

    def _warn_of_two_lives(self, previous: Stream, stream: Stream) -> None:
        """Brokers that both serve a subscription, each another life of it, take the index from each other."""
        more = self._seldom.more("lives")
        if more is not None:
            self._log.warning(
                "two brokers serve a subscription of the same name, each another one: if they are of two "
                "clusters, each cluster needs a daemon of its own",
                topic=stream.name.topic,
                subscription=stream.name.subscription,
                brokers=[previous.connection.peer_name, stream.connection.peer_name],
                **more,
            )
