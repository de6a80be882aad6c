"""The answers of a daemon or broker, typed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from tidegate.plugin.api.changes import Answer
from tidegate.plugin.api.known_form import known_form


@dataclass(frozen=True)
class WaitingMessage:
    """A message that waits, overdue ones included. message_id: ``ledger:entry``, with ``:partition``.

    deliver_at_ms: 0 for a released one.
    """

    message_id: str
    deliver_at_ms: int


@dataclass(frozen=True)
class MessageState:
    """The state of one message: ``waiting``, ``handed_out``, ``acknowledged`` or ``unknown``."""

    topic: str
    subscription: str
    message_id: str
    state: str
    deliver_at_ms: int | None
    """None unless it waits."""
    key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    size_bytes: int | None = None
    """As stored, with its metadata; None, as key and properties, if no broker can tell now."""

    @classmethod
    def of(cls, answer: Answer) -> Self:
        """Raises ``UserError`` for an answer of another form."""
        with known_form():
            return cls(
                topic=answer["topic"],
                subscription=answer["subscription"],
                message_id=answer["message_id"],
                state=answer["state"],
                deliver_at_ms=answer.get("deliver_at_ms"),
                key=answer.get("key"),
                properties=answer.get("properties", {}),
                size_bytes=answer.get("size_bytes"),
            )


@dataclass(frozen=True)
class Bucket:
    """Messages due in [from_ms, until_ms)."""

    from_ms: int
    until_ms: int
    entries: int


@dataclass(frozen=True)
class Tide:
    """Messages by due time. inexact_entries: as many may be in a bucket nearby, or acknowledged.

    drain_per_second: taken by consumers in their fastest minute of the last day; None: unknown.
    """

    now_ms: int
    subscriptions: int
    subscriptions_away: int
    entries: int
    overdue: int
    buckets: tuple[Bucket, ...]
    later: int
    inexact_entries: int
    drain_per_second: float | None = None

    @classmethod
    def of(cls, answer: Answer) -> Self:
        """Raises ``UserError`` for an answer of another form."""
        with known_form():
            buckets = tuple(
                Bucket(one["from_ms"], one["until_ms"], one["entries"]) for one in answer["buckets"]
            )
            return cls(
                now_ms=answer["now_ms"],
                subscriptions=answer["subscriptions"],
                subscriptions_away=answer["subscriptions_away"],
                entries=answer["entries"],
                overdue=answer["overdue"],
                buckets=buckets,
                later=answer["later"],
                inexact_entries=answer["inexact_entries"],
                drain_per_second=answer.get("drain_per_second"),
            )


@dataclass(frozen=True)
class Changed:
    """Messages by outcome. ids: up to 1,000 of each outcome but `done`. why: the reason that some are
    undecided.
    """

    done: int
    too_late: int
    acknowledged: int
    unknown: int
    undecided: int
    dry_run: bool = False
    ids: Mapping[str, list[str]] = field(default_factory=dict)
    why: str = ""
    stopped: bool = False
    """True if it ended early, because nothing can be decided now: more may wait."""

    @property
    def all_done(self) -> bool:
        """True if all are done, and it came to its end."""
        return not (self.too_late or self.acknowledged or self.unknown or self.undecided or self.stopped)

    @classmethod
    def of(cls, answer: Answer) -> Self:
        """Raises ``UserError`` for an answer of another form."""
        with known_form():
            return cls(
                done=answer["done"],
                too_late=answer["too_late"],
                acknowledged=answer["acknowledged"],
                unknown=answer["unknown"],
                undecided=answer["undecided"],
                dry_run=answer["dry_run"],
                ids=answer["ids"],
                why=answer.get("why", ""),
                stopped=answer.get("stopped", False),
            )


@dataclass(frozen=True)
class SubscriptionPace:
    """The pace of one subscription, or of one partition; None where unknown."""

    topic: str
    subscription: str
    paused: bool | None
    rate: int | None
    """Messages a second at most."""
    spread_ms: int | None
    held_back: int
    """Messages that are due and may not leave yet."""
    why: str
    """The reason why it is not in force; empty if it is."""


@dataclass(frozen=True)
class Pace:
    """The pace at which messages leave. done: in force everywhere."""

    done: bool
    held_back: int
    subscriptions: tuple[SubscriptionPace, ...]

    @classmethod
    def of(cls, answer: Answer) -> Self:
        """Raises ``UserError`` for an answer of another form."""
        with known_form():
            told = tuple(
                SubscriptionPace(
                    topic=one["topic"],
                    subscription=one["subscription"],
                    paused=one.get("paused"),
                    rate=one.get("rate"),
                    spread_ms=one.get("spread_ms"),
                    held_back=one.get("held_back", 0),
                    why=one.get("why", ""),
                )
                for one in answer["subscriptions"]
            )
            return cls(answer["done"], answer["held_back"], told)


def page_of(answer: Answer) -> tuple[list[WaitingMessage], str | None]:
    """A page's messages, and the cursor of the next. Raises ``UserError`` for an answer of another form."""
    with known_form():
        return [WaitingMessage(one["message_id"], one["deliver_at_ms"]) for one in answer["entries"]], answer[
            "next"
        ]
