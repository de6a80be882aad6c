"""Entries as Pulsar's clients and brokers write them, made here byte by byte."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pyarrow as pa
from crc32c import crc32c

from tidegate.pipeline.topic.schema import MessageMetadata, SingleMessageMetadata

CODECS = {0: None, 1: "lz4_raw", 2: "zlib", 3: "zstd", 4: "snappy"}


def compressed(codec: int, data: bytes) -> bytes:
    name = CODECS[codec]
    if name is None:
        return data
    return zlib.compress(data) if name == "zlib" else bytes(pa.compress(data, codec=name, asbytes=True))


def metadata(**fields: Any) -> Any:
    return MessageMetadata(**{"producer_name": "p-1", "publish_time": 1_700_000_000_000} | fields)


def entry(payload: bytes = b"hello", *, checksum: bool = True, **fields: Any) -> bytes:
    """One message as it is stored."""
    described = metadata(**fields).SerializeToString()
    rest = struct.pack(">I", len(described)) + described + payload
    head = b"\x0e\x01" + struct.pack(">I", crc32c(rest)) if checksum else b""
    return bytes(head + rest)


def batch(messages: list[tuple[str | None, bytes]], codec: int = 0, **fields: Any) -> bytes:
    """(key, payload) messages as one entry."""
    payload = b""
    for key, data in messages:
        single = SingleMessageMetadata(payload_size=len(data))
        if key is not None:
            single.partition_key = key
        described = single.SerializeToString()
        payload += struct.pack(">I", len(described)) + described + data
    return entry(
        compressed(codec, payload),
        num_messages_in_batch=len(messages),
        compression=codec,
        uncompressed_size=len(payload),
        **fields,
    )


def stored(ledger_id: int, entry_id: int, payload: bytes, digest: str = "CRC32C") -> bytes:
    """An entry as a bookie keeps it."""
    head = struct.pack(">qqqq", ledger_id, entry_id, entry_id - 1, 1000)
    if digest == "CRC32C":
        return head + struct.pack(">I", crc32c(payload, crc32c(head))) + payload
    if digest == "CRC32":
        return head + struct.pack(">Q", zlib.crc32(payload, zlib.crc32(head))) + payload
    return head + payload


def batch_response(
    ledger_id: int, first: int, request_id: int, entries: list[bytes], status: int = 0
) -> bytes:
    """A bookie's answer to a batch read, without its size."""
    body = struct.pack(">IiqQq", 2 << 24 | 7 << 16, status, ledger_id, first, request_id)
    return body + b"".join(struct.pack(">I", len(one)) + one for one in entries)
