"""The broker's admin REST interface, as far as drills ask it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx

_TIMEOUT_S = 10.0


class StandAdmin:
    """Asks the broker that ``base_url`` names at the moment; topics are full names."""

    def __init__(self, base_url: Callable[[], str]) -> None:
        self._base_url = base_url
        self._client = httpx.Client(timeout=_TIMEOUT_S, trust_env=False, follow_redirects=True)

    def close(self) -> None:
        """Release the connections."""
        self._client.close()

    def request(self, method: str, path: str, body: object = None) -> httpx.Response | None:
        """One request below ``/admin/v2``; None if nobody answers."""
        try:
            return self._client.request(method, f"{self._base_url()}/admin/v2{path}", json=body)
        except httpx.HTTPError:
            return None

    def subscription(self, topic: str, subscription: str) -> dict[str, Any] | None:
        """The subscription's part of the topic's stats; None if they cannot be had."""
        answer = self.request("GET", f"/{topic_path(topic)}/stats")
        if answer is None or not answer.is_success:
            return None
        found: dict[str, Any] | None = answer.json()["subscriptions"].get(subscription)
        return found

    def delayed(self, topic: str, subscription: str) -> int | None:
        """``msgDelayed``: how many messages wait to be due."""
        found = self.subscription(topic, subscription)
        return None if found is None else int(found["msgDelayed"])


def topic_path(topic: str) -> str:
    """``persistent://tenant/namespace/name`` as a path of the admin interface."""
    domain, _, rest = topic.partition("://")
    return f"{domain}/{quote(rest, safe='/')}"
