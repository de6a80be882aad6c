"""The messages: one class for each frame type of ``docs/protocol.md``, and the choice of a version.

Those of control clients and about index logs have their own modules.

``codec`` turns them into bytes and back. Invariant: a decoded message follows the rules of its type; code
behind the codec need not check ids, times or sets again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from tidegate.index import Entries, PositionSet
from tidegate.plugin.errors import ErrorCode, ProtocolError
from tidegate.plugin.wire.control_messages import HttpRequest, HttpResponse, Ingest, Query, Reply
from tidegate.plugin.wire.frames import VERSION_MAX, VERSION_MIN, FrameType
from tidegate.plugin.wire.log_messages import LogAnswer, LogRequest
from tidegate.plugin.wire.release_pace import ReleasePace

NAME_BYTES_MAX = 8_192  # of a topic, a subscription, a broker: Pulsar's own tools accept no longer URL
BYPASSED_MAX = 32
CANCEL_VERSION = 5  # the first in which a broker is asked to cancel
PACE_VERSION = 6  # the first in which a broker keeps a pace
PEEK_VERSION = 7  # the first in which it looks into messages
RESCHEDULE_VERSION = 6  # the first in which it is asked to reschedule


class Role(IntEnum):
    """The kind of client."""

    BROKER = 1
    CONTROL = 2


@dataclass(frozen=True, slots=True)
class Hello:
    """A client's greeting."""

    type: ClassVar[FrameType] = FrameType.HELLO
    min_version: int
    max_version: int
    role: Role
    name: str
    product: str


@dataclass(frozen=True, slots=True)
class Welcome:
    """The daemon's greeting."""

    type: ClassVar[FrameType] = FrameType.WELCOME
    version: int
    heartbeat_ms: int
    daemon_id: int
    product: str


@dataclass(frozen=True, slots=True)
class Error:
    """The end of a stream or, on stream 0, of the connection."""

    type: ClassVar[FrameType] = FrameType.ERROR
    code: int
    message: str


@dataclass(frozen=True, slots=True)
class Ping:
    """Are you there?"""

    type: ClassVar[FrameType] = FrameType.PING


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to PING."""

    type: ClassVar[FrameType] = FrameType.PONG


@dataclass(frozen=True, slots=True)
class Open:
    """A stream for a subscription begins.

    log_home: its index log's home from now on, empty for none. log_pointer: the log's present place. claims:
    random numbers of 32 bits, one for each of the last owners' epochs, that of `epoch` last; none if the
    cursor has none. end: the topic's last position when `epoch` was claimed, -1:-1 if unknown.
    """

    type: ClassVar[FrameType] = FrameType.OPEN
    incarnation: bytes
    epoch: int
    generation: int
    horizon_ms: int
    credit: int
    mark_delete: tuple[int, int]
    topic: str
    subscription: str
    in_flight: PositionSet
    log_home: str = ""
    log_pointer: str = ""
    claims: tuple[int, ...] = ()
    end: tuple[int, int] = (-1, -1)


@dataclass(frozen=True, slots=True)
class Held:
    """A part of the answer to OPEN."""

    type: ClassVar[FrameType] = FrameType.HELD
    held: PositionSet
    acknowledged: PositionSet
    last: bool


@dataclass(frozen=True, slots=True)
class Add:
    """New entries."""

    type: ClassVar[FrameType] = FrameType.ADD
    entries: Entries
    near: bool


@dataclass(frozen=True, slots=True)
class Durable:
    """Everything up to the frame's seq is on disk."""

    type: ClassVar[FrameType] = FrameType.DURABLE


@dataclass(frozen=True, slots=True)
class Due:
    """Entries that are due within the horizon."""

    type: ClassVar[FrameType] = FrameType.DUE
    entries: Entries


@dataclass(frozen=True, slots=True)
class Credit:
    """The broker has room for so many more entries."""

    type: ClassVar[FrameType] = FrameType.CREDIT
    more: int


@dataclass(frozen=True, slots=True)
class Ack:
    """Positions that are acknowledged."""

    type: ClassVar[FrameType] = FrameType.ACK
    positions: PositionSet


@dataclass(frozen=True, slots=True)
class Unack:
    """Positions that are not acknowledged after all."""

    type: ClassVar[FrameType] = FrameType.UNACK
    positions: PositionSet


@dataclass(frozen=True, slots=True)
class MarkDelete:
    """The persisted mark-delete position moved."""

    type: ClassVar[FrameType] = FrameType.MARK_DELETE
    position: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Clear:
    """Forget the subscription's entries."""

    type: ClassVar[FrameType] = FrameType.CLEAR


@dataclass(frozen=True, slots=True)
class Close:
    """The stream ends."""

    type: ClassVar[FrameType] = FrameType.CLOSE


@dataclass(frozen=True, slots=True)
class Unheld:
    """Positions that the index lost."""

    type: ClassVar[FrameType] = FrameType.UNHELD
    positions: PositionSet


@dataclass(frozen=True, slots=True)
class Cancel:
    """Positions to keep from consumers, unless one has them. ask: only report their states."""

    type: ClassVar[FrameType] = FrameType.CANCEL
    positions: PositionSet
    ask: bool = False


