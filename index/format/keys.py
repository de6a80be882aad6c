"""Keys of the store: one byte of kind, then big-endian numbers, so that keys sort as their numbers do.

Grammar: docs/format.md. A bias of 2^63 sorts negative ledger ids and slice numbers first.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

FORMAT_KEY = b"\x00tidegate"
COMMIT_KEY = b"\x00commit"
"""The store's own: the last commit's number, in the journal's family."""

IDENTITY = b"S"
STATE = b"T"
SLICE = b"M"
BLOCK = b"B"
HELD = b"H"
ACKNOWLEDGED = b"A"
CARRY = b"C"
JOURNAL = b"J"
INTENT = b"I"
CHAIN = b"P"
MOVED = b"V"
QUARANTINE = b"Q"

SUBSCRIPTION_KINDS = (STATE, SLICE, BLOCK, HELD, ACKNOWLEDGED, MOVED, CARRY, JOURNAL, INTENT, CHAIN)
"""Kinds that hold one subscription's data and go with it."""

_KINDS = frozenset({FORMAT_KEY[:1], IDENTITY, QUARANTINE, *SUBSCRIPTION_KINDS})
_BIAS = 1 << 63
_SUBSCRIPTION = struct.Struct(">cQ")
_SLICE = struct.Struct(">cQQQ")
_BLOCK = struct.Struct(">cQQQQ")
_VERSIONED = struct.Struct(">cQQQ")
_JOURNAL = struct.Struct(">cQQB")
_INTENT = struct.Struct(">cQQQ")
_QUARANTINE = struct.Struct(">cBQ")
_NUMBER = struct.Struct(">Q")
_NUMBERED = 0xFF

PREFIX_BYTES = _SUBSCRIPTION.size
"""Length of kind and subscription at a key's begin."""


class SliceId(NamedTuple):
    """A slice: the entries with number * width_ms <= deliver_at_ms < (number + 1) * width_ms."""

    width_ms: int
    number: int

    @property
    def start_ms(self) -> int:
        """The first millisecond of the slice."""
        return self.number * self.width_ms


def is_ours(key: bytes) -> bool:
    """True if a key's kind may be ours."""
    return key[:1] in _KINDS


def subscription_key(kind: bytes, subscription_id: int) -> bytes:
    """Key of a subscription's single value of a kind, and prefix of its other keys of that kind."""
    return _SUBSCRIPTION.pack(kind, subscription_id)


def subscription_id_of(key: bytes) -> int:
    """The subscription id of any key but FORMAT_KEY and quarantined ones."""
    return int(_SUBSCRIPTION.unpack_from(key)[1])


def subscription_range(kind: bytes, subscription_id: int) -> tuple[bytes, bytes]:
    """Start and end of a subscription's keys of one kind."""
    start = _SUBSCRIPTION.pack(kind, subscription_id)
    if subscription_id == (1 << 64) - 1:
        return start, bytes([kind[0] + 1])
    return start, _SUBSCRIPTION.pack(kind, subscription_id + 1)


def after_kind(kind: bytes) -> bytes:
    """The end of all keys of one kind."""
    return bytes([kind[0] + 1])


def kind_range(kind: bytes) -> tuple[bytes, bytes]:
    """Start and end of all keys of one kind."""
    return kind, bytes([kind[0] + 1])


def stripped(key: bytes) -> bytes:
    """A subscription's key without the id, as in the index log."""
    return key[:1] + key[_SUBSCRIPTION.size :]


def unstripped(key: bytes, subscription_id: int) -> bytes:
    """The inverse of `stripped`."""
    return _SUBSCRIPTION.pack(key[:1], subscription_id) + key[1:]


def slice_key(subscription_id: int, slice_id: SliceId) -> bytes:
    """Key of a slice record."""
    return _SLICE.pack(SLICE, subscription_id, slice_id.width_ms, slice_id.number + _BIAS)


def parse_slice_key(key: bytes) -> SliceId:
    """The slice of a slice record or of a block."""
    _, _, width_ms, biased = _SLICE.unpack_from(key)
    return SliceId(width_ms, biased - _BIAS)


def block_key(subscription_id: int, slice_id: SliceId, block_id: int) -> bytes:
    """Key of a packed block."""
    return _BLOCK.pack(BLOCK, subscription_id, slice_id.width_ms, slice_id.number + _BIAS, block_id)


def parse_block_key(key: bytes) -> int:
    """The block id of a block's key."""
    return int(_BLOCK.unpack(key)[4])


def block_of_slice(key: bytes, block_id: int) -> bytes:
    """Key of a block, from its slice's key; either both are stripped or neither."""
    return BLOCK + key[1:] + _NUMBER.pack(block_id)


def bitmap_key(kind: bytes, subscription_id: int, ledger_id: int, version: int) -> bytes:
    """Key of one ledger's positions (HELD, ACKNOWLEDGED, MOVED) as of persist number `version`."""
    return _VERSIONED.pack(kind, subscription_id, ledger_id + _BIAS, version)


def parse_bitmap_key(key: bytes) -> tuple[int, int]:
    """(ledger_id, version) of a bitmap's key."""
    _, _, biased, version = _VERSIONED.unpack(key)
    return biased - _BIAS, version


def journal_key(subscription_id: int, sequence: int, record_type: int) -> bytes:
    """Key of a journal record."""
    return _JOURNAL.pack(JOURNAL, subscription_id, sequence, record_type)


def parse_journal_key(key: bytes) -> tuple[int, int]:
    """(sequence, record type) of a journal record's key."""
    _, _, sequence, record_type = _JOURNAL.unpack(key)
    return sequence, record_type


RETIRED_PIECE = (1 << 64) - 1
"""Piece number of the intent that lists the keys replaced by a commit; further commits count down from it."""


def intent_key(subscription_id: int, version: int, piece: int) -> bytes:
    """Key of the list of keys written by one piece of a persist ahead of its commit."""
    return _INTENT.pack(INTENT, subscription_id, version, piece)


def quarantine_key(number: int, key: bytes) -> bytes:
    """Key of a corrupt value's bytes; `number` rises, so that keys ascend with age."""
    return _QUARANTINE.pack(QUARANTINE, _NUMBERED, number) + key


def parse_quarantine_key(key: bytes) -> int:
    """A quarantined value's number; 0 for old ones without a number, which sort first."""
    if key[1] != _NUMBERED:
        return 0
    return int(_QUARANTINE.unpack_from(key)[2])
