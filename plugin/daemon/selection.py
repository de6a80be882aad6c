"""The subscriptions that a request names, and the spelling of message ids.

A topic may omit the defaults that Pulsar's tools omit; a partitioned topic without a partition means all
those that the daemon has. A message id is ``ledger:entry``, of a partition ``ledger:entry:partition``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tidegate.index import ENTRY_ID_MAX, DelayIndex, Position, SubscriptionName
from tidegate.plugin.daemon import width
from tidegate.plugin.daemon.glob import STAR, Glob
from tidegate.plugin.errors import UserError
from tidegate.plugin.wire.messages import NAME_BYTES_MAX

_PARTITION = re.compile(r"-partition-(\d{1,9})$", re.ASCII)
_ID = re.compile(r"(\d{1,19}):(\d{1,19})(?::(-?\d{1,9})(?::(-?\d{1,9}))?)?", re.ASCII)
_PYTHON_ID = re.compile(r"\((\d+),(\d+),(-?\d+),(-?\d+)\)", re.ASCII)
_LEDGER_ID_MAX = (1 << 63) - 1
_NONE = -1


def name_of(request: dict[str, object], *, optional: bool = False) -> tuple[str, str]:
    """Topic and subscription of a request; ``*`` for an omitted one. Raises ``UserError``."""
    names = []
    for key in ("topic", "subscription"):
        name = request.get(key, STAR if optional else None)
        if not isinstance(name, str) or not name:
            raise UserError(f"a query about an index needs {key}")
        if len(name.encode()) > NAME_BYTES_MAX:
            raise UserError(f"a topic or subscription has at most {NAME_BYTES_MAX} bytes")
        names.append(name)
    return names[0], names[1]


def matching(indexes: Iterable[DelayIndex], topic: str, subscription: str) -> list[DelayIndex]:
    """All indexes that a topic and a subscription mean, ``*`` for anything, by name. Raises ``UserError``."""
    if (topic, subscription) == (STAR, STAR):
        return sorted(indexes, key=lambda index: index.name)
    if max(topic.count(STAR), subscription.count(STAR)) > width.STARS_MAX:
        raise UserError(f"a topic or subscription has at most {width.STARS_MAX} *")
    topics, subscriptions = (Glob(topic), Glob(f"{topic}-partition-{STAR}")), Glob(subscription)
    known = list(indexes)
    found = [
        index
        for index in known
        if subscriptions.matches(index.name.subscription)
        and any(one.matches(text) for one in topics for text in width.topic_spellings(index.name.topic))
    ]
    if not found:
        width.find(known, f"{topic}:{subscription}")  # its error names similar ones
    return sorted(found, key=lambda index: index.name)


def named(indexes: Iterable[DelayIndex], topic: str, subscription: str) -> list[DelayIndex]:
    """The index of one subscription, or those of all partitions of a topic. Raises ``UserError``."""
    known = [index for index in indexes if index.name.subscription == subscription]
    exact = [index for index in known if topic in width.topic_spellings(index.name.topic)]
    if exact:
        return exact
    partitions = [
        index
        for index in known
        if partition_of(index.name) is not None
        and topic in width.topic_spellings(_PARTITION.sub("", index.name.topic))
    ]
    if not partitions:
        width.find(known, f"{topic}:{subscription}")
        raise UserError(f"{topic}:{subscription} is a pattern: name one subscription")
    return sorted(partitions, key=lambda index: partition_of(index.name) or 0)


def of_partition(indexes: list[DelayIndex], partition: int | None) -> list[DelayIndex]:
    """The indexes that an id with this partition can be of. Raises ``UserError`` if there is none."""
    if partition is None:
        return indexes
    found = [index for index in indexes if partition_of(index.name) in {None, partition}]
    if not found or (partition_of(found[0].name) is None and partition > 0):
        raise UserError(f"partition {partition} is not of this topic: check the message id")
    return found


def partition_of(name: SubscriptionName) -> int | None:
    """The number of its partition; None if its topic is not a partition."""
    found = _PARTITION.search(name.topic)
    return None if found is None else int(found[1])


def message_id(partition: int | None, ledger_id: int, entry_id: int) -> str:
    """The printed id of a message."""
    return f"{ledger_id}:{entry_id}" if partition is None else f"{ledger_id}:{entry_id}:{partition}"


def parse_id(text: str) -> tuple[Position, int | None]:
    """The position in an id, and its partition if it has one. Raises ``UserError``."""
    stripped = text.strip()
    found = _ID.fullmatch(stripped) or _PYTHON_ID.fullmatch(stripped.replace(" ", ""))
    if found is None:
        raise UserError(f"{text[:80]!r} is no message id: write ledger:entry, as in 17:4711")
    ledger_id, entry_id = int(found[1]), int(found[2])
    partition, batch_index = (_NONE if one is None else int(one) for one in (found[3], found[4]))
    if ledger_id > _LEDGER_ID_MAX or entry_id > ENTRY_ID_MAX or min(partition, batch_index) < _NONE:
        raise UserError(f"{text[:80]!r} is no message id: a number is out of range")
    if batch_index != _NONE:
        raise UserError(
            f"{text[:80]!r} is one message of a batch, which waits as one: give ledger:entry of all of it"
        )
    return (ledger_id, entry_id), None if partition == _NONE else partition