class Standing(IntEnum):
    """How reliable an answer to CANCEL or RESCHEDULE is; the answer's flags."""

    SETTLED = 0
    """The answer is stored; asked with ASK, it may not be."""
    UNDECIDED = 1
    """Nothing was decided, or done: ask again."""
    UNSTORED = 2
    """It may not be stored: ask again."""
    NO_ROOM = 4
    """No room for it: CANCELLED is then as UNSTORED, RESCHEDULED has moved nothing."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A broker's decision about messages; a position in none of the sets is no waiting message.

    changed: done as requested, or with `ask` to be done.
    """

    changed: PositionSet
    too_late: PositionSet
    acknowledged: PositionSet
    standing: Standing = Standing.SETTLED


@dataclass(frozen=True, slots=True)
class Cancelled(Decided):
    """The answer to the CANCEL of the same seq."""

    type: ClassVar[FrameType] = FrameType.CANCELLED


@dataclass(frozen=True, slots=True)
class Reschedule:
    """Messages to be due at these times, unless a consumer has them. ask: only report their states."""

    type: ClassVar[FrameType] = FrameType.RESCHEDULE
    entries: Entries
    ask: bool = False


@dataclass(frozen=True, slots=True)
class Rescheduled(Decided):
    """The answer to the RESCHEDULE of the same seq."""

    type: ClassVar[FrameType] = FrameType.RESCHEDULED


@dataclass(frozen=True, slots=True)
class Move:
    """Entries with the times that hold for them, whatever ADD says."""

    type: ClassVar[FrameType] = FrameType.MOVE
    entries: Entries
    near: bool


@dataclass(frozen=True, slots=True)
class Pace:
    """The pace from now on. ask: only report the one in force."""

    type: ClassVar[FrameType] = FrameType.PACE
    pace: ReleasePace
    ask: bool = False


@dataclass(frozen=True, slots=True)
class Paced:
    """The answer to the PACE of the same seq; with seq 0 the pace from before the stream.

    pace: the one in force, in the cursor's record. held_back: due entries in the broker's near tier that wait
    for nothing else. why: the reason against the requested one; empty if it is in force.
    """

    type: ClassVar[FrameType] = FrameType.PACED
    pace: ReleasePace
    held_back: int = 0
    why: str = ""


class PeekKind(IntEnum):
    """The messages that a PEEK seeks."""

    ANY = 0
    KEY = 1
    PROPERTY = 2


@dataclass(frozen=True, slots=True)
class Sought:
    """Any messages, those with key `value`, or those with property `name`=`value`."""

    kind: PeekKind = PeekKind.ANY
    name: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True)
class Peek:
    """Stored messages to look into, without reading them for a consumer."""

    type: ClassVar[FrameType] = FrameType.PEEK
    positions: PositionSet
    sought: Sought = Sought()


@dataclass(frozen=True, slots=True)
class Peeked:
    """The answer to a PEEK; a position in none of the sets is another message, or its ledger is gone.

    unread: not readable now. read_bytes: of all that were read. content: of one message, if any is sought, as
    a JSON object; empty otherwise.
    """

    type: ClassVar[FrameType] = FrameType.PEEKED
    matching: PositionSet
    unread: PositionSet
    read_bytes: int = 0
    content: bytes = b""


@dataclass(frozen=True, slots=True)
class Behind:
    """Due entries that wait with the daemon for credit; a spread counts them, too."""

    type: ClassVar[FrameType] = FrameType.BEHIND
    entries: int


@dataclass(frozen=True, slots=True)
class BypassedDispatcher:
    """A dispatcher with ``delayed`` messages outside the shim's trackers, and the reason."""

    topic: str
    subscription: str
    delayed: int
    reason: str


@dataclass(frozen=True, slots=True)
class Bypassed:
    """Everything that bypasses Tidegate at a broker, complete in each frame.

    dispatchers: their number. named: the first of them, at most ``BYPASSED_MAX``.
    """

    type: ClassVar[FrameType] = FrameType.BYPASSED
    dispatchers: int
    named: tuple[BypassedDispatcher, ...] = ()


Message = (
    Hello
    | Welcome
    | Error
    | Ping
    | Pong
    | Open
    | Held
    | Add
    | Durable
    | Due
    | Credit
    | Ack
    | Unack
    | MarkDelete
    | Clear
    | Close
    | Unheld
    | Cancel
    | Cancelled
    | Reschedule
    | Rescheduled
    | Move
    | Pace
    | Paced
    | Behind
    | Peek
    | Peeked
    | LogRequest
    | LogAnswer
    | Bypassed
    | Query
    | Reply
    | Ingest
    | HttpRequest
    | HttpResponse
)


def negotiate(hello: Hello) -> int:
    """The version to speak with this client. Raises ``ProtocolError`` (version) without one."""
    version = min(hello.max_version, VERSION_MAX)
    if version < max(hello.min_version, VERSION_MIN):
        raise ProtocolError(
            ErrorCode.VERSION,
            f"the daemon speaks protocol versions {VERSION_MIN} to {VERSION_MAX}, "
            f"the client {hello.min_version} to {hello.max_version}: upgrade both to the same Tidegate",
        )
    return version
