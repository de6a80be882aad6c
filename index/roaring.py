"""Portable roaring bytes, as RoaringBitmap's format specification says: of one ledger, and of many.

A 64-bit bitmap of many ledgers is a count and, for each ledger, its number and the 32-bit bitmap of its
entry ids. So the bytes of the one are cut out of, or joined into, those of the other without touching an
entry.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from pyroaring import BitMap, BitMap64

from tidegate.index.errors import CorruptRecordError

_COUNT = struct.Struct("<Q")
_HIGH = struct.Struct("<I")
_U16 = struct.Struct("<H")
_COOKIE = 12_346
_COOKIE_WITH_RUNS = 12_347
_NO_OFFSETS_BELOW = 4
"""With run containers the offsets are left out where there are fewer containers than this."""
_ARRAY_MAX = 4_096
_BITSET_BYTES = 8_192


def serialize_bitmap(bitmap: BitMap) -> bytes:
    """Portable roaring bytes of one ledger's entry ids, with run containers where they are smaller."""
    copy = bitmap.copy()
    copy.run_optimize()
    return bytes(copy.serialize())


def deserialize_bitmap(data: bytes) -> BitMap:
    """Read what `serialize_bitmap` wrote; all of `data` must be used. Raises CorruptRecordError."""
    try:
        bitmap = BitMap.deserialize(data)
    except (ValueError, IndexError) as error:
        raise CorruptRecordError(f"not a portable roaring bitmap of {len(data)} bytes") from error
    if len(bitmap.serialize()) != len(data):
        raise CorruptRecordError(f"a roaring bitmap of {len(data)} bytes has bytes too many")
    return bitmap


def join(parts: Iterable[tuple[int, bytes | memoryview]]) -> BitMap64:
    """The 64-bit bitmap of (number, portable 32-bit bytes), numbers ascending. Raises CorruptRecordError.

    A part that is not one whole, non-empty bitmap is refused.
    """
    numbers = []
    pieces: list[bytes | memoryview] = [b""]
    for number, data in parts:
        numbers.append(number)
        pieces.append(_HIGH.pack(number))
        pieces.append(data)
    pieces[0] = _COUNT.pack(len(numbers))
    joined = b"".join(pieces)
    try:
        bitmap = BitMap64.deserialize(joined)
    except (ValueError, IndexError) as error:
        raise CorruptRecordError("positions: not a portable roaring bitmap") from error
    # A part that is longer or shorter than it says would move what follows it.
    if len(bitmap.serialize()) != len(joined) or list(highs(bitmap)) != numbers:
        raise CorruptRecordError("positions: a roaring bitmap that is empty or not as long as it says")
    return bitmap


def highs(bitmap: BitMap64, last: int = (1 << 64) - 1) -> Iterator[int]:
    """Yield the distinct upper 32 bits of the values up to `last`, ascending; half a microsecond each."""
    following = 0
    while following <= last:
        try:
            value = bitmap.next_set_bit(following)
        except ValueError:
            return
        if value > last:
            return
        high = value >> 32
        yield high
        following = (high + 1) << 32


def split(bitmap: BitMap64) -> Iterator[tuple[int, memoryview]]:
    """Yield (upper 32 bits, portable bytes of the lower 32 bits), ascending, as small as they get."""
    data = memoryview(BitMap64(bitmap).serialize())  # the constructor optimises the copy
    (count,) = _COUNT.unpack_from(data)
    at = _COUNT.size
    for _ in range(count):
        (high,) = _HIGH.unpack_from(data, at)
        at += _HIGH.size
        size_bytes = _size_bytes(data[at:])
        yield high, data[at : at + size_bytes]
        at += size_bytes


def part(bitmap: BitMap64, high: int) -> bytes | None:
    """Portable bytes of the lower 32 bits of the values with these upper bits; None if there are none.

    O(containers) with a very small constant: use `split` for many.
    """
    before = bitmap.rank((high << 32) - 1) if high else 0
    last = bitmap.rank((high << 32) | 0xFFFFFFFF)
    if before == last:
        return None
    mine = bitmap & BitMap64(range(high << 32, bitmap[last - 1] + 1))
    mine.run_optimize()
    return bytes(mine.serialize()[_COUNT.size + _HIGH.size :])


def _size_bytes(data: memoryview) -> int:
    """Size of the 32-bit bitmap that `data` begins with; the bytes are known to be good."""
    cookie = int.from_bytes(data[:4], "little")
    if cookie & 0xFFFF == _COOKIE_WITH_RUNS:
        count = (cookie >> 16) + 1
        flags = data[4:]
        keys_at = 4 + (count + 7) // 8
        has_offsets = count >= _NO_OFFSETS_BELOW
    else:
        count = int.from_bytes(data[4:8], "little")
        flags = memoryview(b"")
        keys_at = 8
        has_offsets = True
    offsets_at = keys_at + 4 * count
    if not has_offsets:
        at = offsets_at
        for number in range(count):
            at += _container_bytes(data, flags, keys_at, number, at)
        return at
    last = count - 1
    at = int.from_bytes(data[offsets_at + 4 * last : offsets_at + 4 * count], "little")
    return at + _container_bytes(data, flags, keys_at, last, at)


def _container_bytes(data: memoryview, flags: memoryview, keys_at: int, number: int, at: int) -> int:
    """Size of the container with this number, which begins at `at`."""
    if len(flags) and flags[number >> 3] >> (number & 7) & 1:
        return 2 + 4 * int(_U16.unpack_from(data, at)[0])
    cardinality = int(_U16.unpack_from(data, keys_at + 4 * number + 2)[0]) + 1
    return 2 * cardinality if cardinality <= _ARRAY_MAX else _BITSET_BYTES
