"""Frames: cut from a byte stream and put together, without any I/O.

``docs/protocol.md`` has the rules, ``messages`` the payloads; this module knows only the header. Invariants:

- a ``FrameDecoder`` yields a frame only when its length, CRC, reserved field and type are right;
- it yields the frames before a broken one, then raises ``ProtocolError``, and from then on refuses
  everything: it cannot find the next frame's beginning;
- it buffers at most the greatest length of one frame beyond its last input.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from tidegate.plugin.errors import ErrorCode, ProtocolError

VERSION_MIN = 3
VERSION_MAX = 7
LENGTH_MIN = 20
LENGTH_MAX = 4 * 1024 * 1024
FLAG_LAST = 0x01  # HELD: the last frame of the answer to OPEN
FLAG_NEAR = 0x01  # ADD, MOVE: the broker's near tier has these already
FLAG_DISOWN = 0x01  # INGEST: the index must not answer for these any more
FLAG_ASK = 0x01  # CANCEL, RESCHEDULE: only report the states; PACE: only report the one in force
FLAGS_STANDING = 0x07  # CANCELLED, RESCHEDULED: one of messages.Standing

_LENGTH = struct.Struct("<I")
_HEADER = struct.Struct("<IIBBHIQ")  # length crc type flags reserved stream seq
_BODY_HEADER = struct.Struct("<BBHIQ")
_CRC_END = 8


class FrameType(IntEnum):
    """The frame types."""

    HELLO = 0x01
    WELCOME = 0x02
    ERROR = 0x03
    PING = 0x04
    PONG = 0x05
    OPEN = 0x10
    HELD = 0x11
    ADD = 0x12
    DURABLE = 0x13
    DUE = 0x14
    CREDIT = 0x15
    ACK = 0x16
    UNACK = 0x17
    MARK_DELETE = 0x18
    CLEAR = 0x19
    CLOSE = 0x1A
    UNHELD = 0x1B
    LOG_REQUEST = 0x1C
    LOG_ANSWER = 0x1D
    BYPASSED = 0x1E
    MOVE = 0x1F
    QUERY = 0x20
    REPLY = 0x21
    INGEST = 0x22
    HTTP_REQUEST = 0x23
    HTTP_RESPONSE = 0x24
    CANCEL = 0x40
    CANCELLED = 0x41
    RESCHEDULE = 0x42
    RESCHEDULED = 0x43
    PACE = 0x44
    PACED = 0x45
    BEHIND = 0x46
    PEEK = 0x47
    PEEKED = 0x48


_TYPES = {int(kind): kind for kind in FrameType}
_FLAGS_KNOWN = {
    FrameType.HELD: FLAG_LAST,
    FrameType.ADD: FLAG_NEAR,
    FrameType.INGEST: FLAG_DISOWN,
    FrameType.CANCEL: FLAG_ASK,
    FrameType.CANCELLED: FLAGS_STANDING,
    FrameType.RESCHEDULE: FLAG_ASK,
    FrameType.RESCHEDULED: FLAGS_STANDING,
    FrameType.MOVE: FLAG_NEAR,
    FrameType.PACE: FLAG_ASK,
}


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame as on the wire; ``payload`` stays undecoded."""

    type: FrameType
    stream: int = 0
    seq: int = 0
    flags: int = 0
    payload: bytes | memoryview = b""


def encode_frame(frame: Frame) -> bytes:
    """The bytes of ``frame``.

    Raises ``ProtocolError`` (oversized) if the payload is too long for one frame.
    """
    length = LENGTH_MIN + len(frame.payload)
    if length > LENGTH_MAX:
        raise ProtocolError(
            ErrorCode.OVERSIZED, f"a frame of {length} bytes is longer than the {LENGTH_MAX} allowed"
        )
    header = _BODY_HEADER.pack(frame.type, frame.flags, 0, frame.stream, frame.seq)
    crc = zlib.crc32(frame.payload, zlib.crc32(header))
    return b"".join((struct.pack("<II", length, crc), header, frame.payload))


class FrameDecoder:
    """Turns bytes, fed in pieces of any size, into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._needed = _LENGTH.size
        self._broken: ProtocolError | None = None
        self.frames = 0
        """Frames that were whole."""

    @property
    def buffered_bytes(self) -> int:
        """Bytes of an incomplete frame: not 0 at the end of a connection torn amid a frame."""
        return len(self._buffer)

    def discard(self) -> None:
        """Free the buffer: nothing more comes."""
        self._buffer = bytearray()
        self._needed = _LENGTH.size

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Frame]:
        """Yield the frames that ``data`` completes; must be iterated to its end before the next ``feed``.

        Raises ``ProtocolError`` at the first frame that breaks a rule, and at every later call.
        """
        if self._broken is not None:
            raise self._broken
        self._buffer += data
        if len(self._buffer) < self._needed:
            return
        # One copy for all frames of this piece: payloads may be kept (numpy views) while the buffer moves on.
        ready = bytes(self._buffer)
        offset = 0
        self._needed = _LENGTH.size
        try:
            while len(ready) - offset >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(ready, offset)
                _check_length(length)
                end = offset + _LENGTH.size + length
                if end > len(ready):
                    self._needed = end - offset
                    break
                frame = _decode_one(memoryview(ready)[offset:end])
                offset = end
                self.frames += 1
                yield frame
        except ProtocolError as error:
            self._broken = error
            raise
        finally:
            del self._buffer[:offset]


def _check_length(length: int) -> None:
    if length > LENGTH_MAX:
        raise ProtocolError(
            ErrorCode.OVERSIZED, f"frame length {length} is more than the {LENGTH_MAX} bytes allowed"
        )
    if length < LENGTH_MIN:
        raise ProtocolError(
            ErrorCode.MALFORMED, f"frame length {length} is less than a header ({LENGTH_MIN})"
        )


def _decode_one(data: memoryview) -> Frame:
    _, crc, type_code, flags, reserved, stream, seq = _HEADER.unpack_from(data)
    actual = zlib.crc32(data[_CRC_END:])
    if actual != crc:
        raise ProtocolError(ErrorCode.MALFORMED, f"frame CRC is {actual:08x}, its header says {crc:08x}")
    if reserved != 0:
        raise ProtocolError(ErrorCode.MALFORMED, f"reserved field is {reserved}, must be 0")
    kind = _TYPES.get(type_code)
    if kind is None:
        raise ProtocolError(ErrorCode.MALFORMED, f"unknown frame type 0x{type_code:02x}")
    if flags & ~_FLAGS_KNOWN.get(kind, 0):
        raise ProtocolError(ErrorCode.MALFORMED, f"{kind.name} with unknown flags 0x{flags:02x}")
    return Frame(kind, stream, seq, flags, data[_HEADER.size :])
