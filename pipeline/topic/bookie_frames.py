"""BookKeeper's wire protocol, version 2, as far as reading needs it: bytes only, no sockets.

A request reads one entry, or as many from one on as fit into a number of bytes; the bookie answers with what
it has, so that the reader must know where a ledger ends. Frames are big-endian:

    request  := size:u32 header:u32 ledger_id:i64 entry_id:i64 [request_id:i64 count:i32 bytes:i64]
    response := size:u32 header:u32 status:i32 ledger_id:i64 entry_id:i64 [request_id:i64 (size:i32 entry)*]
    header   := version:u8 operation:u8 flags:u16
    entry    := ledger_id:i64 entry_id:i64 last_confirmed:i64 length:i64 digest payload

Pure. Invariants: a frame is bounded before it is read; an entry is handed on only if its digest is right and
it is the one that was asked for; anything else is a ``WireError``.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

from tidegate.pipeline.errors import WireError

FRAME_MAX_BYTES = 128 * 1024 * 1024

_VERSION = 2
_READ = 2
_BATCH_READ = 7
_SIZE = struct.Struct(">I")
_HEADER = struct.Struct(">IiqQ")
_REQUEST = struct.Struct(">IIqq")
_BATCH = struct.Struct(">qiq")
_REQUEST_ID = struct.Struct(">q")
_HEAD_BYTES = 32
_DIGESTS = {
    "CRC32C": struct.Struct(">qq16xI"),
    "CRC32": struct.Struct(">qq16xQ"),
    "DUMMY": struct.Struct(">qq16x"),
}


class Status(IntEnum):
    """What a bookie answers; others are possible."""

    OK = 0
    NO_LEDGER = 1
    NO_ENTRY = 2
    BAD_REQUEST = 100
    IO_ERROR = 101
    UNAUTHORISED = 102
    BAD_VERSION = 103
    TOO_MANY_REQUESTS = 106


class Response(NamedTuple):
    """An answer. ``entries`` are whole, with their digests; empty unless ``status`` is OK."""

    status: int
    ledger_id: int
    entry_id: int
    request_id: int | None
    entries: list[bytes]

    @property
    def reason(self) -> str:
        """The status in words."""
        try:
            return Status(self.status).name.lower().replace("_", " ")
        except ValueError:
            return f"error {self.status}"


def read_request(ledger_id: int, entry_id: int) -> bytes:
    """Ask for one entry."""
    return _REQUEST.pack(_REQUEST.size - _SIZE.size, _header(_READ), ledger_id, entry_id)


def batch_read_request(ledger_id: int, entry_id: int, request_id: int, count: int, size_bytes: int) -> bytes:
    """Ask for up to ``count`` entries from ``entry_id`` on, in a frame of up to ``size_bytes``."""
    size = _REQUEST.size + _BATCH.size - _SIZE.size
    return _REQUEST.pack(size, _header(_BATCH_READ), ledger_id, entry_id) + _BATCH.pack(
        request_id, count, size_bytes
    )


def frame_size(head: bytes | bytearray) -> int:
    """How long the frame is whose first four bytes these are. Raises ``WireError``."""
    size = int(_SIZE.unpack(head)[0])
    if not _HEADER.size <= size <= FRAME_MAX_BYTES:
        raise WireError(f"a bookie announces a frame of {size} bytes")
    return size


def parse_response(frame: bytes) -> Response:
    """An answer from its frame, without the leading size. Raises ``WireError``."""
    try:
        header, status, ledger_id, entry_id = _HEADER.unpack_from(frame)
        operation = header >> 16 & 0xFF
        if header >> 24 != _VERSION or operation not in (_READ, _BATCH_READ):
            raise WireError(f"a bookie answers with the unknown header {header:08x}")
        at = _HEADER.size
        if operation == _READ:
            return Response(status, ledger_id, entry_id, None, [frame[at:]] if status == Status.OK else [])
        (request_id,) = _REQUEST_ID.unpack_from(frame, at)
        at += _REQUEST_ID.size
        entries: list[bytes] = []
        while status == Status.OK and at < len(frame):
            (size,) = _SIZE.unpack_from(frame, at)
            at += _SIZE.size
            if at + size > len(frame):
                raise WireError("a bookie's answer is cut short")
            entries.append(frame[at : at + size])
            at += size
    except struct.error as error:
        raise WireError(f"a bookie's answer is cut short: {error}") from error
    return Response(status, ledger_id, entry_id, request_id, entries)


def payloads_of(entries: list[bytes], ledger_id: int, first: int, digest: str) -> list[bytes]:
    """What the managed ledger has stored as the entries from ``first`` on.

    ``digest``: as the ledger's metadata say, ``CRC32C``, ``CRC32`` or ``DUMMY``. Raises ``WireError`` if one
    is another entry or damaged.
    """
    layout = _DIGESTS.get(digest)
    if layout is None:
        raise WireError(f"entries with the digest {digest} cannot be checked: read through the broker")
    checksum = {"CRC32C": crc32c, "CRC32": zlib.crc32}.get(digest, _nothing)
    payloads = []
    for entry_id, entry in enumerate(entries, first):
        try:
            found_ledger, found_entry, *expected = layout.unpack_from(entry)
        except struct.error as error:
            raise WireError(f"entry {ledger_id}:{entry_id} is cut short") from error
        payload = entry[layout.size :]
        if expected and checksum(payload, checksum(entry[:_HEAD_BYTES])) != expected[0]:
            raise WireError(f"entry {ledger_id}:{entry_id} fails its digest")
        if found_entry != entry_id or found_ledger != ledger_id:
            raise WireError(f"a bookie gives entry {found_ledger}:{found_entry} for {ledger_id}:{entry_id}")
        payloads.append(payload)
    return payloads


def _nothing(_: bytes, before: int = 0) -> int:
    return before


def _header(operation: int) -> int:
    return _VERSION << 24 | operation << 16
