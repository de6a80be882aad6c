"""``Client`` and ``AsyncClient``: see and take back waiting messages, from a program.

>>> with Client("http://127.0.0.1:8088", token="…") as client:         # doctest: +SKIP
...     client.cancel("orders", "billing", ids=["17:4711"]).done
1

Without a URL they talk to the daemon's socket on this machine. Every call but a change by ``by_ms`` may be
repeated: a message cancelled before by its id counts as ``acknowledged``, also if that answer was lost. A
change by ``by_ms`` that raised may be done, as ``show`` tells, and repeated moves twice. A change by ``due``
or ``all`` whose answer is lost is an error. All errors are subclasses of ``TidegateError``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from inspect import signature
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar

from tidegate.plugin.api.changes import Asking, run, run_blocking
from tidegate.plugin.client.described import Described
from tidegate.plugin.client.http_reach import AsyncHttpReach, HttpReach
from tidegate.plugin.client.messages import WaitingMessage
from tidegate.plugin.client.reaches import AsyncReach, Reach, fixed
from tidegate.plugin.client.socket_reach import AsyncSocketReach, SocketReach
from tidegate.plugin.errors import ConfigError
from tidegate.plugin.shared.environment import own_default_socket

TIMEOUT_S = 120.0
PAGE = 5_000
P = ParamSpec("P")
T = TypeVar("T")
ReachT = TypeVar("ReachT", Reach, AsyncReach)


class _Connected(Generic[ReachT]):
    _over_http: ClassVar[Callable[..., Any]]
    _over_socket: ClassVar[Callable[..., Any]]

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        socket: Path | str | None = None,
        timeout_s: float = TIMEOUT_S,
        tls_ca_file: Path | None = None,
    ) -> None:
        if url is not None and socket is not None:
            raise ConfigError("give a URL or a socket, not both")
        if url is None and token is not None:
            raise ConfigError("a token goes with a URL: the socket needs none")
        self._reach: ReachT
        if url is None:
            self._reach = self._over_socket(Path(socket or own_default_socket()), timeout_s)
        else:
            self._reach = self._over_http(url, token, timeout_s, tls_ca_file)
        self._described = Described(self._reach)


def _document(method: Any, call: Callable[..., Any]) -> None:
    """Let ``help`` show `method` with the name, text, parameters and result of `call`."""
    said = signature(call)
    result = str(said.return_annotation).removeprefix("Asking[").removesuffix("]")
    method.__name__, method.__doc__ = call.__name__, call.__doc__
    method.__signature__ = said.replace(return_annotation=result)


def _blocking(
    call: Callable[Concatenate[Described, P], Asking[T]],
) -> Callable[Concatenate[Client, P], T]:
    """The method of a ``Client`` that runs `call`."""

    def method(client: Client, /, *given: P.args, **named: P.kwargs) -> T:
        return client._run(call(client._described, *given, **named))

    _document(method, call)
    return method


class Client(_Connected[Reach]):
    """A client that blocks, for one thread at a time.

    url: of the daemon's HTTP side, or of a broker. token: its bearer token. socket: the daemon's, instead of
    a URL. timeout_s: without an answer. Raises ``ConfigError``.
    """

    _over_http = HttpReach
    _over_socket = SocketReach

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End its connections."""
        self._reach.close()

    def _run(self, asking: Asking[T]) -> T:
        return run_blocking(asking, self._reach.ask)

    tide = _blocking(Described.tide)
    show = _blocking(Described.show)
    cancel = _blocking(Described.cancel)
    release = _blocking(Described.release)
    reschedule = _blocking(Described.reschedule)
    pause = _blocking(Described.pause)
    resume = _blocking(Described.resume)
    pace = _blocking(Described.pace)

    def waiting(
        self,
        topic: str,
        subscription: str,
        *,
        due: str | None = None,
        key: str | None = None,
        property: str | None = None,
        page: int = PAGE,
    ) -> Iterator[WaitingMessage]:
        """The messages that wait, in due order, overdue ones first; fetched `page` at a time.

        due: ``FROM..TO``, as in ``10m..1h``, read once, at the first page. key, property (NAME=VALUE): only
        messages that have it; the broker reads them.
        """
        cursor, due = None, fixed(due)
        while True:
            asking = self._described.page(topic, subscription, due, cursor, page, key=key, property=property)
            messages, cursor = self._run(asking)
            yield from messages
            if cursor is None:
                return


def _awaited(
    call: Callable[Concatenate[Described, P], Asking[T]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """The method of an ``AsyncClient`` that runs `call`."""

    async def method(client: AsyncClient, /, *given: P.args, **named: P.kwargs) -> T:
        return await client._run(call(client._described, *given, **named))

    _document(method, call)
    return method


class AsyncClient(_Connected[AsyncReach]):
    """A client for an event loop; otherwise as ``Client``."""

    _over_http = AsyncHttpReach
    _over_socket = AsyncSocketReach

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End its connections."""
        await self._reach.close()

    async def _run(self, asking: Asking[T]) -> T:
        return await run(asking, self._reach.ask)

    tide = _awaited(Described.tide)
    show = _awaited(Described.show)
    cancel = _awaited(Described.cancel)
    release = _awaited(Described.release)
    reschedule = _awaited(Described.reschedule)
    pause = _awaited(Described.pause)
    resume = _awaited(Described.resume)
    pace = _awaited(Described.pace)

    async def waiting(
        self,
        topic: str,
        subscription: str,
        *,
        due: str | None = None,
        key: str | None = None,
        property: str | None = None,
        page: int = PAGE,
    ) -> AsyncIterator[WaitingMessage]:
        """As ``Client.waiting``."""
        cursor, due = None, fixed(due)
        while True:
            asking = self._described.page(topic, subscription, due, cursor, page, key=key, property=property)
            messages, cursor = await self._run(asking)
            for one in messages:
                yield one
            if cursor is None:
                return
