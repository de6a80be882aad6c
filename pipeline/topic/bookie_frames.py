"""The part of BookKeeper's wire protocol, version 2, that reading needs: bytes only, no sockets.

A request asks for one entry, or for as many successive ones as fit into a number of bytes; the answer has
those that the bookie has, so the reader must know a ledger's end. Frames are big-endian:

    request  := size:u32 header:u32 ledger_id:i64 entry_id:i64 [request_id:i64 count:i32 bytes:i64]
    response := size:u32 header:u32 status:i32 ledger_id:i64 entry_id:i64 [request_id:i64 (size:i32 entry)*]
    header   := version:u8 operation:u8 flags:u16
    entry    := ledger_id:i64 entry_id:i64 last_confirmed:i64 length:i64 digest payload

Pure. Invariants: a frame is bounded before it is read; only a requested entry with the right digest passes;
everything else is a ``WireError``. Entries stay in their frame: an object for each of millions would dominate
the cost.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
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
_DIGEST_DTYPES: dict[str, np.dtype[Any] | None] = {
    "CRC32C": np.dtype(">u4"),
    "CRC32": np.dtype(">u8"),
    "DUMMY": None,
}
_CHECKSUMS: dict[str, Callable[..., int]] = {"CRC32C": crc32c, "CRC32": zlib.crc32}
_ID = np.dtype(">i8")

Int64Array = npt.NDArray[np.int64]


class Status(IntEnum):
    """A bookie's answer; others are possible."""

    OK = 0
    NO_LEDGER = 1
    NO_ENTRY = 2
    BAD_REQUEST = 100
    IO_ERROR = 101
    UNAUTHORISED = 102
    BAD_VERSION = 103
    TOO_MANY_REQUESTS = 106


@dataclass(frozen=True, slots=True)
class Spans:
    """The places of entries in some bytes: the first byte of each, and the one after its last."""

    begins: list[int]
    ends: list[int]

    def __len__(self) -> int:
        return len(self.begins)


class Payloads:
    """Successive entries as the managed ledger stored them: parts of one piece of bytes."""

    __slots__ = ("begins", "data", "ends")

    def __init__(self, data: bytes, begins: Int64Array, ends: Int64Array) -> None:
        self.data = data
        self.begins = begins
        self.ends = ends

    @classmethod
    def of(cls, payloads: Sequence[bytes]) -> Self:
        """From separate payloads."""
        ends = np.array([0, *accumulate(map(len, payloads))], np.int64)
        return cls(b"".join(payloads), ends[:-1], ends[1:])

    def __len__(self) -> int:
        return len(self.begins)

    def __getitem__(self, at: int) -> bytes:
        return self.data[self.begins[at] : self.ends[at]]

    def __iter__(self) -> Iterator[bytes]:
        data = self.data
        for begin, end in zip(self.begins.tolist(), self.ends.tolist(), strict=True):
            yield data[begin:end]


class Response(NamedTuple):
    """An answer.

    ``entries`` are whole, with their digests, in ``frame``; there are none unless ``status`` is OK.
    """

    status: int
    ledger_id: int
    entry_id: int
    request_id: int | None
    frame: bytes
    entries: Spans

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
    """The length of the frame that begins with these four bytes. Raises ``WireError``."""
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
        at, end = _HEADER.size, len(frame)
        if operation == _READ:
            whole = Spans([at], [end]) if status == Status.OK else Spans([], [])
            return Response(status, ledger_id, entry_id, None, frame, whole)
        (request_id,) = _REQUEST_ID.unpack_from(frame, at)
        at += _REQUEST_ID.size
        begins: list[int] = []
        ends: list[int] = []
        size_at, head = _SIZE.unpack_from, _SIZE.size
        while status == Status.OK and at < end:
            begin = at + head
            at = begin + size_at(frame, at)[0]
            begins.append(begin)
            ends.append(at)
        if status == Status.OK and at != end:
            raise WireError("a bookie's answer is cut short")
    except struct.error as error:
        raise WireError(f"a bookie's answer is cut short: {error}") from error
    return Response(status, ledger_id, entry_id, request_id, frame, Spans(begins, ends))


def payloads_of(response: Response, ledger_id: int, first: int, digest: str) -> Payloads:
    """The managed ledger's payloads of the entries from ``first`` on, from an answer with exactly these.

    ``digest``: from the ledger's metadata, ``CRC32C``, ``CRC32`` or ``DUMMY``. Raises ``WireError`` for
    another or a damaged entry.
    """
    if digest not in _DIGEST_DTYPES:
        raise WireError(f"entries with the digest {digest} cannot be checked: read through the broker")
    frame, dtype = response.frame, _DIGEST_DTYPES[digest]
    begins, ends = (np.array(one, np.int64) for one in (response.entries.begins, response.entries.ends))
    body = begins + _HEAD_BYTES + (0 if dtype is None else dtype.itemsize)

    def refuse(wrong: npt.NDArray[np.bool_], words: str) -> None:
        if wrong.any():
            raise WireError(f"entry {ledger_id}:{first + int(wrong.argmax())} {words}")

    refuse(body > ends, "is cut short")
    if dtype is not None:
        checksum, view = _CHECKSUMS[digest], memoryview(frame)
        places = zip(response.entries.begins, body.tolist(), response.entries.ends, strict=True)
        found = [
            checksum(view[after:end], checksum(view[begin : begin + _HEAD_BYTES]))
            for begin, after, end in places
        ]
        expected = _numbers(frame, begins + _HEAD_BYTES, dtype)
        refuse(np.array(found, np.uint64) != expected, "fails its digest")
    refuse(_numbers(frame, begins, _ID) != ledger_id, "is of another ledger where a bookie gives it")
    wanted = np.arange(first, first + len(begins), dtype=np.int64)
    refuse(_numbers(frame, begins + _ID.itemsize, _ID) != wanted, "is another entry where a bookie gives it")
    return Payloads(frame, body, ends)


def _numbers(data: bytes, at: Int64Array, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The numbers at these places, aligned or not."""
    found = np.frombuffer(data, np.uint8)[at[:, np.newaxis] + np.arange(dtype.itemsize)]
    numbers: npt.NDArray[Any] = found.view(dtype)[:, 0]
    return numbers


def _header(operation: int) -> int:
    return _VERSION << 24 | operation << 16
