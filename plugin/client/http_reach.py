"""HTTP: the daemon's own, or the web service of a broker."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

from tidegate.plugin.api.changes import Answer, Course, Positions, Query, Total, run, run_blocking
from tidegate.plugin.client import calls, partitions
from tidegate.plugin.client.calls import ANSWER_BYTES_MAX, Call, Pause, Reply
from tidegate.plugin.client.reaches import fixed
from tidegate.plugin.errors import ConfigError, DaemonAwayError, UserError


class _HttpCutting:
    def change(self, query: Query, positions: Positions, total: Total) -> Course:
        return calls.change_of(query, positions, total)

    def change_of_due(self, query: Query, due: str | None, total: Total) -> Course:
        return calls.change_of_due(query, fixed(due), total)


def _options(token: str | None, timeout_s: float, tls_ca_file: Path | None) -> dict[str, Any]:
    """The settings of an httpx client. Raises ``ConfigError``."""
    if token is not None and not (token and token.isascii() and token.isprintable()):
        raise ConfigError("the token must be one line of printable ASCII")
    try:
        tls = ssl.create_default_context(cafile=None if tls_ca_file is None else str(tls_ca_file))
    except OSError as error:
        raise ConfigError(f"cannot read certificates from {tls_ca_file}: {error.strerror}") from error
    headers = {"Accept": "application/json"} | ({} if token is None else {"Authorization": f"Bearer {token}"})
    # The environment's proxies are for the world outside.
    return {"headers": headers, "timeout": timeout_s, "verify": tls, "trust_env": False}


class HttpReach(_HttpCutting):
    """HTTP, in the caller's thread."""

    def __init__(
        self,
        url: str,
        token: str | None,
        timeout_s: float,
        tls_ca_file: Path | None = None,
        *,
        retries: int = calls.RETRIES,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._base = calls.base_of(url)
        self._retries = retries
        self._sleep = sleep
        self._client = httpx.Client(**_options(token, timeout_s, tls_ca_file))

    def ask(self, query: Query) -> Answer:
        """Raises ``UserError``."""
        return run_blocking(partitions.looked(query), self._ask_one)

    def _ask_one(self, query: Query) -> Answer:
        return run_blocking(calls.talk(self._base, query, retries=self._retries), self._do)

    def close(self) -> None:
        """End its connections."""
        self._client.close()

    def _do(self, wanted: Call | Pause) -> Reply | DaemonAwayError | None:
        if isinstance(wanted, Pause):
            self._sleep(wanted.seconds)
            return None
        return self._send(wanted)

    def _send(self, call: Call) -> Reply | DaemonAwayError:
        try:
            with self._client.stream(**_request(call)) as response:
                body = bytearray()
                for part in response.iter_bytes():
                    body += part
                    _check_length(body)
                return _reply(response, bytes(body))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return _away(self._base, error)


class AsyncHttpReach(_HttpCutting):
    """HTTP, on an event loop."""

    def __init__(
        self,
        url: str,
        token: str | None,
        timeout_s: float,
        tls_ca_file: Path | None = None,
        *,
        retries: int = calls.RETRIES,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._base = calls.base_of(url)
        self._retries = retries
        self._sleep = sleep
        self._client = httpx.AsyncClient(**_options(token, timeout_s, tls_ca_file))

    async def ask(self, query: Query) -> Answer:
        """Raises ``UserError``."""
        return await run(partitions.looked(query), self._ask_one)

    async def _ask_one(self, query: Query) -> Answer:
        return await run(calls.talk(self._base, query, retries=self._retries), self._do)

    async def close(self) -> None:
        """End its connections."""
        await self._client.aclose()

    async def _do(self, wanted: Call | Pause) -> Reply | DaemonAwayError | None:
        if isinstance(wanted, Pause):
            await self._sleep(wanted.seconds)
            return None
        return await self._send(wanted)

    async def _send(self, call: Call) -> Reply | DaemonAwayError:
        try:
            async with self._client.stream(**_request(call)) as response:
                body = bytearray()
                async for part in response.aiter_bytes():
                    body += part
                    _check_length(body)
                return _reply(response, bytes(body))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return _away(self._base, error)


def _request(call: Call) -> dict[str, Any]:
    headers = {} if call.body is None else {"Content-Type": "application/json"}
    # Without any, httpx would drop the query of a redirect.
    parameters = {"params": dict(call.parameters)} if call.parameters else {}
    return {
        "method": call.method,
        "url": call.url,
        "content": call.body,
        "headers": headers,
        **parameters,
    }


def _reply(response: httpx.Response, body: bytes) -> Reply:
    return Reply(
        response.status_code, body, response.headers.get("Location"), response.headers.get("Retry-After")
    )


def _check_length(body: bytearray) -> None:
    if len(body) > ANSWER_BYTES_MAX:
        raise UserError(f"the answer has more than {ANSWER_BYTES_MAX} bytes: is it a Tidegate?")


def _away(base: str, error: Exception) -> DaemonAwayError:
    return DaemonAwayError(f"no answer from {base} ({error or type(error).__name__}): check the URL")
