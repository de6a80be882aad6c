"""The names of OpenTelemetry for the metrics of Prometheus.

A figure that Pulsar also has gets its name and attributes (``OpenTelemetryTopicStats`` of 4.0 and newer);
others are below ``tidegate.``, in the same style: dots between nouns, ``count`` for numbers, units in UCUM.
Invariant: each metric of ``metrics`` has a name here, or is among ``LEFT_OUT``.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

DELAYED = "pulsar.broker.topic.subscription.delayed.entry.count"
"""Pulsar's own: entries delayed for dispatching. Ours has ``pulsar.subscription.name`` besides."""


class Kind(StrEnum):
    """The instrument behind a value."""

    COUNTER = "counter"
    UP_DOWN = "up-down counter"
    """A sum that may fall: sums of several daemons add up."""
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class OtelName(NamedTuple):
    """A metric. unit: in UCUM, a noun in braces for a number of things."""

    name: str
    unit: str
    kind: Kind


def _counter(name: str, unit: str) -> OtelName:
    return OtelName(name, unit, Kind.COUNTER)


def _up_down(name: str, unit: str) -> OtelName:
    return OtelName(name, unit, Kind.UP_DOWN)


def _gauge(name: str, unit: str) -> OtelName:
    return OtelName(name, unit, Kind.GAUGE)


def _histogram(name: str) -> OtelName:
    return OtelName(name, "s", Kind.HISTOGRAM)


