"""A block: at most 65,536 sorted entries, packed; and its descriptor, which the manifest keeps.

Invariants: the entries of a block are sorted, without duplicates, and of one slice. A descriptor tells when
the block must be loaded and whether it can hold a ledger, without a read of the block.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from tidegate.index.entries.entry import Entries, EntryKey, Int64Array, bounds
from tidegate.index.errors import CorruptBlockError, CorruptRecordError
from tidegate.index.format import keys
from tidegate.index.format.envelope import unwrap, wrap
from tidegate.index.format.keys import SliceId
from tidegate.index.format.packing import pack_entries, unpack_entries, unpack_times
from tidegate.index.store import Store

ENTRIES_MAX = 65_536
"""Most entries of a block."""

_HEADER = struct.Struct("<qqqq")
DESCRIPTOR = struct.Struct("<QQIIqqqqqq")
"""block_id, run_id, entries, size_bytes, first key (3), last_deliver_at_ms, min_ledger_id, max_ledger_id."""


class BlockDescriptor(NamedTuple):
    """One packed block. Blocks with the same run_id are disjoint in order; different runs may overlap."""

    block_id: int
    run_id: int
    entries: int
    size_bytes: int
    first: EntryKey
    last_deliver_at_ms: int
    min_ledger_id: int
    max_ledger_id: int

    def pack(self) -> bytes:
        """The descriptor as stored in a slice record."""
        return DESCRIPTOR.pack(
            self.block_id,
            self.run_id,
            self.entries,
            self.size_bytes,
            *self.first,
            self.last_deliver_at_ms,
            self.min_ledger_id,
            self.max_ledger_id,
        )

    @classmethod
    def unpack(cls, data: memoryview, at: int) -> BlockDescriptor:
        """Read a descriptor at offset `at`. Raises struct.error if `data` is too short."""
        block_id, run_id, entries, size_bytes, deliver_at, ledger, entry, last, low, high = (
            DESCRIPTOR.unpack_from(data, at)
        )
        return cls(block_id, run_id, entries, size_bytes, (deliver_at, ledger, entry), last, low, high)


def describe(entries: Entries, size_bytes: int, block_id: int, run_id: int) -> BlockDescriptor:
    """The descriptor of a block with these sorted entries (at least one)."""
    return BlockDescriptor(
        block_id,
        run_id,
        len(entries),
        size_bytes,
        entries.key(0),
        int(entries.deliver_at_ms[-1]),
        int(entries.ledger_id.min()),
        int(entries.ledger_id.max()),
    )


def encode_block(entries: Entries) -> bytes:
    """Pack sorted entries (1 … 65,536) as a stored value."""
    header = _HEADER.pack(
        int(entries.deliver_at_ms[0]),
        int(entries.deliver_at_ms[-1]),
        int(entries.ledger_id.min()),
        int(entries.ledger_id.max()),
    )
    return wrap(keys.BLOCK, header + pack_entries(entries, compress=True))


def decode_block(value: bytes) -> Entries:
    """Unpack a block. Raises CorruptBlockError."""
    try:
        body = unwrap(keys.BLOCK, value)
        entries = unpack_entries(body[_HEADER.size :], ENTRIES_MAX)
        first, last, _, _ = _HEADER.unpack_from(body)
    except (CorruptRecordError, struct.error) as error:
        raise CorruptBlockError(str(error)) from error
    if not len(entries) or first != entries.deliver_at_ms[0] or last != entries.deliver_at_ms[-1]:
        raise CorruptBlockError("a block does not hold what its header says")
    return entries


def load_block(store: Store, subscription_id: int, slice_id: SliceId, descriptor: BlockDescriptor) -> Entries:
    """Read a block. Raises CorruptBlockError if it is missing, damaged or not the one described."""
    entries = decode_block(_read(store, subscription_id, slice_id, descriptor))
    if (len(entries), entries.key(0), int(entries.deliver_at_ms[-1]), *bounds(entries.ledger_id)) != (
        descriptor.entries,
        descriptor.first,
        descriptor.last_deliver_at_ms,
        descriptor.min_ledger_id,
        descriptor.max_ledger_id,
    ):
        raise _another(slice_id, descriptor)
    return entries


def load_times(
    store: Store, subscription_id: int, slice_id: SliceId, descriptor: BlockDescriptor
) -> Int64Array:
    """The due times of a block, ascending. A third of the work of `load_block`, and its errors."""
    value = _read(store, subscription_id, slice_id, descriptor)
    try:
        times_ms = unpack_times(unwrap(keys.BLOCK, value)[_HEADER.size :], ENTRIES_MAX)
    except CorruptRecordError as error:
        raise CorruptBlockError(str(error)) from error
    ends_ms = (descriptor.first[0], descriptor.last_deliver_at_ms)
    if len(times_ms) != descriptor.entries or (int(times_ms[0]), int(times_ms[-1])) != ends_ms:
        raise _another(slice_id, descriptor)
    return times_ms


def _read(store: Store, subscription_id: int, slice_id: SliceId, descriptor: BlockDescriptor) -> bytes:
    try:
        value = store.get(keys.block_key(subscription_id, slice_id, descriptor.block_id))
    except CorruptRecordError as error:
        raise CorruptBlockError(f"block {descriptor.block_id} of slice {slice_id}: {error}") from error
    if value is None:
        raise CorruptBlockError(f"block {descriptor.block_id} of slice {slice_id} is missing")
    return value


def _another(slice_id: SliceId, descriptor: BlockDescriptor) -> CorruptBlockError:
    return CorruptBlockError(f"block {descriptor.block_id} of slice {slice_id} is not the one described")
