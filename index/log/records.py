"""The records of a log ledger, as the bytes of its entries. Grammar: docs/format.md.

A record is a list of operations on one subscription's keys, without its id. A record longer than an entry
continues in the next one. An entry has its chain and its own number: foreign bytes do not pass for one. An
operation may have a block's place instead of the block.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import NamedTuple

from tidegate.index.errors import CorruptRecordError, UnreadableLogError
from tidegate.index.format.envelope import FORMAT_VERSION, unwrap, wrap
from tidegate.index.format.manifest import Identity
from tidegate.index.log.tap import Operation
from tidegate.index.store import Batch

GRAMMAR_VERSION = 1
PLACES_VERSION = 2
"""Version of a log that names places of blocks, and of the ledgers there."""

_READABLE = (3, 4, FORMAT_VERSION)
"""Formats of a log's values: a new owner may be upgraded before the former one is."""

PIECE_BYTES = 1 << 20
"""A record is cut into entries of about this size."""

PLACE = 3
"""Operation beside those of `Batch`: the value is the place of the key's value."""

_ENTRY = struct.Struct("<QQ")
_HEADER = struct.Struct("<HI")
_MORE = struct.Struct("<B")
_OPERATION = struct.Struct("<BHI")


class EntryKind(Enum):
    """The kind of an entry of a log ledger."""

    HEADER = b"h"
    SNAPSHOT = b"s"
    SNAPSHOT_END = b"e"
    BATCH = b"b"
    BLOCKS = b"k"


class Header(NamedTuple):
    """The first entry of a log ledger.

    chain: a random number of this ledger alone. version: of the grammar that the rest needs.
    """

    chain: int
    identity: Identity
    version: int = GRAMMAR_VERSION

    def encode(self) -> bytes:
        """The header as an entry."""
        body = _ENTRY.pack(self.chain, 0) + _HEADER.pack(self.version, FORMAT_VERSION)
        return wrap(EntryKind.HEADER.value, body + self.identity.encode())

    @classmethod
    def decode(cls, entry: bytes) -> Header:
        """Read a header. Raises CorruptRecordError, and UnreadableLogError for a newer version."""
        body = unwrap(EntryKind.HEADER.value, entry)
        if len(body) < _ENTRY.size + _HEADER.size:
            raise CorruptRecordError("a header is cut short")
        chain, number = _ENTRY.unpack_from(body)
        grammar, version = _HEADER.unpack_from(body, _ENTRY.size)
        if grammar not in (GRAMMAR_VERSION, PLACES_VERSION) or version not in _READABLE:
            raise UnreadableLogError(
                f"it is of version {grammar} with values of format {version}, this Tidegate knows "
                f"{GRAMMAR_VERSION} and {PLACES_VERSION}, with {' or '.join(map(str, _READABLE))}"
            )
        if number:
            raise CorruptRecordError(f"a header is entry {number}")
        return cls(chain, Identity.decode(bytes(body[_ENTRY.size + _HEADER.size :])), grammar)


class Piece(NamedTuple):
    """A record, or a part of one.

    more: the record continues in the next entry.
    """

    kind: EntryKind
    more: bool
    data: memoryview


def encode_operations(operations: Iterable[Operation]) -> bytes:
    """The data of a record."""
    parts = []
    for kind, key, value in operations:
        parts.append(_OPERATION.pack(kind, len(key), len(value)))
        parts.append(key)
        parts.append(value)
    return b"".join(parts)


def decode_operations(data: bytes) -> Iterator[Operation]:
    """Read the data of a whole record. Raises CorruptRecordError."""
    at = 0
    end = len(data)
    while at < end:
        if at + _OPERATION.size > end:
            raise CorruptRecordError("an operation is cut short")
        kind, key_bytes, value_bytes = _OPERATION.unpack_from(data, at)
        key_at = at + _OPERATION.size
        value_at = key_at + key_bytes
        at = value_at + value_bytes
        if kind not in _OPERATIONS or not key_bytes or at > end:
            raise CorruptRecordError("an operation does not follow its grammar")
        yield kind, data[key_at:value_at], data[value_at:at]


def encode_record(kind: EntryKind, data: bytes, chain: int, number: int) -> list[bytes]:
    """A record as entries, the first of which is entry `number` of its ledger; at least one."""
    cuts = range(0, max(len(data), 1), PIECE_BYTES)
    return [
        wrap(
            kind.value,
            _ENTRY.pack(chain, number + at) + _MORE.pack(cut != cuts[-1]) + data[cut : cut + PIECE_BYTES],
        )
        for at, cut in enumerate(cuts)
    ]


def decode_piece(entry: bytes, chain: int, number: int) -> Piece:
    """Read entry `number`, which is not a header, of the ledger of `chain`. Raises CorruptRecordError."""
    kind = _RECORDS.get(entry[3:4])
    if kind is None:
        raise CorruptRecordError(f"an entry starts with {entry[:4].hex()}, which is no record")
    body = unwrap(kind.value, entry)
    if len(body) < _ENTRY.size + _MORE.size or body[_ENTRY.size] > 1:
        raise CorruptRecordError("an entry does not follow its grammar")
    found = _ENTRY.unpack_from(body)
    if found != (chain, number):
        raise CorruptRecordError(f"an entry is number {found[1]} of another place, not {number}")
    return Piece(kind, bool(body[_ENTRY.size]), body[_ENTRY.size + _MORE.size :])


_OPERATIONS = (Batch.PUT, Batch.DELETE, Batch.DELETE_RANGE, PLACE)
_RECORDS = {kind.value: kind for kind in EntryKind if kind is not EntryKind.HEADER}
