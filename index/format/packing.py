"""Entries as bytes: a count and three columns, each as differences from its minimum.

Grammar: docs/format.md. Decoding never trusts its input: a breach of the grammar is a CorruptRecordError.
"""

from __future__ import annotations

import struct

import numpy as np
from pcodec import ChunkConfig, standalone

from tidegate.index.entries.entry import FEW, Entries, Int64Array, bounds
from tidegate.index.errors import CorruptRecordError

_COUNT = struct.Struct("<I")
_COUNT_MAX = (1 << 32) - 1
_COLUMN = struct.Struct("<BBHIq")

_FIXED = 0
_PCODEC = 1
_WIDTHS = {0: None, 1: np.dtype("<u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4"), 8: np.dtype("<u8")}

_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}

_PCODEC_CONFIG = ChunkConfig(compression_level=4)
_PCODEC_ENTRIES_MIN = 64
"""Below this many entries the header of pcodec costs more than it saves."""


def pack_entries(entries: Entries, *, compress: bool) -> bytes:
    """Entries as a count and three columns; `compress` is worth it for sorted entries only."""
    compress = compress and len(entries) >= _PCODEC_ENTRIES_MIN
    return _COUNT.pack(len(entries)) + b"".join(
        _pack_column(column, compress)
        for column in (entries.deliver_at_ms, entries.ledger_id, entries.entry_id)
    )


def unpack_entries(data: memoryview, entries_max: int = _COUNT_MAX) -> Entries:
    """Read bytes that `pack_entries` wrote; all of `data` must be used. Raises CorruptRecordError.

    A few bytes can claim billions of entries: no memory is allocated for more than `entries_max`.
    """
    try:
        (count,) = _COUNT.unpack_from(data)
        if count > entries_max:
            raise CorruptRecordError(f"{count} entries where at most {entries_max} fit")
        at = _COUNT.size
        columns = []
        for _ in range(3):
            column, at = _unpack_column(data, at, count)
            columns.append(column)
    except struct.error as error:
        raise CorruptRecordError(f"entries are cut short: {error}") from error
    if at != len(data):
        raise CorruptRecordError(f"entries: {len(data) - at} bytes too many")
    return Entries(columns[0], columns[1], columns[2])


def unpack_times(data: memoryview, entries_max: int) -> Int64Array:
    """The first column of packed entries, the due times; the rest stays unread."""
    try:
        (count,) = _COUNT.unpack_from(data)
        if count > entries_max:
            raise CorruptRecordError(f"{count} entries where at most {entries_max} fit")
        return _unpack_column(data, _COUNT.size, count)[0]
    except struct.error as error:
        raise CorruptRecordError(f"entries are cut short: {error}") from error


def _pack_column(column: Int64Array, compress: bool) -> bytes:
    """One column as differences from its minimum, in the least bytes a value or by pcodec."""
    if not len(column):
        return _COLUMN.pack(_FIXED, 0, 0, 0, 0)
    base, last = bounds(column)
    width = _width(last - base)
    if width == 0:
        return _COLUMN.pack(_FIXED, 0, 0, 0, base)
    if len(column) <= FEW:
        data = struct.pack(f"<{len(column)}{_CODES[width]}", *[value - base for value in column.tolist()])
        return _COLUMN.pack(_FIXED, width, 0, len(data), base) + data
    # The difference of two int64 is right as uint64, whatever their signs are.
    differences = (column - base).view(np.uint64)
    if compress:
        width = max(width, 4)
        data = bytes(standalone.simple_compress(differences.astype(_WIDTHS[width]), _PCODEC_CONFIG))
        return _COLUMN.pack(_PCODEC, width, 0, len(data), base) + data
    data = differences.astype(_WIDTHS[width]).tobytes()
    return _COLUMN.pack(_FIXED, width, 0, len(data), base) + data


def _width(span: int) -> int:
    """Least bytes for values 0 … span."""
    if span == 0:
        return 0
    if span < 1 << 8:
        return 1
    if span < 1 << 16:
        return 2
    return 4 if span < 1 << 32 else 8


def _unpack_column(data: memoryview, at: int, count: int) -> tuple[Int64Array, int]:
    encoding, width, reserved, size_bytes, base = _COLUMN.unpack_from(data, at)
    at += _COLUMN.size
    packed = data[at : at + size_bytes]
    if len(packed) != size_bytes or width not in _WIDTHS or reserved or (encoding == _PCODEC and not width):
        raise CorruptRecordError("a column does not fit its value")
    if encoding == _FIXED:
        if size_bytes != count * width:
            raise CorruptRecordError(f"a column of {count} entries has {size_bytes} bytes")
        if width == 0:
            return np.full(count, base, dtype=np.int64), at
        differences = np.frombuffer(packed, dtype=_WIDTHS[width])
    elif encoding == _PCODEC:
        differences = np.empty(count, dtype=_WIDTHS[width])
        try:
            progress = standalone.simple_decompress_into(bytes(packed), differences)
        except (RuntimeError, TypeError) as error:
            raise CorruptRecordError(f"a column is not pcodec: {error}") from error
        if progress.n_processed != count or not progress.finished:
            raise CorruptRecordError(f"a column does not hold {count} entries of {width} bytes")
    else:
        raise CorruptRecordError(f"a column has the unknown encoding {encoding}")
    column = differences.astype(np.uint64).view(np.int64)
    if base:
        column += base
    return column, at + size_bytes
