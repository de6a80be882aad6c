"""The journal's records as bytes: the changes of an index, one record a value, its type in the key.

By its type, a record is of entries, of positions, or of two numbers; docs/format.md has the types, and the
meaning of the numbers.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from tidegate.index.entries.entry import Entries
from tidegate.index.errors import CorruptRecordError
from tidegate.index.format import keys
from tidegate.index.format.envelope import unwrap, wrap
from tidegate.index.format.packing import pack_entries, unpack_entries
from tidegate.index.state.positions import PositionSet

_NUMBERS = struct.Struct("<qq")

RECORD_ENTRIES_MAX = 65_536
"""Most entries of one ADD or MOVE record; larger batches become several records."""


class RecordType(IntEnum):
    """The kind of change in a journal record."""

    ADD = 1
    ACKNOWLEDGE = 2
    UNACKNOWLEDGE = 3
    MARK_DELETE = 4
    CLEAR = 5
    WIDTH = 6
    GENERATION = 7
    CLAIM = 8
    DISOWN = 9
    MOVE = 10


def encode_entries(entries: Entries) -> bytes:
    """An ADD or MOVE record, of at most ``RECORD_ENTRIES_MAX`` entries."""
    return wrap(keys.JOURNAL, pack_entries(entries, compress=False))


def encode_positions(positions: PositionSet) -> bytes:
    """An ACKNOWLEDGE, UNACKNOWLEDGE or DISOWN record."""
    return wrap(keys.JOURNAL, positions.serialize())


def encode_numbers(first: int, second: int) -> bytes:
    """A MARK_DELETE, CLEAR, WIDTH, GENERATION or CLAIM record."""
    return wrap(keys.JOURNAL, _NUMBERS.pack(first, second))


def decode_entries(value: bytes) -> Entries:
    """The entries of an ADD or MOVE record. Raises CorruptRecordError."""
    return unpack_entries(unwrap(keys.JOURNAL, value), RECORD_ENTRIES_MAX)


def decode_positions(value: bytes) -> PositionSet:
    """The positions of an ACKNOWLEDGE, UNACKNOWLEDGE or DISOWN record. Raises CorruptRecordError."""
    return PositionSet.deserialize(unwrap(keys.JOURNAL, value))


def decode_numbers(value: bytes) -> tuple[int, int]:
    """The numbers of a MARK_DELETE, CLEAR, WIDTH, GENERATION or CLAIM record. Raises CorruptRecordError."""
    body = unwrap(keys.JOURNAL, value)
    if len(body) != _NUMBERS.size:
        raise CorruptRecordError(f"a record of two numbers has {len(body)} bytes")
    first, second = _NUMBERS.unpack(body)
    return first, second
