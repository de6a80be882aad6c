"""The daemon's answer to a status query: one JSON object, the same over the socket and over HTTP.

``docs/operations.md`` has the schema. Invariant: within one ``schema`` number fields are only added, and the
answer fits into a frame for any number of subscriptions.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from tidegate.index import Catalog, Clock, DelayIndex, SubscriptionName
from tidegate.plugin.shared.moments import known_due_ms
from tidegate.plugin.telemetry.health import Health
from tidegate.plugin.telemetry.survey import MOST_HELD, Surveyor, first_due, in_turns, most_held
from tidegate.plugin.wire.frames import LENGTH_MAX
from tidegate.plugin.wire.messages import BYPASSED_MAX

if TYPE_CHECKING:
    from tidegate.plugin.daemon.bypasses import Bypasses
    from tidegate.plugin.daemon.index_logs.stream_log import LogState
    from tidegate.plugin.daemon.ownership import Ownership
    from tidegate.plugin.daemon.settings import Settings
    from tidegate.plugin.daemon.stream import Link

SCHEMA = 1
SUBSCRIPTIONS_MAX = MOST_HELD  # with SLICES_MAX each, and topics of usual length, well below 4 MiB
PAGE_SUBSCRIPTIONS = 500  # a browser asks every few seconds
SLICES_MAX = 24
PACED_MAX = 32
SCALABLE_MAX = 32
LOGS_MAX = 32
NEAR_DUE_MS = 60_000
_HEAD_BYTES = 196_608  # all but the subscriptions; a longer head leaves room for fewer of them
_ANSWER_BYTES = LENGTH_MAX - 262_144
_COMPACT = (",", ":")


class Daemon(Protocol):
    """The source of a report."""

    @property
    def product(self) -> str:
        """Name and version."""
        ...

    @property
    def daemon_id(self) -> int:
        """A random number, a new one at each start."""
        ...

    @property
    def started_at_ms(self) -> int:
        """The time of its start."""
        ...

    @property
    def uptime_seconds(self) -> float:
        """The time since its start, by a clock that never goes back."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock for due times."""
        ...

    @property
    def health(self) -> Health:
        """The reasons why it is not ready."""
        ...

    @property
    def settings(self) -> Settings:
        """Its settings."""
        ...

    @property
    def catalog(self) -> Catalog:
        """The indexes."""
        ...

    @property
    def surveyor(self) -> Surveyor:
        """The surveyor that walks over all indexes."""
        ...

    @property
    def brokers(self) -> Mapping[str, Link]:
        """The connected brokers by name."""
        ...

    @property
    def bypasses(self) -> Bypasses:
        """All bypasses of this daemon."""
        ...

    @property
    def ownership(self) -> Ownership:
        """The stream that serves each subscription."""
        ...

    @property
    def uncommitted_entries(self) -> int:
        """Received entries and positions that no commit covers yet."""
        ...

    async def count_due(self, index: DelayIndex) -> int:
        """The number of held entries that are due, handed out or not."""
        ...

    def log_of(self, name: SubscriptionName) -> LogState | None:
        """The index log of a served subscription, None if it has none."""
        ...

    def log_states(self) -> Sequence[LogState]:
        """The index logs of all served subscriptions."""
        ...


async def status(
    daemon: Daemon,
    subscriptions_max: int,
    *,
    by_due: bool = False,
    among: Sequence[DelayIndex] | None = None,
) -> bytes:
    """The output of ``tidegate status --json``, as JSON.

    At most ``subscriptions_max`` subscriptions, those with most held first, or those due first; of ``among``,
    or of all.
    """
    survey = await daemon.surveyor.survey()
    if among is None:
        count = survey.totals.subscriptions
        names = survey.first_due if by_due else survey.most_held
    else:
        count = len(among)
        each = [index.stats()._replace(slices=[]) async for index in in_turns(among)]
        names = first_due(each) if by_due else most_held(each)
    now_ms = daemon.clock.now_ms()
    answer = {
        "schema": SCHEMA,
        "daemon": {
            "product": daemon.product,
            "id": f"{daemon.daemon_id:016x}",
            "started_at_ms": daemon.started_at_ms,
            "now_ms": now_ms,
            "uptime_seconds": daemon.uptime_seconds,
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
        "paced": _paced(daemon),
        "index_logs": _index_logs(daemon),
        "scalable": {
            "topics": [
                one._asdict() | {"next_due_ms": known_due_ms(one.next_due_ms, now_ms)}
                for one in survey.scalable[:SCALABLE_MAX]
            ],
            "omitted": max(0, len(survey.scalable) - SCALABLE_MAX),
        },
        "totals": survey.totals._asdict()
        | {"uncommitted_entries": daemon.uncommitted_entries, "damaged_bytes": survey.disk.damaged_bytes},
    }
    found = (daemon.catalog.get(name) for name in names[:subscriptions_max])
    return await with_subscriptions(
        answer,
        found,
        lambda index: _subscription(daemon, index, now_ms),
        count,
    )


def _index_logs(daemon: Daemon) -> dict[str, Any]:
    """The index logs of all served subscriptions, some of the failing ones by name."""
    logs = daemon.log_states()
    failing = sum(bool(log.failure) for log in logs)
    named: Iterator[dict[str, Any]] = (
        {"topic": one.name.topic, "subscription": one.name.subscription, "failure": log.failure}
        for one in (daemon.ownership if failing else ())
        if (log := daemon.log_of(one.name)) is not None and log.failure
    )
    return {
        "subscriptions": len(logs),
        "failing": failing,
        "lag_seconds": max((log.lag_seconds for log in logs), default=0.0),
        "named": list(islice(named, LOGS_MAX)),
    }


def _paced(daemon: Daemon) -> dict[str, Any]:
    """The subscriptions with a pace of release, the first of them by name, paused ones before others."""
    paced = [one for one in daemon.ownership if one.pace.is_on]
    first = heapq.nsmallest(PACED_MAX, paced, key=lambda one: (not one.pace.is_paused, one.name))
    return {
        "subscriptions": len(paced),
        "paused": sum(one.pace.is_paused for one in paced),
        "named": [
            {"topic": one.name.topic, "subscription": one.name.subscription, **one.pace.as_json()}
            for one in first
        ],
    }


async def with_subscriptions(
    answer: dict[str, Any],
    indexes: Iterable[DelayIndex | None],
    describe: Callable[[DelayIndex], dict[str, Any]],
    count: int,
) -> bytes:
    """``answer`` as JSON with as many ``subscriptions`` as fit, and the number of others in ``count``.

    Built in turns of the loop: a thousand subscriptions are megabytes. None instead of an index: counted, and
    forgotten since.
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
    next_due_ms = known_due_ms(stats.next_due_ms, now_ms)
    overdue_ms = 0 if next_due_ms is None else max(0, now_ms - next_due_ms)
    return {
        "topic": index.name.topic,
        "subscription": index.name.subscription,
        "broker": None if stream is None else stream.broker,
        "credit": None if stream is None else stream.credit,
        "pace": None if stream is None else stream.pace.as_json(),
        "held": stats.held,
        "in_flight": stats.in_flight,
        "acknowledged": stats.acknowledged,
        "staged": stats.staged,
        "next_due_ms": next_due_ms,
        "near_due": next_due_ms is not None and next_due_ms <= now_ms + NEAR_DUE_MS,
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


def _log(log: LogState | None) -> dict[str, Any] | None:
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
