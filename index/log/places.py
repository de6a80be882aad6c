"""Places: where in a ledger of blocks the blocks of an index lie, that its log names instead of having them.

A log with many blocks has them in ledgers of their own, so that whoever opens it reads little before it
answers, and so that the next log and the next owner go on with the ledgers that are there. A ledger of blocks
is a header and records of blocks; nothing in it changes, and it counts as far as a log names places in it.

Invariant: a place is only known of a block that has been appended there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidegate.index.errors import CorruptRecordError, UnreadableLogError
from tidegate.index.format import keys
from tidegate.index.format.block import BlockDescriptor
from tidegate.index.format.keys import SliceId
from tidegate.index.log.home import Home
from tidegate.index.log.records import EntryKind, decode_operations, decode_piece
from tidegate.index.store import Batch

LEDGERS_MAX = 16
"""So many ledgers of blocks a log goes on with at most: the pointer names them, and an owner opens each."""

_PLACE = struct.Struct("<qQQQI")
_GARBAGE_SHARE = 3


class Place(NamedTuple):
    """Where a block lies.

    ledger_id, chain: of the ledger. entry: the first one of the record that has it. end_bytes: how long the
    ledger was with that record. size_bytes: of the block.
    """

    ledger_id: int
    chain: int
    entry: int
    end_bytes: int
    size_bytes: int

    def encode(self) -> bytes:
        """As the value of an operation."""
        return _PLACE.pack(*self)

    @classmethod
    def decode(cls, value: bytes) -> Place:
        """The inverse of `encode`. Raises CorruptRecordError."""
        if len(value) != _PLACE.size:
            raise CorruptRecordError("a place does not fit its value")
        place = cls(*_PLACE.unpack(value))
        if place.ledger_id < 0:
            raise CorruptRecordError(f"a place is in ledger {place.ledger_id}, which cannot be")
        return place


StoredBlock = tuple[SliceId, BlockDescriptor]

Places = dict[bytes, Place]
"""The places of blocks by their keys, the subscription id left out."""


def ledgers_of(places: Places) -> set[int]:
    """The ledgers in which any of the blocks lies."""
    return {place.ledger_id for place in places.values()}


def wasteful_ledgers(places: Places) -> set[int]:
    """The ledgers that are not worth being kept for what lies in them: it is to be appended elsewhere.

    Those of which most is garbage, and those with the least where there are more than `LEDGERS_MAX`.
    """
    live_bytes: dict[int, int] = {}
    end_bytes: dict[int, int] = {}
    for place in places.values():
        live_bytes[place.ledger_id] = live_bytes.get(place.ledger_id, 0) + place.size_bytes
        end_bytes[place.ledger_id] = max(end_bytes.get(place.ledger_id, 0), place.end_bytes)
    wasteful = {each for each, live in live_bytes.items() if live * _GARBAGE_SHARE < end_bytes[each]}
    kept = sorted(live_bytes.keys() - wasteful, key=lambda each: (live_bytes[each], each))
    return wasteful | set(kept[: max(0, len(kept) - LEDGERS_MAX)])


class BlockRecord(NamedTuple):
    """A record of blocks, as places name it."""

    ledger_id: int
    chain: int
    entry: int


async def read_record(home: Home, record: BlockRecord, last: int) -> dict[bytes, bytes]:
    """The keys, without the subscription id, and the values of the blocks in a record.

    The ledger is open, and `last` its last entry.

    Raises UnreadableLogError if they cannot be read, now or ever, HomeError.
    """
    data: list[memoryview] = []
    at = record.entry
    while at <= last:
        # One at a time: what comes after the record is read when it is wanted.
        entry = (await home.read(record.ledger_id, at, at))[0]
        try:
            piece = decode_piece(entry, record.chain, at)
        except CorruptRecordError as error:
            raise UnreadableLogError(f"entry {at} of ledger {record.ledger_id}: {error}") from error
        if piece.kind is not EntryKind.BLOCKS:
            raise UnreadableLogError(f"entry {at} of ledger {record.ledger_id} has no blocks")
        data.append(piece.data)
        at += 1
        if not piece.more:
            return _blocks(b"".join(data), record)
    raise UnreadableLogError(f"ledger {record.ledger_id} ends at {last}, before a record at {record.entry}")


def _blocks(data: bytes, record: BlockRecord) -> dict[bytes, bytes]:
    try:
        operations = list(decode_operations(data))
    except CorruptRecordError as error:
        raise UnreadableLogError(f"entry {record.entry} of ledger {record.ledger_id}: {error}") from error
    return {key: value for kind, key, value in operations if kind == Batch.PUT}


def block_ids(places: Places) -> list[int]:
    """The ids of the blocks that lie there."""
    return [keys.parse_block_key(keys.unstripped(key, 0)) for key in places]


def by_record(places: Places, blocks: Iterable[StoredBlock]) -> dict[BlockRecord | None, list[StoredBlock]]:
    """The records to read for some blocks, in their order, and what is wanted of each; None: nobody knows."""
    plan: dict[BlockRecord | None, list[StoredBlock]] = {}
    for slice_id, descriptor in blocks:
        place = places.get(keys.stripped(keys.block_key(0, slice_id, descriptor.block_id)))
        record = None if place is None else BlockRecord(place.ledger_id, place.chain, place.entry)
        plan.setdefault(record, []).append((slice_id, descriptor))
    return plan


def writes(
    found: Mapping[bytes, bytes], subscription_id: int, blocks: Iterable[StoredBlock]
) -> tuple[Batch, list[StoredBlock]]:
    """What puts blocks of a record into the store, and those that it does not have."""
    batch = Batch()
    missing: list[StoredBlock] = []
    for slice_id, descriptor in blocks:
        key = keys.block_key(subscription_id, slice_id, descriptor.block_id)
        value = found.get(keys.stripped(key))
        if value is None or len(value) != descriptor.size_bytes:
            missing.append((slice_id, descriptor))
        else:
            batch.put(key, value)
    return batch, missing
