"""Prometheus metrics of the daemon, in a registry of their own.

Names are ``tidegate_*``; label names are Pulsar's (``namespace``, ``topic``, ``subscription``). Invariants:
nothing here is global; what the index can tell is asked for when somebody scrapes, not kept twice; the number
of series is bounded by the settings, not by the number of subscriptions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from tidegate.plugin.shown import shown
from tidegate.plugin.wire.frames import FrameType

LATENESS_BUCKETS_MS = (
    1,
    2,
    5,
    10,
    20,
    50,
    100,
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    60_000,
    600_000,
    3_600_000,
)
LAG_BUCKETS_MS = (0.5, 1, 2, 3, 4, 5, 7, 10, 15, 20, 50, 100, 200, 500, 1_000, 5_000)


@dataclass(frozen=True)
class SubscriptionGauges:
    """What one subscription holds."""

    topic: str
    subscription: str
    held: int
    in_flight: int
    acknowledged: int
    next_due_ms: int | None
    slice_width_ms: int

    @property
    def namespace(self) -> str:
        """``tenant/namespace`` of the topic, as Pulsar labels it."""
        return "/".join(self.topic.partition("://")[2].split("/")[:2])


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
    quarantined_blocks: int
    corrupt_records: int
    lost_commits: int
    blocks: int
    journal_bytes: int
    persists: int
    persist_failures: int
    brokers: int
    streams: int
    streams_without_credit: int
    uncommitted_entries: int
    ready: bool
    uptime_seconds: float
    series: Sequence[SubscriptionGauges]


class BulkHistogram(Collector):
    """A histogram that takes whole arrays: a DUE frame carries thousands of observations."""

    def __init__(self, name: str, documentation: str, buckets: Sequence[float]) -> None:
        self._name = name
        self._documentation = documentation
        self._edges = np.asarray(buckets, dtype=np.int64)
        self._counts = np.zeros(len(buckets) + 1, dtype=np.int64)
        self._sum = 0.0

    def observe(self, values: npt.NDArray[np.int64]) -> None:
        """Count every value of the array."""
        where = np.searchsorted(self._edges, values, side="left")
        self._counts += np.bincount(where, minlength=len(self._counts))
        self._sum += float(values.sum())

    def collect(self) -> Iterable[Metric]:
        """Called by a scrape."""
        totals = np.cumsum(self._counts).tolist()
        bounds = [*(str(float(edge)) for edge in self._edges), "+Inf"]
        yield HistogramMetricFamily(
            self._name,
            self._documentation,
            buckets=[(bound, float(total)) for bound, total in zip(bounds, totals, strict=True)],
            sum_value=self._sum,
        )


class _GaugeCollector(Collector):
    """Asks the daemon for its state at each scrape."""

    def __init__(self) -> None:
        self.source: Callable[[], Gauges] | None = None

    def collect(self) -> Iterable[Metric]:
        if self.source is None:
            return
        state = self.source()
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
            ("quarantined_blocks", "Blocks set aside because they were corrupt", state.quarantined_blocks),
            ("corrupt_records", "Corrupt stored values met since the start", state.corrupt_records),
            (
                "lost_commits",
                "Commits reported durable that were gone when the index was opened, at least",
                state.lost_commits,
            ),
            ("blocks", "Packed blocks on disk", state.blocks),
            ("journal_bytes", "Journal records that no persist has replaced yet", state.journal_bytes),
            ("brokers", "Brokers that are connected", state.brokers),
            ("streams", "Open streams", state.streams),
            (
                "streams_without_credit",
                "Open streams whose broker takes no more due entries",
                state.streams_without_credit,
            ),
            ("uncommitted_entries", "Entries received that are not durable yet", state.uncommitted_entries),
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
        persists = CounterMetricFamily("tidegate_persists", "Spills to slices on disk", labels=["result"])
        persists.add_metric(["ok"], state.persists)
        persists.add_metric(["failed"], state.persist_failures)
        yield persists
        yield from self._by_subscription(state.series)

    @staticmethod
    def _by_subscription(series: Sequence[SubscriptionGauges]) -> Iterable[Metric]:
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
        width = GaugeMetricFamily(
            "tidegate_subscription_slice_width_seconds",
            "Width of the slices that new entries go to",
            labels=labels,
        )
        for one in series:
            # Not as they are: Prometheus takes no zero byte, and one series must not end a whole scrape.
            values = [shown(one.namespace), shown(one.topic), shown(one.subscription)]
            held.add_metric(values, one.held)
            in_flight.add_metric(values, one.in_flight)
            acknowledged.add_metric(values, one.acknowledged)
            due.add_metric(values, math.nan if one.next_due_ms is None else one.next_due_ms / 1_000)
            width.add_metric(values, one.slice_width_ms / 1_000)
        yield from (held, in_flight, acknowledged, due, width)


class _ByLabel(Collector):
    """A counter with one label, as cheap as a dict: frames are counted a hundred thousand times a second."""

    def __init__(self, name: str, documentation: str, label: str) -> None:
        self._name = name
        self._documentation = documentation
        self._label = label
        self._counts: dict[str, int] = {}

    def inc(self, value: str, by: int = 1) -> None:
        self._counts[value] = self._counts.get(value, 0) + by

    def collect(self) -> Iterable[Metric]:
        family = CounterMetricFamily(self._name, self._documentation, labels=[self._label])
        for value, count in self._counts.items():
            family.add_metric([value], count)
        yield family


class Metrics:
    """Everything the daemon counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._gauges = _GaugeCollector()
        self._received = _ByLabel("tidegate_frames_received", "Frames received by type", "type")
        self._sent = _ByLabel("tidegate_frames_sent", "Frames sent by type", "type")
        self._errors = _ByLabel("tidegate_errors_sent", "ERROR frames sent by code", "code")
        self._commits = _ByLabel("tidegate_commits", "Group commits by result", "result")
        self._lateness_ms = BulkHistogram(
            "tidegate_lateness_ms",
            "From deliver_at to the sending of DUE, in ms; 0 when it was sent before, within the horizon",
            LATENESS_BUCKETS_MS,
        )
        for collector in (
            self._gauges,
            self._received,
            self._sent,
            self._errors,
            self._commits,
            self._lateness_ms,
        ):
            self.registry.register(collector)
        self.bytes_received = self._counter("bytes_received", "Bytes received from clients")
        self.bytes_sent = self._counter("bytes_sent", "Bytes sent to clients")
        self.reconnects = self._counter(
            "reconnects", "Connections of a broker that had been connected before"
        )
        self.entries_added = self._counter("entries_added", "Entries received in ADD frames")
        self.entries_due = self._counter("entries_due", "Entries handed out in DUE frames")
        self.credit_exhausted = self._counter("credit_exhausted", "Times that a stream ran out of credit")
        self.durable_lag_ms = self._histogram("durable_lag_ms", "From receiving a frame to DURABLE, in ms")
        self.commit_ms = self._histogram("commit_ms", "Duration of a group commit, in ms")

    def _counter(self, name: str, documentation: str) -> Counter:
        return Counter(f"tidegate_{name}", documentation, registry=self.registry)

    def _histogram(self, name: str, documentation: str) -> Histogram:
        return Histogram(f"tidegate_{name}", documentation, buckets=LAG_BUCKETS_MS, registry=self.registry)

    def follow(self, source: Callable[[], Gauges]) -> None:
        """Ask ``source`` for the gauges at each scrape."""
        self._gauges.source = source

    def frames_received(self, kind: FrameType) -> None:
        """One frame came."""
        self._received.inc(kind.name)

    def frames_sent(self, kind: FrameType) -> None:
        """One frame was sent."""
        self._sent.inc(kind.name)

    def errors_sent(self, code: str) -> None:
        """One ERROR frame was sent."""
        self._errors.inc(code)

    def commits(self, result: str) -> None:
        """One commit ended, ``ok`` or ``failed``."""
        self._commits.inc(result)

    def observe_due(self, deliver_at_ms: npt.NDArray[np.int64], now_ms: int) -> None:
        """Entries with these times were handed out at ``now_ms``."""
        self.entries_due.inc(len(deliver_at_ms))
        self._lateness_ms.observe(np.maximum(now_ms - deliver_at_ms, 0))

    def exposition(self) -> bytes:
        """The text that Prometheus scrapes."""
        return generate_latest(self.registry)
