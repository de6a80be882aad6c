"""Writes one ledger of an index log: a header, then numbered records.

Invariant: an entry counts only under the number that the home returns; any other number ends the ledger.
"""

from __future__ import annotations

import asyncio

from tidegate.index.format.manifest import Identity
from tidegate.index.log.home import Home, NoLedgerError
from tidegate.index.log.places import Place, Places
from tidegate.index.log.records import (
    GRAMMAR_VERSION,
    EntryKind,
    Header,
    encode_operations,
    encode_record,
)
from tidegate.index.log.tap import Operation

_OVERLAPPING_APPENDS = 4


class LedgerWriter:
    """One log ledger while it is written. Any error of the home ends it.

    size_bytes, entries: appended so far.
    """

    def __init__(self, home: Home, ledger_id: int, chain: int, version: int = GRAMMAR_VERSION) -> None:
        self.ledger_id = ledger_id
        self.size_bytes = 0
        self._home = home
        self._chain = chain
        self._version = version
        self._next = 0

    @property
    def entries(self) -> int:
        """See above."""
        return self._next

    async def put_header(self, identity: Identity) -> None:
        """Append the header."""
        await self._append([Header(self._chain, identity, self._version).encode()])

    async def put(self, kind: EntryKind, data: bytes) -> None:
        """Append a record, durable on return. Raises HomeError."""
        await self._append(encode_record(kind, data, self._chain, self._next))

    async def put_blocks(self, blocks: list[Operation]) -> Places:
        """Append a record of blocks; returns their places. Raises HomeError."""
        first = self._next
        await self.put(EntryKind.BLOCKS, encode_operations(blocks))
        return {
            key: Place(self.ledger_id, self._chain, first, self.size_bytes, len(value))
            for _, key, value in blocks
        }

    async def _append(self, entries: list[bytes]) -> None:
        for at in range(0, len(entries), _OVERLAPPING_APPENDS):
            group = entries[at : at + _OVERLAPPING_APPENDS]
            numbers = await asyncio.gather(
                *(self._home.append(self.ledger_id, entry) for entry in group), return_exceptions=True
            )
            for number in numbers:
                if isinstance(number, BaseException):
                    raise number
                if number != self._next:
                    raise NoLedgerError(f"ledger {self.ledger_id} has taken entry {self._next} as {number}")
                self._next += 1
        self.size_bytes += sum(map(len, entries))
