"""The daemon's answer to a status query: one JSON object, the same over the socket and over HTTP.

The schema is in ``docs/operations.md``. Invariant: fields are only ever added within one ``schema`` number,
and the answer fits into a frame whatever the number of subscriptions.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from tidegate.index import Catalog, Clock, DelayIndex, SubscriptionName
from tidegate.plugin.telemetry.health import Health
from tidegate.plugin.telemetry.metrics import BypassGauge, Gauges, SubscriptionGauges
from tidegate.plugin.telemetry.survey import MOST_HELD, Surveyor, in_turns
from tidegate.plugin.wire.frames import LENGTH_MAX
from tidegate.plugin.wire.messages import BYPASSED_MAX

SCHEMA = 1
SUBSCRIPTIONS_MAX = MOST_HELD  # with SLICES_MAX each, and topics of usual length, well below 4 MiB
SLICES_MAX = 24
NEAR_DUE_MS = 60_000
_HEAD_BYTES = 196_608  # what is not of subscriptions; if it has more, fewer of them have room
_ANSWER_BYTES = LENGTH_MAX - 262_144
_COMPACT = (",", ":")


class Broker(Protocol):
    """A connected broker, as far as it is told of."""

    @property
    def product(self) -> str:
        """What it says it is."""
        ...

    @property
    def connected_at_ms(self) -> int:
        """Since when it has been connected."""
        ...

    @property
    def streams(self) -> Collection[int]:
        """Its open streams."""
        ...


class Stream(Protocol):
    """A stream, as far as it is told of."""

    @property
    def broker(self) -> str:
        """Whose it is."""
        ...

    @property
    def credit(self) -> int:
        """How many more entries its broker has room for."""
        ...


class Log(Protocol):
    """An index log, as far as it is told of."""

    @property
    def home(self) -> str:
        """Where it is."""
        ...

    @property
    def ledger_id(self) -> int:
        """The ledger that counts, -1 before there is one."""
        ...

    @property
    def pointer(self) -> str:
        """The pointer in the cursor, which names all ledgers."""
        ...

    @property
    def ledger_bytes(self) -> int:
        """How long that is."""
        ...

    @property
    def waiting_bytes(self) -> int:
        """What is not in it yet."""
        ...

    @property
    def lag_seconds(self) -> float:
        """How old the oldest change is that is not in it."""
        ...

    @property
    def failure(self) -> str:
        """Why it cannot be written, empty if it can."""
        ...


class Streams(Protocol):
    """The current stream of each subscription."""

    def get(self, name: SubscriptionName) -> Stream | None:
        """The stream that serves the subscription."""
        ...

    def __iter__(self) -> Iterator[Stream]: ...


class Limits(Protocol):
    """The settings that a report needs."""

    @property
    def data(self) -> Path:
        """The data directory."""
        ...

    @property
    def socket(self) -> Path:
        """The daemon's socket."""
        ...

    @property
    def metrics_subscriptions(self) -> int:
        """How many subscriptions get metric series of their own."""
        ...


class Bypass(Protocol):
    """A dispatcher that bypasses Tidegate, as far as it is told of."""

    @property
    def topic(self) -> str:
        """Its topic."""
        ...

    @property
    def subscription(self) -> str:
        """Its subscription."""
        ...

    @property
    def delayed(self) -> int:
        """How many delayed messages it has."""
        ...

    @property
    def reason(self) -> str:
        """Why they are not Tidegate's."""
        ...


class Bypasses(Protocol):
    """What bypasses Tidegate at all brokers."""

    @property
    def dispatchers(self) -> int:
        """How many dispatchers."""
        ...

    def named(self) -> Iterable[tuple[str, Bypass]]:
        """Those known by name, each with its broker's."""
        ...


class Daemon(Protocol):
    """What a report is made from."""

    @property
    def product(self) -> str:
        """Name and version."""
        ...

    @property
    def daemon_id(self) -> int:
        """A random number, another one after each start."""
        ...

    @property
    def started_at_ms(self) -> int:
        """When it was started."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock that due times are compared with."""
        ...

    @property
    def health(self) -> Health:
        """Why it is not ready."""
        ...

    @property
    def settings(self) -> Limits:
        """What it was told."""
        ...

    @property
    def catalog(self) -> Catalog:
        """The indexes."""
        ...

    @property
    def surveyor(self) -> Surveyor:
        """Who walks over all indexes."""
        ...

    @property
    def brokers(self) -> Mapping[str, Broker]:
        """The connected brokers by name."""
        ...

    @property
    def bypasses(self) -> Bypasses:
        """What bypasses this daemon."""
        ...

    @property
    def ownership(self) -> Streams:
        """Which stream serves which subscription."""
        ...

    @property
    def uncommitted_entries(self) -> int:
        """Entries and positions received that no commit has covered yet."""
        ...

    def log_of(self, name: SubscriptionName) -> Log | None:
        """The index log of a subscription that is served, None if it has none."""
        ...

    def log_states(self) -> Sequence[Log]:
        """The index logs of all subscriptions that are served."""
        ...


