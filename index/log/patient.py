"""Reads ledgers of a home that is away for moments, by asking again until it answers.

Opening and reading twice changes nothing. Invariant: only the waiting caller gives up, never this class;
`last` has the reason.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tidegate.index.log.home import AwayError, Readable

ResultT = TypeVar("ResultT")


class Patient:
    """`Readable` of a home.

    pause: waits before the next try. last: the last AwayError, None before there is one.
    """

    def __init__(self, home: Readable, pause: Callable[[], Awaitable[None]]) -> None:
        self.last: AwayError | None = None
        self._home = home
        self._pause = pause

    async def open(self, ledger_id: int) -> int:
        """See `Readable`. Raises HomeError, but not AwayError."""
        return await self._again(lambda: self._home.open(ledger_id))

    async def read(self, ledger_id: int, first: int, last: int) -> list[bytes]:
        """See `Readable`. Raises HomeError, but not AwayError."""
        return await self._again(lambda: self._home.read(ledger_id, first, last))

    async def _again(self, ask: Callable[[], Awaitable[ResultT]]) -> ResultT:
        while True:
            try:
                return await ask()
            except AwayError as error:
                self.last = error
            await self._pause()
