"""Takes the payload of a frame apart from front to back.

Invariants: it reads nothing behind the payload's end, and copies no records; each method raises
``ProtocolError`` (malformed) and nothing else.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from tidegate.index import ENTRY_ID_MAX, Entries, PositionSet, TidegateIndexError
from tidegate.plugin.errors import ErrorCode, ProtocolError
from tidegate.plugin.wire.frames import FrameType
from tidegate.plugin.wire.release_pace import PACE_AMOUNTS, PaceKind, ReleasePace

RECORD_BYTES = 24
CLAIMS_MAX = 64
U16 = struct.Struct("<H")
U32 = struct.Struct("<I")
PACE = struct.Struct("<BI")

_LEDGER = struct.Struct("<qI")
_CLAIM_BYTES = 4


class PayloadReader:
    """One payload, and how far it is read."""

    def __init__(self, kind: FrameType, payload: bytes | memoryview) -> None:
        self._kind = kind
        self._data = memoryview(payload)
        self._offset = 0

    def malformed(self, why: str) -> ProtocolError:
        """The error to raise."""
        return ProtocolError(ErrorCode.MALFORMED, f"{self._kind.name}: {why}")

    def cut(self, size: int) -> memoryview:
        """The next ``size`` bytes."""
        end = self._offset + size
        if end > len(self._data):
            raise self.malformed(f"payload ends {end - len(self._data)} bytes too early")
        piece = self._data[self._offset : end]
        self._offset = end
        return piece

    def rest(self) -> bytes:
        """Everything left."""
        return bytes(self.cut(len(self._data) - self._offset))

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """The next values of a layout."""
        return layout.unpack(self.cut(layout.size))

    def u16(self) -> int:
        """An unsigned number of 16 bits."""
        return int(self.unpack(U16)[0])

    def u32(self) -> int:
        """An unsigned number of 32 bits."""
        return int(self.unpack(U32)[0])

    def string(self) -> str:
        """A length and UTF-8."""
        try:
            return str(self.cut(self.u16()), "utf-8")
        except UnicodeDecodeError as error:
            raise self.malformed("a string is not UTF-8") from error

    def records(self) -> Entries:
        """A count and records."""
        return entries_of(self._kind, self.cut(self.u32() * RECORD_BYTES))

    def positions(self) -> PositionSet:
        """A set of positions."""
        start = self._offset
        previous = -1
        for _ in range(self.u32()):
            ledger_id, size = self.unpack(_LEDGER)
            if ledger_id <= previous:
                raise self.malformed(f"ledger {ledger_id} does not come after ledger {previous}")
            previous = ledger_id
            self.cut(size)
        try:
            return PositionSet.deserialize(bytes(self._data[start : self._offset]))
        except (TidegateIndexError, ValueError, IndexError) as error:
            raise self.malformed(f"a set of positions is damaged: {error}") from error

    def claims(self) -> tuple[int, ...]:
        """The numbers of an OPEN's claims."""
        count = self.u16()
        if count > CLAIMS_MAX:
            raise self.malformed(f"{count} claims, and there are at most {CLAIMS_MAX}")
        return struct.unpack(f"<{count}I", self.cut(count * _CLAIM_BYTES))

    def pace(self) -> ReleasePace:
        """A pace of release."""
        kind, amount = self.unpack(PACE)
        least, most = PACE_AMOUNTS.get(kind, (1, 0))
        if not least <= amount <= most:
            raise self.malformed(f"a pace of kind {kind} with {amount}")
        return ReleasePace(PaceKind(kind), amount)

    def end(self) -> None:
        """Require that nothing is left."""
        if self._offset != len(self._data):
            raise self.malformed(f"{len(self._data) - self._offset} bytes after the payload")


def entries_of(kind: FrameType, records: bytes | memoryview) -> Entries:
    """The entries of records of a frame of that type. Raises ``ProtocolError`` if one is out of range."""
    table = np.frombuffer(records, dtype="<i8").reshape(-1, 3)
    if len(table) and (table.min() < 0 or table[:, 1].max() > ENTRY_ID_MAX):
        raise ProtocolError(
            ErrorCode.MALFORMED, f"{kind.name}: a record's ledger id, entry id or time is out of range"
        )
    return Entries.from_records(table)
