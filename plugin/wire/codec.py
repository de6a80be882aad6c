"""The payloads of the frames: messages to bytes and back, without any I/O.

``docs/protocol.md`` has the layout. Invariants:

- ``decode`` raises ``ProtocolError`` and nothing else, whatever the bytes;
- a payload is used up to its last byte, ids and times are in range, sets are ascending and never hold an
  empty bitmap;
- ``encode`` returns the bytes of a decoded frame.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from tidegate.index import ENTRY_ID_MAX, Entries, PositionSet
from tidegate.plugin.errors import ErrorCode, ProtocolError
from tidegate.plugin.wire.control_messages import HttpRequest, HttpResponse, Ingest, Query, Reply
from tidegate.plugin.wire.frames import (
    FLAG_ASK,
    FLAG_DISOWN,
    FLAG_LAST,
    FLAG_NEAR,
    Frame,
    FrameType,
    encode_frame,
)
from tidegate.plugin.wire.log_messages import LogAnswer, LogCode, LogOp, LogRequest
from tidegate.plugin.wire.messages import (
    BYPASSED_MAX,
    Ack,
    Add,
    Behind,
    Bypassed,
    BypassedDispatcher,
    Cancel,
    Cancelled,
    Clear,
    Close,
    Credit,
    Due,
    Durable,
    Error,
    Held,
    Hello,
    MarkDelete,
    Message,
    Move,
    Open,
    Pace,
    Paced,
    Peek,
    Peeked,
    PeekKind,
    Ping,
    Pong,
    Reschedule,
    Rescheduled,
    Role,
    Sought,
    Standing,
    Unack,
    Unheld,
    Welcome,
)
from tidegate.plugin.wire.payload_reader import PACE, RECORD_BYTES, U16, U32, PayloadReader, entries_of
from tidegate.plugin.wire.position_pieces import SET_CUT_BYTES

MAGIC = b"TIDE"
SIGNED_MAX = 2**63 - 1
RECORDS_MAX = (SET_CUT_BYTES - 4) // RECORD_BYTES  # in a frame that this side sends

_POSITION = struct.Struct("<qq")
_BYTES = struct.Struct("<Q")
_PEEK_KIND = struct.Struct("<B")
_DELAYED = struct.Struct("<q")
_HELLO = struct.Struct("<4sHHB")
_WELCOME = struct.Struct("<HIQ")
_LOG_REQUEST = struct.Struct("<Bqqq")
_LOG_ANSWER = struct.Struct("<Bq")
_OPEN = struct.Struct("<16sQQIIqq")
_ON_STREAM_0 = {
    FrameType.BYPASSED,
    FrameType.HELLO,
    FrameType.WELCOME,
    FrameType.PING,
    FrameType.PONG,
    FrameType.QUERY,
    FrameType.REPLY,
    FrameType.INGEST,
    FrameType.HTTP_REQUEST,
    FrameType.HTTP_RESPONSE,
}
_ON_ANY_STREAM = {FrameType.ERROR}
_WITH_SEQ = {
    FrameType.ADD,
    FrameType.ACK,
    FrameType.UNACK,
    FrameType.MARK_DELETE,
    FrameType.CLEAR,
    FrameType.CLOSE,
    FrameType.DURABLE,
    FrameType.LOG_REQUEST,
    FrameType.LOG_ANSWER,
    FrameType.PING,
    FrameType.PONG,
    FrameType.QUERY,
    FrameType.REPLY,
    FrameType.INGEST,
    FrameType.HTTP_REQUEST,
    FrameType.HTTP_RESPONSE,
    FrameType.CANCEL,
    FrameType.CANCELLED,
    FrameType.RESCHEDULE,
    FrameType.RESCHEDULED,
    FrameType.MOVE,
    FrameType.PACE,
    FrameType.PACED,
    FrameType.PEEK,
    FrameType.PEEKED,
}


def _read_hello(reader: PayloadReader, _: int) -> Hello:
    magic, min_version, max_version, role = reader.unpack(_HELLO)
    if magic != MAGIC:
        raise reader.malformed("not the greeting of a Tidegate client")
    if role not in (Role.BROKER, Role.CONTROL):
        raise reader.malformed(f"unknown role {role}")
    return Hello(min_version, max_version, Role(role), reader.string(), reader.string())


def _read_welcome(reader: PayloadReader, _: int) -> Welcome:
    version, heartbeat_ms, daemon_id = reader.unpack(_WELCOME)
    return Welcome(version, heartbeat_ms, daemon_id, reader.string())


def _read_open(reader: PayloadReader, _: int) -> Open:
    incarnation, epoch, generation, horizon_ms, credit, ledger_id, entry_id = reader.unpack(_OPEN)
    for name, number in (("epoch", epoch), ("generation", generation)):
        if number > SIGNED_MAX:
            raise reader.malformed(f"{name} {number} has more than 63 bits")
    return Open(
        incarnation,
        epoch,
        generation,
        horizon_ms,
        credit,
        _cursor_position(reader, ledger_id, entry_id),
        reader.string(),
        reader.string(),
        reader.positions(),
        reader.string(),
        reader.string(),
        reader.claims(),
        _cursor_position(reader, *reader.unpack(_POSITION)),
    )


def _cursor_position(reader: PayloadReader, ledger_id: int, entry_id: int) -> tuple[int, int]:
    # -1 is Pulsar's "before the first": of the topic, or of the ledger.
    if ledger_id < -1 or not -1 <= entry_id <= ENTRY_ID_MAX:
        raise reader.malformed(f"position {ledger_id}:{entry_id} is out of range")
    return ledger_id, entry_id


def _read_log_request(reader: PayloadReader, _: int) -> LogRequest:
    op, ledger_id, first, last = reader.unpack(_LOG_REQUEST)
    if op not in iter(LogOp):
        raise reader.malformed(f"unknown operation {op}")
    return LogRequest(LogOp(op), ledger_id, first, last, reader.string(), reader.string(), reader.rest())


def _read_log_answer(reader: PayloadReader, _: int) -> LogAnswer:
    code, number = reader.unpack(_LOG_ANSWER)
    if code not in iter(LogCode):
        raise reader.malformed(f"unknown code {code}")
    message = reader.string()
    return LogAnswer(
        LogCode(code), number, message, tuple(bytes(reader.cut(reader.u32())) for _ in range(reader.u32()))
    )


def _read_bypassed(reader: PayloadReader, _: int) -> Bypassed:
    dispatchers, count = reader.u32(), reader.u16()
    if count > min(dispatchers, BYPASSED_MAX):
        raise reader.malformed(
            f"{count} of {dispatchers} dispatchers are named, {BYPASSED_MAX} at most can be"
        )
    return Bypassed(dispatchers, tuple(_read_dispatcher(reader) for _ in range(count)))


def _read_dispatcher(reader: PayloadReader) -> BypassedDispatcher:
    topic, subscription = reader.string(), reader.string()
    return BypassedDispatcher(topic, subscription, int(reader.unpack(_DELAYED)[0]), reader.string())


def _read_decided(
    reader: PayloadReader, flags: int
) -> tuple[PositionSet, PositionSet, PositionSet, Standing]:
    try:
        standing = Standing(flags)
    except ValueError:
        raise reader.malformed(f"flags {flags}") from None
    return reader.positions(), reader.positions(), reader.positions(), standing


def _read_peek(reader: PayloadReader, _: int) -> Peek:
    (kind,) = reader.unpack(_PEEK_KIND)
    try:
        sought = Sought(PeekKind(kind), reader.string(), reader.string())
    except ValueError:
        raise reader.malformed(f"kind {kind}") from None
    return Peek(reader.positions(), sought)


_DECODERS: dict[FrameType, Callable[[PayloadReader, int], Message]] = {
    FrameType.HELLO: _read_hello,
    FrameType.WELCOME: _read_welcome,
    FrameType.ERROR: lambda r, _: Error(r.u16(), r.string()),
    FrameType.PING: lambda _r, _: Ping(),
    FrameType.PONG: lambda _r, _: Pong(),
    FrameType.OPEN: _read_open,
    FrameType.HELD: lambda r, flags: Held(r.positions(), r.positions(), bool(flags & FLAG_LAST)),
    FrameType.ADD: lambda r, flags: Add(r.records(), bool(flags & FLAG_NEAR)),
    FrameType.DURABLE: lambda _r, _: Durable(),
    FrameType.DUE: lambda r, _: Due(r.records()),
    FrameType.CREDIT: lambda r, _: Credit(r.u32()),
    FrameType.ACK: lambda r, _: Ack(r.positions()),
    FrameType.UNACK: lambda r, _: Unack(r.positions()),
    FrameType.MARK_DELETE: lambda r, _: MarkDelete(_cursor_position(r, *r.unpack(_POSITION))),
    FrameType.CLEAR: lambda _r, _: Clear(),
    FrameType.CLOSE: lambda _r, _: Close(),
    FrameType.UNHELD: lambda r, _: Unheld(r.positions()),
    FrameType.CANCEL: lambda r, flags: Cancel(r.positions(), ask=bool(flags & FLAG_ASK)),
    FrameType.CANCELLED: lambda r, flags: Cancelled(*_read_decided(r, flags)),
    FrameType.RESCHEDULE: lambda r, flags: Reschedule(r.records(), ask=bool(flags & FLAG_ASK)),
    FrameType.RESCHEDULED: lambda r, flags: Rescheduled(*_read_decided(r, flags)),
    FrameType.MOVE: lambda r, flags: Move(r.records(), bool(flags & FLAG_NEAR)),
    FrameType.PACE: lambda r, flags: Pace(r.pace(), ask=bool(flags & FLAG_ASK)),
    FrameType.PACED: lambda r, _: Paced(r.pace(), r.u32(), r.string()),
    FrameType.BEHIND: lambda r, _: Behind(r.u32()),
    FrameType.PEEK: _read_peek,
    FrameType.PEEKED: lambda r, _: Peeked(r.positions(), r.positions(), int(r.unpack(_BYTES)[0]), r.rest()),
    FrameType.LOG_REQUEST: _read_log_request,
    FrameType.LOG_ANSWER: _read_log_answer,
    FrameType.BYPASSED: _read_bypassed,
    FrameType.QUERY: lambda r, _: Query(r.rest()),
    FrameType.REPLY: lambda r, _: Reply(r.rest()),
    FrameType.INGEST: lambda r, flags: Ingest(
        r.string(), r.string(), r.rest(), disown=bool(flags & FLAG_DISOWN)
    ),
    FrameType.HTTP_REQUEST: lambda r, _: HttpRequest(r.string(), r.string(), r.string(), r.rest()),
    FrameType.HTTP_RESPONSE: lambda r, _: HttpResponse(r.u16(), r.string(), r.rest()),
}


def decode_adds(frames: Sequence[Frame]) -> Add:
    """One ADD for several frames of a stream, all with the same flags. At least one.

    Much cheaper than decoding them one by one, if they have few records. Raises ``ProtocolError`` if any
    breaks a rule: ``decode`` of each then finds the frame and the rule.
    """
    records = []
    for frame in frames:
        payload = frame.payload
        if len(payload) < U32.size or len(payload) != U32.size + U32.unpack_from(payload)[0] * RECORD_BYTES:
            raise ProtocolError(
                ErrorCode.MALFORMED, f"{frame.type.name}: its records are not as many as it says"
            )
        records.append(payload[U32.size :])
    return Add(entries_of(FrameType.ADD, b"".join(records)), bool(frames[0].flags & FLAG_NEAR))


def decode(frame: Frame) -> Message:
    """The message in ``frame``. Raises ``ProtocolError`` if its stream, seq or payload breaks a rule."""
    kind = frame.type
    if kind not in _ON_ANY_STREAM and (frame.stream == 0) != (kind in _ON_STREAM_0):
        raise ProtocolError(ErrorCode.MALFORMED, f"{kind.name} on stream {frame.stream}")
    if frame.seq != 0 and kind not in _WITH_SEQ:
        raise ProtocolError(ErrorCode.MALFORMED, f"{kind.name} with seq {frame.seq}, must be 0")
    reader = PayloadReader(kind, frame.payload)
    message = _DECODERS[kind](reader, frame.flags)
    reader.end()
    return message


def encode(message: Message, stream: int = 0, seq: int = 0) -> bytes:  # noqa: PLR0912 one for each message
    """The whole frame of ``message``. Raises ``ProtocolError`` (oversized) if it is too long for one."""
    flags = 0
    match message:
        case Hello():
            head = _HELLO.pack(MAGIC, message.min_version, message.max_version, message.role)
            payload = head + _string(message.name) + _string(message.product)
        case Welcome():
            head = _WELCOME.pack(message.version, message.heartbeat_ms, message.daemon_id)
            payload = head + _string(message.product)
        case Error():
            payload = U16.pack(message.code) + _string(message.message)
        case Open():
            payload = _open(message)
        case Held():
            payload = message.held.serialize() + message.acknowledged.serialize()
            flags = FLAG_LAST if message.last else 0
        case Add() | Move() | Due():
            payload = _records(message.entries)
            flags = FLAG_NEAR if not isinstance(message, Due) and message.near else 0
        case Credit() | Behind():
            payload = U32.pack(message.more if isinstance(message, Credit) else message.entries)
        case Ack() | Unack() | Unheld():
            payload = message.positions.serialize()
        case Cancelled() | Rescheduled():
            sets = (message.changed, message.too_late, message.acknowledged)
            payload = b"".join(one.serialize() for one in sets)
            flags = message.standing
        case Cancel() | Reschedule():
            of = message.positions.serialize() if isinstance(message, Cancel) else _records(message.entries)
            payload, flags = of, FLAG_ASK if message.ask else 0
        case Pace() | Paced():
            payload = _pace(message)
            flags = FLAG_ASK if isinstance(message, Pace) and message.ask else 0
        case Peek() | Peeked():
            payload = _peek(message)
        case MarkDelete():
            payload = _POSITION.pack(*message.position)
        case LogRequest() | LogAnswer():
            payload = _log(message)
        case Bypassed():
            payload = _bypassed(message)
        case Query() | Reply():
            payload = message.body
        case HttpRequest() | HttpResponse():
            payload = _http(message)
        case Ingest():
            payload = _string(message.topic) + _string(message.subscription) + message.block
            flags = FLAG_DISOWN if message.disown else 0
        case Ping() | Pong() | Durable() | Clear() | Close():
            payload = b""
    return encode_frame(Frame(message.type, stream, seq, flags, payload))


def _string(text: str) -> bytes:
    data = text.encode("utf-8")
    return U16.pack(len(data)) + data


def _records(entries: Entries) -> bytes:
    return U32.pack(len(entries)) + entries.to_records().astype("<i8", copy=False).tobytes()


def _open(message: Open) -> bytes:
    head = _OPEN.pack(
        message.incarnation,
        message.epoch,
        message.generation,
        message.horizon_ms,
        message.credit,
        *message.mark_delete,
    )
    names = _string(message.topic) + _string(message.subscription)
    log = _string(message.log_home) + _string(message.log_pointer)
    claims = struct.pack(f"<H{len(message.claims)}I", len(message.claims), *message.claims)
    return head + names + message.in_flight.serialize() + log + claims + _POSITION.pack(*message.end)


def _pace(message: Pace | Paced) -> bytes:
    head = PACE.pack(message.pace.kind, message.pace.amount)
    if isinstance(message, Pace):
        return head
    return head + U32.pack(message.held_back) + _string(message.why)


def _peek(message: Peek | Peeked) -> bytes:
    if isinstance(message, Peek):
        sought = message.sought
        head = _PEEK_KIND.pack(sought.kind) + _string(sought.name) + _string(sought.value)
        return head + message.positions.serialize()
    sets = message.matching.serialize() + message.unread.serialize()
    return sets + _BYTES.pack(message.read_bytes) + message.content


def _http(message: HttpRequest | HttpResponse) -> bytes:
    if isinstance(message, HttpResponse):
        return U16.pack(message.status) + _string(message.content_type) + message.body
    return b"".join([*map(_string, (message.method, message.target, message.role)), message.body])


def _log(message: LogRequest | LogAnswer) -> bytes:
    if isinstance(message, LogRequest):
        head = _LOG_REQUEST.pack(message.op, message.ledger_id, message.first, message.last)
        return head + _string(message.old) + _string(message.new) + message.entry
    head = _LOG_ANSWER.pack(message.code, message.number) + _string(message.message)
    entries = [U32.pack(len(entry)) + entry for entry in message.entries]
    return b"".join([head, U32.pack(len(entries)), *entries])


def _bypassed(message: Bypassed) -> bytes:
    head = U32.pack(message.dispatchers) + U16.pack(len(message.named))
    return head + b"".join(
        _string(one.topic) + _string(one.subscription) + _DELAYED.pack(one.delayed) + _string(one.reason)
        for one in message.named
    )
