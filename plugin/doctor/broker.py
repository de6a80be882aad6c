"""The questions to the admin interface: bounded in number and time, and harmless.

Invariants: a refused or strange answer is None, never a guess; ``refusals`` keeps them; after one request
without an answer no other is sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from tidegate.plugin.doctor.clocks import DATE_MS, Reading
from tidegate.plugin.doctor.topics import Quota, Sample, SubscriptionFacts
from tidegate.plugin.shared.rest import Answer, RestClient, RestError

REQUESTS_MAX = 256
_TIMEOUT_S = 10.0
_SPAN_S = 60.0
_PARTITION = re.compile(r"-partition-\d+\Z")
_OF_PULSAR = "__compaction"
"""A cursor of Pulsar's own, which never has a consumer."""
_MINUTE_MS, _SECOND_MS = 60_000, 1_000


class BrokerAdmin:
    """Asks the broker at ``base``, for ``span_s`` at most.

    clock_ms: since the epoch. monotonic_s: any origin.
    """

    def __init__(
        self,
        base: str,
        client: RestClient,
        clock_ms: Callable[[], int],
        monotonic_s: Callable[[], float],
        *,
        span_s: float = _SPAN_S,
    ) -> None:
        self.base = base
        self.failure = ""
        self.refusals: list[str] = []
        self._client = client
        self._clock_ms = clock_ms
        self._monotonic_s = monotonic_s
        self._until_s = monotonic_s() + span_s
        self._timeout_s = min(_TIMEOUT_S, span_s)
        self._left = REQUESTS_MAX
        self._known: dict[str, Any] = {}

    @property
    def spent(self) -> bool:
        """True after the last permitted question."""
        return bool(self.failure) or self._left <= 0 or self._monotonic_s() >= self._until_s

    def version(self) -> tuple[str | None, Reading | None]:
        """The broker's version of Pulsar, and its clock by the header Date of that answer."""
        asked_ms = self._clock_ms()
        answer = self._ask("/brokers/version")
        if answer is None or not answer.is_success:
            return None, None
        told = _date_ms(answer.headers.get("date", ""))
        reading = None if told is None else Reading(asked_ms, self._clock_ms(), told, DATE_MS)
        return answer.text.strip()[:80], reading

    def runtime(self) -> Mapping[str, str]:
        """The settings that the broker runs with; none if it does not tell. They may contain secrets."""
        found = self._once("/brokers/configuration/runtime")
        if not isinstance(found, dict):
            return {}
        return {str(key): str(value) for key, value in found.items() if value is not None}

    def stats(self, topic: str) -> tuple[int, tuple[SubscriptionFacts, ...]] | None:
        """Stored bytes and subscriptions of a topic."""
        found = self._json(f"{_path(topic)}/stats?getPreciseBacklog=false")
        subscriptions = found.get("subscriptions") if isinstance(found, dict) else None
        if not isinstance(subscriptions, dict):
            return None
        facts = [
            SubscriptionFacts(
                str(name),
                len(one["consumers"]) if isinstance(one.get("consumers"), list) else 0,
                _int(one.get("msgBacklog")),
                _int(one.get("nonContiguousDeletedMessagesRanges")),
                max(_int(one.get("lastConsumedTimestamp")), _int(one.get("lastConsumedFlowTimestamp"))),
            )
            for name, one in subscriptions.items()
            if isinstance(one, dict) and name != _OF_PULSAR
        ]
        return _int(found.get("storageSize")), tuple(facts)

    def ttl_ms(self, topic: str, runtime: Mapping[str, str]) -> int | None:
        """The TTL that applies, 0 for none."""
        found = self._policy(topic, "messageTTL")
        if found is _UNKNOWN:
            return None
        return max(0, _or_default(found, runtime, "ttlDurationDefaultInSeconds")) * _SECOND_MS

    def quotas(self, topic: str) -> tuple[Quota | None, Quota | None]:
        """The backlog quotas that apply: of age (limit in ms) and of space (in bytes)."""
        found = self._policy(topic, "backlogQuotaMap")
        if found is _UNKNOWN:
            return None, None
        quotas = found if isinstance(found, dict) else {}
        age, space = (
            one if isinstance(one, dict) else {}
            for one in (quotas.get("message_age"), quotas.get("destination_storage"))
        )
        return (
            Quota(_int(age.get("limitTime")) * _SECOND_MS, str(age.get("policy", ""))),
            Quota(_int(space.get("limitSize", space.get("limit"))), str(space.get("policy", ""))),
        )

    def expiry_ms(self, topic: str, runtime: Mapping[str, str]) -> int | None:
        """The time after which a subscription without consumers is deleted, 0 for never."""
        found = self._once(f"/namespaces/{_namespace(topic)}/subscriptionExpirationTime")
        if found is _UNKNOWN:
            return None
        return max(0, _or_default(found, runtime, "subscriptionExpirationTimeMinutes")) * _MINUTE_MS

    def properties(self, topic: str) -> list[Mapping[str, str]] | None:
        """The properties of the topic, then of its namespace; None if one of them is unknown."""
        asked = (_path(_PARTITION.sub("", topic)), f"/namespaces/{_namespace(topic)}")
        found = [self._once(f"{path}/properties") for path in asked]
        if any(one is _UNKNOWN for one in found):
            return None
        return [
            {str(key): str(value) for key, value in one.items()} if isinstance(one, dict) else {}
            for one in found
        ]

    def newest(self, topic: str) -> Sample | None:
        """The newest message's times."""
        answer = self._ask(f"{_path(topic)}/examinemessage?initialPosition=latest&messagePosition=1")
        if answer is None or not answer.is_success:
            return None
        return Sample(
            _time_ms(answer.headers.get("x-pulsar-publish-time", "")),
            _time_ms(answer.headers.get("x-pulsar-deliver-at-time", "")),
        )

    def _policy(self, topic: str, name: str) -> Any:
        """The policy of a topic, else of its namespace. None for none."""
        found = self._once(f"{_path(_PARTITION.sub('', topic))}/{name}?applied=true")
        if found is _UNKNOWN:
            found = self._once(f"/namespaces/{_namespace(topic)}/{name}")
        return found

    def _once(self, path: str) -> Any:
        """As ``_json``, asked once; ``_UNKNOWN`` without an answer."""
        if path not in self._known:
            self._known[path] = self._json(path, _UNKNOWN)
        return self._known[path]

    def _json(self, path: str, otherwise: Any = None) -> Any:
        answer = self._ask(path)
        if answer is None or not answer.is_success:
            return otherwise
        try:
            return answer.json() if answer.body else None
        except ValueError:
            return otherwise

    def _ask(self, path: str) -> Answer | None:
        if self.spent:
            return None
        self._left -= 1
        try:
            answer = self._client.request("GET", f"{self.base}/admin/v2{path}", timeout_s=self._timeout_s)
        except RestError as error:
            self.failure = str(error)
            return None
        if answer.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            self.refusals.append(f"{answer.status}: {answer.reason}")
        return answer


_UNKNOWN = object()


def _path(topic: str) -> str:
    domain, _, rest = topic.partition("://")
    return "/" + "/".join([domain, *(quote(one, safe="") for one in rest.split("/", 2))])


def _namespace(topic: str) -> str:
    return "/".join(quote(one, safe="") for one in topic.partition("://")[2].split("/", 2)[:2])


def _or_default(found: object, runtime: Mapping[str, str], key: str) -> int:
    """The number that was found; without one, the broker's default."""
    if isinstance(found, int):
        return found
    default = runtime.get(key, "")
    return int(default) if default.isdecimal() else 0


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0


def _date_ms(text: str) -> int | None:
    try:
        return round(parsedate_to_datetime(text).timestamp()) * 1_000
    except (ValueError, TypeError):
        return None


def _time_ms(text: str) -> int | None:
    """A time as Pulsar's headers have it, as a number of ms or in ISO 8601."""
    try:
        return (
            int(text)
            if text.lstrip("-").isdecimal()
            else round(datetime.fromisoformat(text).timestamp() * 1e3)
        )
    except (ValueError, OverflowError):
        return None
