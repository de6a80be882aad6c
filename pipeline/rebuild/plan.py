"""A job's input: targets, and ranges of ledgers cut into tasks; saved, so that a killed job can continue.

A target is a topic or a partition with the subscriptions whose indexes will hold its messages. A resumed plan
keeps its tasks, and gets more for new entries. It is not resumed if it left out entries needed now, after a
cursor's reset, or if the parts do not match the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from pyroaring import BitMap

from tidegate.pipeline.errors import NoTopicError, PipelineError, TopicError
from tidegate.pipeline.rebuild.options import STAR, RebuildOptions
from tidegate.pipeline.topic.admin import Admin
from tidegate.pipeline.topic.cluster import Cluster
from tidegate.pipeline.topic.names import TopicName, cursor_name
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
from tidegate.plugin.daemon.glob import Glob

VERSION = 1
_OF_PULSAR = ("pulsar.", "__")


@dataclass(frozen=True)
class Target:
    """A topic or partition as planned. ``end``: the last position to read, if any."""

    topic: str
    subscriptions: tuple[str, ...]
    end: Position | None


@dataclass(frozen=True)
class Task:
    """The input of one task; all of one target. ``name`` identifies its input, whatever else is planned."""

    target: int
    ranges: tuple[EntryRange, ...]

    @property
    def name(self) -> str:
        """Of its file."""
        first, last = self.ranges[0], self.ranges[-1]
        return f"{self.target}-{first.ledger.ledger_id}-{first.first}-{last.ledger.ledger_id}-{last.last}"


@dataclass(frozen=True)
class Plan:
    """The whole input of a job, and its subscriptions."""

    targets: tuple[Target, ...]
    tasks: tuple[Task, ...]

    @property
    def entries(self) -> int:
        """The number of entries to read."""
        return sum(one.live for task in self.tasks for one in task.ranges)

    def as_json(self) -> dict[str, Any]:
        """The saved form."""
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def of_json(cls, document: dict[str, Any]) -> Plan:
        """From the saved form. Raises ``PipelineError``."""
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


StillThere: TypeAlias = Callable[[Cluster, Plan, Sequence[Sequence[EntryRange]]], bool]
"""True if the entries read by a plan are still on the topic. Arguments: the present ranges, a row a target.
"""


def make_plan(
    options: RebuildOptions, former: Plan | None, still_there: StillThere | None = None
) -> tuple[Cluster, Plan, bool]:
    """The present input, and true if it continues ``former``.

    It does if that covers the input, and its parts are ``still_there``. Raises ``TopicError``.
    """
    topics = _topics(options)
    service_url = options.service_url
    if service_url is None:
        with Admin(options.admin_url, options.access) as admin:
            service_url = admin.service_url(topics[0])
    cluster = options.cluster(service_url)
    planned = [one for topic in topics for one in _surveyed(cluster, topic, wanted=options)]
    chosen = [(one, _subscriptions(one, options.subscription)) for one in planned]
    if not planned:
        raise TopicError(f"all topics that are called {options.topic} were deleted just now")
    if not any(subscriptions for _, subscriptions in chosen):
        # The error names those that exist.
        planned[0].state.acknowledged(options.subscription)
    targets = tuple(
        Target(str(one.state.topic), subscriptions, one.end) for one, subscriptions in chosen if subscriptions
    )
    found = [_ranges(one, subscriptions) for one, subscriptions in chosen if subscriptions]
    for ranges in found:
        check(ranges, cluster)
    kept = former if former is not None and _goes_on(former, targets, found) else None
    if kept is not None and still_there is not None and not still_there(cluster, kept, found):
        kept = None
    tasks = [] if kept is None else list(kept.tasks)
    for number, ranges in enumerate(found):
        left = ranges if kept is None else _after(ranges, kept.targets[number].end)
        tasks += [Task(number, tuple(group)) for group in split(left, options.entries_per_task)]
    return cluster, Plan(targets, tuple(tasks)), kept is not None


def _topics(options: RebuildOptions) -> list[TopicName]:
    topic = TopicName.parse(options.topic)
    if STAR not in topic.local:
        return [topic]
    pattern = Glob(topic.local)
    with Admin(options.admin_url, options.access) as admin:
        names = {one.base for one in admin.topics(topic) if pattern.matches(one.base.local)}
    if not names:
        raise TopicError(f"no topic of {topic.tenant}/{topic.namespace} is called {topic.local}")
    return sorted(names)


def _surveyed(cluster: Cluster, topic: TopicName, *, wanted: RebuildOptions) -> Iterator[Planned]:
    try:
        yield from survey(cluster, topic)
    except NoTopicError:
        # In a whole namespace a topic may be deleted at any moment.
        if STAR not in wanted.topic:
            raise


def _subscriptions(planned: Planned, wanted: str) -> tuple[str, ...]:
    if STAR not in wanted:
        return (wanted,) if cursor_name(wanted) in planned.state.cursors else ()
    pattern = Glob(wanted)
    return tuple(
        name
        for name in planned.state.subscriptions
        if pattern.matches(name) and not name.startswith(_OF_PULSAR)
    )


def _ranges(planned: Planned, subscriptions: Sequence[str]) -> list[EntryRange]:
    """One pass for all of the subscriptions: the entries that the first one has not acknowledged."""
    if len(subscriptions) == 1:
        return list(backlog(planned, subscriptions[0], Bounds()))
    low = min(planned.state.acknowledged(one).mark_delete for one in subscriptions)
    return list(backlog(planned, None, Bounds(first=Position(low.ledger_id, low.entry_id + 1))))


def _goes_on(former: Plan, now: Sequence[Target], found: Sequence[Sequence[EntryRange]]) -> bool:
    """True if it is for the same targets, and covers everything needed now up to its end."""
    if [(one.topic, one.subscriptions) for one in former.targets] != [
        (one.topic, one.subscriptions) for one in now
    ]:
        return False
    for number, ranges in enumerate(found):
        then = live(one for task in former.tasks if task.target == number for one in task.ranges)
        for ledger_id, bitmap in live(_up_to(ranges, former.targets[number].end)).items():
            if not bitmap <= then.get(ledger_id, BitMap()):
                return False
    return True


def live(ranges: Iterable[EntryRange]) -> dict[int, BitMap]:
    """The entries of these ranges by ledger, without acknowledged ones."""
    found: dict[int, BitMap] = {}
    for one in ranges:
        bitmap = BitMap()
        bitmap.add_range(one.first, one.last + 1)
        for first, last in one.acknowledged:
            bitmap.remove_range(first, last + 1)
        found[one.ledger.ledger_id] = found.get(one.ledger.ledger_id, BitMap()) | bitmap
    return found


def _up_to(ranges: Iterable[EntryRange], end: Position | None) -> Iterator[EntryRange]:
    """The parts of these ranges not after ``end``."""
    for one in ranges:
        ledger_id = one.ledger.ledger_id
        if end is None or Position(ledger_id, one.first) > end:
            continue
        yield one if Position(ledger_id, one.last) <= end else one.part(one.first, end.entry_id)


def _after(ranges: Iterable[EntryRange], end: Position | None) -> Iterator[EntryRange]:
    """The parts of these ranges after ``end``."""
    for one in ranges:
        ledger_id = one.ledger.ledger_id
        if end is None or Position(ledger_id, one.first) > end:
            yield one
        elif Position(ledger_id, one.last) > end:
            yield one.part(end.entry_id + 1, one.last)


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
