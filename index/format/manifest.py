"""The manifest: a subscription's identity, its persisted state, and the blocks of each slice.

Each slice has its own value, so that a persist rewrites only the slices it touches.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from tidegate.index.errors import CorruptRecordError
from tidegate.index.format import keys
from tidegate.index.format.block import DESCRIPTOR, BlockDescriptor
from tidegate.index.format.envelope import unwrap, wrap
from tidegate.index.names import SubscriptionName
from tidegate.index.state.claim import Claim
from tidegate.index.state.positions import Position

_SIZE = struct.Struct("<H")
_STATE = struct.Struct("<QQQQqqBQQQ")
_STATE_3 = struct.Struct("<QQQQqqBQ")
_COUNT = struct.Struct("<I")


class Identity(NamedTuple):
    """The subscription that an id stands for, and its incarnation."""

    name: SubscriptionName
    incarnation: bytes

    def encode(self) -> bytes:
        """The identity as a stored value."""
        fields = (self.name.topic.encode(), self.name.subscription.encode(), self.incarnation)
        return wrap(keys.IDENTITY, b"".join(_SIZE.pack(len(field)) + field for field in fields))

    @classmethod
    def decode(cls, value: bytes) -> Identity:
        """Read an identity. Raises CorruptRecordError."""
        body = unwrap(keys.IDENTITY, value)
        fields = []
        at = 0
        try:
            for _ in range(3):
                (size_bytes,) = _SIZE.unpack_from(body, at)
                at += _SIZE.size
                fields.append(bytes(body[at : at + size_bytes]))
                at += size_bytes
            if at != len(body):
                raise CorruptRecordError("an identity does not fit its value")
            name = SubscriptionName(fields[0].decode(), fields[1].decode())
        except (struct.error, UnicodeDecodeError) as error:
            raise CorruptRecordError(f"not an identity: {error}") from error
        return cls(name, fields[2])


class State(NamedTuple):
    """The persisted state of a subscription.

    version: number of the persist that wrote this; bitmaps with a higher version were never committed.
    persisted_sequence: journal records up to this one are in the persisted state and must not be replayed.
    next_block_id: block ids below this may be in use.
    slice_width_auto: True if `width.choose` chose the width, False if a person did.
    generation: the cursor's seal under which the acknowledgements were learned; 0 if unknown.
    claim: of the owner that told the latest changes.
    """

    version: int
    persisted_sequence: int
    next_block_id: int
    slice_width_ms: int
    mark_delete: Position
    slice_width_auto: bool
    generation: int
    claim: Claim

    def encode(self) -> bytes:
        """The state as a stored value."""
        return wrap(
            keys.STATE,
            _STATE.pack(*self[:4], *self.mark_delete, self.slice_width_auto, self.generation, *self.claim),
        )

    @classmethod
    def decode(cls, value: bytes) -> State:
        """Read a state, also of format 3, which an index log may have. Raises CorruptRecordError."""
        body = bytes(unwrap(keys.STATE, value))
        if len(body) == _STATE_3.size:
            body += bytes(_STATE.size - _STATE_3.size)
        if len(body) != _STATE.size:
            raise CorruptRecordError("a state does not fit its value")
        version, sequence, block_id, width_ms, ledger_id, entry_id, auto, generation, epoch, claim = (
            _STATE.unpack(body)
        )
        if auto > 1:
            raise CorruptRecordError(f"a state says {auto} where 0 or 1 belongs")
        mark_delete = (ledger_id, entry_id)
        return cls(
            version, sequence, block_id, width_ms, mark_delete, bool(auto), generation, Claim(epoch, claim)
        )


def encode_slice(blocks: Iterable[BlockDescriptor]) -> bytes:
    """The blocks of one slice as a stored value."""
    packed = [block.pack() for block in blocks]
    return wrap(keys.SLICE, _COUNT.pack(len(packed)) + b"".join(packed))


def decode_slice(value: bytes) -> list[BlockDescriptor]:
    """Read the blocks of one slice. Raises CorruptRecordError."""
    body = unwrap(keys.SLICE, value)
    if len(body) < _COUNT.size:
        raise CorruptRecordError("a slice record is cut short")
    (count,) = _COUNT.unpack_from(body)
    if len(body) != _COUNT.size + count * DESCRIPTOR.size:
        raise CorruptRecordError(f"a slice record of {count} blocks has {len(body)} bytes")
    return [BlockDescriptor.unpack(body, _COUNT.size + at * DESCRIPTOR.size) for at in range(count)]


def encode_keys(written: Iterable[bytes]) -> bytes:
    """The keys that a piece of a persist wrote ahead of its commit, as a stored value."""
    return wrap(keys.INTENT, b"".join(_SIZE.pack(len(key)) + key for key in written))


def decode_keys(value: bytes) -> list[bytes]:
    """Read a value that `encode_keys` wrote. Raises CorruptRecordError."""
    body = unwrap(keys.INTENT, value)
    found = []
    at = 0
    while at < len(body):
        if at + _SIZE.size > len(body):
            raise CorruptRecordError("a list of keys is cut short")
        (size_bytes,) = _SIZE.unpack_from(body, at)
        at += _SIZE.size
        if at + size_bytes > len(body):
            raise CorruptRecordError("a list of keys is cut short")
        found.append(bytes(body[at : at + size_bytes]))
        at += size_bytes
    return found
