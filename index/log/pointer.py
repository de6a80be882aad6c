"""The pointer: the line in the cursor's properties that names a subscription's index log.

Invariant: it names every ledger of the log, also unfinished and dead ones, so that all ledgers of a deleted
subscription can be deleted unread.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tidegate.index.errors import UnreadableLogError

POINTER_BYTES_MAX = 16_384
NO_LEDGER = -1

_POINTER = re.compile(r"1;(-1|[0-9]{1,19});((?:[0-9]{1,19}(?:,[0-9]{1,19})*)?);([!-~]{1,4096})", re.ASCII)


class Pointer(NamedTuple):
    """The ledgers of the index log, and their home.

    home: the kind of home of the ledgers, printable ASCII; ids of one home mean nothing in another.
    ledger_id: the ledger that counts, NO_LEDGER before there is one. others: all other ledgers of the log,
    ascending.
    """

    home: str
    ledger_id: int = NO_LEDGER
    others: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"1;{self.ledger_id};{','.join(map(str, self.others))};{self.home}"

    @classmethod
    def parse(cls, text: str) -> Pointer | None:
        """Read a pointer, None if there is none (an empty text). Raises UnreadableLogError."""
        if not text:
            return None
        found = _POINTER.fullmatch(text) if len(text) <= POINTER_BYTES_MAX else None
        if found is None:
            raise UnreadableLogError(f"this Tidegate cannot read the pointer {text[:80]!r}")
        ledger, others, home = found.groups()
        ids = tuple(sorted({int(each) for each in others.split(",") if each}))
        pointer = cls(home, int(ledger), ids)
        if max((pointer.ledger_id, *ids)) >= 1 << 63:
            raise UnreadableLogError(f"the pointer {text[:80]!r} names an impossible ledger")
        return pointer

    @property
    def ledgers(self) -> tuple[int, ...]:
        """All ledgers that the pointer names."""
        current = () if self.ledger_id == NO_LEDGER else (self.ledger_id,)
        return current + self.others


def of_home(text: str, home: str) -> Pointer:
    """The pointer in a text, if readable and of `home`; else one that names no ledger."""
    try:
        pointer = Pointer.parse(text)
    except UnreadableLogError:
        pointer = None
    return pointer if pointer is not None and pointer.home == home else Pointer(home)
