"""Accepting connections on the daemon's socket.

Invariant: every connection that is handed to the engine comes from a user that may talk to the daemon.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import structlog

from tidegate.index import Clock
from tidegate.plugin.daemon.connection import Connection
from tidegate.plugin.daemon.listener import Listener, peer_uid, uid_allowed
from tidegate.plugin.daemon.settings import Settings
from tidegate.plugin.daemon.stream import Engine
from tidegate.plugin.errors import ErrorCode
from tidegate.plugin.telemetry.metrics import Metrics


class Server:
    """Makes a ``Connection`` of everyone who connects."""

    def __init__(
        self,
        listener: Listener,
        engine: Engine,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        *,
        settings: Settings,
        metrics: Metrics,
        log: structlog.typing.FilteringBoundLogger,
        uid_of: Callable[[socket.socket], int] = peer_uid,
    ) -> None:
        self._listener = listener
        self._engine = engine
        self._clock = clock
        self._loop = loop
        self._settings = settings
        self._metrics = metrics
        self._log = log
        self._uid_of = uid_of
        self._server: asyncio.AbstractServer | None = None
        self._connections: set[Connection] = set()

    async def start(self) -> None:
        """Accept from now on."""
        self._server = await self._loop.create_unix_server(self._accept, sock=self._listener.socket)

    async def stop(self, timeout_s: float) -> None:
        """Accept no more, tell every client, and wait for the connections to end.

        What is left after ``timeout_s`` is cut off.
        """
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.fail(ErrorCode.SHUTTING_DOWN, "the daemon is shutting down")
        if not self._connections:
            return
        await asyncio.wait([connection.lost for connection in self._connections], timeout=timeout_s)
        for connection in list(self._connections):
            connection.abort()
            await connection.lost

    def _may_talk(self, peer: socket.socket) -> bool:
        return uid_allowed(self._uid_of(peer))

    def _accept(self) -> Connection:
        connection = Connection(
            self._engine,
            self._clock,
            self._loop,
            metrics=self._metrics,
            log=self._log,
            heartbeat_ms=self._settings.heartbeat_ms,
            write_buffer_bytes=self._settings.write_buffer_bytes,
            may_talk=self._may_talk,
        )
        self._connections.add(connection)
        connection.lost.add_done_callback(lambda _: self._connections.discard(connection))
        return connection
