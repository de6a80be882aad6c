"""A broker that decides what becomes of messages, played by the test."""

from __future__ import annotations

import time
from typing import Any

from tests.support.shim_client import ClientStream, ShimClient
from tidegate.index import Entries, PositionSet
from tidegate.plugin.wire.messages import Cancel, Cancelled, Pace, Paced, Reschedule, Rescheduled
from tidegate.plugin.wire.release_pace import ReleasePace

TOPIC = "persistent://public/default/orders"
HOUR_MS = 3_600_000
LEDGER_ID = 5


def positions(*entry_ids: int) -> PositionSet:
    """Positions in the ledger that `waiting` fills."""
    return PositionSet.of((LEDGER_ID, entry_id) for entry_id in entry_ids)


class DecidingBroker:
    """Has ``entries`` entries, and has handed out ``given``; keeps the times of those it has moved."""

    def __init__(self, *given: int, entries: int = 100) -> None:
        self.given = positions(*given)
        self.entries = positions(*range(entries))
        self.acknowledged = PositionSet()
        self.overrides: dict[tuple[int, int], int] = {}

    def __call__(self, cancel: Cancel) -> Cancelled:
        acknowledged = cancel.positions.intersection(self.acknowledged)
        too_late = cancel.positions.intersection(self.given)
        left = cancel.positions.difference(acknowledged).difference(too_late).intersection(self.entries)
        if not cancel.ask:
            self.acknowledged.update(left)
        return Cancelled(left, too_late, acknowledged)

    def reschedule(self, asked: Reschedule) -> Rescheduled:
        wanted = PositionSet.of_entries(asked.entries)
        acknowledged, too_late = wanted.intersection(self.acknowledged), wanted.intersection(self.given)
        moved = wanted.difference(acknowledged).difference(too_late).intersection(self.entries)
        if not asked.ask:
            self.overrides |= {one[1:]: one[0] for one in asked.entries.take(moved.contains(asked.entries))}
        return Rescheduled(moved, too_late, acknowledged)


class PacedBroker:
    """Keeps the pace that it is told, and holds 7 messages back by it."""

    def __init__(self) -> None:
        self.pace = ReleasePace()

    def __call__(self, asked: Pace) -> Paced:
        if not asked.ask:
            self.pace = asked.pace
        return Paced(self.pace, 7 if self.pace.is_on else 0)


async def waiting(
    client: ShimClient,
    topic: str = TOPIC,
    *given: int,
    subscription: str = "sub",
    entries: int = 100,
    **options: Any,
) -> ClientStream:
    """A subscription with entries that are due in an hour, a second after each other."""
    stream = await client.open(topic, subscription, credit=0, **options)
    at_ms = time.time_ns() // 1_000_000 + HOUR_MS
    stream.add(Entries.of((at_ms + n * 1_000, LEDGER_ID, n) for n in range(entries)))
    await stream.durable()
    stream.on_cancel = broker = DecidingBroker(*given, entries=entries)
    stream.on_reschedule = broker.reschedule
    stream.on_pace = PacedBroker()
    return stream
