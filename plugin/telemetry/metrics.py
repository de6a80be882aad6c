"""Prometheus metrics of the daemon, in a registry of their own.

Names are ``tidegate_*``, units Prometheus' (seconds, bytes), label names Pulsar's (``namespace``, ``topic``,
``subscription``). Invariants: nothing here is global; a scrape asks the index for its figures, without a
copy; the settings, not the subscriptions, bound the number of series.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from tidegate.plugin.shared.moments import AT_ONCE_MS
from tidegate.plugin.shared.shown import shown
from tidegate.plugin.telemetry.collectors import Collector, Count, CountByLabel, Distribution
from tidegate.plugin.wire.release_pace import ReleasePace

if TYPE_CHECKING:
    import numpy.typing as npt
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

CollectorT = TypeVar("CollectorT", bound=Collector)
LATENESS_BUCKETS_S = (
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1.0,
    2.0,
    5.0,
    10.0,
    60.0,
    600.0,
    3_600.0,
)
LAG_BUCKETS_S = (
    0.0005,
    0.001,
    0.002,
    0.003,
    0.004,
    0.005,
    0.007,
    0.01,
    0.015,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1.0,
    5.0,
)


@dataclass(frozen=True)
class SubscriptionGauges:
    """The contents of one subscription."""

    topic: str
    subscription: str
    held: int
    in_flight: int
    acknowledged: int
    next_due_ms: int | None
    overdue_ms: int
    slice_width_ms: int
    pace: ReleasePace = field(default_factory=ReleasePace)
    held_back: int = 0

    @property
    def namespace(self) -> str:
        """``tenant/namespace`` of the topic, as Pulsar labels it."""
        return "/".join(self.topic.partition("://")[2].split("/")[:2])


@dataclass(frozen=True)
class BypassGauge:
    """A dispatcher with delayed messages that Tidegate does not have."""

    broker: str
    topic: str
    subscription: str
    delayed: int
    reason: str


@dataclass(frozen=True)
class Gauges:
    """The state of the daemon at the moment of a scrape; sums over all subscriptions."""

    subscriptions: int
    held: int
    in_flight: int
    acknowledged: int
    staged: int
    slices_in_memory: int
    slices_on_disk: int
    memory_bytes: int
    disk_bytes: int
    disk_free_bytes: int
    damaged_bytes: int
    quarantined_blocks: int
    absent_blocks: int
    corrupt_records: int
    lost_commits: int
    blocks: int
    journal_bytes: int
    persists: int
    persist_failures: int
    compactions: int
    store_compactions_disabled: bool
    slices_crowded: int
    brokers: int
    streams: int
    streams_without_credit: int
    uncommitted_entries: int
    subscriptions_overdue: int
    overdue_seconds: float
    subscriptions_paced: int
    subscriptions_paused: int
    index_logs: int
    index_logs_failing: int
    index_log_waiting_bytes: int
    index_log_lag_seconds: float
    ready: bool
    uptime_seconds: float
    series: Sequence[SubscriptionGauges]
    bypassed_dispatchers: int = 0
    bypassed: Sequence[BypassGauge] = ()


class _GaugeCollector:
    """Exports the daemon's state, set at each scrape."""

    def __init__(self) -> None:
        self.state: Gauges | None = None

    def collect(self) -> Iterable[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415

        state = self.state
        if state is None:
            return
        for name, documentation, value in (
            ("subscriptions", "Subscriptions that the index knows", state.subscriptions),
            ("entries_held", "Positions that the index answers for", state.held),
            (
                "entries_in_flight",
                "Held entries that were handed out and are not known acknowledged",
                state.in_flight,
            ),
            (
                "entries_acknowledged",
                "Positions known acknowledged above the mark-delete position",
                state.acknowledged,
            ),
            ("entries_staged", "Entries that are not in a slice on disk yet", state.staged),
            ("memory_bytes", "Memory that the index uses", state.memory_bytes),
            ("disk_bytes", "Bytes of all files of the index on disk", state.disk_bytes),
            ("disk_free_bytes", "Free bytes of the disk that the index is on", state.disk_free_bytes),
            (
                "damaged_bytes",
                "Bytes of what was moved away because RocksDB could not read it",
                state.damaged_bytes,
            ),
            ("quarantined_blocks", "Blocks set aside because they were corrupt", state.quarantined_blocks),
            ("absent_blocks", "Blocks of restored indexes still to be read", state.absent_blocks),
            (
                "lost_commits",
                "Commits reported durable that were gone when the index was opened, at least",
                state.lost_commits,
            ),
            (
                "store_compactions_disabled",
                "1 if RocksDB compacts nothing until the next start, having met a table that it cannot read",
                int(state.store_compactions_disabled),
            ),
            ("blocks", "Packed blocks on disk", state.blocks),
            (
                "slices_crowded",
                "Slices that have too many runs and wait for compaction",
                state.slices_crowded,
            ),
            ("journal_bytes", "Journal records that no persist has replaced yet", state.journal_bytes),
            ("brokers", "Brokers that are connected", state.brokers),
            ("streams", "Open streams", state.streams),
            (
                "streams_without_credit",
                "Open streams whose broker takes no more due entries",
                state.streams_without_credit,
            ),
            ("uncommitted_entries", "Entries received that are not durable yet", state.uncommitted_entries),
            (
                "subscriptions_overdue",
                "Served subscriptions without a pace whose first message is overdue by a second or more",
                state.subscriptions_overdue,
            ),
            ("overdue_seconds", "The longest time by which one of these is overdue", state.overdue_seconds),
            (
                "subscriptions_paced",
                "Subscriptions whose messages leave at a pace, the paused ones too",
                state.subscriptions_paced,
            ),
            (
                "subscriptions_paused",
                "Subscriptions of which nothing leaves until resumed",
                state.subscriptions_paused,
            ),
            ("index_logs", "Index logs that are written here", state.index_logs),
            (
                "index_logs_failing",
                "Index logs that cannot be written at present",
                state.index_logs_failing,
            ),
            (
                "index_log_waiting_bytes",
                "Bytes that wait to be appended to index logs",
                state.index_log_waiting_bytes,
            ),
            (
                "index_log_lag_seconds",
                "How old the oldest change is that is not in its index log",
                state.index_log_lag_seconds,
            ),
            (
                "bypassed_dispatchers",
                "Dispatchers with delayed messages that Tidegate does not have",
                state.bypassed_dispatchers,
            ),
            ("ready", "1 if /readyz says so", int(state.ready)),
            ("uptime_seconds", "Seconds since the daemon started", state.uptime_seconds),
        ):
            yield GaugeMetricFamily(f"tidegate_{name}", documentation, value=value)
        slices = GaugeMetricFamily(
            "tidegate_slices",
            "All slices (disk), and those of them that are loaded (memory)",
            labels=["where"],
        )
        slices.add_metric(["memory"], state.slices_in_memory)
        slices.add_metric(["disk"], state.slices_on_disk)
        yield slices
        yield CounterMetricFamily(
            "tidegate_corrupt_records",
            "Corrupt stored values met since the start",
            value=state.corrupt_records,
        )
        persists = CounterMetricFamily("tidegate_persists", "Spills to slices on disk", labels=["result"])
        persists.add_metric(["ok"], state.persists)
        persists.add_metric(["failed"], state.persist_failures)
        yield persists
        yield CounterMetricFamily(
            "tidegate_compactions", "Slices of which runs were merged", value=state.compactions
        )
        bypassed = GaugeMetricFamily(
            "tidegate_bypassed_messages",
            "Delayed messages that Tidegate does not have, by dispatcher, the first of them",
            labels=["broker", "topic", "subscription", "reason"],
        )
        for one in state.bypassed:
            names = (one.broker, one.topic, one.subscription, one.reason)
            bypassed.add_metric(list(map(shown, names)), one.delayed)
        yield bypassed
        yield from self._by_subscription(state.series)

    @staticmethod
    def _by_subscription(series: Sequence[SubscriptionGauges]) -> Iterable[Metric]:
        from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415

        labels = ["namespace", "topic", "subscription"]
        held = GaugeMetricFamily("tidegate_subscription_entries_held", "Held positions", labels=labels)
        in_flight = GaugeMetricFamily(
            "tidegate_subscription_entries_in_flight", "Handed out, not acknowledged", labels=labels
        )
        acknowledged = GaugeMetricFamily(
            "tidegate_subscription_entries_acknowledged",
            "Acknowledged above the mark-delete position",
            labels=labels,
        )
        due = GaugeMetricFamily(
            "tidegate_subscription_next_due_timestamp_seconds", "When its next entry is due", labels=labels
        )
        overdue = GaugeMetricFamily(
            "tidegate_subscription_overdue_seconds",
            "Time since its first message was due, 0 below a second, with a pace or without a broker",
            labels=labels,
        )
        width = GaugeMetricFamily(
            "tidegate_subscription_slice_width_seconds",
            "Width of the slices that new entries go to",
            labels=labels,
        )
        paused = GaugeMetricFamily(
            "tidegate_subscription_paused", "1 while paused: nothing leaves until resumed", labels=labels
        )
        rate = GaugeMetricFamily(
            "tidegate_subscription_release_rate",
            "Entries that leave a second at most, 0 for any",
            labels=labels,
        )
        spread = GaugeMetricFamily(
            "tidegate_subscription_release_spread_seconds",
            "The time over which a burst is spread, 0 for none",
            labels=labels,
        )
        held_back = GaugeMetricFamily(
            "tidegate_subscription_entries_held_back",
            "Due entries of a subscription with a pace: held back, or with consumers",
            labels=labels,
        )
        for one in series:
            # Escaped: Prometheus accepts no zero byte, and one series must not break a whole scrape.
            values = [shown(one.namespace), shown(one.topic), shown(one.subscription)]
            held.add_metric(values, one.held)
            in_flight.add_metric(values, one.in_flight)
            acknowledged.add_metric(values, one.acknowledged)
            due.add_metric(values, math.nan if one.next_due_ms is None else one.next_due_ms / 1_000)
            overdue.add_metric(values, one.overdue_ms / 1_000)
            width.add_metric(values, one.slice_width_ms / 1_000)
            paused.add_metric(values, int(one.pace.is_paused))
            rate.add_metric(values, one.pace.rate or 0)
            spread.add_metric(values, (one.pace.spread_ms or 0) / 1_000)
            held_back.add_metric(values, one.held_back)
        yield from (held, in_flight, acknowledged, due, overdue, width, paused, rate, spread, held_back)


class Metrics:
    """All counters of the daemon; a scrape exports its ``version``."""

    def __init__(self, version: Callable[[], str]) -> None:
        self._version = version
        self._collectors: list[Collector] = []
        self._registry: CollectorRegistry | None = None
        self._gauges = self._register(_GaugeCollector())
        self.frames_received = self._by_label("frames_received", "Frames received by type", "type")
        self.frames_sent = self._by_label("frames_sent", "Frames sent by type", "type")
        self.errors_sent = self._by_label("errors_sent", "ERROR frames sent by code", "code")
        self.messages_changed = self._by_label(
            "messages_changed", "Messages in requests to change them, by outcome", "outcome"
        )
        self.audit_failures = self._count(
            "audit_failures", "Changes that could not be written to the audit log"
        )
        self.commits = self._by_label("commits", "Group commits by result", "result")
        self.otlp_exports = self._by_label(
            "otlp_exports", "Pushes to a collector of OpenTelemetry by result", "result"
        )
        self.bytes_received = self._count("bytes_received", "Bytes received from clients")
        self.bytes_sent = self._count("bytes_sent", "Bytes sent to clients")
        self.reconnects = self._count("reconnects", "Connections of a broker that had been connected before")
        self.entries_added = self._count("entries_added", "Entries in ADD frames, and new ones of a rebuild")
        self.entries_due = self._count("entries_due", "Entries handed out in DUE frames")
        self.entries_held_back = self._count(
            "entries_held_back", "Entries handed out late because of a pause or another pace"
        )
        self.credit_exhausted = self._count("credit_exhausted", "Times that a stream ran out of credit")
        self.read_pause_seconds = self._count(
            "read_pause_seconds", "Time that connections were not read, because spilling was behind"
        )
        self._lateness = self._distribution(
            "lateness_seconds",
            "From deliver_at to the sending of DUE; 0 when it was sent before, within the horizon",
            LATENESS_BUCKETS_S,
        )
        self.durable_lag = self._distribution(
            "durable_lag_seconds", "From receiving a frame to DURABLE", LAG_BUCKETS_S
        )
        self.commit_duration = self._distribution(
            "commit_duration_seconds", "Duration of a group commit", LAG_BUCKETS_S
        )
        self.index_log_bytes = self._count("index_log_bytes", "Bytes appended to index logs")
        self.index_log_failures = self._count(
            "index_log_failures", "Times that an index log could not be written or reached, or was taken"
        )
        self.index_log_restored = self._count(
            "index_log_restored", "Indexes restored from their logs when a topic came to this daemon"
        )
        self.index_log_unreadable = self._count(
            "index_log_unreadable", "Index logs that could not be read, so that the topic is read again"
        )
        self.index_log_restore_seconds = self._distribution(
            "index_log_restore_seconds", "From OPEN until the index was restored", LATENESS_BUCKETS_S
        )

    def _register(self, collector: CollectorT) -> CollectorT:
        self._collectors.append(collector)
        return collector

    def _count(self, name: str, documentation: str) -> Count:
        return self._register(Count(f"tidegate_{name}", documentation))

    def _by_label(self, name: str, documentation: str, label: str) -> CountByLabel:
        return self._register(CountByLabel(f"tidegate_{name}", documentation, label))

    def _distribution(self, name: str, documentation: str, buckets: Sequence[float]) -> Distribution:
        return self._register(Distribution(f"tidegate_{name}", documentation, buckets))

    def observe_due(
        self, deliver_at_ms: npt.NDArray[np.int64], now_ms: int, excused_until_ms: float = -math.inf
    ) -> None:
        """Count entries with these times as handed out at ``now_ms``.

        excused_until_ms: entries due by then do not count as late. Released ones have no time to be late by.
        """
        self.entries_due.inc(len(deliver_at_ms))
        deliver_at_ms = deliver_at_ms[deliver_at_ms != AT_ONCE_MS]
        late_ms = np.maximum(now_ms - deliver_at_ms, 0)
        held_back = (late_ms > 0) & (deliver_at_ms <= excused_until_ms)
        self.entries_held_back.inc(int(np.count_nonzero(held_back)))
        self._lateness.observe_all(late_ms[~held_back] / 1_000)

    def exposition(self, state: Gauges) -> bytes:
        """The text that Prometheus scrapes."""
        from prometheus_client import generate_latest  # noqa: PLC0415

        return generate_latest(self._registry_of(state))

    def families(self, state: Gauges) -> list[Metric]:
        """The same as values."""
        return list(self._registry_of(state).collect())

    def _registry_of(self, state: Gauges) -> CollectorRegistry:
        self._gauges.state = state
        self._registry = self._registry or self._new_registry()
        return self._registry

    def _new_registry(self) -> CollectorRegistry:
        from prometheus_client import CollectorRegistry, Info, ProcessCollector  # noqa: PLC0415

        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        for collector in self._collectors:
            registry.register(collector)
        build = Info("tidegate_build", "The daemon's version; always 1", registry=registry)
        build.info({"version": self._version(), "python": platform.python_version()})
        return registry
