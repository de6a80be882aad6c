"""Offsets of a stream over a topic: the first unread position of each partition.

Pure. An offset is ``{"0": "12:340", "1": "15:0"}``; a topic without partitions is "-1". Later partitions
begin at their earliest position. Entries deleted unread are an error unless allowed: a stream has no cursor
to keep them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from tidegate.pipeline.errors import TopicError
from tidegate.pipeline.topic.plan import Planned, backlog
from tidegate.pipeline.topic.ranges import Bounds, EntryRange, Position

Offset = dict[str, str]
_BEGINNING = Position(0, 0)


def earliest(found: Sequence[Planned]) -> Offset:
    """Before everything that is stored."""
    return {str(one.partition): str(_first(one)) for one in found}


def latest(found: Sequence[Planned]) -> Offset:
    """After everything that is stored."""
    return {str(one.partition): str(_after(one)) for one in found}


def forward(start: Offset, end: Offset) -> Offset:
    """``end``, but nowhere before ``start``: a stream never goes back."""
    return {
        name: str(max(Position.parse(text), Position.parse(start[name]))) if name in start else text
        for name, text in end.items()
    }


def between(planned: Planned, start: Offset, end: Offset, *, may_lose: bool = False) -> Iterator[EntryRange]:
    """The entries between two offsets of one partition; ``end`` is exclusive.

    Raises ``TopicError`` if some of them no longer exist, unless ``may_lose``.
    """
    name = str(planned.partition)
    if name not in end:
        return
    first = Position.parse(start[name]) if name in start else _first(planned)
    gone = all(ledger.ledger_id != first.ledger_id for ledger in planned.state.ledgers)
    if gone and first != _BEGINNING and start.get(name) != end[name] and not may_lose:
        raise TopicError(
            f"{planned.state.topic} was trimmed from {first} on before it was read: give it retention or a "
            "subscription that keeps it, or go on without what is missing with fail_on_data_loss=false"
        )
    stop = Position.parse(end[name])
    yield from backlog(planned, None, Bounds(first, Position(stop.ledger_id, stop.entry_id - 1)))


def limited(found: Sequence[Planned], start: Offset, end: Offset, entries: int) -> Offset:
    """The offset about ``entries`` entries after ``start``, the same share of them in each partition.

    Never at the end of a ledger that another one follows: once read, that ledger may be trimmed.
    """
    ahead = {one.partition: list(between(one, start, end)) for one in found}
    total = sum(each.entries for ranges in ahead.values() for each in ranges)
    if total <= entries:
        return end
    limited = dict(end)
    for partition, ranges in ahead.items():
        room = -(-sum(each.entries for each in ranges) * entries // total)
        for each in ranges:
            if each.entries > room:
                limited[str(partition)] = str(Position(each.ledger.ledger_id, each.first + room))
                break
            room -= each.entries
    return limited


def _first(planned: Planned) -> Position:
    ledgers = planned.state.ledgers
    return Position(ledgers[0].ledger_id, 0) if ledgers else _BEGINNING


def _after(planned: Planned) -> Position:
    """The place of the next entry. A ledger read to its end may be gone by then."""
    end, ledgers = planned.end, planned.state.ledgers
    if end is None:
        return Position(ledgers[-1].ledger_id, 0) if ledgers else _BEGINNING
    for ledger, following in pairwise(ledgers):
        if ledger.ledger_id == end.ledger_id and ledger.entries == end.entry_id + 1:
            return Position(following.ledger_id, 0)
    return Position(end.ledger_id, end.entry_id + 1)
