"""Asking a running daemon for its status over HTTP.

Invariant: a daemon that does not answer within the time limit is a ``DaemonAwayError``; what answers and is
none is a ``UserError``; both say where it was looked for.
"""

from __future__ import annotations

import json
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

from tidegate.plugin.errors import DaemonAwayError, UserError

TIMEOUT_SECONDS = 5.0
ANSWER_BYTES_MAX = 16 * 2**20
# Settings of a proxy in the environment are for the world outside.
_OPENER = build_opener(ProxyHandler({}))


def ask_http(url: str, token: str | None = None, timeout_s: float = TIMEOUT_SECONDS) -> dict[str, Any]:
    """The daemon's status from its HTTP address. Raises ``UserError``."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    base = (url if "://" in url else f"http://{url}").rstrip("/")
    try:
        response = httpx.get(f"{base}/status", headers=headers, timeout=timeout_s, trust_env=False)
        response.raise_for_status()
        answer = response.json()
    except httpx.HTTPStatusError as error:
        if error.response.status_code == httpx.codes.UNAUTHORIZED:
            wrong = "takes another token" if token else "needs a token"
            raise UserError(f"{base} {wrong}: give --http-token-file the daemon's") from error
        if error.response.status_code == httpx.codes.MISDIRECTED_REQUEST:
            raise UserError(
                f"{base} does not know this name for itself: ask by IP address, or set its http_hosts"
            ) from error
        raise UserError(f"{base} answers {error.response.status_code}: is it a Tidegate daemon?") from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise DaemonAwayError(f"no daemon answers on {base} ({error}): check --http") from error
    except ValueError as error:
        raise UserError(f"{base} does not answer with JSON: is it a Tidegate daemon?") from error
    if not isinstance(answer, dict):
        raise UserError(f"{base} does not answer with a status: is it a Tidegate daemon?")
    return answer
