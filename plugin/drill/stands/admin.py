"""The part of the broker's admin REST interface that drills need."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from tidegate.plugin.drill.fault import FaultError
from tidegate.plugin.shared.rest import Answer, RestClient, RestError

_TIMEOUT_S = 10.0
_LOOKUP_TIMEOUT_S = 2.0
_IN_USE_TIMEOUT_S, _IN_USE_POLL_S = 10.0, 0.2


class StandAdmin:
    """Asks the broker at the present ``base_url``; topics are full names."""

    def __init__(self, base_url: Callable[[], str], token: str | None = None) -> None:
        self._base_url = base_url
        self._client = RestClient(lambda: token)

    def request(self, method: str, path: str, body: object = None) -> Answer | None:
        """One request below ``/admin/v2``; None without an answer."""
        return self._ask(method, f"{self._base_url()}/admin/v2{path}", body)

    def _ask(
        self, method: str, url: str, body: object = None, timeout_s: float = _TIMEOUT_S
    ) -> Answer | None:
        try:
            return self._client.request(method, url, body, timeout_s=timeout_s)
        except RestError:
            return None

    def subscription(self, topic: str, subscription: str) -> dict[str, Any] | None:
        """The subscription's part of the topic's stats; None if unavailable."""
        answer = self.request("GET", f"/{topic_path(topic)}/stats")
        if answer is None or not answer.is_success:
            return None
        found: dict[str, Any] | None = answer.json()["subscriptions"].get(subscription)
        return found

    def delayed(self, topic: str, subscription: str) -> int | None:
        """``msgDelayed``: how many messages wait to be due."""
        found = self.subscription(topic, subscription)
        return None if found is None else int(found["msgDelayed"])

    def rewind(self, topic: str, subscription: str) -> None:
        """Set the cursor back to the topic's beginning. Raises ``FaultError``."""
        self.must("POST", f"/{topic_path(topic)}/subscription/{quote(subscription, safe='')}/resetcursor/0")

    def delete(self, topic: str) -> None:
        """Delete the topic with all its data, if it exists and the broker allows it."""
        self.request("DELETE", f"/{topic_path(topic)}?force=true")

    def delete_unused(self, topic: str) -> Answer | None:
        """Delete the topic unless it is in use; returns the broker's last answer, None without one.

        A busy broker still counts a client that has just closed, so the request is repeated for some seconds.
        """
        deadline_s = time.monotonic() + _IN_USE_TIMEOUT_S
        while True:
            answer = self.request("DELETE", f"/{topic_path(topic)}")
            in_use = answer is not None and answer.status == HTTPStatus.PRECONDITION_FAILED
            if not in_use or time.monotonic() > deadline_s:
                return answer
            time.sleep(_IN_USE_POLL_S)

    def version(self) -> str | None:
        """The broker's version of Pulsar; None without an answer."""
        answer = self.request("GET", "/brokers/version")
        return None if answer is None or not answer.is_success else answer.text.strip()

    def must(self, method: str, path: str, body: object = None) -> None:
        """A request that must succeed. Raises ``FaultError`` with the broker's reason."""
        answer = self.request(method, path, body)
        if answer is None:
            raise FaultError(f"the admin interface does not answer: {method} {path}")
        if answer.is_error:
            raise FaultError(f"the broker refused {method} {path}: {answer.status} {answer.text[:200]}")

    def text(self, path: str) -> str | None:
        """The text at a path of the broker's HTTP server; None if unavailable."""
        return self._text(f"{self._base_url()}{path}")

    def text_of_owner(self, topic: str, path: str) -> str | None:
        """The same from the topic's owner; if unavailable there, from the broker at ``base_url``."""
        base = self._base_url()
        answer = self.lookup(topic)
        owner = None if answer is None else _http_of(answer, tls=base.startswith("https:"))
        found = None if owner is None else self._text(f"{owner}{path}")
        return self._text(f"{base}{path}") if found is None else found

    def _text(self, url: str) -> str | None:
        answer = self._ask("GET", url)
        return answer.text if answer is not None and answer.is_success else None

    def gauge(self, name: str, topic: str) -> int | None:
        """A metric of the topic, summed over its subscriptions; None if it is missing.

        Pulsar also exports the sum, without a subscription.
        """
        pattern = rf"^{re.escape(name)}\{{([^}}]*)\}}\s+([0-9.eE+]+)"
        mine = f'topic="{topic}"'
        found = [
            int(float(value))
            for labels, value in re.findall(pattern, self.text("/metrics/") or "", re.MULTILINE)
            if mine in labels and 'subscription="' in labels
        ]
        return sum(found) if found else None

    def date(self) -> float | None:
        """The broker's time in seconds since the epoch, to the second; None if it does not answer."""
        answer = self.request("GET", "/brokers/health")
        if answer is None or "date" not in answer.headers:
            return None
        return parsedate_to_datetime(answer.headers["date"]).timestamp()

    def lookup(self, topic: str, timeout_s: float = _LOOKUP_TIMEOUT_S) -> Answer | None:
        """The answer to a look-up of the topic's owner; None without one."""
        domain, _, rest = topic.partition("://")
        url = f"{self._base_url()}/lookup/v2/topic/{domain}/{quote(rest, safe='/')}"
        return self._ask("GET", url, timeout_s=timeout_s)

    def owner(self, topic: str) -> str | None:
        """The service URL of the topic's owner; None while unknown."""
        answer = self.lookup(topic)
        return None if answer is None else broker_of(answer)


def broker_of(answer: Answer) -> str | None:
    """The service URL in the answer to a look-up; None without one."""
    if not answer.is_success:
        return None
    try:
        told = answer.json()
        # The former is null where a broker listens with TLS only.
        url: str | None = told.get("brokerUrl") or told.get("brokerUrlTls")
    except (ValueError, AttributeError):
        return None
    return url


def _http_of(answer: Answer, *, tls: bool) -> str | None:
    """The HTTP address of a look-up's broker; None if it is missing."""
    try:
        url: str | None = answer.json().get("httpUrlTls" if tls else "httpUrl")
    except (ValueError, AttributeError):
        return None
    return url


def topic_path(topic: str) -> str:
    """``persistent://tenant/namespace/name`` as a path of the admin interface."""
    domain, _, rest = topic.partition("://")
    return f"{domain}/{quote(rest, safe='/')}"
