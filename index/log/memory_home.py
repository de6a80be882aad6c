"""A home of index logs in memory, for tests and simulation: exactly BookKeeper's and the cursor's rules.

All owners of one subscription share a `World`; each has its own `MemoryHome`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegate.index.log.home import (
    ENTRY_BYTES_MAX,
    READ_BYTES,
    AwayError,
    FencedError,
    NoLedgerError,
    RefusedError,
    StalePointerError,
)


@dataclass
class MemoryLedger:
    """A ledger. `writer` may append until somebody opens or closes it."""

    writer: MemoryHome | None
    entries: list[bytes] = field(default_factory=list)


@dataclass
class World:
    """The ledgers and the pointer of one subscription.

    owner: only this one may change the pointer. away: True while nothing is answered. appends_left: appends
    that still succeed before the home is away, None for no limit.
    """

    ledgers: dict[int, MemoryLedger] = field(default_factory=dict)
    pointer: str = ""
    owner: MemoryHome | None = None
    next_ledger_id: int = 1
    away: bool = False
    appends_left: int | None = None

    def new_owner(self) -> MemoryHome:
        """The home for a new owner; from now on only this owner may change the pointer."""
        self.owner = MemoryHome(self)
        return self.owner


class MemoryHome:
    """The home as one owner sees it."""

    kind = "memory"
    fences = True
    interval_ms = 0
    tail_entries_max = 1 << 14

    def __init__(self, world: World) -> None:
        self.world = world

    async def create(self) -> int:
        """See `Home`."""
        self._require()
        ledger_id = self.world.next_ledger_id
        self.world.next_ledger_id += 1
        self.world.ledgers[ledger_id] = MemoryLedger(self)
        return ledger_id

    async def append(self, ledger_id: int, entry: bytes) -> int:
        """See `Home`."""
        if self.world.appends_left == 0:
            self._ledger(ledger_id).writer = None
            self.world.away = True
        self._require()
        ledger = self._ledger(ledger_id)
        if ledger.writer is not self:
            raise FencedError(f"ledger {ledger_id} was opened by another client")
        if len(entry) > ENTRY_BYTES_MAX:
            raise RefusedError(f"an entry of {len(entry)} bytes is too long")
        if self.world.appends_left is not None:
            self.world.appends_left -= 1
        ledger.entries.append(entry)
        return len(ledger.entries) - 1

    async def open(self, ledger_id: int) -> int:
        """See `Home`."""
        self._require()
        ledger = self._ledger(ledger_id)
        ledger.writer = None
        return len(ledger.entries) - 1

    async def read(self, ledger_id: int, first: int, last: int) -> list[bytes]:
        """See `Home`."""
        self._require()
        found: list[bytes] = []
        for entry in self._ledger(ledger_id).entries[first : last + 1]:
            if found and sum(map(len, found)) + len(entry) > READ_BYTES:
                break
            found.append(entry)
        if not found:
            raise NoLedgerError(f"ledger {ledger_id} has no entry {first}")
        return found

    async def close(self, ledger_id: int) -> None:
        """See `Home`."""
        self._require()
        ledger = self.world.ledgers.get(ledger_id)
        if ledger is not None and ledger.writer is self:
            ledger.writer = None

    async def delete(self, ledger_id: int) -> None:
        """See `Home`."""
        self._require()
        self.world.ledgers.pop(ledger_id, None)

    async def point(self, old: str, new: str) -> None:
        """See `Home`."""
        self._require()
        if self.world.owner is not self or self.world.pointer != old:
            raise StalePointerError(f"the pointer is {self.world.pointer!r}, or of another owner")
        self.world.pointer = new

    def _require(self) -> None:
        if self.world.away:
            raise AwayError("nobody is there")

    def _ledger(self, ledger_id: int) -> MemoryLedger:
        ledger = self.world.ledgers.get(ledger_id)
        if ledger is None:
            raise NoLedgerError(f"there is no ledger {ledger_id}")
        return ledger
