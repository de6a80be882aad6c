"""Sets of positions cut into pieces that fit into frames.

Invariant: the union of the pieces is the set, and each is sorted by ledger.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from pyroaring import BitMap

from tidegate.index import PositionSet, deserialize_bitmap, serialize_bitmap

SET_CUT_BYTES = 1024 * 1024
SET_CUT_LEDGERS = 128  # each costs some 20 µs to encode, however small

_LEDGER = struct.Struct("<qI")


def split_positions(
    positions: PositionSet, cut_bytes: int = SET_CUT_BYTES, cut_ledgers: int = SET_CUT_LEDGERS
) -> Iterator[PositionSet]:
    """Cut a set at ledger borders into sets of ``cut_ledgers``, and about ``cut_bytes`` each on the wire.

    Made lazily. A ledger whose own bitmap is larger (over 8 M entries) splits at entry ids: the union of the
    parts is the set.
    """
    part: list[tuple[int, bytes]] = []
    size = 0
    for ledger_id, data in positions.portable():
        for piece in _split_bitmap(data, cut_bytes):
            piece_bytes = _LEDGER.size + len(piece)
            full = size + piece_bytes > cut_bytes or len(part) == cut_ledgers
            if part and (full or ledger_id == part[-1][0]):
                yield PositionSet.of_portable(part)
                part, size = [], 0
            part.append((ledger_id, piece))
            size += piece_bytes
    if part:
        yield PositionSet.of_portable(part)


def _split_bitmap(data: bytes, cut_bytes: int) -> Iterator[bytes]:
    if len(data) <= cut_bytes:
        yield data
        return
    bitmap = deserialize_bitmap(data)
    # A container of 65,536 ids takes at most 8 KiB and 8 bytes of header; a cut of whole containers always
    # fits.
    ids = max(1, cut_bytes // (8192 + 8)) * 65_536
    for first in range(bitmap.min() // ids * ids, bitmap.max() + 1, ids):
        piece = bitmap & BitMap(range(first, first + ids))
        if piece:
            yield serialize_bitmap(piece)
