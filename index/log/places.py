"""Places: where in a ledger of blocks each block lies that an index log names instead of having.

The opener of such a log reads little before it answers, and the next log and the next owner use the same
ledgers. A ledger of blocks is a header and records of blocks. It never changes, and counts as far as a log
names places in it. Invariant: only a block appended there has a place.
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
"""Most ledgers of blocks that a log continues with: the pointer names them, and an owner opens each."""

_PLACE = struct.Struct("<qQQQI")
_GARBAGE_SHARE = 3


class Place(NamedTuple):
    """The place of a block.

    ledger_id, chain: of the ledger. entry: the first one of the block's record. end_bytes: length of the
    ledger after that record. size_bytes: of the block.
    """

    ledger_id: int
    chain: int
    entry: int
    end_bytes: int
    size_bytes: int

    def encode(self) -> bytes:
        """The place as the value of an operation."""
        return _PLACE.pack(*self)

    @classmethod
    def decode(cls, value: bytes) -> Place:
        """The inverse of `encode`. Raises CorruptRecordError."""
        if len(value) != _PLACE.size:
            raise CorruptRecordError("a place does not fit its value")
        place = cls(*_PLACE.unpack(value))
        if place.ledger_id < 0:
            raise CorruptRecordError(f"a place is in the impossible ledger {place.ledger_id}")
        return place


StoredBlock = tuple[SliceId, BlockDescriptor]

Places = dict[bytes, Place]
"""The places of blocks by their keys, the subscription id left out."""


def ledgers_of(places: Places) -> set[int]:
    """The ledgers that have any of the blocks."""
    return {place.ledger_id for place in places.values()}


def forget_ledger(places: Places, ledger_id: int) -> None:
    """Remove the places in a ledger."""
    for key in [key for key, place in places.items() if place.ledger_id == ledger_id]:
        del places[key]


def wasteful_ledgers(places: Places) -> set[int]:
    """The ledgers not worth keeping: their blocks must be appended elsewhere.

    These are mostly garbage, or have the fewest bytes where there are more than `LEDGERS_MAX`.
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
    """A record of blocks, as a place names it."""

    ledger_id: int
    chain: int
    entry: int


async def read_record(home: Home, record: BlockRecord, last: int) -> dict[bytes, bytes]:
    """Read a record's blocks: (key without the subscription id, value).

    The ledger is open, and `last` its last entry.

    Raises UnreadableLogError if the record is damaged, now or for ever, HomeError.
    """
    data: list[memoryview] = []
    at = record.entry
    while at <= last:
        # One at a time: the entries after the record may not be needed.
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
    """The ids of the blocks at these places."""
    return [keys.parse_block_key(keys.unstripped(key, 0)) for key in places]


def by_record(places: Places, blocks: Iterable[StoredBlock]) -> dict[BlockRecord | None, list[StoredBlock]]:
    """The records to read for some blocks, in order, with the blocks of each; None: place unknown."""
    plan: dict[BlockRecord | None, list[StoredBlock]] = {}
    for slice_id, descriptor in blocks:
        place = places.get(keys.stripped(keys.block_key(0, slice_id, descriptor.block_id)))
        record = None if place is None else BlockRecord(place.ledger_id, place.chain, place.entry)
        plan.setdefault(record, []).append((slice_id, descriptor))
    return plan


def writes(
    found: Mapping[bytes, bytes], subscription_id: int, blocks: Iterable[StoredBlock]
) -> tuple[Batch, list[StoredBlock]]:
    """The writes that put blocks of a record into the store, and the blocks missing from it."""
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