async def status(daemon: Daemon, subscriptions_max: int) -> bytes:
    """What ``tidegate status --json`` prints, as JSON.

    At most ``subscriptions_max`` subscriptions, those with most held first.
    """
    survey = await daemon.surveyor.survey()
    now_ms = daemon.clock.now_ms()
    answer = {
        "schema": SCHEMA,
        "daemon": {
            "product": daemon.product,
            "id": f"{daemon.daemon_id:016x}",
            "started_at_ms": daemon.started_at_ms,
            "now_ms": now_ms,
            "uptime_seconds": (now_ms - daemon.started_at_ms) / 1_000,
            "ready": daemon.health.ready,
            "not_ready": daemon.health.reasons(),
            "data": str(daemon.settings.data),
            "socket": str(daemon.settings.socket),
        },
        "brokers": [
            {
                "name": name,
                "product": connection.product,
                "connected_at_ms": connection.connected_at_ms,
                "streams": len(connection.streams),
            }
            for name, connection in sorted(daemon.brokers.items())
        ],
        "bypassed": {
            "dispatchers": daemon.bypasses.dispatchers,
            "named": [
                {
                    "broker": broker,
                    "topic": one.topic,
                    "subscription": one.subscription,
                    "delayed": one.delayed,
                    "reason": one.reason,
                }
                for broker, one in islice(daemon.bypasses.named(), BYPASSED_MAX)
            ],
        },
        "totals": survey.totals._asdict()
        | {"uncommitted_entries": daemon.uncommitted_entries, "damaged_bytes": survey.damaged_bytes},
    }
    found = (daemon.catalog.get(name) for name in survey.most_held[:subscriptions_max])
    return await with_subscriptions(
        answer,
        found,
        lambda index: _subscription(daemon, index, now_ms),
        survey.totals.subscriptions,
    )


async def with_subscriptions(
    answer: dict[str, Any],
    indexes: Iterable[DelayIndex | None],
    describe: Callable[[DelayIndex], dict[str, Any]],
    count: int,
) -> bytes:
    """``answer`` as JSON with ``subscriptions``, as many as there is room for, and how many of ``count`` are
    left out. It is put together in turns: with a thousand of them it is megabytes. None in the place of an
    index: it was counted, and has been forgotten since.
    """
    parts: list[str] = []
    head = json.dumps(answer, separators=_COMPACT).removesuffix("}")
    left_bytes = _ANSWER_BYTES - max(0, len(head) - _HEAD_BYTES)
    async for index in in_turns(indexes):
        if index is None:
            count -= 1
            continue
        part = json.dumps(describe(index), separators=_COMPACT)
        left_bytes -= len(part) + 1
        if left_bytes < 0:
            break
        parts.append(part)
    omitted = max(0, count - len(parts))
    return f'{head},"subscriptions":[{",".join(parts)}],"subscriptions_omitted":{omitted}}}'.encode()


def _subscription(daemon: Daemon, index: DelayIndex, now_ms: int) -> dict[str, Any]:
    stats = index.stats()
    stream = daemon.ownership.get(index.name)
    slices = [one._asdict() for one in stats.slices[:SLICES_MAX]]
    overdue_ms = 0 if stats.next_due_ms is None else max(0, now_ms - stats.next_due_ms)
    return {
        "topic": index.name.topic,
        "subscription": index.name.subscription,
        "broker": None if stream is None else stream.broker,
        "credit": None if stream is None else stream.credit,
        "held": stats.held,
        "in_flight": stats.in_flight,
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
        "blocks_absent": stats.blocks_absent,
        "memory_bytes": stats.memory_bytes,
        "disk_bytes": stats.disk_bytes,
        "index_log": _log(daemon.log_of(index.name)),
        "slices": slices,
        "slices_omitted": max(0, len(stats.slices) - SLICES_MAX),
    }


def _log(log: Log | None) -> dict[str, Any] | None:
    if log is None:
        return None
    return {
        "home": log.home,
        "ledger_id": None if log.ledger_id < 0 else log.ledger_id,
        "pointer": log.pointer,
        "ledger_bytes": log.ledger_bytes,
        "waiting_bytes": log.waiting_bytes,
        "lag_seconds": log.lag_seconds,
        "failure": log.failure,
    }


async def gauges(daemon: Daemon) -> Gauges:
    """The state of the daemon for a scrape."""
    survey = await daemon.surveyor.survey()
    totals = survey.totals
    streams = list(daemon.ownership)
    logs = daemon.log_states()
    names = heapq.nsmallest(daemon.settings.metrics_subscriptions, (index.name for index in daemon.catalog))
    series = [_series(index) async for index in in_turns(map(daemon.catalog.get, names)) if index is not None]
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
        damaged_bytes=survey.damaged_bytes,
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
        index_logs=len(logs),
        index_logs_failing=sum(bool(log.failure) for log in logs),
        index_log_waiting_bytes=sum(log.waiting_bytes for log in logs),
        index_log_lag_seconds=max((log.lag_seconds for log in logs), default=0.0),
        ready=daemon.health.ready,
        uptime_seconds=(daemon.clock.now_ms() - daemon.started_at_ms) / 1_000,
        series=series,
        bypassed_dispatchers=daemon.bypasses.dispatchers,
        bypassed=[
            BypassGauge(broker, one.topic, one.subscription, one.delayed, one.reason)
            for broker, one in islice(daemon.bypasses.named(), BYPASSED_MAX)
        ],
    )


def _series(index: DelayIndex) -> SubscriptionGauges:
    stats = index.stats()
    return SubscriptionGauges(
        index.name.topic,
        index.name.subscription,
        stats.held,
        stats.in_flight,
        stats.acknowledged,
        stats.next_due_ms,
        stats.slice_width_ms,
    )
