"""The messages: one class for each frame type of ``docs/protocol.md``, and the choice of a version.

``codec`` turns them into bytes and back. Invariant: a decoded message follows the rules of its type; code
behind the codec need not check ids, times or sets again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar

from tidegate.index import Entries, PositionSet
from tidegate.plugin.errors import ErrorCode, ProtocolError
from tidegate.plugin.wire.frames import VERSION_MAX, VERSION_MIN, FrameType
from tidegate.plugin.wire.release_pace import ReleasePace

NAME_BYTES_MAX = 8_192  # of a topic, a subscription, a broker: Pulsar's own tools accept no longer URL
QUERY_BYTES_MAX = 65_536
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

    log_home: the home of its index log from now on, empty for none. log_pointer: the index log's present
        place.
    claims: random numbers of 32 bits, one for each of the last owners' epochs, that of `epoch` last; none if
        the cursor has none.
    end: the topic's last position when `epoch` was claimed, -1:-1 if unknown.
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
    """Positions that no consumer is to get, unless one has. ask: only how they stand."""

    type: ClassVar[FrameType] = FrameType.CANCEL
    positions: PositionSet
    ask: bool = False


class Standing(IntEnum):
    """How far an answer to CANCEL or RESCHEDULE is to be relied upon; the flags of the answer."""

    SETTLED = 0
    """The answer is stored; asked with ASK, it may not be."""
    UNDECIDED = 1
    """Nothing was decided, or done: ask again."""
    UNSTORED = 2
    """It may not be stored: ask again."""
    NO_ROOM = 4
    """There is no room for it: CANCELLED is as UNSTORED then, RESCHEDULED has moved nothing."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A broker's decision about messages; a position in none of the sets is no message that waits.

    changed: done as the request asks, or with `ask` to be done.
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
    """Messages to be due at these times, unless a consumer has them. ask: only how they stand."""

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
    """The pace from now on. ask: only tell the one in force."""

    type: ClassVar[FrameType] = FrameType.PACE
    pace: ReleasePace
    ask: bool = False


@dataclass(frozen=True, slots=True)
class Paced:
    """The answer to the PACE of the same seq; with seq 0 the pace from before the stream.

    pace: the one in force, which the cursor's record has.
    held_back: due entries in the broker's near tier that wait for nothing else.
    why: the reason why it is not the one asked for; empty if it is.
    """

    type: ClassVar[FrameType] = FrameType.PACED
    pace: ReleasePace
    held_back: int = 0
    why: str = ""


class PeekKind(IntEnum):
    """The messages that a PEEK seeks among its own."""

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

    unread: not readable now. read_bytes: of all that were read. content: of one message, if any is sought,
    as a JSON object; empty otherwise.
    """

    type: ClassVar[FrameType] = FrameType.PEEKED
    matching: PositionSet
    unread: PositionSet
    read_bytes: int = 0
    content: bytes = b""


@dataclass(frozen=True, slots=True)
class Behind:
    """So many due entries wait with the daemon for credit; a spread counts them, too."""

    type: ClassVar[FrameType] = FrameType.BEHIND
    entries: int


class LogOp(IntEnum):
    """The daemon's requests to a home of index logs."""

    CREATE = 1
    APPEND = 2
    OPEN = 3
    READ = 4
    CLOSE = 5
    DELETE = 6
    POINT = 7


class LogCode(IntEnum):
    """The result of such a request."""

    OK = 0
    FENCED = 1
    NO_LEDGER = 2
    STALE = 3
    AWAY = 4
    REFUSED = 5


@dataclass(frozen=True, slots=True)
class LogRequest:
    """A request about the index log; the broker does not read the log's contents.

    first, last: the entries that READ asks for. old, new: the pointers of POINT. entry: the bytes for APPEND.
    """

    type: ClassVar[FrameType] = FrameType.LOG_REQUEST
    op: LogOp
    ledger_id: int = -1
    first: int = -1
    last: int = -1
    old: str = ""
    new: str = ""
    entry: bytes = b""


@dataclass(frozen=True, slots=True)
class LogAnswer:
    """The answer to the LOG_REQUEST of the same seq.

    number: the ledger's id for CREATE, the entry's number for APPEND, the last entry's for OPEN.
    """

    type: ClassVar[FrameType] = FrameType.LOG_ANSWER
    code: LogCode
    number: int = -1
    message: str = ""
    entries: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class BypassedDispatcher:
    """A dispatcher with ``delayed`` messages that no tracker of the shim has, and the reason."""

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


@dataclass(frozen=True, slots=True)
class Query:
    """A question of a control client; ``body`` is a JSON object."""

    type: ClassVar[FrameType] = FrameType.QUERY
    body: bytes

    def request(self) -> dict[str, Any]:
        """The JSON object. Raises ``ProtocolError`` if the body is not one, too long, or not flat."""
        if len(self.body) > QUERY_BYTES_MAX:
            raise ProtocolError(
                ErrorCode.MALFORMED, f"a query has at most {QUERY_BYTES_MAX} bytes, not {len(self.body)}"
            )
        request = _json_object(self.body)
        if any(isinstance(value, dict | list) for value in request.values()):
            raise ProtocolError(ErrorCode.MALFORMED, "a query has a value that is neither text nor number")
        return request


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a QUERY; ``body`` is a JSON object."""

    type: ClassVar[FrameType] = FrameType.REPLY
    body: bytes

    def answer(self) -> dict[str, Any]:
        """The JSON object. Raises ``ProtocolError`` if the body is not one."""
        return _json_object(self.body)


@dataclass(frozen=True, slots=True)
class Ingest:
    """Entries of a subscription that do not come from its broker, packed like a block of the index.

    disown: the index is not to answer for their positions any more.
    """

    type: ClassVar[FrameType] = FrameType.INGEST
    topic: str
    subscription: str
    block: bytes
    disown: bool = False


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request that the broker's web service has authorized, for the daemon to answer.

    target: path and query. role: the client's, empty without authentication.
    """

    type: ClassVar[FrameType] = FrameType.HTTP_REQUEST
    method: str
    target: str
    role: str
    body: bytes


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """The answer to an HTTP_REQUEST."""

    type: ClassVar[FrameType] = FrameType.HTTP_RESPONSE
    status: int
    content_type: str
    body: bytes


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
    """The version to speak with this client. Raises ``ProtocolError`` (version) if there is none."""
    version = min(hello.max_version, VERSION_MAX)
    if version < max(hello.min_version, VERSION_MIN):
        raise ProtocolError(
            ErrorCode.VERSION,
            f"the daemon speaks protocol versions {VERSION_MIN} to {VERSION_MAX}, "
            f"the client {hello.min_version} to {hello.max_version}: upgrade both to the same Tidegate",
        )
    return version


def json_body(value: dict[str, Any]) -> bytes:
    """The body of a QUERY or REPLY."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:  # nested deeper than any answer
        raise ProtocolError(ErrorCode.MALFORMED, "not JSON") from error
    if not isinstance(value, dict):
        raise ProtocolError(ErrorCode.MALFORMED, "not a JSON object")
    return value
