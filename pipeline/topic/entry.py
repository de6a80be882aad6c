"""The content of an entry of a topic's ledger: metadata and payload of a message, or of a batch.

Pure. Invariants: bytes that Pulsar would not write raise ``WireError``; a claimed size allocates no memory.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from crc32c import crc32c
from google.protobuf.message import DecodeError

from tidegate.pipeline.errors import WireError
from tidegate.pipeline.topic.schema import NOT_SET, MessageMetadata, SingleMessageMetadata

UNCOMPRESSED_MAX_BYTES = 256 * 1024 * 1024

_MAGIC = struct.Struct(">H")
_U32 = struct.Struct(">I")
_CHECKSUM = struct.Struct(">HII")
_CHECKSUM_MAGIC = 0x0E01
_BROKER_METADATA = struct.Struct(">HI")
_BROKER_METADATA_MAGIC = 0x0E02
_NONE, _LZ4, _ZLIB, _ZSTD, _SNAPPY = range(5)
_ARROW_CODECS: Final = {_LZ4: "lz4_raw", _ZSTD: "zstd", _SNAPPY: "snappy"}
_NO_BATCH = NOT_SET["num_messages_in_batch"]
_NO_CHUNK = NOT_SET["chunk_id"]
_NO_MARKER = NOT_SET["marker_type"]


class Entry(NamedTuple):
    """One entry, parsed except for its payload."""

    entry_id: int
    metadata: Any
    payload: bytes


def is_marker(metadata: Any) -> bool:
    """True if the broker wrote it for itself: no consumer ever gets it."""
    return bool(metadata.marker_type != _NO_MARKER)


def is_transactional(metadata: Any) -> bool:
    """True if it is part of a transaction: only the broker knows if that was aborted."""
    return bool(metadata.HasField("txnid_most_bits") and metadata.HasField("txnid_least_bits"))


def parse_entry(entry_id: int, data: bytes, *, checked: bool = False) -> Entry:
    """An entry from its bytes. With ``checked`` Pulsar's own checksum is not verified again.

    Raises ``WireError``.
    """
    try:
        (magic,) = _MAGIC.unpack_from(data)
        if magic == _BROKER_METADATA_MAGIC:
            _, size = _BROKER_METADATA.unpack_from(data)
            data = data[_BROKER_METADATA.size + size :]
            (magic,) = _MAGIC.unpack_from(data)
        if magic == _CHECKSUM_MAGIC:
            _, expected, size = _CHECKSUM.unpack_from(data)
            begin = _CHECKSUM.size
            if not checked and crc32c(data[begin - _U32.size :]) != expected:
                raise WireError(f"entry {entry_id} fails its checksum")
        else:
            (size,) = _U32.unpack_from(data)
            begin = _U32.size
        end = begin + size
        if end > len(data):
            raise WireError(f"entry {entry_id} is cut short, or is none of Pulsar's")
        return Entry(entry_id, MessageMetadata.FromString(data[begin:end]), data[end:])
    except (struct.error, DecodeError) as error:
        raise WireError(f"entry {entry_id} is none of Pulsar's: {error}") from error


class Single(NamedTuple):
    """One message of an entry.

    batch_index: -1 if the entry is no batch. size_bytes: of the payload as the producer passed it, of a chunk
    as stored; None if unknown. payload: None unless requested and available, so never for an encrypted
    message or a chunk.
    """

    batch_index: int
    key: str | None
    size_bytes: int | None
    payload: bytes | None


def messages(entry: Entry, *, payloads: bool = False) -> Iterator[Single]:
    """The messages of an entry, in order. Raises ``WireError``."""
    metadata = entry.metadata
    count = metadata.num_messages_in_batch
    if count == _NO_BATCH:
        yield _alone(entry, payloads)
        return
    # Each message of a batch has at least four bytes.
    if not 0 <= count <= max(metadata.uncompressed_size, len(entry.payload)) // _U32.size + 1:
        raise WireError(f"entry {entry.entry_id} claims to be a batch of {count}")
    if metadata.encryption_keys:
        yield from (Single(index, None, None, None) for index in range(count))
        return
    data, at = decompressed(entry), 0
    for index in range(count):
        single, at = _next(entry, data, at)
        end = at + single.payload_size
        if not at <= end <= len(data):
            raise WireError(f"message {index} of entry {entry.entry_id} is cut short")
        yield Single(index, _key(single), end - at, data[at:end] if payloads else None)
        at = end


def decompressed(entry: Entry) -> bytes:
    """The payload as the producer passed it. Raises ``WireError``."""
    codec, size = entry.metadata.compression, entry.metadata.uncompressed_size
    if codec == _NONE:
        return entry.payload
    if size > UNCOMPRESSED_MAX_BYTES:
        raise WireError(f"entry {entry.entry_id} claims to be {size} bytes long")
    # Here: a caller that asks only for due times never unpacks an entry, and the import takes 0.1 s.
    import pyarrow as pa  # noqa: PLC0415

    try:
        if codec == _ZLIB:
            whole = zlib.decompressobj().decompress(entry.payload, size + 1)
        elif codec in _ARROW_CODECS:
            whole = pa.decompress(
                pa.py_buffer(entry.payload), decompressed_size=size, codec=_ARROW_CODECS[codec], asbytes=True
            )
        else:
            raise WireError(f"entry {entry.entry_id} is compressed in the unknown way {codec}")
    except (zlib.error, OSError, pa.ArrowException) as error:
        raise WireError(f"entry {entry.entry_id} cannot be decompressed: {error}") from error
    if len(whole) != size:
        raise WireError(f"entry {entry.entry_id} is {len(whole)} bytes long, not {size} as it says")
    return whole


def _alone(entry: Entry, payloads: bool) -> Single:
    metadata = entry.metadata
    # A chunk is a part of a whole that was compressed at once.
    is_chunk = metadata.chunk_id != _NO_CHUNK
    size = metadata.uncompressed_size if metadata.compression and not is_chunk else len(entry.payload)
    readable = payloads and not is_chunk and not metadata.encryption_keys
    return Single(-1, _key(metadata), size, decompressed(entry) if readable else None)


def _key(metadata: Any) -> str | None:
    return (
        metadata.partition_key
        if metadata.HasField("partition_key") and not metadata.null_partition_key
        else None
    )


def _next(entry: Entry, data: bytes, at: int) -> tuple[Any, int]:
    try:
        (size,) = _U32.unpack_from(data, at)
        begin, end = at + _U32.size, at + _U32.size + size
        if end > len(data):
            raise WireError(f"a batch in entry {entry.entry_id} is cut short")
        return SingleMessageMetadata.FromString(data[begin:end]), end
    except (struct.error, DecodeError) as error:
        raise WireError(f"a batch in entry {entry.entry_id} is none of Pulsar's: {error}") from error
