"""The index log written from the local data of a subscription, or its origin."""

from __future__ import annotations

import struct
from typing import NamedTuple

from tidegate.index.errors import CorruptRecordError
from tidegate.index.format import keys
from tidegate.index.format.envelope import unwrap, wrap

_CHAIN = struct.Struct("<q")
_END_OF_HOME = b"\0"
_ALSO_MAX = 16
_NO_LEDGER = -1


class Chain(NamedTuple):
    """The local data has everything in the log in ledger `ledger_id` of `home`, and perhaps more.

    whole: False once the local data is found damaged: the next owner then reads the log. also: the ledgers of
    later logs, written from this data or from data that it has replaced, of which the same is true: the
    cursor may point to one before its writer hears so.
    """

    ledger_id: int
    home: str
    whole: bool = True
    also: tuple[int, ...] = ()

    def has(self, ledger_id: int, home: str) -> bool:
        """True if the local data has everything in the log in that ledger."""
        return self.home == home and ledger_id in (self.ledger_id, *self.also)

    def may_become(self, ledger_id: int) -> Chain:
        """This chain, while the log in another ledger, written from this data, may come to count."""
        # Drops the oldest: at worst a log is read in vain.
        return self._replace(also=(*self.also, ledger_id)[-_ALSO_MAX:])

    def replacing(self, former: Chain | None) -> Chain:
        """This chain, for data that replaces the data of the chain `former`.

        A pointer to a log of the former data may still come.
        """
        if former is None or former.home != self.home:
            return self
        left = [each for each in (former.ledger_id, *former.also) if each not in (_NO_LEDGER, self.ledger_id)]
        return self._replace(also=tuple(left[-_ALSO_MAX:]))

    def encode(self) -> bytes:
        """The chain as a stored value."""
        # An older Tidegate, which knows only whole chains, takes this number for another log, and reads that
        # log.
        number = self.ledger_id if self.whole else -2 - self.ledger_id
        also = b"".join(map(_CHAIN.pack, self.also))
        home = self.home.encode("utf-8") + (_END_OF_HOME + also if also else b"")
        return wrap(keys.CHAIN, _CHAIN.pack(number) + home)

    @classmethod
    def decode(cls, value: bytes) -> Chain:
        """Read a chain. Raises CorruptRecordError."""
        body = unwrap(keys.CHAIN, value)
        if len(body) < _CHAIN.size:
            raise CorruptRecordError("a chain is cut short")
        named, ends, rest = bytes(body[_CHAIN.size :]).partition(_END_OF_HOME)
        try:
            home = str(named, "utf-8")
        except UnicodeDecodeError as error:
            raise CorruptRecordError("a chain names no home") from error
        if len(rest) % _CHAIN.size or bool(ends) != bool(rest):
            raise CorruptRecordError("a chain is cut short")
        also = tuple(each for (each,) in _CHAIN.iter_unpack(rest))
        (number,) = _CHAIN.unpack_from(body)
        return cls(number if number >= -1 else -2 - number, home, number >= -1, also)
