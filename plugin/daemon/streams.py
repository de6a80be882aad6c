"""A stream, and what a connection asks of the engine behind it: the seam between ``connection`` and
``engine``.

Invariant: neither side knows more of the other than what stands here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from tidegate.index.names import SubscriptionName
from tidegate.plugin.daemon.tracker import Change, Tracker
from tidegate.plugin.wire.messages import Hello, Message, Open, Welcome

if TYPE_CHECKING:
    from tidegate.plugin.daemon.connection import Connection


class Stream:
    """A tracker on a connection.

    ``answered``: its last HELD has been written, where ``tracker.answered`` says that it has been made.
    """

    __slots__ = ("answered", "connection", "tracker")

    def __init__(self, connection: Connection, tracker: Tracker) -> None:
        self.connection = connection
        self.tracker = tracker
        self.answered = False

    @property
    def name(self) -> SubscriptionName:
        """The subscription it serves."""
        return self.tracker.name

    @property
    def epoch(self) -> int:
        """The owner's epoch."""
        return self.tracker.epoch

    def send(self, message: Message, seq: int = 0) -> None:
        """Send a frame on this stream."""
        self.connection.send(message, self.tracker.stream_id, seq)


class Engine(Protocol):
    """What a connection asks of the rest of the daemon."""

    def greet(self, connection: Connection, hello: Hello, version: int) -> Welcome:
        """A client has said HELLO; ``version`` is spoken."""
        ...

    def open(self, connection: Connection, stream_id: int, request: Open) -> Stream:
        """A new stream. Raises ``StreamError``."""
        ...

    def change(self, stream: Stream, seq: int, change: Change, received_ns: int) -> None:
        """A frame that changes the index. Raises ``StreamError`` or ``ProtocolError``."""
        ...

    def credit(self, stream: Stream, more: int) -> None:
        """The broker has room again."""
        ...

    def answered(self, stream: Stream) -> None:
        """The last HELD of the stream has been written."""
        ...

    def ended(self, stream: Stream) -> None:
        """The stream is gone."""
        ...

    def writable(self, connection: Connection) -> None:
        """The peer takes data again."""
        ...

    def query(self, request: dict[str, object], reply: Callable[[dict[str, object]], None]) -> None:
        """Answer a control client: ``reply`` is called once, now or when what was asked for is durable."""
        ...

    def gone(self, connection: Connection) -> None:
        """The connection is closed; its streams have ended."""
        ...
