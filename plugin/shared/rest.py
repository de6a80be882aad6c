"""Requests to a Pulsar's admin interface: redirects are followed with the token, and answers are bounded.

By the standard library: loading an HTTP library takes as long as all calls of a small job. Invariants: the
token goes to the given URL, and to redirects within one scheme; a request that changes something is sent once
to each of these.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin, urlsplit

ANSWER_MAX_BYTES = 512 * 1024 * 1024
"""A cursor with a million ranges of acknowledgements takes some 30 MB."""
_REDIRECTS = (301, 302, 303, 307, 308)
_REDIRECTS_MAX = 10
_TIMEOUT_S = 60.0
_SHOWN = 200


class RestError(Exception):
    """There is no usable answer; the message says why."""


class UnansweredError(RestError):
    """No answer, or a broken connection."""


class UntrustedError(RestError):
    """The other side's certificate is not trusted."""


class RedirectError(RestError):
    """The answers lead in circles, or to another scheme."""


class NoAnswerOfPulsarError(RestError):
    """An answer unlike Pulsar's: too large, or a redirect to nowhere."""


@dataclass(frozen=True)
class Answer:
    """An answer; ``headers`` have lower-case names."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_success(self) -> bool:
        """True for a status of 200 to 299."""
        return 200 <= self.status < 300

    @property
    def is_error(self) -> bool:
        """True for a status of 400 or more."""
        return self.status >= 400

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """The body's document. Raises ``ValueError``."""
        try:
            return json.loads(self.body)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error

    @property
    def reason(self) -> str:
        """The refusal's reason, in Pulsar's words if there are any, as one bounded line."""
        try:
            document = self.json()
            text = str(document.get("reason", "")) if isinstance(document, dict) else ""
        except ValueError:
            text = self.body[: 4 * _SHOWN].decode("utf-8", "replace")
        line = " ".join(text.split())
        return "".join(one if one.isprintable() else "?" for one in line)[:_SHOWN] or "no reason given"


class RestClient:
    """Requests with one token and one trust; holds no connection.

    token: asked at each request. tls: None trusts the system's certificates.
    """

    def __init__(
        self, token: Callable[[], str | None] = lambda: None, tls: ssl.SSLContext | None = None
    ) -> None:
        self._token = token
        self._tls = tls

    def request(self, method: str, url: str, body: object = None, *, timeout_s: float = _TIMEOUT_S) -> Answer:
        """The answer to a request, whose ``body`` goes as JSON. Raises ``RestError``."""
        target = url
        try:
            for _ in range(_REDIRECTS_MAX):
                answer = self._request(method, target, body, timeout_s)
                location = answer.headers.get("location")
                if answer.status not in _REDIRECTS or not location:
                    return answer
                target = _redirected(target, location)
        except ssl.SSLCertVerificationError as error:
            raise UntrustedError(error.verify_message) from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise UnansweredError(reason) from error
        raise RedirectError("redirects in circles")

    def _request(self, method: str, url: str, body: object, timeout_s: float) -> Answer:
        token = self._token()
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        content = None
        if body is not None:
            content = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        connection = self._connection(url, timeout_s)
        try:
            path = urlsplit(url)._replace(scheme="", netloc="", fragment="").geturl()
            connection.request(method, path, body=content, headers=headers)
            response = connection.getresponse()
            received = response.read(ANSWER_MAX_BYTES + 1)
            if len(received) > ANSWER_MAX_BYTES:
                raise NoAnswerOfPulsarError(f"{url} answers with more than {ANSWER_MAX_BYTES >> 20} MiB")
            if response.length:
                raise http.client.IncompleteRead(received, response.length)
            told = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, received, told)
        finally:
            connection.close()

    def _connection(self, url: str, timeout_s: float) -> http.client.HTTPConnection:
        parts = urlsplit(url)
        if not parts.hostname or port_of(url) is None:
            raise NoAnswerOfPulsarError(f"redirects to {url[:_SHOWN]!r}, which is no URL")
        if parts.scheme == "https":
            context = self._tls or ssl.create_default_context()
            return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout_s, context=context)
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)


def port_of(url: str) -> int | None:
    """The port in a URL, 0 if it has none; None if the text there is no port."""
    try:
        return urlsplit(url).port or 0
    except ValueError:
        return None


def _redirected(url: str, location: str) -> str:
    target, scheme = urljoin(url, location), urlsplit(url).scheme
    if urlsplit(target).scheme != scheme:
        raise RedirectError(f"redirects from {scheme} to another scheme: give the admin URL of that one")
    return target
