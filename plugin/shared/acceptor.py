"""Accepts connections on a listening socket, and continues when accepting fails.

Invariants: one turn of the loop accepts at most ``ACCEPTS_PER_TURN``, so a flood of connections does not
starve those already connected; without a free descriptor or memory it rests for ``REST_S`` and logs that once
a minute, so the failure costs neither the processor nor the disk.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidegate.plugin.shared.seldom import Seldom

if TYPE_CHECKING:
    import structlog

ACCEPTS_PER_TURN = 16
REST_S = 1.0


class Acceptor:
    """Makes a protocol of each connection to ``listening``, from ``start`` to ``stop``.

    The caller closes the socket.
    """

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[], asyncio.BaseProtocol],
        loop: asyncio.AbstractEventLoop,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._listening = listening
        self._make = make
        self._loop = loop
        self._log = log
        self._seldom = Seldom()
        self._resting: asyncio.TimerHandle | None = None
        self._connecting: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Accept from now on."""
        self._resting = None
        self._loop.add_reader(self._listening, self._accept)

    def stop(self) -> None:
        """Accept no more."""
        if self._resting is not None:
            self._resting.cancel()
        self._loop.remove_reader(self._listening)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                accepted, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._rest(error)
                return
            accepted.setblocking(False)
            task = self._loop.create_task(self._connect(accepted))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def _connect(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make, accepted)
        except OSError as error:  # already closed, or without a free descriptor
            accepted.close()
            self._tell("a connection could not be served", error)

    def _rest(self, error: OSError) -> None:
        self._tell("cannot accept connections, trying again every second", error)
        self._loop.remove_reader(self._listening)
        self._resting = self._loop.call_later(REST_S, self.start)

    def _tell(self, event: str, error: OSError) -> None:
        more = self._seldom.more((event, error.errno))
        if more is not None:
            self._log.error(event, error=error.strerror or str(error), **more)
