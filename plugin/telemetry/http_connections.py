"""The connections of the HTTP side: their number, and the longest silence of one.

Any process of this machine may connect. Invariants:

- there are at most ``connections_max``: one more ends the one that has waited longest for its next request,
  so a flood of idle connections locks nobody out;
- a connection has ``request_s`` for a whole request, from its start or last answer, and as long to take its
  answer; then it is aborted;
- a body cut short is an error for its reader, who can still answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from aiohttp import StreamReader

from tidegate.plugin.shared.seldom import Seldom

if TYPE_CHECKING:
    import structlog


class HttpConnections:
    """Makes protocols for an ``Acceptor`` out of those of ``make``."""

    def __init__(
        self,
        make: Callable[[], asyncio.Protocol],
        loop: asyncio.AbstractEventLoop,
        *,
        connections_max: int,
        request_s: float,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._make = make
        self._loop = loop
        self._connections_max = connections_max
        self._request_s = request_s
        self._log = log
        self._seldom = Seldom()
        self._transports: set[asyncio.BaseTransport] = set()
        # Until when each may wait for a request. All get the same time, so the first is the oldest.
        self._waiting: dict[asyncio.BaseTransport, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._bodies: dict[asyncio.BaseTransport, StreamReader] = {}
        self._heard: set[asyncio.BaseTransport] = set()  # something of a request that has no answer yet
        self._ended: set[asyncio.BaseTransport] = set()  # before anybody read the body

    def __len__(self) -> int:
        return len(self._transports)

    def protocol(self) -> asyncio.Protocol:
        """A protocol for one more connection."""
        return _Watched(self._make(), self)

    @contextmanager
    def answering(self, transport: asyncio.BaseTransport | None) -> Iterator[None]:
        """Mark that a whole request has come over ``transport``; its wait begins anew after the answer."""
        if transport is not None:
            self._waiting.pop(transport, None)
        try:
            yield
        finally:
            if transport is not None:
                self._heard.discard(transport)
            if transport in self._transports:
                self._wait(transport)

    @contextmanager
    def reading(self, transport: asyncio.BaseTransport | None, body: StreamReader) -> Iterator[None]:
        """Mark that a reader may wait for the rest of a body."""
        if transport is None:
            yield
            return
        self._bodies[transport] = body
        if transport in self._ended:
            self._tell_end(body)
        try:
            yield
        finally:
            self._bodies.pop(transport, None)

    def ended(self, transport: asyncio.BaseTransport | None) -> bool:
        """Note that the peer sends no more; true if its request hears so and must be answered."""
        if transport is None:
            return False
        body = self._bodies.get(transport)
        if body is not None and self._tell_end(body):
            return True
        if transport not in self._heard:
            return False
        # Its request is whole and unanswered, or has just come and begins soon.
        self._ended.add(transport)
        return True

    def has_ended(self, transport: asyncio.BaseTransport | None) -> bool:
        """True if the peer sends no more."""
        return transport in self._ended

    @staticmethod
    def _tell_end(body: StreamReader) -> bool:
        if body.is_eof():
            return False
        body.set_exception(EOFError("the body ends early"))
        return True

    def heard(self, transport: asyncio.BaseTransport | None) -> None:
        """Note that the peer has sent something."""
        if transport is not None and transport in self._transports:
            self._heard.add(transport)

    def abort(self) -> None:
        """Abort all of them."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for transport in list(self._transports):
            self._cut(transport)

    def made(self, transport: asyncio.BaseTransport) -> None:
        """Add a connection."""
        self._transports.add(transport)
        self._wait(transport)
        if len(self._transports) > self._connections_max:
            oldest = next(iter(self._waiting))  # there is one: the newest waits
            self._cut(oldest)
            more = self._seldom.more("full")
            if more is not None:
                self._log.warning(
                    "too many HTTP connections: closing those that wait longest",
                    connections_max=self._connections_max,
                    **more,
                )

    def lost(self, transport: asyncio.BaseTransport) -> None:
        """Remove a connection that has ended."""
        for known in (self._transports, self._heard, self._ended):
            known.discard(transport)
        self._waiting.pop(transport, None)

    def _wait(self, transport: asyncio.BaseTransport) -> None:
        self._waiting[transport] = self._loop.time() + self._request_s
        if self._timer is None:
            self._timer = self._loop.call_later(self._request_s, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._loop.time()
        for transport, until in list(self._waiting.items()):
            if until > now:
                self._timer = self._loop.call_at(until, self._look)
                return
            self._cut(transport)

    def _cut(self, transport: asyncio.BaseTransport) -> None:
        self.lost(transport)
        cast("asyncio.Transport", transport).abort()


class _Watched(asyncio.Protocol):
    """Forwards everything to ``inner``, and tells ``watch`` of the connection's beginning and end."""

    def __init__(self, inner: asyncio.Protocol, watch: HttpConnections) -> None:
        self._inner = inner
        self._watch = watch
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._inner.connection_made(transport)
        self._watch.made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._watch.lost(self._transport)
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)
        self._watch.heard(self._transport)

    def eof_received(self) -> bool | None:
        return self._watch.ended(self._transport) or self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()
