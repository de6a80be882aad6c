"""The daemon's HTTP side: ``/metrics``, ``/healthz``, ``/readyz`` and ``/status``, on the daemon's own loop.

Invariants: everything here only reads; a request that could change something (any method but GET and HEAD) is
refused without the bearer token, and when no token is configured always.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from tidegate.plugin.errors import StartError
from tidegate.plugin.telemetry.address import HttpAddress
from tidegate.plugin.telemetry.health import Health
from tidegate.plugin.telemetry.metrics import Metrics

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class HttpSide:
    """Serves ``address`` from ``start`` to ``stop``."""

    def __init__(
        self,
        address: HttpAddress,
        metrics: Metrics,
        health: Health,
        status: Callable[[], dict[str, Any]],
        token: str | None,
    ) -> None:
        self._address = address
        self._metrics = metrics
        self._health = health
        self._status = status
        self._token = token
        self._runner: web.AppRunner | None = None
        self.port = address.port

    async def start(self) -> None:
        """Listen. Raises ``StartError`` if the address cannot be had."""
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/metrics", self._get_metrics)
        app.router.add_get("/healthz", self._get_healthz)
        app.router.add_get("/readyz", self._get_readyz)
        app.router.add_get("/status", self._get_status)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._address.host, self._address.port).start()
        except OSError as error:
            await self._runner.cleanup()
            raise StartError(
                f"cannot listen on {self._address}: {error.strerror}: choose another --http"
            ) from error
        self.port = int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Listen no more."""
        if self._runner is not None:
            await self._runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        if request.method not in ("GET", "HEAD") and not self._knows_the_token(request):
            raise web.HTTPUnauthorized(headers={"WWW-Authenticate": "Bearer"}, text="a token is needed\n")
        return await handler(request)

    def _knows_the_token(self, request: web.Request) -> bool:
        if self._token is None:
            return False
        given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        return hmac.compare_digest(given, f"Bearer {self._token}".encode())

    async def _get_metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.exposition(), headers={"Content-Type": _METRICS_TYPE})

    async def _get_healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _get_readyz(self, _: web.Request) -> web.Response:
        if self._health.ready:
            return web.Response(text="ready\n")
        return web.Response(status=503, text="".join(f"{reason}\n" for reason in self._health.reasons()))

    async def _get_status(self, _: web.Request) -> web.Response:
        return web.json_response(self._status())
