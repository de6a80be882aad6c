"""Turns at work that only a few may do at a time: an asynchronous context.

Invariants:

- turns come in the order of the requests;
- a caller waits while the queue moves, at most ``PATIENCE_ROUNDS`` times the patience: a standing queue is a
  reason to give up, a long one is not;
- a caller that gives up has taken no turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType

PATIENCE_ROUNDS = 3


class Turns:
    """At most ``at_once`` turns at a time. patience_s: how long the queue may stand still.

    Entering raises TimeoutError. A turn that ends with TimeoutError does not count as progress.
    """

    def __init__(self, at_once: int, patience_s: float) -> None:
        self._free = at_once
        self._patience_s = patience_s
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._done = 0

    async def __aenter__(self) -> None:
        """Wait for a turn."""
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await self._wait(turn)
        except BaseException:
            if turn.done():
                self._give()  # it came with the cancellation
            else:
                self._waiting.remove(turn)
            raise

    async def _wait(self, turn: asyncio.Future[None]) -> None:
        for _ in range(PATIENCE_ROUNDS):
            done = self._done
            await asyncio.wait({turn}, timeout=self._patience_s)
            if turn.done():
                return
            if self._done == done:
                break
        raise TimeoutError("the logs before it took too long")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the turn to the next in the queue."""
        if not isinstance(error, TimeoutError):
            self._done += 1
        self._give()

    def _give(self) -> None:
        if self._waiting:
            self._waiting.popleft().set_result(None)
        else:
            self._free += 1