NAMES = {
    "tidegate_entries_held": _up_down("tidegate.entry.held.count", "{entry}"),
    "tidegate_entries_in_flight": _up_down("tidegate.entry.in_flight.count", "{entry}"),
    "tidegate_entries_acknowledged": _up_down("tidegate.entry.acknowledged.count", "{entry}"),
    "tidegate_entries_staged": _up_down("tidegate.entry.staged.count", "{entry}"),
    "tidegate_uncommitted_entries": _up_down("tidegate.entry.uncommitted.count", "{entry}"),
    "tidegate_entries_added": _counter("tidegate.entry.incoming.count", "{entry}"),
    "tidegate_entries_due": _counter("tidegate.entry.outgoing.count", "{entry}"),
    "tidegate_entries_held_back": _counter("tidegate.entry.held_back.count", "{entry}"),
    "tidegate_lateness_seconds": _histogram("tidegate.entry.lateness"),
    "tidegate_subscriptions": _up_down("tidegate.subscription.count", "{subscription}"),
    "tidegate_subscriptions_overdue": _up_down("tidegate.subscription.overdue.count", "{subscription}"),
    "tidegate_subscriptions_paced": _up_down("tidegate.subscription.paced.count", "{subscription}"),
    "tidegate_subscriptions_paused": _up_down("tidegate.subscription.paused.count", "{subscription}"),
    "tidegate_overdue_seconds": _gauge("tidegate.entry.overdue.age", "s"),
    "tidegate_memory_bytes": _up_down("tidegate.index.memory.usage", "By"),
    "tidegate_disk_bytes": _up_down("tidegate.index.disk.usage", "By"),
    "tidegate_disk_free_bytes": _gauge("tidegate.disk.free", "By"),
    "tidegate_damaged_bytes": _up_down("tidegate.damage.size", "By"),
    "tidegate_lost_commits": _up_down("tidegate.damage.lost.commit.count", "{commit}"),
    "tidegate_quarantined_blocks": _up_down("tidegate.damage.block.count", "{block}"),
    "tidegate_corrupt_records": _counter("tidegate.damage.record.count", "{record}"),
    "tidegate_store_compactions_disabled": _gauge("tidegate.damage.compaction.disabled", "1"),
    "tidegate_absent_blocks": _up_down("tidegate.block.absent.count", "{block}"),
    "tidegate_blocks": _up_down("tidegate.block.count", "{block}"),
    "tidegate_slices": _up_down("tidegate.slice.count", "{slice}"),
    "tidegate_slices_crowded": _up_down("tidegate.slice.crowded.count", "{slice}"),
    "tidegate_journal_bytes": _up_down("tidegate.journal.size", "By"),
    "tidegate_persists": _counter("tidegate.persist.count", "{persist}"),
    "tidegate_compactions": _counter("tidegate.compaction.count", "{compaction}"),
    "tidegate_commits": _counter("tidegate.commit.count", "{commit}"),
    "tidegate_commit_duration_seconds": _histogram("tidegate.commit.duration"),
    "tidegate_durable_lag_seconds": _histogram("tidegate.frame.durable.duration"),
    "tidegate_brokers": _up_down("tidegate.broker.count", "{broker}"),
    "tidegate_reconnects": _counter("tidegate.broker.reconnect.count", "{connection}"),
    "tidegate_streams": _up_down("tidegate.stream.count", "{stream}"),
    "tidegate_streams_without_credit": _up_down("tidegate.stream.without_credit.count", "{stream}"),
    "tidegate_credit_exhausted": _counter("tidegate.stream.credit.exhausted.count", "{event}"),
    "tidegate_bypassed_dispatchers": _up_down("tidegate.dispatcher.bypassed.count", "{dispatcher}"),
    "tidegate_bypassed_messages": _up_down("tidegate.dispatcher.bypassed.message.count", "{message}"),
    "tidegate_frames_received": _counter("tidegate.frame.incoming.count", "{frame}"),
    "tidegate_frames_sent": _counter("tidegate.frame.outgoing.count", "{frame}"),
    "tidegate_errors_sent": _counter("tidegate.frame.error.count", "{frame}"),
    "tidegate_bytes_received": _counter("tidegate.frame.incoming.size", "By"),
    "tidegate_bytes_sent": _counter("tidegate.frame.outgoing.size", "By"),
    "tidegate_read_pause_seconds": _counter("tidegate.read.pause.duration", "s"),
    "tidegate_messages_changed": _counter("tidegate.message.changed.count", "{message}"),
    "tidegate_audit_failures": _counter("tidegate.audit.failure.count", "{change}"),
    "tidegate_index_logs": _up_down("tidegate.index_log.count", "{index_log}"),
    "tidegate_index_logs_failing": _up_down("tidegate.index_log.failing.count", "{index_log}"),
    "tidegate_index_log_waiting_bytes": _up_down("tidegate.index_log.waiting.size", "By"),
    "tidegate_index_log_lag_seconds": _gauge("tidegate.index_log.lag", "s"),
    "tidegate_index_log_bytes": _counter("tidegate.index_log.outgoing.size", "By"),
    "tidegate_index_log_failures": _counter("tidegate.index_log.failure.count", "{failure}"),
    "tidegate_index_log_restored": _counter("tidegate.index_log.restored.count", "{index_log}"),
    "tidegate_index_log_unreadable": _counter("tidegate.index_log.unreadable.count", "{index_log}"),
    "tidegate_index_log_restore_seconds": _histogram("tidegate.index_log.restore.duration"),
    "tidegate_otlp_exports": _counter("tidegate.otlp.export.count", "{export}"),
    "tidegate_ready": _gauge("tidegate.ready", "1"),
    "tidegate_uptime_seconds": _gauge("tidegate.uptime", "s"),
    "tidegate_subscription_entries_held": _up_down("tidegate.subscription.held.entry.count", "{entry}"),
    "tidegate_subscription_entries_in_flight": _up_down(
        "tidegate.subscription.in_flight.entry.count", "{entry}"
    ),
    "tidegate_subscription_entries_acknowledged": _up_down(
        "tidegate.subscription.acknowledged.entry.count", "{entry}"
    ),
    "tidegate_subscription_entries_held_back": _up_down(
        "tidegate.subscription.held_back.entry.count", "{entry}"
    ),
    "tidegate_subscription_next_due_timestamp_seconds": _gauge("tidegate.subscription.due.timestamp", "s"),
    "tidegate_subscription_overdue_seconds": _gauge("tidegate.subscription.overdue.age", "s"),
    "tidegate_subscription_slice_width_seconds": _gauge("tidegate.subscription.slice.width", "s"),
    "tidegate_subscription_paused": _gauge("tidegate.subscription.paused", "1"),
    "tidegate_subscription_release_rate": _gauge("tidegate.subscription.release.rate", "{entry}/s"),
    "tidegate_subscription_release_spread_seconds": _gauge("tidegate.subscription.release.spread", "s"),
    "process_cpu_seconds": _counter("process.cpu.time", "s"),
    "process_resident_memory_bytes": _up_down("process.memory.usage", "By"),
    "process_virtual_memory_bytes": _up_down("process.memory.virtual", "By"),
    "process_open_fds": _up_down("process.unix.file_descriptor.count", "{file_descriptor}"),
}
LEFT_OUT = {"tidegate_build_info", "process_start_time_seconds", "process_max_fds"}
"""The first are attributes of the resource, the last is a limit."""
_PARTITION = re.compile(r"(.*)-partition-(0|[1-9][0-9]{0,8})", re.DOTALL | re.ASCII)
"""As Pulsar names partitions; a name with another number is a topic of its own."""


def topic_attributes(topic: str) -> dict[str, str | int]:
    """The attributes by which Pulsar names a topic; a partition has its topic's name, and its index."""
    domain, _, path = topic.partition("://")
    tenant, _, rest = path.partition("/")
    namespace = rest.partition("/")[0]
    partition = _PARTITION.fullmatch(topic)
    attributes: dict[str, str | int] = {
        "pulsar.domain": domain,
        "pulsar.tenant": tenant,
        "pulsar.namespace": f"{tenant}/{namespace}",
        "pulsar.topic": topic if partition is None else partition[1],
    }
    if partition is not None:
        attributes["pulsar.partition.index"] = int(partition[2])
    return attributes


def attributes_of(labels: dict[str, str]) -> dict[str, str | int]:
    """Attributes for a series' labels in Prometheus."""
    found: dict[str, str | int] = {}
    for label, value in labels.items():
        match label:
            case "topic":
                found |= topic_attributes(value)
            case "namespace":
                pass  # one of the topic's
            case "subscription":
                found["pulsar.subscription.name"] = value
            case _:
                found[f"tidegate.{label}"] = value
    return found
