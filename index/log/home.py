"""A home of index logs: ledgers as BookKeeper has them, and the pointer in the subscription's cursor.

A ledger is a list of entries, appended by the one who has made it, until somebody else opens it. Every home
keeps to this (tests/index/log/test_homes.py):

- entries of a ledger are numbered 0, 1, 2 … in the order of the appends. After an append has failed, every
  later one to that ledger fails;
- `open` answers with the last entry that counts: everything whose append had returned is up to it. Where
  `fences` is true, no later append of the former writer returns or is ever read;
- `point` changes the pointer only if it is what the caller believes, and only for the subscription's owner:
  two cannot both succeed from the same one;
- `delete` of a ledger that is not there succeeds.

Every method raises one of the errors below and nothing else.
"""

from __future__ import annotations

from typing import Protocol

ENTRY_BYTES_MAX = 3 << 19
"""Longest entry of a ledger."""

READ_BYTES = 1 << 20
"""A read returns about so many bytes, one entry at least; who wants more asks again."""


class HomeError(Exception):
    """A home has not done what it was asked to do."""


class FencedError(HomeError):
    """Somebody else has opened the ledger: nothing can be appended any more."""


class NoLedgerError(HomeError):
    """There is no such ledger, or an entry of it cannot be read, now or ever."""


class StalePointerError(HomeError):
    """The pointer is another one, or the subscription has another owner."""


class AwayError(HomeError):
    """The home does not answer, or fails: try again later."""


class RefusedError(HomeError):
    """This home does not do that, or not for this subscription any more: trying again is in vain."""


class Readable(Protocol):
    """What reading takes of a home."""

    async def open(self, ledger_id: int) -> int:
        """Open a ledger for reading; its last entry, -1 if it is empty."""
        ...

    async def read(self, ledger_id: int, first: int, last: int) -> list[bytes]:
        """Entries from `first` on, as many as fit into an answer but none behind `last`; one at least."""
        ...


class Home(Readable, Protocol):
    """Where the ledgers of one subscription are, as one owner of it sees them."""

    @property
    def kind(self) -> str:
        """The word for it in a pointer: ids of ledgers mean something in homes of the same kind only."""
        ...

    @property
    def fences(self) -> bool:
        """Whether a former writer cannot append any more once a ledger has been opened."""
        ...

    @property
    def interval_ms(self) -> int:
        """What is to be appended is gathered for so long at least: an append costs something here."""
        ...

    @property
    def tail_entries_max(self) -> int:
        """A ledger of so many entries after its snapshot is too long: reading each costs something."""
        ...

    async def create(self) -> int:
        """Make a ledger; its id."""
        ...

    async def append(self, ledger_id: int, entry: bytes) -> int:
        """Append to a ledger that was made here; the number of the entry. Appends may overlap."""
        ...

    async def close(self, ledger_id: int) -> None:
        """Nothing more will be appended or read here."""
        ...

    async def delete(self, ledger_id: int) -> None:
        """Delete a ledger."""
        ...

    async def point(self, old: str, new: str) -> None:
        """Change the pointer if it is `old` (empty: there is none)."""
        ...
