"""Reads an index log: from the entries of its ledger to the subscription's keys.

Entries count in order, up to the first missing or damaged one: each state of the log is one that the store
has had, or that a crash could have left. A log with an incomplete snapshot does not count.

Invariant: `Content` never has a part of a record.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from tidegate.index.errors import CorruptRecordError, UnreadableLogError
from tidegate.index.format import keys
from tidegate.index.format.manifest import Identity
from tidegate.index.log.home import AwayError, HomeError, Readable
from tidegate.index.log.places import Place, Places
from tidegate.index.log.records import PLACE, EntryKind, Header, decode_operations, decode_piece
from tidegate.index.store import Batch


class Spill(Protocol):
    """Takes blocks, nearly all bytes of a log, out of memory while the log is read."""

    def apply_operation(self, kind: int, key: bytes, value: bytes) -> None:
        """Apply the next operation on blocks."""
        ...

    async def drain(self, read_bytes: int) -> None:
        """Wait for writes if necessary, between the home's answers. read_bytes: of the log so far.

        Raises StorageError, and the awaited writes' errors.
        """
        ...


class Content:
    """A subscription's keys, without its id, and their values; applies operations.

    spilled: True if blocks' values are elsewhere, and empty here. places: of the blocks that the log only
    names; their values are always empty.
    """

    def __init__(self, spill: Spill | None = None) -> None:
        self.places: Places = {}
        self._kinds: dict[bytes, dict[bytes, bytes]] = {}
        self._spill = spill

    @property
    def spilled(self) -> bool:
        """See above."""
        return self._spill is not None

    def of(self, kind: bytes) -> dict[bytes, bytes]:
        """The keys and values of one kind. Do not change the dict."""
        return self._kinds.get(kind, {})

    def apply(self, kind: int, key: bytes, value: bytes) -> None:
        """Apply one operation."""
        of_kind = self._kinds.setdefault(key[:1], {})
        if kind == PLACE:
            of_kind[key] = b""
            self.places[key] = Place.decode(value)
            return
        if key[:1] == keys.BLOCK:
            if self._spill is not None:
                self._spill.apply_operation(kind, key, value)
                value = b"" if kind == Batch.PUT else value
            if kind != Batch.DELETE_RANGE:
                self.places.pop(key, None)
        if kind == Batch.PUT:
            of_kind[key] = value
        elif kind == Batch.DELETE:
            of_kind.pop(key, None)
        else:
            for each in [each for each in of_kind if key <= each < value]:
                del of_kind[each]
                self.places.pop(each, None)


class LogParser:
    """Takes a log ledger's entries one after another, and collects their content.

    content: from the complete records. complete: True if the snapshot is. entries, size_bytes: of the records
    that count.
    """

    def __init__(self, identity: Identity, spill: Spill | None = None) -> None:
        self.content = Content(spill)
        self.complete = False
        self.entries = 0
        self.size_bytes = 0
        self._identity = identity
        self._chain: int | None = None
        self._pending: list[memoryview] = []
        self._pending_kind: EntryKind | None = None
        self._pending_bytes = 0

    def feed(self, entry: bytes) -> None:
        """Read the next entry. Raises CorruptRecordError or UnreadableLogError; none after it counts."""
        if self._chain is None:
            header = Header.decode(entry)
            if header.identity != self._identity:
                raise UnreadableLogError(f"it is the log of another subscription, {header.identity.name}")
            self._chain = header.chain
            self._count(1, len(entry))
            return
        number = self.entries + len(self._pending)
        piece = decode_piece(entry, self._chain, number)
        if self._pending_kind not in (None, piece.kind):
            raise CorruptRecordError(f"entry {number} does not continue the record before it")
        if piece.kind is EntryKind.BLOCKS or self.complete != (piece.kind is EntryKind.BATCH):
            raise CorruptRecordError(f"entry {number} is out of place")
        self._pending.append(piece.data)
        self._pending_kind = piece.kind if piece.more else None
        self._pending_bytes += len(entry)
        if piece.more:
            return
        # Decoded whole before any is applied: a record counts as one.
        operations = list(decode_operations(b"".join(self._pending)))
        for kind, key, value in operations:
            if kind == PLACE:
                _require_place(key, value)
        for operation in operations:
            self.content.apply(*operation)
        if piece.kind is EntryKind.SNAPSHOT_END:
            self.complete = True
        self._count(len(self._pending), self._pending_bytes)
        self._pending = []
        self._pending_bytes = 0

    def _count(self, entries: int, size_bytes: int) -> None:
        self.entries += entries
        self.size_bytes += size_bytes


def _require_place(key: bytes, value: bytes) -> None:
    """Raise CorruptRecordError unless an operation has a valid place of a block."""
    Place.decode(value)
    if key[:1] != keys.BLOCK:
        raise CorruptRecordError(f"key {key.hex()} has a place, and is no block's")


@dataclass(frozen=True)
class LogText:
    """A log as read. `damage` names the fault at its end, empty if none."""

    content: Content
    entries: int
    size_bytes: int
    damage: str


async def read_log(home: Readable, ledger_id: int, identity: Identity, spill: Spill | None = None) -> LogText:
    """Open and read the log in a ledger; this fences its former writer.

    spill: takes the blocks, so that memory has no more of them than an open index has; None keeps them.
    Raises UnreadableLogError if none of the log is usable, AwayError if the home does not answer.
    """
    parser = LogParser(identity, spill)
    damage = ""
    try:
        last = await home.open(ledger_id)
        async with contextlib.aclosing(_entries(home, ledger_id, last)) as answers:
            async for first, entries in answers:
                for at, entry in enumerate(entries, first):
                    try:
                        parser.feed(entry)
                    except (CorruptRecordError, UnreadableLogError) as error:
                        damage = f"entry {at}: {error}"
                        break
                if damage:
                    break
                if spill is not None:
                    await spill.drain(parser.size_bytes)
    except AwayError:
        # The rest may appear later, and a successor would then know more than this owner.
        raise
    except HomeError as error:
        damage = str(error)
    if not parser.complete:
        raise UnreadableLogError(damage or "its snapshot is incomplete")
    return LogText(parser.content, parser.entries, parser.size_bytes, damage)


async def _entries(
    home: Readable, ledger_id: int, last: int
) -> AsyncGenerator[tuple[int, list[bytes]], None]:
    """All entries up to `last`, as (number of the first, entries); requests the next ones meanwhile."""
    at = 0
    reading = asyncio.ensure_future(home.read(ledger_id, at, last)) if last >= 0 else None
    try:
        while reading is not None:
            entries = await reading
            first, at = at, at + len(entries)
            reading = asyncio.ensure_future(home.read(ledger_id, at, last)) if at <= last else None
            # Parsing blocks the loop: let the request go out first.
            await asyncio.sleep(0)
            yield first, entries
    finally:
        if reading is not None:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError, HomeError):
                await reading
