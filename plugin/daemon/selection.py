"""The subscriptions that a request names.

A topic may omit the defaults that Pulsar's tools omit; a partitioned topic without a partition means all its
partitions here. A scalable topic, ``topic://``, means its segments here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from tidegate.index import DelayIndex, SubscriptionName
from tidegate.plugin.daemon import width
from tidegate.plugin.daemon.glob import STAR, Glob
from tidegate.plugin.errors import UnknownNameError, UserError
from tidegate.plugin.shared.message_ids import message_id, parse_id
from tidegate.plugin.shared.scalable import scalable_of
from tidegate.plugin.wire.messages import NAME_BYTES_MAX

__all__ = [
    "matching",
    "meaning",
    "message_id",
    "name_of",
    "named",
    "of_namespace",
    "of_partition",
    "of_topic",
    "parse_id",
    "partition_of",
    "partitions_of",
    "whole_topic",
]

_NUMBERS = re.compile(r"\d{1,9}(,\d{1,9})*", re.ASCII)
_PARTITION = re.compile(r"-partition-(\d{1,9})$", re.ASCII)


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
    """All indexes meant by a topic and a subscription, ``*`` for anything, by name. Raises ``UserError``."""
    if (topic, subscription) == (STAR, STAR):
        return sorted(indexes, key=lambda index: index.name)
    means = meaning(topic, subscription)
    known = list(indexes)
    found = [index for index in known if means(index.name)]
    if not found:
        width.find(known, f"{topic}:{subscription}")  # its error names similar ones
    return sorted(found, key=lambda index: index.name)


def meaning(topic: str, subscription: str) -> Callable[[SubscriptionName], bool]:
    """A test of names: True for those meant by a topic and a subscription. Raises ``UserError``."""
    if max(topic.count(STAR), subscription.count(STAR)) > width.STARS_MAX:
        raise UserError(f"a topic or subscription has at most {width.STARS_MAX} *")
    topics, subscriptions = (Glob(topic), Glob(f"{topic}-partition-{STAR}")), Glob(subscription)

    def means(name: SubscriptionName) -> bool:
        return subscriptions.matches(name.subscription) and any(
            one.matches(text) for one in topics for text in _spellings(name.topic)
        )

    return means


def _spellings(topic: str) -> list[str]:
    whole = scalable_of(topic)
    return width.topic_spellings(topic) if whole is None else [*width.topic_spellings(topic), whole]


def of_topic(indexes: Iterable[DelayIndex], topic: str) -> list[DelayIndex]:
    """All indexes of a topic and its partitions or segments, by name; no ``*`` in it means anything else.

    Raises ``UnknownNameError``.
    """
    found = [
        index
        for index in indexes
        if topic in width.topic_spellings(index.name.topic)
        or topic in width.topic_spellings(_PARTITION.sub("", index.name.topic))
        or topic == scalable_of(index.name.topic)
    ]
    if not found:
        raise UnknownNameError(f"no subscription of {topic!r}: tidegate status lists all")
    return sorted(found, key=lambda index: index.name)


def of_namespace(indexes: Iterable[DelayIndex], namespace: object) -> list[DelayIndex]:
    """All indexes of a namespace, TENANT/NAMESPACE, by name. Raises ``UserError``."""
    if not isinstance(namespace, str) or namespace.count("/") != 1:
        raise UserError("namespace must be TENANT/NAMESPACE")
    found = [index for index in indexes if index.name.topic.partition("://")[2].startswith(f"{namespace}/")]
    if not found:
        raise UnknownNameError(
            f"no subscription of a topic in {namespace!r} is here: tidegate status lists all"
        )
    return sorted(found, key=lambda index: index.name)


def named(indexes: Iterable[DelayIndex], topic: str, subscription: str) -> list[DelayIndex]:
    """The index of one subscription, or those of a topic's partitions or segments. Raises ``UserError``."""
    known = [index for index in indexes if index.name.subscription == subscription]
    exact = [index for index in known if topic in width.topic_spellings(index.name.topic)]
    if exact:
        return exact
    segments = [index for index in known if topic == scalable_of(index.name.topic)]
    if segments:
        return sorted(segments, key=lambda index: index.name)
    partitions = [
        index
        for index in known
        if partition_of(index.name) is not None
        and topic in width.topic_spellings(_PARTITION.sub("", index.name.topic))
    ]
    if not partitions:
        text = f"{topic}:{subscription}"
        width.find(known, text)
        raise UnknownNameError(f"{text} is a pattern: name one subscription", width.bare(text))
    return sorted(partitions, key=lambda index: partition_of(index.name) or 0)


def of_partition(indexes: list[DelayIndex], partition: int | None) -> list[DelayIndex]:
    """The indexes to which an id with this partition can belong. Raises ``UserError`` if there is none."""
    if partition is None:
        return indexes
    found = [index for index in indexes if partition_of(index.name) in {None, partition}]
    if not found or (partition_of(found[0].name) is None and partition > 0):
        raise UserError(f"partition {partition} is not of this topic: check the message id")
    return found


def whole_topic(topic: str) -> str:
    """The topic of a partition or segment; any other topic is its own."""
    return scalable_of(topic) or _PARTITION.sub("", topic)


def partition_of(name: SubscriptionName) -> int | None:
    """The number of its partition; None if its topic is not a partition."""
    found = _PARTITION.search(name.topic)
    return None if found is None else int(found[1])


def partitions_of(request: dict[str, object], key: str) -> set[int]:
    """Numbers of partitions in a request, as in ``0,2``; none without the key. Raises ``UserError``."""
    text = request.get(key, "")
    if not isinstance(text, str) or (text and _NUMBERS.fullmatch(text) is None):
        raise UserError(f"{key} must be numbers of partitions, as in 0,2")
    return {int(one) for one in text.split(",") if one}
