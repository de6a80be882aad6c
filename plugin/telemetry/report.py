"""The daemon's answer to a status query: one JSON object, the same over the socket and over HTTP.

The schema is in ``docs/operations.md``. Invariant: fields are only ever added within one ``schema`` number,
and the answer fits into a frame whatever the number of subscriptions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.index.delay_index import DelayIndex
from tidegate.plugin.telemetry.metrics import Gauges, SubscriptionGauges

if TYPE_CHECKING:
    from tidegate.plugin.daemon.engine import DaemonEngine

SCHEMA = 1
SUBSCRIPTIONS_MAX = 1_000  # with SLICES_MAX each, and topics of usual length, well below 4 MiB
SLICES_MAX = 24
NEAR_DUE_MS = 60_000


def status(engine: DaemonEngine, subscriptions_max: int) -> dict[str, Any]:
    """What ``tidegate status --json`` prints.

    At most ``subscriptions_max`` subscriptions, those with most held first.
    """
    now_ms = engine.clock.now_ms()
    totals = engine.catalog.stats()
    indexes = sorted(engine.catalog, key=lambda index: (-len(index.held()), index.name))
    return {
        "schema": SCHEMA,
        "daemon": {
            "product": engine.product,
            "id": f"{engine.daemon_id:016x}",
            "started_at_ms": engine.started_at_ms,
            "now_ms": now_ms,
            "uptime_seconds": (now_ms - engine.started_at_ms) / 1_000,
            "ready": engine.health.ready,
            "not_ready": engine.health.reasons(),
            "data": str(engine.settings.data),
            "socket": str(engine.settings.socket),
        },
        "brokers": [
            {
                "name": name,
                "product": "" if connection.hello is None else connection.hello.product,
                "connected_at_ms": connection.connected_at_ms,
                "streams": len(connection.streams),
            }
            for name, connection in sorted(engine.brokers.items())
        ],
        "totals": totals._asdict() | {"uncommitted_entries": engine.uncommitted_entries},
        "subscriptions": [_subscription(engine, index, now_ms) for index in indexes[:subscriptions_max]],
        "subscriptions_omitted": max(0, len(indexes) - subscriptions_max),
    }


def _subscription(engine: DaemonEngine, index: DelayIndex, now_ms: int) -> dict[str, Any]:
    stats = index.stats()
    stream = engine.ownership.get(index.name)
    slices = [one._asdict() for one in stats.slices[:SLICES_MAX]]
    overdue_ms = 0 if stats.next_due_ms is None else max(0, now_ms - stats.next_due_ms)
    return {
        "topic": index.name.topic,
        "subscription": index.name.subscription,
        "broker": None if stream is None else stream.connection.peer_name,
        "credit": None if stream is None else stream.tracker.credit,
        "held": stats.held,
        "popped": stats.popped,
        "acknowledged": stats.acknowledged,
        "staged": stats.staged,
        "next_due_ms": stats.next_due_ms,
        "near_due": stats.next_due_ms is not None and stats.next_due_ms <= now_ms + NEAR_DUE_MS,
        "overdue_ms": overdue_ms,
        "slice_width_ms": stats.slice_width_ms,
        "slice_width_auto": stats.slice_width_auto,
        "slice_width_reason": stats.slice_width_reason,
        "blocks": stats.blocks,
        "blocks_quarantined": stats.blocks_quarantined,
        "memory_bytes": stats.memory_bytes,
        "disk_bytes": stats.disk_bytes,
        "slices": slices,
        "slices_omitted": max(0, len(stats.slices) - SLICES_MAX),
    }


def gauges(engine: DaemonEngine) -> Gauges:
    """The state of the daemon for a scrape."""
    totals = engine.catalog.stats()
    streams = list(engine.ownership)
    names = [index.name for index in engine.catalog]
    series = []
    for name in sorted(names)[: engine.settings.metrics_subscriptions]:
        index = engine.catalog.get(name)
        if index is not None:
            stats = index.stats()
            series.append(
                SubscriptionGauges(
                    name.topic,
                    name.subscription,
                    stats.held,
                    stats.popped,
                    stats.acknowledged,
                    stats.next_due_ms,
                    stats.slice_width_ms,
                )
            )
    return Gauges(
        subscriptions=totals.subscriptions,
        held=totals.held,
        popped=totals.popped,
        acknowledged=totals.acknowledged,
        staged=totals.staged,
        slices_in_memory=totals.slices_in_memory,
        slices_on_disk=totals.slices_on_disk,
        memory_bytes=totals.memory_bytes,
        disk_bytes=totals.disk_bytes,
        quarantined_blocks=totals.blocks_quarantined,
        corrupt_records=totals.corrupt_records,
        blocks=totals.blocks,
        journal_bytes=totals.journal_bytes,
        persists=totals.persists,
        persist_failures=totals.persist_failures,
        brokers=len(engine.brokers),
        streams=len(streams),
        streams_without_credit=sum(stream.tracker.credit == 0 for stream in streams),
        uncommitted_entries=engine.uncommitted_entries,
        ready=engine.health.ready,
        uptime_seconds=(engine.clock.now_ms() - engine.started_at_ms) / 1_000,
        series=series,
    )
