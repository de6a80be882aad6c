"""Which index log the local data of a subscription has written, or was restored from."""

from __future__ import annotations

import struct
from typing import NamedTuple

from tidegate.index.errors import CorruptRecordError
from tidegate.index.format import keys
from tidegate.index.format.envelope import unwrap, wrap

_CHAIN = struct.Struct("<q")


class Chain(NamedTuple):
    """The local data has all that the log in ledger `ledger_id` of `home` says, and perhaps more.

    whole: not once damage was found in it: then the log is the better copy, and whoever opens it reads that.
    """

    ledger_id: int
    home: str
    whole: bool = True

    def encode(self) -> bytes:
        """The chain as a stored value."""
        # One that knows only whole ones takes the other number for another log, and reads that.
        number = self.ledger_id if self.whole else -2 - self.ledger_id
        return wrap(keys.CHAIN, _CHAIN.pack(number) + self.home.encode("utf-8"))

    @classmethod
    def decode(cls, value: bytes) -> Chain:
        """Read a chain. Raises CorruptRecordError."""
        body = unwrap(keys.CHAIN, value)
        if len(body) < _CHAIN.size:
            raise CorruptRecordError("a chain is cut short")
        try:
            home = str(body[_CHAIN.size :], "utf-8")
        except UnicodeDecodeError as error:
            raise CorruptRecordError("a chain names no home") from error
        (number,) = _CHAIN.unpack_from(body)
        return cls(number, home) if number >= -1 else cls(-2 - number, home, whole=False)
