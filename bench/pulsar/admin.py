"""A broker's own account: its admin REST interface, and its OpenTelemetry counters.

The counters are totals since the broker started; ``tidegate.plugin.local.counters`` switches them on.
"""

from __future__ import annotations

from typing import Any

import httpx

from bench.harness.errors import BenchError
from tidegate.plugin.local.counters import CountersError, entries_read


class Admin:
    """Reads the state of one topic (``public/default/NAME``) of a broker."""

    def __init__(self, admin_url: str, telemetry_port: int) -> None:
        self._http = httpx.Client(base_url=admin_url, timeout=30.0, trust_env=False)
        self._telemetry_port = telemetry_port

    def subscription(self, topic: str, subscription: str) -> dict[str, Any]:
        """Statistics as Pulsar gives them; {} while the broker does not serve the topic."""
        try:
            answer = self._http.get(f"/admin/v2/persistent/public/default/{topic}/stats")
        except httpx.HTTPError:
            return {}
        if answer.status_code != httpx.codes.OK:
            return {}
        found: dict[str, Any] = answer.json()["subscriptions"].get(subscription, {})
        return found

    def delayed(self, topic: str, subscription: str) -> int:
        """``msgDelayed``: the number of messages in the tracker; -1 while the topic is not served."""
        return int(self.subscription(topic, subscription).get("msgDelayed", -1))

    def backlog(self, topic: str, subscription: str) -> int:
        """``msgBacklog``: unacknowledged messages; -1 while the topic is not served."""
        return int(self.subscription(topic, subscription).get("msgBacklog", -1))

    def unload(self, topic: str) -> None:
        """Close the topic; the next client loads it anew. Raises BenchError."""
        try:
            self._http.put(f"/admin/v2/persistent/public/default/{topic}/unload").raise_for_status()
        except httpx.HTTPError as error:
            raise BenchError(f"the topic could not be unloaded: {error}") from error

    def entries_read(self, topic: str) -> int:
        """Entries of the topic read from BookKeeper since the broker's start, not from its cache.

        After a restart the cache is empty: this counts every entry read again.
        """
        try:
            return entries_read(self._telemetry_port, topic)
        except CountersError as error:
            raise BenchError(str(error)) from error

    def close(self) -> None:
        """Close the connections."""
        self._http.close()
