"""Portable roaring bytes, as RoaringBitmap's format specification says: of one ledger, and of many.

A 64-bit bitmap of many ledgers is a count and, for each ledger, its number and the 32-bit bitmap of its
entry ids. So the bytes of the one are cut out of, or joined into, those of the other without touching an
entry. And the changes of a bitmap, made in the way that looks at least.
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
"""A range takes a container for each 65,536 values: so many entry ids most ledgers have not."""

_BULK = 512
"""From so many values on, set algebra of whole bitmaps is faster than one value after another, unless there
are more containers than values to be put in: it looks at each."""

_DISCARD_CONTAINERS = 4
"""To take out one value costs as much as to look at so many containers."""

_RUN_MIN = 4
"""Values that a run has on average, to be worth looking for runs."""

_COUNT_EVERY, _COUNT_SHARE = 16, 64
"""Containers are counted again after so many questions, and one for so many containers."""


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
    again = bitmap.serialize()
    # A part that is longer or shorter than it says would move what follows it. Others than this library may
    # have other containers for the same.
    if again != joined and (len(again) != len(joined) or list(highs(bitmap)) != numbers):
        raise CorruptRecordError("positions: a roaring bitmap that is empty or not as long as it says")
    return bitmap


def first(bitmap: BitMap64) -> int:
    """The smallest value. There must be one. `BitMap64.min` looks at all containers."""
    return int(bitmap.next_set_bit(0))


def containers(bitmap: BitMap64) -> int:
    """How many containers it has, which is about the number of ledgers. Looks at all of them."""
    return int(bitmap.get_statistics()["n_containers"])


class Containers:
    """About how many containers a bitmap has. To count looks at all of them, so it is done now and then."""

    __slots__ = ("_good_for", "_known")

    def __init__(self) -> None:
        self._known = 0
        self._good_for = 0

    def about(self, bitmap: BitMap64) -> int:
        """The number, of now or of a few questions ago."""
        if not self._good_for:
            self._known = containers(bitmap)
            self._good_for = _COUNT_EVERY + self._known // _COUNT_SHARE
        self._good_for -= 1
        return self._known


def put(mine: BitMap64, theirs: BitMap64, there: Containers) -> None:
    """Put the values of `theirs` in, in place. there: the containers of `mine`."""
    count = len(theirs)
    if count >= _BULK and count >= there.about(mine):
        mine |= theirs
    else:
        mine.update(theirs.to_array())


def take_out(mine: BitMap64, theirs: BitMap64, there: Containers) -> None:
    """Take the values of `theirs` out, in place. there: the containers of `mine`."""
    count = len(theirs)
    if count < _BULK:
        for value in theirs:
            mine.discard(value)
    elif count * _DISCARD_CONTAINERS >= there.about(mine):
        mine -= theirs
    else:
        for first_value, last in runs(theirs, count // _RUN_MIN) or ((value, value) for value in theirs):
            mine.remove_range(first_value, last)  # `last` itself is not part of that range
            mine.discard(last)


def runs(bitmap: BitMap64, runs_max: int) -> list[tuple[int, int]] | None:
    """(first, last) of values that follow each other, ascending; None if there are more than `runs_max`."""
    values = np.frombuffer(bitmap.to_array(), dtype=np.uint64)
    ends = np.flatnonzero(np.diff(values) > 1)
    if not len(values) or len(ends) >= runs_max:
        return None if len(values) else []
    starts = [int(values[0]), *values[ends + 1].tolist()]
    return list(zip(starts, [*values[ends].tolist(), int(values[-1])], strict=True))


def of_highs(bitmap: BitMap64, wanted: Iterable[int]) -> BitMap64:
    """The values with these upper 32 bits; some microseconds for each, however large the whole bitmap is."""
    mask = BitMap64()
    for high in wanted:
        size = _range_size(bitmap, high)
        mask.add_range(high << 32, min((high << 32) + size, _VALUE_MAX))
        if (high << 32) + size > _VALUE_MAX:
            mask.add(_VALUE_MAX)  # a range cannot reach it
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
    """Yield (upper 32 bits, portable bytes of the lower 32 bits), ascending, as small as they get."""
    for high in highs(bitmap):
        data = part(bitmap, high)
        if data is not None:
            yield high, data


def part(bitmap: BitMap64, high: int) -> bytes | None:
    """Portable bytes of the lower 32 bits of the values with these upper bits; None if there are none.

    Some ten microseconds, however large the whole bitmap is: cutting up a copy of it would be faster for all
    of it, but hold the interpreter lock for tens of milliseconds.
    """
    mine = of_highs(bitmap, (high,))
    if not mine:
        return None
    mine.run_optimize()
    return bytes(mine.serialize()[_COUNT.size + _HIGH.size :])


def _range_size(bitmap: BitMap64, high: int) -> int:
    """So many lower halves cover those that are there with this upper half."""
    size = _RANGE_MIN
    while size < 1 << 32 and _has_from(bitmap, (high << 32) + size, high):
        size <<= 2
    return size


def _has_from(bitmap: BitMap64, value: int, high: int) -> bool:
    """Whether there is a value from `value` on with these upper bits."""
    try:
        return bitmap.next_set_bit(value) >> 32 == high
    except ValueError:
        return False
