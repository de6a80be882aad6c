"""A file of sorted entries, with random access by time.

    file      := block* directory
    directory := (first_deliver_at_ms:i64 offset:u64)* blocks:u32

Little-endian. The blocks, small and of the index's own packing (docs/format.md), are in order; the directory
has each one's first due time and offset. A slice file takes a little of each part, so looks are cheap: two
reads, and no unpacking beyond the span. Invariant: anything against this grammar is a ``DamagedError``, and
not used.
"""

from __future__ import annotations

import io
import struct
from itertools import pairwise
from typing import BinaryIO

import numpy as np

from tidegate.index import Entries, TidegateIndexError
from tidegate.index.format import decode_block, encode_block
from tidegate.pipeline.errors import PipelineError

BLOCK_ENTRIES = 8_192
"""Read or left out together."""

_COUNT = struct.Struct("<I")
_LINE = np.dtype([("first_ms", "<i8"), ("offset", "<u8")])
_TAIL_BYTES = 8_192
"""Read first: the whole directory of a usual file."""


class DamagedError(PipelineError):
    """A file's content is not as written."""


def encode_part(entries: Entries, block_entries: int = BLOCK_ENTRIES) -> bytes:
    """A file's content for these sorted entries."""
    packed = io.BytesIO()
    starts = range(0, len(entries), block_entries)
    directory = np.zeros(len(starts), _LINE)
    for number, start in enumerate(starts):
        directory[number] = (int(entries.deliver_at_ms[start]), packed.tell())
        packed.write(encode_block(entries.part(start, min(len(entries), start + block_entries))))
    packed.write(directory.tobytes())
    packed.write(_COUNT.pack(len(directory)))
    return packed.getvalue()


def read_span(file: BinaryIO, name: str, low_ms: int | None = None, high_ms: int | None = None) -> Entries:
    """The entries due from ``low_ms`` to ``high_ms``, both inclusive; all without them.

    ``name`` is for people. Raises ``DamagedError``.
    """
    try:
        return _read_span(file, low_ms, high_ms)
    except (TidegateIndexError, struct.error, ValueError) as error:
        raise DamagedError(f"{name} is damaged: {error}; start the job again") from error


def _read_span(file: BinaryIO, low_ms: int | None, high_ms: int | None) -> Entries:
    directory, end = _directory(file)
    first_ms = directory["first_ms"]
    # Entries due at one instant may lie on both sides of a block's beginning.
    begin = 0 if low_ms is None else max(0, int(np.searchsorted(first_ms, low_ms, side="left")) - 1)
    stop = len(first_ms) if high_ms is None else int(np.searchsorted(first_ms, high_ms, side="right"))
    if begin >= stop:
        return Entries.empty()
    offsets = [*directory["offset"][begin:stop].tolist(), end]
    if stop < len(directory):
        offsets[-1] = int(directory["offset"][stop])
    file.seek(offsets[0])
    data = file.read(offsets[-1] - offsets[0])
    blocks = [decode_block(data[at - offsets[0] : after - offsets[0]]) for at, after in pairwise(offsets)]
    found = Entries.concat(blocks)
    low = 0 if low_ms is None else int(np.searchsorted(found.deliver_at_ms, low_ms, side="left"))
    high = len(found) if high_ms is None else int(np.searchsorted(found.deliver_at_ms, high_ms, side="right"))
    return found.part(low, high)


def _directory(file: BinaryIO) -> tuple[np.ndarray[tuple[int], np.dtype[np.void]], int]:
    """(the directory, the end of the last block). Raises ``ValueError`` without a directory."""
    size = file.seek(0, io.SEEK_END)
    tail_at = max(0, size - _TAIL_BYTES)
    file.seek(tail_at)
    tail = file.read(size - tail_at)
    (count,) = _COUNT.unpack(tail[-_COUNT.size :])
    at = size - _COUNT.size - count * _LINE.itemsize
    if at < 0:
        raise ValueError("it is cut short")
    if at < tail_at:
        file.seek(at)
        tail, tail_at = file.read(size - at), at
    begin = at - tail_at
    directory = np.frombuffer(tail[begin : begin + count * _LINE.itemsize], _LINE)
    offsets = np.append(directory["offset"], np.uint64(at))
    if count and (offsets[0] != 0 or (offsets[1:] <= offsets[:-1]).any()):
        raise ValueError("its directory is none")
    return directory, at
