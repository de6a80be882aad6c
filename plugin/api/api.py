"""Serves ``/tidegate/v1`` with aiohttp: reads a request, asks the daemon's queries, answers.

Whoever calls it has checked host and token. Invariants:

- a request is read and checked in full before anything is changed;
- every error is a problem document, a bug one without its details;
- at most ``AT_ONCE`` requests run at a time, the others wait.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tidegate.plugin.api import routes
from tidegate.plugin.api.changes import (
    PAGE_ENTRIES,
    POSITIONS_MAX,
    Answer,
    Course,
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
from tidegate.plugin.errors import UserError
from tidegate.plugin.moments import due_range

if TYPE_CHECKING:
    import structlog

Ask = Callable[[Query], Awaitable[Answer]]
BODY_BYTES_MAX = 1 << 20
BODY_SECONDS = 10.0
AT_ONCE = 16


class Api:
    """The operations of ``routes``. ask: the daemon's answer to a query, raises ``UserError``."""

    def __init__(
        self,
        ask: Ask,
        now_ms: Callable[[], int],
        *,
        log: structlog.typing.FilteringBoundLogger,
        body_s: float = BODY_SECONDS,
    ) -> None:
        self._ask = ask
        self._now_ms = now_ms
        self._log = log
        self._body_s = body_s
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def handle(self, request: web.Request) -> web.Response:
        """The answer to a request that may be made."""
        try:
            place = place_of(request.rel_url.raw_path)
            operation = place.operation(request.method)
            query: Query = {"what": operation.what, **place.names}
            query |= parameters_of(operation, request.rel_url.raw_query_string)
            async with self._at_once:
                if operation.body is not None:
                    query |= body_of(operation, await self._body(request))
                    query["role"] = f"token, from {request.remote}"
                return _json(await self._answer(operation, query))
        except ProblemError as error:
            return problem_response(error)
        except UserError as error:
            return problem_response(ProblemError.of(error))
        except Exception as error:
            self._log.error("a request failed unexpectedly; report it with the log", exc_info=error)
            return problem_response(
                ProblemError(HTTPStatus.INTERNAL_SERVER_ERROR, "a bug in the daemon, its log has more")
            )

    async def _answer(self, operation: Operation, query: Query) -> Answer:
        if operation.what == "openapi":
            return description()
        if operation.changes:
            return await run(self._change(query), self._ask)
        if operation.what == "tide":
            query["exact"] = operation.scope is not routes.Scope.EVERYTHING
        elif operation.what == "waiting":
            from_ms, to_ms = self._due(query.pop("due", None))
            query |= {"from_ms": from_ms, "to_ms": to_ms, "limit": query.get("limit", PAGE_ENTRIES)}
        return await self._ask(query)

    def _change(self, query: Query) -> Course:
        """The course that a body asks for. Raises ``UserError`` before anything is asked."""
        ids, due, after = query.pop("ids", None), query.pop("due", None), query.pop("after", None)
        query.pop("all", None)
        total = Total(dry_run=query.setdefault("dry_run", False))
        if ids is not None:
            return change_of(query, positions_of(enumerate(ids, start=1), "ids"), total)
        from_ms, to_ms = self._due(due)
        return change_of_due(query, from_ms, to_ms, total, after=after, entries_max=routes.CHANGED_MAX)

    def _due(self, due: str | None) -> tuple[int | None, int | None]:
        if due is None:
            return None, None
        try:
            return due_range(due, self._now_ms())
        except ValueError as error:
            raise ProblemError(HTTPStatus.BAD_REQUEST, f"due: {error}") from None

    async def _body(self, request: web.Request) -> Any:
        """The JSON in a request's body. Raises ``ProblemError``."""
        if request.content_type != "application/json":
            raise ProblemError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send Content-Type: application/json")
        too_long = ProblemError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"a body has {BODY_BYTES_MAX} bytes at most, and {POSITIONS_MAX} ids: send several requests",
        )
        if (request.content_length or 0) > BODY_BYTES_MAX:
            raise too_long
        try:
            async with asyncio.timeout(self._body_s):
                body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            raise too_long from None
        except TimeoutError:
            raise ProblemError(HTTPStatus.REQUEST_TIMEOUT, "the body did not come in time") from None
        except (EOFError, ConnectionError, web.RequestPayloadError):
            raise ProblemError(
                HTTPStatus.BAD_REQUEST, "the body ends before its end: nothing was done"
            ) from None
        try:
            return json.loads(body.decode("utf-8"), object_pairs_hook=_once)
        except (ValueError, RecursionError) as error:
            raise ProblemError(HTTPStatus.BAD_REQUEST, f"the body is no JSON: {str(error)[:200]}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names differ. Raises ``ValueError``."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a name stands twice in an object")
    return made


def _json(answer: Answer) -> web.Response:
    return web.Response(
        body=json.dumps(answer).encode() + b"\n", headers={"Content-Type": "application/json"}
    )


def problem_response(problem: ProblemError) -> web.Response:
    """A problem as a response; after one amid a body the connection ends."""
    headers = {"Content-Type": CONTENT_TYPE, **problem.headers}
    return web.Response(status=int(problem.status), body=problem.body(), headers=headers)
