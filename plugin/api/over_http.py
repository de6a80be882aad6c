"""Reads requests for the API with aiohttp, and answers them.

Invariant: a body too long, too slow or cut short is refused before any use.
"""

from __future__ import annotations

import asyncio
from functools import partial
from http import HTTPStatus

from aiohttp import HttpVersion11, web

from tidegate.plugin.api.api import BODY_BYTES_MAX, Api, Request, Response, too_long
from tidegate.plugin.api.problem import ProblemError

BODY_SECONDS = 10.0


async def handle(api: Api, request: web.Request, *, contents: bool) -> web.Response:
    """The answer to a permitted request. contents: the client may read messages."""
    url, read, role = request.rel_url, partial(_body, request), f"token, from {request.remote}"
    asked = Request(request.method, url.raw_path, url.raw_query_string, read, role, contents=contents)
    return _response(await api.respond(asked))


async def expect(request: web.Request) -> web.Response | None:
    """Let a client go on that asks whether to send its body; refuse all else that a header may expect."""
    if request.version < HttpVersion11:
        return None
    if request.headers["Expect"].lower() != "100-continue":
        return problem_response(
            ProblemError(HTTPStatus.EXPECTATION_FAILED, "the header Expect may only be 100-continue")
        )
    if request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    return None


def problem_response(problem: ProblemError) -> web.Response:
    """A problem as a response; after one amid a body the connection ends."""
    return _response(Response.of(problem))


def _response(answer: Response) -> web.Response:
    headers = {"Content-Type": answer.content_type, **answer.headers}
    return web.Response(status=answer.status, body=answer.body, headers=headers)


async def _body(request: web.Request) -> bytes:
    if request.content_type != "application/json":
        raise ProblemError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send Content-Type: application/json")
    if (request.content_length or 0) > BODY_BYTES_MAX:
        raise too_long()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise too_long() from None
    except TimeoutError:
        raise ProblemError(HTTPStatus.REQUEST_TIMEOUT, "the body did not come in time") from None
    except (EOFError, ConnectionError, web.RequestPayloadError):
        raise ProblemError(HTTPStatus.BAD_REQUEST, "the body ends before its end: nothing was done") from None
