"""The daemon's HTTP side, on the daemon's own loop: a page at ``/``, ``/metrics``, ``/healthz``, ``/readyz``,
``/status`` and ``/tidegate/v1``.

Invariants:

- a request that could change the daemon (any method but GET and HEAD) needs the bearer token, and is always
  refused without a configured token, or when another site's page in a browser sends it;
- with a configured token, a request without it learns only whether the daemon lives and is ready: probes of a
  container's host have no secret;
- a request must name an address, ``localhost`` or one of ``hosts``: otherwise a page in a browser of this
  machine could point its own name here (DNS rebinding) and read the answer;
- an expensive answer, a megabyte with a thousand subscriptions, is made once for all callers of about the
  same time: a client in an endless loop would make the brokers wait;
- no log has the bytes of a request: a malformed header may be the one with the token.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from tidegate.plugin.api import over_http
from tidegate.plugin.api.api import BODY_BYTES_MAX, Api
from tidegate.plugin.api.over_http import problem_response
from tidegate.plugin.api.problem import ProblemError
from tidegate.plugin.errors import StartError
from tidegate.plugin.shared.acceptor import Acceptor
from tidegate.plugin.telemetry.address import HttpAddress
from tidegate.plugin.telemetry.health import Health
from tidegate.plugin.telemetry.http_connections import HttpConnections
from tidegate.plugin.telemetry.lately import Lately, lately
from tidegate.plugin.telemetry.page import page

if TYPE_CHECKING:
    import structlog

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
BACKLOG = 128
LINE_BYTES_MAX = 1 << 18  # two of the longest names, percent-encoded
HEADER_BYTES_MAX = 8_190
REQUEST_SECONDS = 10.0  # for a whole request to arrive; local programs take milliseconds
STOP_SECONDS = 1.0
_READING = ("GET", "HEAD")
_OPEN_PATHS = ("/", "/healthz", "/readyz")
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:@/\[\]]+)(?::[0-9]{1,5})?", re.ASCII)
_API = "/tidegate/"
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SERVER_LOG = logging.getLogger("tidegate.http")


def _without_bytes(record: logging.LogRecord) -> bool:
    """A filter of the server's log: aiohttp's error quotes the unreadable line."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError):
        record.msg = "the bytes of an HTTP client are no request of HTTP: %s"
        record.args, record.exc_info = (type(error).__name__,), None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
    return True


_SERVER_LOG.addFilter(_without_bytes)


_READING_OPTIONS: Mapping[str, Any] = {
    "access_log": None,
    "max_line_size": LINE_BYTES_MAX,
    "max_field_size": HEADER_BYTES_MAX,
    "logger": _SERVER_LOG,
}


class _Requests(web.RequestHandler):
    """Refuses bytes that are no request of HTTP by a problem document without them."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Log it, and answer."""
        known = super().handle_error(request, status, exc, message)
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return known
        said = f"no request of HTTP, or its line or headers are too long (a header: {HEADER_BYTES_MAX} bytes)"
        response = problem_response(ProblemError(HTTPStatus(status), said))
        response.force_close()
        return response


