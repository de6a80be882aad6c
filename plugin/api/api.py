"""Serves ``/tidegate/v1`` for the reader of a request: asks the daemon's queries, answers.

Called by the daemon's HTTP side (``over_http``) and, for the broker's web service, by its socket, which have
checked the client. Invariants:

- a request is read and checked in full before any change;
- every error is a problem document, a bug one without its details, and without others' names over the broker;
- at most ``AT_ONCE`` requests run, others wait, and are refused after ``REQUEST_SECONDS``;
- a change begins no query after ``REQUEST_SECONDS``, and answers before the servlet's 40 s: a query takes 10
  s if no broker decides.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Self

from tidegate.plugin.api import routes
from tidegate.plugin.api.changes import (
    FILTERS,
    PAGE_ENTRIES,
    POSITIONS_MAX,
    Answer,
    Course,
    Over,
    Query,
    Total,
    change_of,
    change_of_due,
    positions_of,
    run,
)
from tidegate.plugin.api.openapi import description
from tidegate.plugin.api.problem import CONTENT_TYPE, ProblemError
from tidegate.plugin.api.routes import Operation, body_of, parameters_of, place_of
from tidegate.plugin.errors import UnknownNameError, UserError
from tidegate.plugin.shared.moments import due_range

if TYPE_CHECKING:
    import structlog

Ask = Callable[[Query], Awaitable[Answer]]
Find = Callable[[], Awaitable[bytes]]
FindAmong = Callable[[str, str], Awaitable[bytes]]
"""The status by its `sort`, of the subscriptions that contain a text."""
PAGE_PATH = "/tidegate/"
BODY_BYTES_MAX = 1 << 20
AT_ONCE = 16
_READING = ("GET", "HEAD")
_JSON = "application/json"
REQUEST_SECONDS = 15.0


@dataclass(frozen=True)
class Request:
    """A request. read: its body, raises ``ProblemError``. role: the client, for the audit log.

    hints: an error may name subscriptions beyond the requested one. contents: the client may read messages.
    """

    method: str
    raw_path: str
    raw_query: str
    read: Callable[[], Awaitable[bytes]]
    role: str
    hints: bool = True
    contents: bool = True


@dataclass(frozen=True)
class Response:
    """An answer."""

    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, problem: ProblemError) -> Self:
        """A problem document."""
        return cls(int(problem.status), CONTENT_TYPE, problem.body(), problem.headers)


class Api:
    """The operations of ``routes``, and the page.

    ask: the daemon's answer to a query, raises ``UserError``. status: the answers of `status` by its `sort`,
    as JSON; status_among: of some subscriptions. page: the page at ``PAGE_PATH``, None for none.
    """

    def __init__(
        self,
        ask: Ask,
        now_ms: Callable[[], int],
        *,
        status: Mapping[str, Find],
        status_among: FindAmong,
        page: Callable[[], Response] | None = None,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._ask = ask
        self._now_ms = now_ms
        self._status = status
        self._status_among = status_among
        self._page = page
        self._log = log
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def respond(self, request: Request) -> Response:
        """The answer to a permitted request."""
        try:
            if self._page is not None and request.raw_path == PAGE_PATH:
                return self._page_for(request.method, self._page)
            place = place_of(request.raw_path)
            operation = place.operation(request.method)
            query: Query = {"what": operation.what, **operation.fixed, **place.names}
            query |= parameters_of(operation, request.raw_query)
            if not request.contents:
                _without_contents(query)
            until_s = asyncio.get_running_loop().time() + REQUEST_SECONDS
            await self._take_turn(until_s)
            try:
                if operation.body is not None:
                    query |= body_of(operation, _parsed(await request.read()))
                    query["role"] = request.role
                if operation.what == "status":
                    found = await self._status_of(query.get("sort", "held"), query.get("containing"))
                    return Response(HTTPStatus.OK, _JSON, found)
                ask = self._ask if request.hints else _without_hints(self._ask)
                return _json(await self._answer(operation, query, until_s, ask))
            finally:
                self._at_once.release()
        except ProblemError as error:
            return Response.of(error)
        except UserError as error:
            return Response.of(ProblemError.of(error))
        except Exception as error:
            self._log.error("a request failed unexpectedly; report it with the log", exc_info=error)
            return Response.of(
                ProblemError(HTTPStatus.INTERNAL_SERVER_ERROR, "a bug in the daemon, its log has more")
            )

    @staticmethod
    def _page_for(method: str, page: Callable[[], Response]) -> Response:
        if method not in _READING:
            raise ProblemError.of_method(_READING)
        return page()

    async def _status_of(self, sort: str, containing: str | None) -> bytes:
        return await (self._status[sort]() if containing is None else self._status_among(sort, containing))

    async def _take_turn(self, until_s: float) -> None:
        """Wait for a turn. Raises ``ProblemError`` if there is none in time."""
        try:
            async with asyncio.timeout_at(until_s):
                await self._at_once.acquire()
        except TimeoutError:
            raise ProblemError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{AT_ONCE} requests are under way: ask again, nothing was done",
                Retry_After="1",
            ) from None

    async def _answer(self, operation: Operation, query: Query, until_s: float, ask: Ask) -> Answer:
        if operation.what == "openapi":
            return description()
        if operation.changes:
            clock = asyncio.get_running_loop().time
            return await run(self._change(query, lambda: clock() >= until_s), ask)
        if operation.what == "tide":
            query["exact"] = operation.scope is not routes.Scope.EVERYTHING
        elif operation.what == "pace":
            for name, kind in (("rate", "rate"), ("spread_ms", "spread")):
                query |= {"kind": kind, "amount": query.pop(name)} if name in query else {}
        elif operation.what == "waiting":
            from_ms, to_ms = self._due(query.pop("due", None))
            query |= {"from_ms": from_ms, "to_ms": to_ms, "limit": query.get("limit", PAGE_ENTRIES)}
        return await ask(query)

    def _change(self, query: Query, over: Over) -> Course:
        """The course for a body. Raises ``UserError`` before any query."""
        ids, due, after = query.pop("ids", None), query.pop("due", None), query.pop("after", None)
        query.pop("all", None)
        total = Total(dry_run=query.setdefault("dry_run", False))
        if ids is not None:
            return change_of(query, positions_of(enumerate(ids, start=1), "ids"), total, over=over)
        from_ms, to_ms = self._due(due)
        return change_of_due(
            query,
            from_ms,
            to_ms,
            total,
            now_ms=self._now_ms,
            after=after,
            entries_max=routes.CHANGED_MAX,
            over=over,
        )

    def _due(self, due: str | None) -> tuple[int | None, int | None]:
        if due is None:
            return None, None
        try:
            return due_range(due, self._now_ms())
        except ValueError as error:
            raise ProblemError(HTTPStatus.BAD_REQUEST, f"due: {error}") from None


def _without_hints(ask: Ask) -> Ask:
    """`ask`, with errors that name nothing beyond the request's own names."""

    async def asked(query: Query) -> Answer:
        try:
            return await ask(query)
        except UnknownNameError as error:
            raise UnknownNameError(error.bare) from error

    return asked


def _without_contents(query: Query) -> None:
    """Leave out the contents of messages. Raises ``ProblemError`` for a question about it."""
    if any(query.get(name) is not None for name in FILTERS):
        raise ProblemError(
            HTTPStatus.UNAUTHORIZED,
            "the daemon has no token, so it looks into no messages over HTTP: give it http_token_file",
            WWW_Authenticate="Bearer",
        )
    if query["what"] == "show":
        query["content"] = False


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names differ. Raises ``ValueError``."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a name stands twice in an object")
    return made


def _parsed(body: bytes) -> Any:
    """The JSON in a body. Raises ``ProblemError``."""
    try:
        return json.loads(body.decode("utf-8"), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise ProblemError(HTTPStatus.BAD_REQUEST, f"the body is no JSON: {str(error)[:200]}") from None


def too_long() -> ProblemError:
    """The refusal of a body over ``BODY_BYTES_MAX``."""
    return ProblemError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"a body has {BODY_BYTES_MAX} bytes at most, and {POSITIONS_MAX} ids: send several requests",
    )


def _json(answer: Answer) -> Response:
    return Response(HTTPStatus.OK, _JSON, json.dumps(answer).encode() + b"\n")
