"""A home of index logs: ledgers as BookKeeper has them, and the pointer in the subscription's cursor.

A ledger is a list of entries, appended by its maker until another client opens it. Every home keeps to this
(tests/index/log/test_homes.py):

- a ledger's entries are numbered 0, 1, 2 … in append order. After a failed append, every later one to that
  ledger fails;
- `open` returns the last entry that counts: no returned append lies after it. If `fences` is true, no later
  append of the former writer returns or is ever read;
- `point` changes the pointer only from the value that the caller believes, and only for the subscription's
  owner: two calls cannot both succeed from the same value;
- `delete` of a missing ledger succeeds.

Every method raises one of the errors below and nothing else.
"""

from __future__ import annotations

from typing import Protocol

ENTRY_BYTES_MAX = 3 << 19
"""Longest entry of a ledger."""

READ_BYTES = 1 << 20
"""A read returns about so many bytes, at least one entry."""


class HomeError(Exception):
    """A home failed."""


class FencedError(HomeError):
    """Another client has opened the ledger: it takes no more appends."""


class NoLedgerError(HomeError):
    """The ledger is missing, or an entry of it cannot be read, now or ever."""


class StalePointerError(HomeError):
    """The pointer has another value, or the subscription another owner."""


class AwayError(HomeError):
    """The home does not answer, or fails. Try again later."""


class RefusedError(HomeError):
    """This home does not support that, or no longer for this subscription. Do not try again."""


class Readable(Protocol):
    """The reading part of a home."""

    async def open(self, ledger_id: int) -> int:
        """Open a ledger for reading; returns its last entry, -1 if it is empty."""
        ...

    async def read(self, ledger_id: int, first: int, last: int) -> list[bytes]:
        """Entries from `first` to `last`, at least one, as many as fit into an answer."""
        ...


class Home(Readable, Protocol):
    """One subscription's ledgers, for one owner."""

    @property
    def kind(self) -> str:
        """The home's name in a pointer: ledger ids are valid in homes of one kind only."""
        ...

    @property
    def fences(self) -> bool:
        """True if a former writer cannot append once another has opened the ledger."""
        ...

    @property
    def interval_ms(self) -> int:
        """Minimum time to gather appends, because each has a price here."""
        ...

    @property
    def tail_entries_max(self) -> int:
        """Maximum entries of a ledger after its snapshot, because each read has a price."""
        ...

    async def create(self) -> int:
        """Make a ledger; returns its id."""
        ...

    async def append(self, ledger_id: int, entry: bytes) -> int:
        """Append to a ledger made here; returns the entry's number. Appends may overlap."""
        ...

    async def close(self, ledger_id: int) -> None:
        """End the use of a ledger: no append or read follows."""
        ...

    async def delete(self, ledger_id: int) -> None:
        """Delete a ledger."""
        ...

    async def point(self, old: str, new: str) -> None:
        """Change the pointer if it is `old` (empty: there is none)."""
        ...
