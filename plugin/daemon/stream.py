"""A stream, and the seam between ``connection`` and ``engine``.

Invariant: neither side knows more of the other than this: ``Link`` is the connection as the engine sees it,
``Engine`` the engine as the connection sees it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from tidegate.index import PositionSet, SubscriptionName
from tidegate.plugin.daemon.homes.broker_home import LogRequests
from tidegate.plugin.daemon.session import Change, Session
from tidegate.plugin.daemon.told_pace import ToldPace
from tidegate.plugin.errors import ErrorCode
from tidegate.plugin.wire.messages import (
    Bypassed,
    Cancelled,
    Hello,
    HttpRequest,
    HttpResponse,
    Ingest,
    Message,
    Open,
    Paced,
    ReleasePace,
    Rescheduled,
    Welcome,
)


class Stream:
    """A session on a connection.

    ``answer_sent``: its last HELD has been written; ``session.answer_begun``: the answer is fixed.
    ``untold``: positions held since, between the two. ``told_pace``: the pace that its broker keeps.
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

    @property
    def epoch(self) -> int:
        """The owner's epoch."""
        return self.session.epoch

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
        """The version of the protocol that is spoken; 0 before the greeting."""
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
        """Apply the bytes that the peer has sent and nobody has read yet, then read nothing more."""
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


class Engine(Protocol):
    """The rest of the daemon, as a connection sees it."""

    def greet(self, connection: Link, hello: Hello, version: int) -> Welcome:
        """A client has said HELLO; ``version`` is the version to speak."""
        ...

    def restoring(self, connection: Link, stream_id: int, request: Open) -> Awaitable[None] | None:
        """The work that brings the index here; wait for it before ``open``. Raises ``StreamError``."""
        ...

    def open(self, connection: Link, stream_id: int, request: Open) -> Stream:
        """A new stream. Raises ``StreamError``."""
        ...

    def change(
        self, stream: Stream, seq: int, change: Change, received_ns: int, *, first_seq: int | None = None
    ) -> None:
        """Apply a frame that changes the index, or those from ``first_seq`` on together.

        Raises ``StreamError`` or ``ProtocolError``; then nothing has changed.
        """
        ...

    def read_pause_s(self) -> float:
        """The wait after the last read, 0 for none. After the wait, ask again."""
        ...

    def paused(self, seconds: float) -> None:
        """A connection was not read for ``seconds``, because the engine wished it."""
        ...

    def decided(self, stream: Stream, seq: int, answer: Cancelled | Rescheduled) -> None:
        """The broker has answered a CANCEL or RESCHEDULE."""
        ...

    def paced(self, stream: Stream, seq: int, told: Paced) -> None:
        """The broker says which pace of release is in force, in answer to a PACE or by itself."""
        ...

    def credit(self, stream: Stream, more: int) -> None:
        """The broker has room again."""
        ...

    def answer_sent(self, stream: Stream) -> None:
        """The last HELD of the stream has been written."""
        ...

    def answer_failed(self, stream: Stream, error: Exception) -> None:
        """The answer to OPEN cannot be made: a bug."""
        ...

    def ended(self, stream: Stream) -> None:
        """The stream is gone."""
        ...

    def writable(self, connection: Link) -> None:
        """The peer takes data again."""
        ...

    def query(self, connection: Link, request: dict[str, object], reply: Callable[[bytes], None]) -> None:
        """Answer a control client in JSON: ``reply`` is called now or when the answer is there.

        It is called once, or more often if the answer takes several frames.
        """
        ...

    def ingest(self, connection: Link, message: Ingest, reply: Callable[[bytes], None]) -> None:
        """Entries of a control client; ``reply`` is called once they are durable."""
        ...

    def respond(
        self, connection: Link, request: HttpRequest, respond: Callable[[HttpResponse], None]
    ) -> None:
        """Answer a request that the broker's web service has authorized; ``respond`` is called once."""
        ...

    def bypassed(self, connection: Link, told: Bypassed) -> None:
        """A broker names the dispatchers that bypass Tidegate."""
        ...

    def gone(self, connection: Link) -> None:
        """The connection is closed; its streams have ended."""
        ...
