"""Errors of the HTTP interface as problem details (RFC 9457)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http import HTTPStatus

from tidegate.plugin.errors import NotNowError, TidegateError, UnknownNameError, UserError

CONTENT_TYPE = "application/problem+json"


class ProblemError(TidegateError):
    """A request ends with an error; `detail` is one line for its sender."""

    def __init__(self, status: HTTPStatus, detail: str, **headers: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    @classmethod
    def of(cls, error: UserError) -> ProblemError:
        """The problem for a refused query."""
        if isinstance(error, UnknownNameError):
            return cls(HTTPStatus.NOT_FOUND, str(error))
        if isinstance(error, NotNowError):
            again = {"Retry_After": "1"} if error.may_repeat else {}
            return cls(HTTPStatus.SERVICE_UNAVAILABLE, str(error), **again)
        return cls(HTTPStatus.BAD_REQUEST, str(error))

    @classmethod
    def of_method(cls, allowed: Sequence[str]) -> ProblemError:
        """The problem for a method that is not among the ``allowed`` ones of a path."""
        said = f"{' or '.join(allowed)} is allowed here"
        return cls(HTTPStatus.METHOD_NOT_ALLOWED, said, Allow=", ".join(allowed))

    def body(self) -> bytes:
        """The document. Its type is ``about:blank``: the status says it all."""
        document = {
            "type": "about:blank",
            "title": self.status.phrase,
            "status": int(self.status),
            "detail": self.detail,
        }
        return json.dumps(document).encode() + b"\n"
