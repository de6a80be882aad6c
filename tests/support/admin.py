"""The part of the broker's admin REST interface that tests need.

Every call is synchronous and raises :class:`AdminError` with the broker's own reason when refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import httpx

Json: TypeAlias = dict[str, Any]


class AdminError(Exception):
    """The broker refused an admin call."""


@dataclass(frozen=True)
class SubscriptionStats:
    """Topic stats of one subscription; all values are counts but ``index_size_bytes``."""

    delayed: int
    backlog: int
    unacknowledged: int
    consumers: int
    index_size_bytes: int

    @classmethod
    def of(cls, document: Json) -> Self:
        """From the ``subscriptions`` member of a topic's stats."""
        return cls(
            delayed=document["msgDelayed"],
            backlog=document["msgBacklog"],
            unacknowledged=document["unackedMessages"],
            consumers=len(document["consumers"]),
            index_size_bytes=document["delayedMessageIndexSizeInBytes"],
        )


class Admin:
    """Calls on one broker; ``topic`` is ``tenant/namespace/name`` throughout."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        # Another broker may have the topic: then this one redirects.
        self._client = httpx.Client(
            base_url=f"{base_url}/admin/v2", timeout=30.0, trust_env=False, follow_redirects=True
        )

    def close(self) -> None:
        self._client.close()

    def call(self, method: str, path: str, body: object = None, *, timeout_s: float = 30.0) -> Any:
        """One request; the decoded JSON answer, or None without a body."""
        response = self._client.request(method, path, json=body, timeout=timeout_s)
        if response.is_error:
            raise AdminError(f"{method} {path}: {response.status_code} {response.text[:400]}")
        return response.json() if response.content else None

    # Topics

    def stats(self, topic: str) -> Json:
        """The topic's stats with an exact backlog."""
        document: Json = self.call("GET", f"/persistent/{topic}/stats?getPreciseBacklog=true")
        return document

    def subscription(self, topic: str, name: str) -> SubscriptionStats:
        return SubscriptionStats.of(self.stats(topic)["subscriptions"][name])

    def internal_stats(self, topic: str) -> Json:
        """The topic's ledgers and cursors."""
        document: Json = self.call("GET", f"/persistent/{topic}/internalStats")
        return document

    def trim(self, topic: str) -> None:
        """Delete unneeded ledgers now."""
        self.call("POST", f"/persistent/{topic}/trim")

    def create_partitioned(self, topic: str, partitions: int) -> None:
        self.call("PUT", f"/persistent/{topic}/partitions", partitions)

    def unload(self, topic: str) -> None:
        """Close the topic on its broker; clients connect again."""
        self.call("PUT", f"/persistent/{topic}/unload")

    def delete_topic(self, topic: str) -> None:
        """Delete with all connections, with its partitions if it has any."""
        partitioned = self.call("GET", f"/persistent/{topic}/partitions")["partitions"] > 0
        self.call("DELETE", f"/persistent/{topic}{'/partitions' if partitioned else ''}?force=true")

    def set_delayed_delivery(self, topic: str, *, active: bool, max_delay_ms: int = 0) -> None:
        self.call(
            "POST", f"/persistent/{topic}/delayedDelivery", delayed_delivery_policy(active, max_delay_ms)
        )

    def delayed_delivery(self, topic: str) -> Json | None:
        """The topic's own delayed delivery policy, None without one."""
        document: Json | None = self.call("GET", f"/persistent/{topic}/delayedDelivery")
        return document

    def set_delayed_delivery_values(self, where: str, values: Json) -> None:
        """A policy of exactly these values, of a topic or (``tenant/name``) a namespace."""
        path = f"/persistent/{where}" if where.count("/") == 2 else f"/namespaces/{where}"
        self.call("POST", f"{path}/delayedDelivery", {"active": True, **values})

    def applied_delayed_delivery(self, topic: str) -> Json:
        """The policy in force for the topic, its own or its namespace's."""
        document: Json = self.call("GET", f"/persistent/{topic}/delayedDelivery?applied=true")
        return document

    # Subscriptions

    def delete_subscription(self, topic: str, name: str) -> None:
        """Delete with all connections."""
        self.call("DELETE", f"/persistent/{topic}/subscription/{name}?force=true")

    def clear_backlog(self, topic: str, name: str) -> None:
        self.call("POST", f"/persistent/{topic}/subscription/{name}/skip_all")

    def skip(self, topic: str, name: str, number: int) -> None:
        """Acknowledge the next ``number`` messages of the subscription."""
        self.call("POST", f"/persistent/{topic}/subscription/{name}/skip/{number}")

    def reset_to_time(self, topic: str, name: str, timestamp_ms: int) -> None:
        """Move the cursor to the first message published at or after ``timestamp_ms``."""
        self.call("POST", f"/persistent/{topic}/subscription/{name}/resetcursor/{timestamp_ms}")

    def reset_to_position(self, topic: str, name: str, entry: tuple[int, int]) -> None:
        """Move the cursor to ``entry`` (ledger, entry), which is delivered again."""
        self.call(
            "POST",
            f"/persistent/{topic}/subscription/{name}/resetcursor",
            {"ledgerId": entry[0], "entryId": entry[1], "partitionIndex": -1, "isExcluded": False},
        )

    def expire(self, topic: str, name: str, older_than_s: int) -> None:
        """Acknowledge messages published more than ``older_than_s`` seconds ago, as a TTL does."""
        self.call("POST", f"/persistent/{topic}/subscription/{name}/expireMessages/{older_than_s}")

    # Namespaces

    def create_namespace(self, namespace: str) -> None:
        """Make ``tenant/name``."""
        self.call("PUT", f"/namespaces/{namespace}", {})

    def move(self, namespace: str, bundle: str, broker_id: str) -> None:
        """Unload a bundle of a namespace, and have another broker own it."""
        self.call("PUT", f"/namespaces/{namespace}/{bundle}/unload?destinationBroker={broker_id}")

    def set_retention(self, namespace: str, *, minutes: int, size_mib: int) -> None:
        """Keep acknowledged messages; -1 is for ever."""
        body = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": size_mib}
        self.call("POST", f"/namespaces/{namespace}/retention", body)

    def set_namespace_delayed_delivery(self, namespace: str, *, active: bool, max_delay_ms: int = 0) -> None:
        self.call(
            "POST", f"/namespaces/{namespace}/delayedDelivery", delayed_delivery_policy(active, max_delay_ms)
        )

    def set_message_ttl(self, namespace: str, seconds: int) -> None:
        """Acknowledge messages by themselves after ``seconds``."""
        self.call("POST", f"/namespaces/{namespace}/messageTTL", seconds)

    # Brokers

    def set_dynamic(self, key: str, value: str) -> None:
        """A configuration that may change while the broker runs; stays over restarts."""
        self.call("POST", f"/brokers/configuration/{key}/{value}")

    def unset_dynamic(self, key: str) -> None:
        """As in the conf file again, from the next start on."""
        self.call("DELETE", f"/brokers/configuration/{key}")

    def metrics(self) -> str:
        response = self._client.get(self._client.base_url.join("/metrics/"), follow_redirects=True)
        if response.is_error:
            raise AdminError(f"GET /metrics/: {response.status_code}")
        return response.text


def delayed_delivery_policy(active: bool, max_delay_ms: int) -> Json:
    return {"active": active, "tickTime": 1000, "maxDeliveryDelayInMillis": max_delay_ms}
