"""The due times of many entries, and other facts that decide their reading, without an object for each.

It walks all entries at once: each step decodes one field of every entry that has fields left, as arrays, in a
tenth of the time of parsing each message. Pure. Invariant: it agrees with `parse_entry` about metadata; an
entry with doubtful bytes goes there (``odd``), for any error. Nested messages' contents are not examined.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.pipeline.topic.bookie_frames import Payloads
from tidegate.pipeline.topic.entry import is_marker, is_transactional, parse_entry
from tidegate.pipeline.topic.schema import NOT_SET, field_number

NOT_DELAYED: Final = NOT_SET["deliver_at_time"]

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
_Bytes = npt.NDArray[np.uint8]

_NAME: Final = "MessageMetadata"
_DELIVER_AT = field_number(_NAME, "deliver_at_time")
_MARKER = field_number(_NAME, "marker_type")
_TXN_LEAST, _TXN_MOST = field_number(_NAME, "txnid_least_bits"), field_number(_NAME, "txnid_most_bits")
_CHECKSUM_MAGIC, _BROKER_MAGIC = 0x0E01, 0x0E02
_CHECKSUM_BYTES, _BROKER_BYTES, _SIZE_BYTES = 10, 6, 4
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_VARINT_MAX_BYTES = 10
_NUMBER_END = 1 << 29
_PADDING = bytes(16)
_NO_MARKER = NOT_SET["marker_type"] & 0xFFFFFFFF


class Scanned(NamedTuple):
    """One element for each entry. deliver_at_ms: ``NOT_DELAYED`` where there is none."""

    deliver_at_ms: Int64Array
    marker: BoolArray
    transactional: BoolArray


def scan(first: int, payloads: Payloads) -> Scanned:
    """Examine the entries ``first``, ``first + 1``, … as the managed ledger stored them.

    Raises ``WireError`` for an entry that is not Pulsar's.
    """
    data = np.frombuffer(b"".join([payloads.data, _PADDING]), np.uint8)
    walk = _Walk(data, payloads.begins, payloads.ends)
    walk.run()
    for at in np.flatnonzero(walk.odd).tolist():
        metadata = parse_entry(first + at, payloads[at], checked=True).metadata
        walk.deliver_at_ms[at] = metadata.deliver_at_time
        walk.marker[at] = is_marker(metadata)
        walk.transactional[at] = is_transactional(metadata)
    return Scanned(walk.deliver_at_ms, walk.marker, walk.transactional)


class _Walk:
    """A place in each entry, moved field by field.

    One that would leave its entry is odd, and walks no further. The padding after the last entry permits
    reading a few bytes before that is known.
    """

    def __init__(self, data: _Bytes, begins: Int64Array, ends: Int64Array) -> None:
        count = len(begins)
        self._data = data
        self.deliver_at_ms = np.full(count, NOT_DELAYED, np.int64)
        self.marker = np.zeros(count, np.bool_)
        self._least, self._most = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        self.odd = np.zeros(count, np.bool_)
        self._at, self._end = self._metadata(begins, ends)

    @property
    def transactional(self) -> BoolArray:
        """A mask of the entries with both halves of a transaction's id."""
        self._most &= self._least
        self._least = self._most
        return self._most

    def _metadata(self, begins: Int64Array, ends: Int64Array) -> tuple[Int64Array, Int64Array]:
        """The place of each entry's metadata."""
        at = begins.copy()
        enveloped = (ends - at >= _BROKER_BYTES) & (self._number(at, 2) == _BROKER_MAGIC)
        if enveloped.any():
            at += np.where(enveloped, _BROKER_BYTES + self._number(np.where(enveloped, at + 2, 0), 4), 0)
        # Too short or unusual entries are rare enough for one-by-one treatment.
        short = ends - at < _CHECKSUM_BYTES
        at = np.where(short, 0, at)
        checked = self._number(at, 2) == _CHECKSUM_MAGIC
        size_at = np.where(checked, at + _CHECKSUM_BYTES - _SIZE_BYTES, at)
        start = size_at + _SIZE_BYTES
        stop = start + self._number(size_at, 4)
        self.odd |= short | (stop > ends)
        return start, stop

    def _number(self, at: Int64Array, size: int) -> Int64Array:
        """The big-endian number of ``size`` bytes at each place."""
        number = np.zeros(len(at), np.int64)
        for step in range(size):
            number = number << 8 | self._data[at + step]
        return number

    def run(self) -> None:
        """Walk to the end of every entry."""
        left = np.flatnonzero(~self.odd & (self._at < self._end))
        at, end = self._at[left], self._end[left]
        while len(left):
            key, at, fine = self._varint(at, end)
            kind, number = key & 7, key >> np.uint64(3)
            value = np.zeros(len(left), np.uint64)
            counted = fine & ((kind == _VARINT) | (kind == _LENGTH))
            if counted.all():
                value, at, fine = self._varint(at, end)
            elif counted.any():
                value[counted], at[counted], fine[counted] = self._varint(at[counted], end[counted])
            self._note(left, number, kind == _VARINT, value, fine)
            jump = np.where(kind == _FIXED64, 8, np.where(kind == _FIXED32, 4, 0)).astype(np.uint64)
            jump = np.where(kind == _LENGTH, value, jump)
            room = (end - at).astype(np.uint64)
            known = (kind <= _LENGTH) | (kind == _FIXED32)
            fine &= known & (number > 0) & (number < _NUMBER_END) & (jump <= room)
            at += np.where(fine, jump, 0).astype(np.int64)
            self.odd[left[~fine]] = True
            more = fine & (at < end)
            if not more.all():
                left, at, end = left[more], at[more], end[more]

    def _note(
        self,
        left: npt.NDArray[np.intp],
        number: npt.NDArray[np.uint64],
        plain: BoolArray,
        value: npt.NDArray[np.uint64],
        fine: BoolArray,
    ) -> None:
        """Keep the wanted fields; of a repeated number the later field counts."""
        if not (number >= min(_DELIVER_AT, _MARKER, _TXN_LEAST, _TXN_MOST)).any():
            return
        plain = plain & fine
        found = plain & (number == _DELIVER_AT)
        self.deliver_at_ms[left[found]] = value[found].view(np.int64)
        found = plain & (number == _MARKER)
        self.marker[left[found]] = value[found] & np.uint64(0xFFFFFFFF) != _NO_MARKER
        self._least[left[plain & (number == _TXN_LEAST)]] = True
        self._most[left[plain & (number == _TXN_MOST)]] = True

    def _varint(
        self, at: Int64Array, end: Int64Array
    ) -> tuple[npt.NDArray[np.uint64], Int64Array, BoolArray]:
        """(number, the place after it, true if it is valid) at each place."""
        byte = self._data[np.minimum(at, len(self._data) - 1)].astype(np.uint64)
        number, following = byte & np.uint64(0x7F), at + 1
        fine = following <= end
        going = fine & (byte > 0x7F)
        step = 1
        while going.any():
            if step == _VARINT_MAX_BYTES:
                fine &= ~going
                break
            byte = self._data[np.minimum(following, len(self._data) - 1)].astype(np.uint64)
            part = (byte & np.uint64(0x7F)) << np.uint64(7 * step)
            number |= np.where(going, part, np.uint64(0))
            following += going
            fine &= following <= end
            going &= fine & (byte > 0x7F)
            step += 1
        return number, following, fine
