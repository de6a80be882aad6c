"""What a job reads: targets, and ranges of ledgers cut into tasks; kept, so that a killed job goes on.

A target is a topic or a partition with the subscriptions whose indexes are to hold what is on it. A plan that
is taken up again keeps its tasks, for some of them are done, and gets more for what has come since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import unquote_plus

from tidegate.pipeline.errors import PipelineError, TopicError
from tidegate.pipeline.rebuild.options import RebuildOptions
from tidegate.pipeline.topic.admin import Admin
from tidegate.pipeline.topic.names import TopicName
from tidegate.pipeline.topic.plan import Planned, backlog, check, survey
from tidegate.pipeline.topic.ranges import (
    Bounds,
    EntryRange,
    Ledger,
    Position,
    Segment,
    Stretch,
    split,
)
from tidegate.pipeline.topic.reader import Cluster

VERSION = 1
_OF_PULSAR = ("pulsar.", "__")
_STAR = "*"


@dataclass(frozen=True)
class Target:
    """A topic or partition as it was planned. ``end``: the last position that is read, if any."""

    topic: str
    subscriptions: tuple[str, ...]
    end: Position | None


@dataclass(frozen=True)
class Task:
    """What one task reads; all of one target. ``name`` says what it has, whatever else is planned."""

    target: int
    ranges: tuple[EntryRange, ...]

    @property
    def name(self) -> str:
        """Of its file."""
        first, last = self.ranges[0], self.ranges[-1]
        return f"{self.target}-{first.ledger.ledger_id}-{first.first}-{last.ledger.ledger_id}-{last.last}"


@dataclass(frozen=True)
class Plan:
    """All that a job reads, and for whom."""

    targets: tuple[Target, ...]
    tasks: tuple[Task, ...]

    @property
    def entries(self) -> int:
        """How many entries are read."""
        return sum(one.live for task in self.tasks for one in task.ranges)

    def as_json(self) -> dict[str, Any]:
        """As it is kept."""
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def of_json(cls, document: dict[str, Any]) -> Plan:
        """As it was kept. Raises ``PipelineError``."""
        try:
            if document["version"] != VERSION:
                raise ValueError("another version")
            return cls(
                tuple(
                    Target(
                        one["topic"],
                        tuple(one["subscriptions"]),
                        None if one["end"] is None else Position(*one["end"]),
                    )
                    for one in document["targets"]
                ),
                tuple(
                    Task(one["target"], tuple(_range(each) for each in one["ranges"]))
                    for one in document["tasks"]
                ),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise PipelineError(f"the plan of a former job cannot be read: {error}; remove it") from error


def make_plan(options: RebuildOptions, former: Plan | None) -> tuple[Cluster, Plan]:
    """What there is to read now; goes on with ``former`` if that was for the same. Raises ``TopicError``."""
    topics = _topics(options)
    service_url = options.service_url
    if service_url is None:
        with Admin(options.admin_url, options.access) as admin:
            service_url = admin.service_url(topics[0])
    cluster = options.cluster(service_url)
    planned = [one for topic in topics for one in survey(cluster, topic)]
    chosen = [(one, _subscriptions(one, options.subscription)) for one in planned]
    if not any(subscriptions for _, subscriptions in chosen):
        # Says which there are.
        planned[0].state.acknowledged(options.subscription)
    targets = tuple(
        Target(str(one.state.topic), subscriptions, one.end) for one, subscriptions in chosen if subscriptions
    )
    kept = former if former is not None and _same(former.targets, targets) else None
    tasks = [] if kept is None else list(kept.tasks)
    for number, (one, subscriptions) in enumerate(each for each in chosen if each[1]):
        before = None if kept is None else kept.targets[number].end
        found = _ranges(one, subscriptions, before)
        check(found, cluster)
        tasks += [Task(number, tuple(group)) for group in split(found, options.entries_per_task)]
    return cluster, Plan(targets, tuple(tasks))


def _topics(options: RebuildOptions) -> list[TopicName]:
    topic = TopicName.parse(options.topic)
    if _STAR not in topic.local:
        return [topic]
    with Admin(options.admin_url, options.access) as admin:
        names = {one.base for one in admin.topics(topic) if fnmatchcase(one.base.local, topic.local)}
    if not names:
        raise TopicError(f"no topic of {topic.tenant}/{topic.namespace} is called {topic.local}")
    return sorted(names)


def _subscriptions(planned: Planned, wanted: str) -> tuple[str, ...]:
    names = [unquote_plus(name) for name in planned.state.cursors]
    if _STAR not in wanted:
        return (wanted,) if wanted in names else ()
    return tuple(
        sorted(name for name in names if fnmatchcase(name, wanted) and not name.startswith(_OF_PULSAR))
    )


def _ranges(planned: Planned, subscriptions: Sequence[str], before: Position | None) -> list[EntryRange]:
    """What is read for all of the subscriptions in one pass: what the first of them has not acknowledged."""
    first = Position(-1, -1) if before is None else Position(before.ledger_id, before.entry_id + 1)
    if len(subscriptions) == 1:
        return list(backlog(planned, subscriptions[0], Bounds(first=first)))
    marks = [planned.state.acknowledged(one).mark_delete for one in subscriptions]
    low = min(marks)
    return list(backlog(planned, None, Bounds(first=max(first, Position(low.ledger_id, low.entry_id + 1)))))


def _same(before: Iterable[Target], now: Iterable[Target]) -> bool:
    return [(one.topic, one.subscriptions) for one in before] == [
        (one.topic, one.subscriptions) for one in now
    ]


def _range(document: dict[str, Any]) -> EntryRange:
    ledger = document["ledger"]
    return EntryRange(
        document["topic"],
        document["partition"],
        Ledger(
            **{
                **ledger,
                "segments": tuple(Segment(first, tuple(bookies)) for first, bookies in ledger["segments"]),
            }
        ),
        document["first"],
        document["last"],
        tuple(Stretch(*one) for one in document["acknowledged"]),
    )
