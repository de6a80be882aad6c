"""A stream, and its connection as the engine sees it.

Invariant: the engine knows no more of a connection than ``Link``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tidegate.index import PositionSet, SubscriptionName
from tidegate.plugin.daemon.homes.broker_home import LogRequests
from tidegate.plugin.daemon.session import Session
from tidegate.plugin.daemon.told_pace import ToldPace
from tidegate.plugin.errors import ErrorCode
from tidegate.plugin.wire.messages import Message
from tidegate.plugin.wire.release_pace import ReleasePace


class Stream:
    """A session on a connection.

    ``answer_sent``: its last HELD is written; ``session.answer_begun``: the answer is fixed. ``untold``:
    positions held since, between the two. ``told_pace``: the pace that its broker keeps.
    """

    __slots__ = ("answer_sent", "connection", "session", "told_pace", "untold")

    def __init__(self, connection: Link, session: Session) -> None:
        self.connection = connection
        self.session = session
        self.answer_sent = False
        self.told_pace = ToldPace()
        self.untold = PositionSet()

    @property
    def broker(self) -> str:
        """The name of the broker that it serves."""
        return self.connection.peer_name

    @property
    def credit(self) -> int:
        """The number of further entries that the broker has room for."""
        return self.session.credit

    @property
    def pace(self) -> ReleasePace:
        """The pace in force at its broker."""
        return self.told_pace.pace

    @property
    def name(self) -> SubscriptionName:
        """The subscription it serves."""
        return self.session.name

    @property
    def incarnation(self) -> bytes:
        """The life of the subscription that it serves."""
        return self.session.index.incarnation

    def send(self, message: Message, seq: int = 0) -> None:
        """Send a frame on this stream."""
        self.connection.send(message, self.session.stream_id, seq)


class Link(Protocol):
    """A connection, as the engine and a stream see it."""

    @property
    def peer_name(self) -> str:
        """The name that the client gave in its HELLO."""
        ...

    @property
    def process(self) -> str | None:
        """The user and the process at the other end, in words."""
        ...

    @property
    def product(self) -> str:
        """The product named in the client's HELLO."""
        ...

    @property
    def version(self) -> int:
        """The spoken version of the protocol; 0 before the greeting."""
        ...

    @property
    def connected_at_ms(self) -> int:
        """The time of its connection."""
        ...

    @property
    def streams(self) -> Mapping[int, Stream]:
        """Its open streams by number."""
        ...

    @property
    def log_requests(self) -> LogRequests:
        """The requests to the broker about index logs."""
        ...

    @property
    def writable(self) -> bool:
        """True while the peer takes more."""
        ...

    def send(self, message: Message, stream_id: int = 0, seq: int = 0) -> None:
        """Send a frame."""
        ...

    def read_rest(self) -> None:
        """Apply the unread bytes that the peer has sent, then read nothing more."""
        ...

    def end_stream(self, stream: Stream, code: ErrorCode, message: str) -> None:
        """The daemon ends one stream with ERROR."""
        ...

    def close_stream(self, stream: Stream) -> None:
        """Answer CLOSE: the stream has ended as the broker wished."""
        ...

    def fail(self, code: ErrorCode, message: str) -> None:
        """Send ERROR on stream 0 and close."""
        ...
