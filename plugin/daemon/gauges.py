"""The daemon's state for a scrape: sums over all subscriptions, and series of the worst ones."""

from __future__ import annotations

from itertools import islice

from tidegate.index import DelayIndex
from tidegate.plugin.daemon.report import Daemon
from tidegate.plugin.daemon.standing import standing_of
from tidegate.plugin.shared.moments import known_due_ms
from tidegate.plugin.telemetry.metrics import BypassGauge, Gauges, SubscriptionGauges
from tidegate.plugin.telemetry.survey import Standing, in_turns, overdue_by_ms
from tidegate.plugin.wire.messages import BYPASSED_MAX
from tidegate.plugin.wire.release_pace import ReleasePace


async def gauges(daemon: Daemon) -> Gauges:
    """The state of the daemon for a scrape."""
    survey = await daemon.surveyor.survey()
    totals = survey.totals
    streams = list(daemon.ownership)
    logs = daemon.log_states()
    series = [
        await _series(daemon, index)
        async for index in in_turns(map(daemon.catalog.get, survey.worst.names))
        if index is not None
    ]
    return Gauges(
        subscriptions=totals.subscriptions,
        held=totals.held,
        in_flight=totals.in_flight,
        acknowledged=totals.acknowledged,
        staged=totals.staged,
        slices_in_memory=totals.slices_in_memory,
        slices_on_disk=totals.slices_on_disk,
        memory_bytes=totals.memory_bytes,
        disk_bytes=totals.disk_bytes,
        disk_free_bytes=survey.disk.free_bytes,
        damaged_bytes=survey.disk.damaged_bytes,
        quarantined_blocks=totals.blocks_quarantined,
        absent_blocks=totals.blocks_absent,
        corrupt_records=totals.corrupt_records,
        lost_commits=totals.lost_commits,
        blocks=totals.blocks,
        journal_bytes=totals.journal_bytes,
        persists=totals.persists,
        persist_failures=totals.persist_failures,
        compactions=totals.compactions,
        store_compactions_disabled=totals.store_compactions_disabled,
        slices_crowded=totals.slices_crowded,
        brokers=len(daemon.brokers),
        streams=len(streams),
        streams_without_credit=sum(stream.credit == 0 for stream in streams),
        uncommitted_entries=daemon.uncommitted_entries,
        subscriptions_overdue=survey.worst.overdue,
        overdue_seconds=survey.worst.overdue_ms / 1_000,
        subscriptions_paced=sum(stream.pace.is_on for stream in streams),
        subscriptions_paused=sum(stream.pace.is_paused for stream in streams),
        index_logs=len(logs),
        index_logs_failing=sum(bool(log.failure) for log in logs),
        index_log_waiting_bytes=sum(log.waiting_bytes for log in logs),
        index_log_lag_seconds=max((log.lag_seconds for log in logs), default=0.0),
        ready=daemon.health.ready,
        uptime_seconds=daemon.uptime_seconds,
        series=series,
        bypassed_dispatchers=daemon.bypasses.dispatchers,
        bypassed=[
            BypassGauge(broker, one.topic, one.subscription, one.delayed, one.reason)
            for broker, one in islice(daemon.bypasses.named(), BYPASSED_MAX)
        ],
    )


async def _series(daemon: Daemon, index: DelayIndex) -> SubscriptionGauges:
    stats = index.stats()
    stream = daemon.ownership.get(index.name)
    pace = ReleasePace() if stream is None else stream.pace
    now_ms = daemon.clock.now_ms()
    is_served = standing_of(stream) is Standing.SERVED
    held_back = await daemon.count_due(index) if pace.is_on else 0
    return SubscriptionGauges(
        index.name.topic,
        index.name.subscription,
        stats.held,
        stats.in_flight,
        stats.acknowledged,
        known_due_ms(stats.next_due_ms, now_ms),
        overdue_by_ms(stats.next_due_ms, now_ms) if is_served else 0,
        stats.slice_width_ms,
        pace,
        held_back,
    )
