"""What a broker says of itself: its admin REST interface, and its OpenTelemetry counters.

The counters are totals since the broker started. They are off by default in Pulsar and switched on by the
options of ``telemetry_options``.
"""

from __future__ import annotations

import re
from typing import Any

import httpx

from bench.harness.errors import BenchError

LOOPBACK = "127.0.0.1"


def telemetry_options(port: int) -> list[str]:
    """JVM options that make the broker export its counters on a loopback port."""
    return [
        "-Dotel.sdk.disabled=false",
        "-Dotel.metrics.exporter=prometheus",
        "-Dotel.traces.exporter=none",
        "-Dotel.logs.exporter=none",
        # Otherwise every sample carries the whole command line as a label.
        "-Dotel.experimental.resource.disabled.keys=process.command_args",
        f"-Dotel.exporter.prometheus.host={LOOPBACK}",
        f"-Dotel.exporter.prometheus.port={port}",
    ]


class Admin:
    """Reads the state of one topic (``public/default/NAME``) of a broker."""

    def __init__(self, admin_url: str, telemetry_port: int) -> None:
        self._http = httpx.Client(base_url=admin_url, timeout=30.0, trust_env=False)
        self._telemetry_url = f"http://{LOOPBACK}:{telemetry_port}/metrics"

    def subscription(self, topic: str, subscription: str) -> dict[str, Any]:
        """The subscription's part of the topic's stats; {} while the broker does not serve it."""
        try:
            answer = self._http.get(f"/admin/v2/persistent/public/default/{topic}/stats")
        except httpx.HTTPError:
            return {}
        if answer.status_code != httpx.codes.OK:
            return {}
        found: dict[str, Any] = answer.json()["subscriptions"].get(subscription, {})
        return found

    def delayed(self, topic: str, subscription: str) -> int:
        """``msgDelayed``: how many messages the tracker holds; -1 while the topic is not served."""
        return int(self.subscription(topic, subscription).get("msgDelayed", -1))

    def backlog(self, topic: str, subscription: str) -> int:
        """``msgBacklog``: messages not acknowledged; -1 while the topic is not served."""
        return int(self.subscription(topic, subscription).get("msgBacklog", -1))

    def entries_read(self, topic: str) -> int:
        """Entries of the topic read from BookKeeper since the broker started (reads from its cache are not).

        After a restart the cache is empty, so that this counts every entry that the broker had to read again.
        """
        try:
            text = self._http.get(self._telemetry_url).text
        except httpx.HTTPError as error:
            raise BenchError(
                f"the broker's counters cannot be read at {self._telemetry_url}: {error}"
            ) from error
        return parse_entries_read(text, topic)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def parse_entries_read(exposition: str, topic: str) -> int:
    """Find the topic's count of entries read from storage in Prometheus text; 0 when it has none yet."""
    pattern = re.compile(
        r"^pulsar_broker_managed_ledger_message_incoming_count(?:_total)?\{([^}]*)\}\s+([0-9.eE+]+)",
        re.MULTILINE,
    )
    for labels, value in pattern.findall(exposition):
        if f'/{topic}"' in labels and 'status="success"' in labels:
            return int(float(value))
    return 0
