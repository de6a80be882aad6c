"""Portable roaring bytes of one ledger and of many, as in RoaringBitmap's format specification.

A 64-bit bitmap of many ledgers is a count and, for each ledger, its number and the 32-bit bitmap of its entry
ids: bytes split and join without touching an entry. Also changes of bitmaps that examine as few containers as
possible.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import numpy as np
from pyroaring import BitMap, BitMap64

from tidegate.index.errors import CorruptRecordError

_COUNT = struct.Struct("<Q")
_HIGH = struct.Struct("<I")
_VALUE_MAX = (1 << 64) - 1
_RANGE_MIN = 1 << 16
"""A range takes a container for each 65,536 values: more entry ids than most ledgers have."""

_BULK = 512
"""From so many values on, set algebra of whole bitmaps is faster than single values, unless there are more
containers than values to put in: it examines each container.
"""

_DISCARD_CONTAINERS = 4
"""Taking out one value costs as much as examining so many containers."""

_RUN_MIN = 4
"""Average length of a run that makes a search for runs worthwhile."""

_COUNT_EVERY, _COUNT_SHARE = 16, 64
"""A new count comes after so many questions, and one for so many containers."""


def serialize_bitmap(bitmap: BitMap) -> bytes:
    """Portable roaring bytes of one ledger's entry ids, with run containers where they are smaller."""
    copy = bitmap.copy()
    copy.run_optimize()
    return bytes(copy.serialize())


def deserialize_bitmap(data: bytes) -> BitMap:
    """Read the bytes of `serialize_bitmap`; all of `data` must be used. Raises CorruptRecordError."""
    try:
        bitmap = BitMap.deserialize(data)
    except (ValueError, IndexError) as error:
        raise CorruptRecordError(f"not a portable roaring bitmap of {len(data)} bytes") from error
    if len(bitmap.serialize()) != len(data):
        raise CorruptRecordError(f"a roaring bitmap of {len(data)} bytes has bytes too many")
    return bitmap


def join(parts: Iterable[tuple[int, bytes | memoryview]]) -> BitMap64:
    """The 64-bit bitmap of (number, portable 32-bit bytes), numbers ascending.

    Raises CorruptRecordError, also for a part that is not one whole, non-empty bitmap.
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
    again = bitmap.serialize()
    # A part with a wrong length would move its successors. Other libraries may use other containers for the
    # same values.
    if again != joined and (len(again) != len(joined) or list(highs(bitmap)) != numbers):
        raise CorruptRecordError("positions: a roaring bitmap that is empty or of a wrong length")
    return bitmap


def first(bitmap: BitMap64) -> int:
    """The smallest value. There must be one. `BitMap64.min` examines all containers."""
    return int(bitmap.next_set_bit(0))


def containers(bitmap: BitMap64) -> int:
    """Number of containers, about that of ledgers. Examines all of them."""
    return int(bitmap.get_statistics()["n_containers"])


class Containers:
    """A bitmap's approximate number of containers, counted now and then: each count examines all of them."""

    __slots__ = ("_good_for", "_known")

    def __init__(self) -> None:
        self._known = 0
        self._good_for = 0

    def about(self, bitmap: BitMap64) -> int:
        """The number, as of now or of a few questions ago."""
        if not self._good_for:
            self._known = containers(bitmap)
            self._good_for = _COUNT_EVERY + self._known // _COUNT_SHARE
        self._good_for -= 1
        return self._known


def put(mine: BitMap64, theirs: BitMap64, there: Containers) -> None:
    """Add the values of `theirs` in place. there: the containers of `mine`."""
    count = len(theirs)
    if count >= _BULK and count >= there.about(mine):
        mine |= theirs
    else:
        mine.update(theirs.to_array())


def take_out(mine: BitMap64, theirs: BitMap64, there: Containers) -> None:
    """Remove the values of `theirs` in place. there: the containers of `mine`."""
    count = len(theirs)
    if count < _BULK:
        for value in theirs:
            mine.discard(value)
    elif count * _DISCARD_CONTAINERS >= there.about(mine):
        mine -= theirs
    else:
        for first_value, last in runs(theirs, count // _RUN_MIN) or ((value, value) for value in theirs):
            mine.remove_range(first_value, last)  # the range excludes `last`
            mine.discard(last)


def runs(bitmap: BitMap64, runs_max: int) -> list[tuple[int, int]] | None:
    """(first, last) of consecutive values, ascending; None if there are more than `runs_max`."""
    values = np.frombuffer(bitmap.to_array(), dtype=np.uint64)
    ends = np.flatnonzero(np.diff(values) > 1)
    if not len(values) or len(ends) >= runs_max:
        return None if len(values) else []
    starts = [int(values[0]), *values[ends + 1].tolist()]
    return list(zip(starts, [*values[ends].tolist(), int(values[-1])], strict=True))


def of_highs(bitmap: BitMap64, wanted: Iterable[int]) -> BitMap64:
    """The values with these upper 32 bits; some microseconds each, independent of the bitmap's size."""
    mask = BitMap64()
    for high in wanted:
        size = _range_size(bitmap, high)
        mask.add_range(high << 32, min((high << 32) + size, _VALUE_MAX))
        if (high << 32) + size > _VALUE_MAX:
            mask.add(_VALUE_MAX)  # a range excludes its end
    return bitmap & mask


def highs(bitmap: BitMap64, last: int = _VALUE_MAX) -> Iterator[int]:
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


def split(bitmap: BitMap64) -> Iterator[tuple[int, bytes]]:
    """Yield (upper 32 bits, portable bytes of the lower 32 bits), ascending, in the smallest form."""
    for high in highs(bitmap):
        data = part(bitmap, high)
        if data is not None:
            yield high, data


def part(bitmap: BitMap64, high: int) -> bytes | None:
    """Portable bytes of the lower 32 bits of the values with these upper bits; None without any.

    Takes some ten microseconds, independent of the bitmap's size. Cutting up a copy would be faster for all
    parts, but hold the interpreter lock for tens of milliseconds.
    """
    mine = of_highs(bitmap, (high,))
    if not mine:
        return None
    mine.run_optimize()
    return bytes(mine.serialize()[_COUNT.size + _HIGH.size :])


def _range_size(bitmap: BitMap64, high: int) -> int:
    """The size of a range of lower halves that covers those present with this upper half."""
    size = _RANGE_MIN
    while size < 1 << 32 and _has_from(bitmap, (high << 32) + size, high):
        size <<= 2
    return size


def _has_from(bitmap: BitMap64, value: int, high: int) -> bool:
    """True if a value from `value` on has these upper bits."""
    try:
        return bitmap.next_set_bit(value) >> 32 == high
    except ValueError:
        return False
