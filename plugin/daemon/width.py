"""The daemon's side of ``tidegate width``: finds the subscriptions, and changes their width.

Invariants: the request is understood and its subscriptions found before any change; a change is answered once
it is durable.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, NamedTuple

from tidegate.index import DelayIndex, SubscriptionName
from tidegate.plugin.daemon.glob import STAR, Glob
from tidegate.plugin.daemon.report import with_subscriptions
from tidegate.plugin.daemon.settings import WIDTH_MAX_MS, WIDTH_MIN_MS, Settings
from tidegate.plugin.errors import UnknownNameError, UserError
from tidegate.plugin.shared.durations import duration
from tidegate.plugin.shared.topics import DEFAULTS
from tidegate.plugin.wire.messages import NAME_BYTES_MAX

SCHEMA = 1
SHOWN_MAX = 1_000
_NEAR = 3
_COMPARED_MAX = 300  # names to compare an unknown one with: each costs some microseconds of the loop
_COMPARED_LENGTH_MAX = 300  # for names of usual length: the cost grows with the product of both lengths
_PATTERN_MAX = 2 * NAME_BYTES_MAX + 1
STARS_MAX = 32
_SHORT = ("", "persistent://", DEFAULTS)


class WidthRequest(NamedTuple):
    """A request; with neither ``width_ms`` nor ``auto`` it changes nothing."""

    subscription: str
    width_ms: int | None
    auto: bool

    @property
    def changes(self) -> bool:
        """True if the request sets a width."""
        return self.auto or self.width_ms is not None

    @classmethod
    def of(cls, query: dict[str, object]) -> WidthRequest:
        """Read a query. Raises ``UserError`` if it makes no sense."""
        subscription, width_ms, auto = (query.get(key) for key in ("subscription", "width_ms", "auto"))
        if not isinstance(subscription, str):
            raise UserError("a width query needs subscription, as in topic:subscription")
        if auto not in (None, False, True) or (auto and width_ms is not None):
            raise UserError("auto must be true or false, and goes without width_ms")
        if width_ms is None:
            return cls(subscription, None, bool(auto))
        if not isinstance(width_ms, int) or isinstance(width_ms, bool):
            raise UserError("width_ms must be a number of milliseconds")
        return cls(subscription, checked_width_ms(width_ms), False)


def checked_width_ms(width_ms: int) -> int:
    """``width_ms`` if a slice may be so wide. Raises ``UserError``."""
    if not WIDTH_MIN_MS <= width_ms <= WIDTH_MAX_MS:
        raise UserError(
            f"a slice is {duration(WIDTH_MIN_MS)} to {duration(WIDTH_MAX_MS)} wide, not {duration(width_ms)}"
        )
    return width_ms


def topic_spellings(topic: str) -> list[str]:
    """The spellings of a topic, the shortest last: Pulsar's tools omit defaults."""
    return [topic.removeprefix(left_out) for left_out in _SHORT if topic.startswith(left_out)]


def spellings(name: SubscriptionName) -> list[str]:
    """The spellings of a subscription, the shortest last."""
    return [f"{topic}:{name.subscription}" for topic in topic_spellings(name.topic)]


def find(indexes: Iterable[DelayIndex], text: str) -> list[DelayIndex]:
    """The subscriptions meant by ``text``, ``*`` for anything, in the order of their names.

    Raises ``UnknownNameError``, with similar names, if there is none, ``UserError`` for a bad pattern.
    """
    wanted = _glob(text)
    known = sorted(indexes, key=lambda index: index.name)
    found = [index for index in known if any(wanted.matches(one) for one in spellings(index.name))]
    if found:
        return found
    if not known:
        raise UnknownNameError(
            f"no subscription {text!r}: the daemon has none yet, not before its first delayed message",
            bare(text),
        )
    tail = text.rpartition(":")[2]
    # The same subscription of another topic is the likeliest.
    known.sort(key=lambda index: index.name.subscription != tail)
    near: list[str] = []
    if len(text) <= _COMPARED_LENGTH_MAX:
        shortest = [spellings(index.name)[-1] for index in known[:_COMPARED_MAX]]
        comparable = [one for one in shortest if len(one) <= _COMPARED_LENGTH_MAX]
        near = difflib.get_close_matches(text, comparable, _NEAR, cutoff=0.4)
    hint = f"is it {' or '.join(near)}? " if near else ""
    raise UnknownNameError(
        f"no subscription {text!r}: {hint}tidegate status lists them, as topic and subscription",
        bare(text),
    )


def bare(text: str) -> str:
    """The refusal of an unknown subscription, the same whatever others there are."""
    return f"no subscription {text!r} here: check its name; it begins with its first delayed message"


def _glob(text: str) -> Glob:
    if len(text) > _PATTERN_MAX:
        raise UserError(f"the subscription is longer than any: at most {_PATTERN_MAX} characters")
    stars = text.count(STAR)
    if stars > STARS_MAX:
        raise UserError(f"the subscription has {stars} *, at most {STARS_MAX} are possible")
    return Glob(text)


def apply(request: WidthRequest, indexes: Iterable[DelayIndex]) -> int:
    """Make the change; returns a token that is durable once all of the change is."""
    token = 0
    for index in indexes:
        width_ms = index.width.width_ms if request.width_ms is None else request.width_ms
        token = max(token, index.set_slice_width(width_ms, auto=request.auto))
    return token


def is_own(index: DelayIndex, settings: Settings) -> bool:
    """True if the subscription's width was set: a reason to remember it while it is empty."""
    if index.width.auto:
        return not settings.slice_width_is_auto
    return settings.slice_width_is_auto or index.width.width_ms != settings.slice_width_ms


async def answer(request: WidthRequest, indexes: list[DelayIndex]) -> bytes:
    """The output of ``tidegate width --json``."""
    known = {"schema": SCHEMA, "changed": request.changes}
    return await with_subscriptions(known, indexes[:SHOWN_MAX], _describe, len(indexes))


def _describe(index: DelayIndex) -> dict[str, Any]:
    stats = index.stats()
    return {
        "topic": index.name.topic,
        "subscription": index.name.subscription,
        "slice_width_ms": stats.slice_width_ms,
        "slice_width_auto": stats.slice_width_auto,
        "slice_width_reason": stats.slice_width_reason,
        "slices": len(stats.slices),
        "slices_of_other_widths": sum(one.width_ms != stats.slice_width_ms for one in stats.slices),
        "blocks": stats.blocks,
    }
