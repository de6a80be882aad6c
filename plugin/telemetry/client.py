"""Asks a running daemon for its status over HTTP.

Invariant: a daemon that does not answer within the time limit is a ``DaemonAwayError``; an answer from
anything else is a ``UserError``; both messages name the address.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from tidegate.plugin.errors import DaemonAwayError, UserError

TIMEOUT_SECONDS = 5.0
ANSWER_BYTES_MAX = 16 * 2**20
# The environment's proxy settings are for the world outside.
_OPENER = build_opener(ProxyHandler({}))


def ask_http(
    url: str, token: str | None = None, timeout_s: float = TIMEOUT_SECONDS, *, by_due: bool = False
) -> dict[str, Any]:
    """The daemon's status from its HTTP address. Raises ``UserError``.

    by_due: the subscriptions that are due first, not the fullest.
    """
    base = (url if "://" in url else f"http://{url}").rstrip("/")
    if not base.startswith(("http://", "https://")):
        raise UserError(f"{base} is not an HTTP address: check --http")
    url = f"{base}/status?sort=due" if by_due else f"{base}/status"
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        with _OPENER.open(Request(url, headers=headers), timeout=timeout_s) as response:  # noqa: S310
            body = response.read(ANSWER_BYTES_MAX)
    except HTTPError as error:
        raise UserError(f"{base} {_refusal(error.code, token)}") from error
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise DaemonAwayError(f"no daemon answers on {base} ({reason}): check --http") from error
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{base} does not answer with JSON: is it a Tidegate daemon?") from error
    if not isinstance(answer, dict):
        raise UserError(f"{base} does not answer with a status: is it a Tidegate daemon?")
    return answer


def _refusal(code: int, token: str | None) -> str:
    match code:
        case HTTPStatus.UNAUTHORIZED:
            return f"{'takes another' if token else 'needs a'} token: give --http-token-file the daemon's"
        case HTTPStatus.MISDIRECTED_REQUEST:
            return "does not know this name for itself: ask by IP address, or set its http_hosts"
        case _:
            return f"answers {code}: is it a Tidegate daemon?"
