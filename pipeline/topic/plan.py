"""The entries of a topic to read, fixed once, before the reading.

The end is the last entry that a consumer could get now: confirmed as stored, and before the first open
transaction. Both ways of reading share it, and so give the same entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidegate.pipeline.errors import TopicError
from tidegate.pipeline.topic.admin import Admin
from tidegate.pipeline.topic.broker import TopicReader
from tidegate.pipeline.topic.cluster import Cluster, ReadFrom
from tidegate.pipeline.topic.names import TopicName
from tidegate.pipeline.topic.ranges import Acknowledged, Bounds, EntryRange, Position, ranges
from tidegate.pipeline.topic.state import TopicState, parse_state


@dataclass(frozen=True)
class Planned:
    """One topic or partition with its readable entries. ``end``: the last position, if any."""

    state: TopicState
    partition: int
    end: Position | None


def survey(cluster: Cluster, topic: TopicName) -> list[Planned]:
    """The topic, or each of its partitions, in its present state. Raises ``TopicError``."""
    with Admin(cluster.admin_url, cluster.access) as admin:
        count = admin.partitions(topic)
        return [look(cluster, admin, one) for one in topic.partitions(count)]


def look(cluster: Cluster, admin: Admin, topic: TopicName) -> Planned:
    """One topic or partition in its present state. Raises ``TopicError``."""
    state = parse_state(topic, admin.internal_stats(topic))
    end = TopicReader(cluster.service_url, cluster.access, str(topic)).last_position()
    return Planned(state, topic.partition, None if end is None else min(end, state.last_confirmed))


def backlog(planned: Planned, subscription: str | None, bounds: Bounds) -> Iterator[EntryRange]:
    """The entries to read: those that ``subscription`` has not acknowledged, or all if it is None.

    Raises ``TopicError`` if there is no such subscription.
    """
    acknowledged: Acknowledged | None = None
    if subscription is not None:
        acknowledged = planned.state.acknowledged(subscription)
    if planned.end is None:
        return
    until = bounds._replace(last=min(bounds.last, planned.end))
    yield from ranges(str(planned.state.topic), planned.partition, planned.state.ledgers, acknowledged, until)


def check(found: Sequence[EntryRange], cluster: Cluster) -> None:
    """Raise ``TopicError`` before the reading if the ranges cannot be read in the requested way."""
    if cluster.read_from is not ReadFrom.BOOKIES:
        return
    for one in found:
        if one.ledger.offloaded:
            raise TopicError(
                f"ledger {one.ledger.ledger_id} of {one.topic} has been offloaded: "
                f"with read_from={ReadFrom.AUTO} it is read through the broker"
            )
