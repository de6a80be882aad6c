"""Accepts connections on the daemon's socket.

Invariants: every connection passed to the engine is from a user who may talk to the daemon; at most
``OTHERS_MAX`` are no brokers, or have not yet said so: one more costs the oldest.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidegate.index import Clock
from tidegate.plugin.daemon.connection import Connection
from tidegate.plugin.daemon.descriptors import OTHERS_MAX
from tidegate.plugin.daemon.engine import DaemonEngine
from tidegate.plugin.daemon.half_frames import HalfFrames
from tidegate.plugin.daemon.listener import Listener, peer_uid, uid_allowed
from tidegate.plugin.daemon.settings import Settings
from tidegate.plugin.errors import ErrorCode
from tidegate.plugin.shared.acceptor import Acceptor
from tidegate.plugin.shared.seldom import Seldom
from tidegate.plugin.telemetry.metrics import Metrics

if TYPE_CHECKING:
    import structlog


class Server:
    """Makes a ``Connection`` for every client."""

    def __init__(
        self,
        listener: Listener,
        engine: DaemonEngine,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        *,
        settings: Settings,
        metrics: Metrics,
        log: structlog.typing.FilteringBoundLogger,
        uid_of: Callable[[socket.socket], int] = peer_uid,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._loop = loop
        self._settings = settings
        self._metrics = metrics
        self._log = log
        self._uid_of = uid_of
        self.half_frames = HalfFrames()
        self._acceptor = Acceptor(listener.socket, self._accept, loop, log)
        self._seldom = Seldom()
        self._connections: dict[Connection, None] = {}  # in the order in which they came

    def start(self) -> None:
        """Accept from now on."""
        self._acceptor.start()

    async def stop(self, timeout_s: float) -> None:
        """Accept no more, tell every client, and wait for the connections to end.

        After ``timeout_s`` the rest are aborted.
        """
        self._acceptor.stop()
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
            half_frames=self.half_frames,
        )
        self._make_room()
        self._connections[connection] = None
        connection.lost.add_done_callback(lambda _: self._connections.pop(connection))
        return connection

    def _make_room(self) -> None:
        others = [one for one in self._connections if not one.is_broker and not one.closing]
        if len(others) < OTHERS_MAX:
            return
        others[0].abort()
        more = self._seldom.more("full")
        if more is not None:
            self._log.warning(
                "too many connections other than brokers': closing the oldest",
                connections_max=OTHERS_MAX,
                **more,
            )