class HttpSide:
    """Serves ``address`` from ``start`` to ``stop``. status: the answers of ``/status`` by its ``sort``."""

    def __init__(
        self,
        address: HttpAddress,
        exposition: Callable[[], Awaitable[bytes]],
        health: Health,
        status: Mapping[str, Callable[[], Awaitable[bytes]]],
        api: Api,
        *,
        token: str | None,
        hosts: Collection[str],
        loop: asyncio.AbstractEventLoop,
        connections_max: int,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._address = address
        self._exposition = lately(exposition)
        self._health = health
        self._status = {sort: lately(find) for sort, find in status.items()}
        self._one_a_turn = asyncio.Lock()
        self._token = token
        self._hosts = {"localhost", *(host.lower() for host in hosts)}
        self._loop = loop
        self._log = log
        app = web.Application(middlewares=[self._guard], client_max_size=BODY_BYTES_MAX)
        app.router.add_get("/", self._get_page)
        app.router.add_get("/metrics", self._get_metrics)
        app.router.add_get("/healthz", self._get_healthz)
        app.router.add_get("/readyz", self._get_readyz)
        app.router.add_get("/status", self._get_status)
        app.router.add_route(
            "*", f"{_API}{{rest:(?s:.*)}}", self._api_of(api), expect_handler=over_http.expect
        )
        self._runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=STOP_SECONDS)
        self._connections = HttpConnections(
            self._protocol, loop, connections_max=connections_max, request_s=REQUEST_SECONDS, log=log
        )
        self._closing = contextlib.AsyncExitStack()
        self.port = address.port

    async def start(self) -> None:
        """Listen. Raises ``StartError`` if the address is not available."""
        async with contextlib.AsyncExitStack() as stack:
            listening = stack.enter_context(self._bind())
            self.port = int(listening.getsockname()[1])
            await self._runner.setup()
            stack.push_async_callback(self._runner.cleanup)
            stack.callback(self._connections.abort)
            acceptor = Acceptor(listening, self._connections.protocol, self._loop, self._log)
            acceptor.start()
            stack.callback(acceptor.stop)
            self._closing = stack.pop_all()

    async def stop(self) -> None:
        """Stop listening."""
        await self._closing.aclose()

    def _protocol(self) -> asyncio.Protocol:
        server = self._runner.server
        if server is None:
            raise RuntimeError("a connection before the start")
        return _Requests(server, loop=self._loop, **_READING_OPTIONS)

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._address.host else socket.AF_INET
        try:
            listening = socket.create_server(
                (self._address.host, self._address.port), family=family, backlog=BACKLOG
            )
        except OSError as error:
            raise StartError(
                f"cannot listen on {self._address}: {error.strerror}: choose another --http"
            ) from error
        listening.setblocking(False)
        return listening

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        with self._connections.answering(request.transport):
            response = await self._answer(request, handler)
            if self._connections.has_ended(request.transport):
                response.force_close()
            return response

    async def _answer(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        refusal = self._refusal(request)
        if refusal is None:
            return await handler(request)
        if request.rel_url.raw_path.startswith(_API):
            return problem_response(refusal)
        return web.Response(status=int(refusal.status), headers=refusal.headers, text=f"{refusal.detail}\n")

    def _refusal(self, request: web.Request) -> ProblemError | None:
        """The reason to refuse a request unread, if there is one."""
        if not all(self._is_ours(host) for host in request.headers.getall("Host", [])):
            return ProblemError(
                HTTPStatus.MISDIRECTED_REQUEST, "ask by IP address, or put this host into http_hosts"
            )
        if request.method not in _READING and _is_cross_site(request):
            return ProblemError(HTTPStatus.FORBIDDEN, "another site's page sends this: nothing was done")
        if self._may(request):
            return None
        if self._token is None:
            said = "the daemon has no token, so nothing can be changed over HTTP: give it http_token_file"
        else:
            said = "a token is needed"
        return ProblemError(HTTPStatus.UNAUTHORIZED, said, WWW_Authenticate="Bearer")

    def _api_of(self, api: Api) -> _Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            with self._connections.reading(request.transport, request.content):
                # Without a token any user of this machine may ask.
                return await over_http.handle(api, request, contents=self._token is not None)

        return handle

    def _is_ours(self, host: str) -> bool:
        """True if ``host`` shows that no foreign name has led a browser here."""
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = found[1].lower()
        if name in self._hosts:
            return True
        try:
            ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
        except ValueError:
            return False
        return True

    def _may(self, request: web.Request) -> bool:
        if request.method not in _READING:
            return self._knows_the_token(request)
        return self._token is None or request.path in _OPEN_PATHS or self._knows_the_token(request)

    def _knows_the_token(self, request: web.Request) -> bool:
        if self._token is None:
            return False
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        same = hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self._token.encode())
        return same and scheme.lower() == "bearer"

    async def _get_page(self, _: web.Request) -> web.Response:
        body, headers = page()
        return web.Response(body=body, headers=headers)

    async def _get_metrics(self, _: web.Request) -> web.Response:
        return await self._long(self._exposition, {"Content-Type": _METRICS_TYPE})

    async def _get_healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _get_readyz(self, request: web.Request) -> web.Response:
        if self._health.ready:
            return web.Response(text="ready\n")
        if self._token is not None and not self._knows_the_token(request):
            return web.Response(status=503, text="not ready\n")
        return web.Response(status=503, text="".join(f"{reason}\n" for reason in self._health.reasons()))

    async def _get_status(self, request: web.Request) -> web.Response:
        sort = request.query.get("sort", "held")
        if sort not in self._status:
            raise web.HTTPBadRequest(text=f"sort is {' or '.join(self._status)}\n")
        return await self._long(self._status[sort], {"Content-Type": "application/json"})

    async def _long(self, body: Lately[bytes], headers: dict[str, str]) -> web.Response:
        found = await body.get()
        # Otherwise all waiting requests would write their megabytes in one turn of the loop.
        async with self._one_a_turn:
            await asyncio.sleep(0)
        return web.Response(body=found, headers=headers)


def _is_cross_site(request: web.Request) -> bool:
    """True if a browser sends this for the page of another site."""
    if request.headers.get("Sec-Fetch-Site", "same-origin") not in {"same-origin", "none"}:
        return True
    origin = request.headers.get("Origin")
    if origin is None:
        return False
    try:
        return urlsplit(origin).netloc.lower() != request.headers.get("Host", "").lower()
    except ValueError:
        return True
