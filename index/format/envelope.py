"""The envelope of every stored value: a header with a version, the kind and a checksum.

Grammar: docs/format.md; `tests/testdata/format/` holds bytes of each kind that must never change their
meaning. Decoding never trusts its input: a breach of the grammar is a CorruptRecordError.
"""

from __future__ import annotations

import struct
import zlib

from tidegate.index.errors import CorruptRecordError

FORMAT_VERSION = 5
"""Version of the whole data directory; an older one is upgraded when opened, a newer one is refused."""

VALUE_VERSION = 1
"""Version byte of every stored value."""

_MAGIC = b"TG"
_ENVELOPE = struct.Struct("<2sBcI")


def wrap(kind: bytes, body: bytes) -> bytes:
    """`body` in an envelope, as a stored value of `kind` (one byte, the kind of its key)."""
    checksum = zlib.crc32(body, zlib.crc32(kind, VALUE_VERSION))
    return _ENVELOPE.pack(_MAGIC, VALUE_VERSION, kind, checksum) + body


def unwrap(kind: bytes, value: bytes) -> memoryview:
    """The body of a stored value. Raises CorruptRecordError if it is not an intact value of `kind`."""
    if len(value) < _ENVELOPE.size:
        raise CorruptRecordError(f"a value of {len(value)} bytes is shorter than its header")
    magic, version, found, checksum = _ENVELOPE.unpack_from(value)
    if magic != _MAGIC or version != VALUE_VERSION or found != kind:
        raise CorruptRecordError(f"a value starts with {value[:4].hex()}, not with a header of kind {kind!r}")
    body = memoryview(value)[_ENVELOPE.size :]
    if zlib.crc32(body, zlib.crc32(kind, version)) != checksum:
        raise CorruptRecordError(f"a value of kind {kind!r} fails its checksum")
    return body
