"""``Client`` and ``AsyncClient``: see and take back what waits, from a program.

>>> with Client("http://127.0.0.1:8088", token="…") as client:         # doctest: +SKIP
...     client.cancel("orders", "billing", ids=["17:4711"]).done
1

Without a URL they talk to the daemon's socket on this machine. Every call but a change by ``by_ms`` may be
repeated: what was cancelled already by its id is counted as ``acknowledged``, also if the answer was lost and
asked for again. A change by ``by_ms`` that raised may be done, as ``show`` tells, and repeated moves twice. A
change by ``due`` or ``all`` whose answer is lost is an error. All errors are subclasses of ``TidegateError``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from tidegate.plugin.api.changes import Course, Query, Total, positions_of, run, run_blocking
from tidegate.plugin.client.http_reach import AsyncHttpReach, HttpReach
from tidegate.plugin.client.messages import Changed, MessageState, Pace, Tide, WaitingMessage, page_of
from tidegate.plugin.client.reaches import AsyncReach, Cutting, Reach
from tidegate.plugin.client.socket_reach import AsyncSocketReach, SocketReach
from tidegate.plugin.environment import own_default_socket
from tidegate.plugin.errors import ConfigError, UserError

TIMEOUT_S = 120.0
PAGE = 5_000


class Client:
    """A client that blocks; one thread at a time may use it.

    url: of the daemon's HTTP side, or of a broker. token: the bearer token there. socket: the daemon's,
    instead of a URL. timeout_s: without an answer. Raises ``ConfigError``.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        socket: Path | str | None = None,
        timeout_s: float = TIMEOUT_S,
        tls_ca_file: Path | None = None,
    ) -> None:
        _check_one(url, token, socket)
        self._reach: Reach
        if url is None:
            self._reach = SocketReach(Path(socket or own_default_socket()), timeout_s)
        else:
            self._reach = HttpReach(url, token, timeout_s, tls_ca_file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End its connections."""
        self._reach.close()

    def tide(
        self,
        topic: str | None = None,
        subscription: str | None = None,
        *,
        span_ms: int | None = None,
        step_ms: int | None = None,
    ) -> Tide:
        """How many messages come due when; ``*`` in a name is anything, without a name it is all."""
        return Tide.of(self._reach.ask(_tide(topic, subscription, span_ms, step_ms)))

    def waiting(
        self, topic: str, subscription: str, *, due: str | None = None, page: int = PAGE
    ) -> Iterator[WaitingMessage]:
        """The messages that wait, in due order, overdue ones first; fetched `page` at a time.

        due: ``FROM..TO``, as in ``10m..1h``.
        """
        cursor = None
        while True:
            messages, cursor = page_of(self._reach.ask(_waiting(topic, subscription, due, cursor, page)))
            yield from messages
            if cursor is None:
                return

    def show(self, topic: str, subscription: str, message_id: str) -> MessageState:
        """The state of one message."""
        return MessageState.of(self._reach.ask(_show(topic, subscription, message_id)))

    def cancel(
        self,
        topic: str,
        subscription: str,
        *,
        ids: Iterable[str] | None = None,
        due: str | None = None,
        all: bool = False,
        dry_run: bool = False,
    ) -> Changed:
        """Take messages back before they are delivered: those of `ids`, those due in `due`, or all.

        `ids` are read and checked in full before the first is cancelled, then sent in batches.
        """
        query = _named("cancel", topic, subscription)
        return self._change(_course(self._reach, query, ids, due, every=all, dry_run=dry_run))

    def release(
        self,
        topic: str,
        subscription: str,
        *,
        ids: Iterable[str] | None = None,
        due: str | None = None,
        all: bool = False,
        dry_run: bool = False,
    ) -> Changed:
        """Have messages delivered now; chosen as in ``cancel``, less what `due` or `all` has due already."""
        query = _named("release", topic, subscription)
        return self._change(_course(self._reach, query, ids, due, every=all, dry_run=dry_run))

    def reschedule(
        self,
        topic: str,
        subscription: str,
        *,
        at_ms: int | None = None,
        by_ms: int | None = None,
        ids: Iterable[str] | None = None,
        due: str | None = None,
        all: bool = False,
        dry_run: bool = False,
    ) -> Changed:
        """Have messages delivered at `at_ms`, or `by_ms` later than they are due; chosen as in ``cancel``.

        A change by a span is never sent twice.
        """
        query = _named("reschedule", topic, subscription) | {"at_ms": at_ms, "by_ms": by_ms}
        return self._change(_course(self._reach, query, ids, due, every=all, dry_run=dry_run))

    def pause(self, topic: str, subscription: str) -> Pace:
        """Let no message leave; everything is kept."""
        return Pace.of(self._reach.ask(_pace(topic, subscription, "paused")))

    def resume(self, topic: str, subscription: str) -> Pace:
        """Let messages leave as they come due."""
        return Pace.of(self._reach.ask(_pace(topic, subscription, "none")))

    def pace(
        self, topic: str, subscription: str, *, rate: int | None = None, spread_ms: int | None = None
    ) -> Pace:
        """Let messages leave at `rate` a second, or a burst over `spread_ms`; with neither, only ask."""
        return Pace.of(self._reach.ask(_set_pace(topic, subscription, rate, spread_ms)))

    def _change(self, course: Course) -> Changed:
        return Changed.of(run_blocking(course, self._reach.ask))


class AsyncClient:
    """A client for an event loop; otherwise as ``Client``."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        socket: Path | str | None = None,
        timeout_s: float = TIMEOUT_S,
        tls_ca_file: Path | None = None,
    ) -> None:
        _check_one(url, token, socket)
        self._reach: AsyncReach
        if url is None:
            self._reach = AsyncSocketReach(Path(socket or own_default_socket()), timeout_s)
        else:
            self._reach = AsyncHttpReach(url, token, timeout_s, tls_ca_file)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End its connections."""
        await self._reach.close()

    async def tide(
        self,
        topic: str | None = None,
        subscription: str | None = None,
        *,
        span_ms: int | None = None,
        step_ms: int | None = None,
    ) -> Tide:
        """As ``Client.tide``."""
        return Tide.of(await self._reach.ask(_tide(topic, subscription, span_ms, step_ms)))

    async def waiting(
        self, topic: str, subscription: str, *, due: str | None = None, page: int = PAGE
    ) -> AsyncIterator[WaitingMessage]:
        """As ``Client.waiting``."""
        cursor = None
        while True:
            answer = await self._reach.ask(_waiting(topic, subscription, due, cursor, page))
            messages, cursor = page_of(answer)
            for one in messages:
                yield one
            if cursor is None:
                return

    async def show(self, topic: str, subscription: str, message_id: str) -> MessageState:
        """As ``Client.show``."""
        return MessageState.of(await self._reach.ask(_show(topic, subscription, message_id)))

    async def cancel(
        self,
        topic: str,
        subscription: str,
        *,
        ids: Iterable[str] | None = None,
        due: str | None = None,
        all: bool = False,
        dry_run: bool = False,
    ) -> Changed:
        """As ``Client.cancel``."""
        query = _named("cancel", topic, subscription)
        return await self._change(_course(self._reach, query, ids, due, every=all, dry_run=dry_run))

    async def release(
        self,
        topic: str,
        subscription: str,
        *,
        ids: Iterable[str] | None = None,
        due: str | None = None,
        all: bool = False,
        dry_run: bool = False,
    ) -> Changed:
        """As ``Client.release``."""
        query = _named("release", topic, subscription)
        return await self._change(_course(self._reach, query, ids, due, every=all, dry_run=dry_run))

    async def reschedule(
        self,
        topic: str,
        subscription: str,
        *,
        at_ms: int | None = None,
        by_ms: int | None = None,
        ids: Iterable[str] | None = None,
        due: str | None = None,
        all: bool = False,
        dry_run: bool = False,
    ) -> Changed:
        """As ``Client.reschedule``."""
        query = _named("reschedule", topic, subscription) | {"at_ms": at_ms, "by_ms": by_ms}
        return await self._change(_course(self._reach, query, ids, due, every=all, dry_run=dry_run))

    async def pause(self, topic: str, subscription: str) -> Pace:
        """As ``Client.pause``."""
        return Pace.of(await self._reach.ask(_pace(topic, subscription, "paused")))

    async def resume(self, topic: str, subscription: str) -> Pace:
        """As ``Client.resume``."""
        return Pace.of(await self._reach.ask(_pace(topic, subscription, "none")))

    async def pace(
        self, topic: str, subscription: str, *, rate: int | None = None, spread_ms: int | None = None
    ) -> Pace:
        """As ``Client.pace``."""
        return Pace.of(await self._reach.ask(_set_pace(topic, subscription, rate, spread_ms)))

    async def _change(self, course: Course) -> Changed:
        return Changed.of(await run(course, self._reach.ask))


def _check_one(url: str | None, token: str | None, socket: Path | str | None) -> None:
    if url is not None and socket is not None:
        raise ConfigError("give a URL or a socket, not both")
    if url is None and token is not None:
        raise ConfigError("a token goes with a URL: the socket needs none")


def _named(what: str, topic: str, subscription: str) -> Query:
    return {"what": what, "topic": topic, "subscription": subscription}


def _tide(topic: str | None, subscription: str | None, span_ms: int | None, step_ms: int | None) -> Query:
    return {**_named("tide", topic or "*", subscription or "*"), "span_ms": span_ms, "step_ms": step_ms}


def _waiting(topic: str, subscription: str, due: str | None, after: str | None, limit: int) -> Query:
    return _named("waiting", topic, subscription) | {"due": due, "after": after, "limit": limit}


def _show(topic: str, subscription: str, message_id: str) -> Query:
    return _named("show", topic, subscription) | {"id": message_id}


def _pace(topic: str, subscription: str, kind: str | None, amount: int | None = None) -> Query:
    query = _named("pace", topic, subscription)
    return query | {name: value for name, value in (("kind", kind), ("amount", amount)) if value is not None}


def _set_pace(topic: str, subscription: str, rate: int | None, spread_ms: int | None) -> Query:
    if rate is not None and spread_ms is not None:
        raise UserError("give one of rate and spread_ms")
    if rate is not None:
        return _pace(topic, subscription, "rate", rate)
    return _pace(topic, subscription, None if spread_ms is None else "spread", spread_ms)


def _course(
    reach: Cutting, query: Query, ids: Iterable[str] | None, due: str | None, *, every: bool, dry_run: bool
) -> Course:
    """Raises ``UserError`` before anything is asked."""
    if sum((ids is not None, due is not None, every)) != 1:
        raise UserError("give one of ids, due and all")
    if query["what"] == "reschedule" and (query["at_ms"] is None) == (query["by_ms"] is None):
        raise UserError("give one of at_ms and by_ms")
    query["dry_run"] = dry_run
    total = Total(dry_run)
    if ids is None:
        return reach.change_of_due(query, due, total)
    return reach.change(query, positions_of(enumerate(ids, start=1), "ids"), total)
