"""The synced extent of the store: the number of a commit in the database, and the witness's statement."""

from __future__ import annotations

import struct
from typing import NamedTuple

from tidegate.index.errors import CorruptRecordError
from tidegate.index.format.envelope import unwrap, wrap
from tidegate.index.format.keys import COMMIT_KEY

_KIND = COMMIT_KEY[:1]
_NUMBER = struct.Struct("<Q")
_STATEMENT_KIND = b"W"
_STATEMENT = struct.Struct("<QQB")

STATEMENT_BYTES = 25
"""Size of an encoded statement."""


def commit_record(number: int) -> bytes:
    """The stored value with the number of the last commit."""
    return wrap(_KIND, _NUMBER.pack(number))


def decode_commit(value: bytes) -> int:
    """Read the number of a commit. Raises CorruptRecordError."""
    body = unwrap(_KIND, value)
    if len(body) != _NUMBER.size:
        raise CorruptRecordError("the number of a commit does not fit its value")
    return int(_NUMBER.unpack(body)[0])


class Statement(NamedTuple):
    """The statement of a witness.

    commit: the number of a commit that was synced, as were all before it.
    lost: the number of commits found missing, at least.
    settled: True if the consequences of the loss are durable, or if nothing was missing.
    """

    commit: int
    lost: int = 0
    settled: bool = True

    def encode(self) -> bytes:
        """The statement as a slot of the witness."""
        return wrap(_STATEMENT_KIND, _STATEMENT.pack(self.commit, self.lost, self.settled))

    @classmethod
    def decode(cls, slot: bytes) -> Statement:
        """Read a slot. Raises CorruptRecordError."""
        body = unwrap(_STATEMENT_KIND, slot)
        if len(body) != _STATEMENT.size or body[-1] > 1:
            raise CorruptRecordError("a slot of the witness does not follow its grammar")
        commit, lost, settled = _STATEMENT.unpack(body)
        return cls(commit, lost, bool(settled))
