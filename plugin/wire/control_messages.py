"""The messages of control clients and of the broker's web service: questions, entries, and their answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

from tidegate.plugin.errors import ErrorCode, ProtocolError
from tidegate.plugin.wire.frames import FrameType

QUERY_BYTES_MAX = 65_536


@dataclass(frozen=True, slots=True)
class Query:
    """A question of a control client; ``body`` is a JSON object."""

    type: ClassVar[FrameType] = FrameType.QUERY
    body: bytes

    def request(self) -> dict[str, Any]:
        """The JSON object. Raises ``ProtocolError`` if the body is not one, too long, or not flat."""
        if len(self.body) > QUERY_BYTES_MAX:
            raise ProtocolError(
                ErrorCode.MALFORMED, f"a query has at most {QUERY_BYTES_MAX} bytes, not {len(self.body)}"
            )
        request = _json_object(self.body)
        if any(isinstance(value, dict | list) for value in request.values()):
            raise ProtocolError(ErrorCode.MALFORMED, "a query has a value that is neither text nor number")
        return request


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a QUERY; ``body`` is a JSON object."""

    type: ClassVar[FrameType] = FrameType.REPLY
    body: bytes

    def answer(self) -> dict[str, Any]:
        """The JSON object. Raises ``ProtocolError`` if the body is not one."""
        return _json_object(self.body)


@dataclass(frozen=True, slots=True)
class Ingest:
    """Entries of a subscription from another source than its broker, packed like a block of the index.

    disown: the index must not answer for their positions any more.
    """

    type: ClassVar[FrameType] = FrameType.INGEST
    topic: str
    subscription: str
    block: bytes
    disown: bool = False


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request that the broker's web service has authorized, for the daemon to answer.

    target: path and query. role: the client's, empty without authentication.
    """

    type: ClassVar[FrameType] = FrameType.HTTP_REQUEST
    method: str
    target: str
    role: str
    body: bytes


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """The answer to an HTTP_REQUEST."""

    type: ClassVar[FrameType] = FrameType.HTTP_RESPONSE
    status: int
    content_type: str
    body: bytes


def json_body(value: dict[str, Any]) -> bytes:
    """The body of a QUERY or REPLY."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:  # nested deeper than any answer
        raise ProtocolError(ErrorCode.MALFORMED, "not JSON") from error
    if not isinstance(value, dict):
        raise ProtocolError(ErrorCode.MALFORMED, "not a JSON object")
    return value
