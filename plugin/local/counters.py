"""A broker's OpenTelemetry counters: totals since its start.

Pulsar has them off by default; ``telemetry_options`` switches them on.
"""

from __future__ import annotations

import re

import httpx

from tidegate.plugin.errors import UserError
from tidegate.plugin.local.process import LOOPBACK

_TIMEOUT_S = 30.0


class CountersError(UserError):
    """The broker's counters cannot be read."""


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


def entries_read(port: int, topic: str) -> int:
    """Entries of the topic (its local name) read from BookKeeper since the start; cached ones do not count.

    After a restart the cache is empty, so that this counts every entry that the broker reads again. Raises
    ``CountersError``.
    """
    url = f"http://{LOOPBACK}:{port}/metrics"
    try:
        text = httpx.get(url, timeout=_TIMEOUT_S, trust_env=False).text
    except httpx.HTTPError as error:
        raise CountersError(f"the broker's counters cannot be read at {url}: {error}") from error
    return parse_entries_read(text, topic)


def parse_entries_read(exposition: str, topic: str) -> int:
    """The topic's count of entries read from storage, from Prometheus text; 0 if there is none yet."""
    pattern = re.compile(
        r"^pulsar_broker_managed_ledger_message_incoming_count(?:_total)?\{([^}]*)\}\s+([0-9.eE+]+)",
        re.MULTILINE,
    )
    for labels, value in pattern.findall(exposition):
        if f'/{topic}"' in labels and 'status="success"' in labels:
            return int(float(value))
    return 0
