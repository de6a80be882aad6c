"""The entries of a topic to read: ranges of ledgers, less a cursor's acknowledgements.

Pure: from the admin API's answers to ranges. Invariants: both ends of a range are inclusive; single
acknowledged entries may be inside (then in ``acknowledged``), long stretches not.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pyroaring import BitMap

from tidegate.index import PositionSet
from tidegate.pipeline.errors import WireError

SKIPPED_MIN = 2_000
"""A stretch of so many acknowledged entries is not read; fewer are read and dropped, which costs less."""

ENTRY_ID_END = (1 << 63) - 1

_RANGE = re.compile(r"\((-?\d{1,19}):(-?\d{1,19})\.\.(-?\d{1,19}):(-?\d{1,19})\]")
_POSITION = re.compile(r"(-?\d{1,19}):(-?\d{1,19})")


class Position(NamedTuple):
    """A place in a topic; positions compare in the topic's order."""

    ledger_id: int
    entry_id: int

    @classmethod
    def parse(cls, text: str) -> Position:
        """From ``ledger:entry``. Raises ``WireError``."""
        found = _POSITION.fullmatch(text)
        if found is None:
            raise WireError(f"{text[:40]!r} is no position")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


class Stretch(NamedTuple):
    """Entries of one ledger, both ends inclusive."""

    first: int
    last: int


class Segment(NamedTuple):
    """The bookies of a ledger from ``first_entry`` on."""

    first_entry: int
    bookies: tuple[str, ...]


@dataclass(frozen=True)
class Ledger:
    """A ledger of a topic with its present entries.

    entries: how many are readable, in the open ledger too. digest: their checksum, None if unknown.
    write_quorum: a segment's bookies that have each entry. size_bytes: of one copy; 0 if unknown.
    """

    ledger_id: int
    entries: int
    offloaded: bool = False
    digest: str | None = None
    write_quorum: int = 0
    segments: tuple[Segment, ...] = ()
    size_bytes: int = 0


class Acknowledged:
    """The positions that a cursor has acknowledged: all up to mark-delete, and ranges above it."""

    def __init__(self, mark_delete: Position, ranges: Iterable[tuple[Position, Position]] = ()) -> None:
        """``ranges``: ascending and disjoint, each without its first position and with its last."""
        self.mark_delete = mark_delete
        self._after: list[Position] = []
        self._through: list[Position] = []
        before = mark_delete
        for after, through in ranges:
            if through <= mark_delete:
                continue
            start = max(after, mark_delete)
            if start < before or through <= start:
                raise WireError(f"the acknowledged range {after} to {through} is out of order")
            self._after.append(start)
            self._through.append(through)
            before = through

    @classmethod
    def parse(cls, mark_delete: str, ranges: str) -> Acknowledged:
        """From ``markDeletePosition`` and ``individuallyDeletedMessages``. Raises ``WireError``."""
        found = _RANGE.findall(ranges)
        if len(found) != ranges.count(".."):
            raise WireError(f"cannot read the acknowledged ranges {ranges[:80]!r}")
        return cls(
            Position.parse(mark_delete),
            ((Position(int(a), int(b)), Position(int(c), int(d))) for a, b, c, d in found),
        )

    def within(self, ledger_id: int, last: int) -> list[Stretch]:
        """The acknowledged stretches among the entries 0 … last of a ledger, ascending."""
        found = []
        if self.mark_delete.ledger_id > ledger_id:
            return [Stretch(0, last)] if last >= 0 else []
        if self.mark_delete.ledger_id == ledger_id and self.mark_delete.entry_id >= 0:
            found.append(Stretch(0, min(self.mark_delete.entry_id, last)))
        begin = bisect_left(self._through, Position(ledger_id, 0))
        end = bisect_right(self._after, Position(ledger_id, ENTRY_ID_END))
        for after, through in zip(self._after[begin:end], self._through[begin:end], strict=True):
            first = after.entry_id + 1 if after.ledger_id == ledger_id else 0
            stop = through.entry_id if through.ledger_id == ledger_id else last
            if first <= min(stop, last):
                found.append(Stretch(max(first, 0), min(stop, last)))
        return _joined(found)


def acknowledged_positions(acknowledged: Acknowledged, sets: Iterable[PositionSet]) -> PositionSet:
    """The acknowledged positions in the ledgers of these sets."""
    lasts: dict[int, int] = {}
    for one in sets:
        for ledger_id, bitmap in one.items():
            lasts[ledger_id] = max(lasts.get(ledger_id, 0), bitmap.max())
    found = {}
    for ledger_id, last in lasts.items():
        bitmap = BitMap()
        for first, through in acknowledged.within(ledger_id, last):
            bitmap.add_range(first, through + 1)
        if bitmap:
            found[ledger_id] = bitmap
    return PositionSet.of_bitmaps(found)


@dataclass(frozen=True)
class EntryRange:
    """Entries of one ledger of one topic or partition, both ends inclusive, which one reader reads in a row.

    topic: the full name, the partition's if there are any. acknowledged: stretches to leave out.
    """

    topic: str
    partition: int
    ledger: Ledger
    first: int
    last: int
    acknowledged: tuple[Stretch, ...] = ()

    @property
    def entries(self) -> int:
        """The number of entries read."""
        return self.last - self.first + 1

    @property
    def live(self) -> int:
        """The number of unacknowledged ones among them."""
        return self.entries - sum(last - first + 1 for first, last in self.acknowledged)

    def part(self, first: int, last: int) -> EntryRange:
        """A part of the range."""
        return replace(
            self,
            first=first,
            last=last,
            acknowledged=tuple(
                Stretch(max(one.first, first), min(one.last, last))
                for one in self.acknowledged
                if one.last >= first and one.first <= last
            ),
        )


class Bounds(NamedTuple):
    """Limits for positions, both inclusive."""

    first: Position = Position(-1, -1)
    last: Position = Position(ENTRY_ID_END, ENTRY_ID_END)


def ranges(
    topic: str,
    partition: int,
    ledgers: Sequence[Ledger],
    acknowledged: Acknowledged | None,
    bounds: Bounds,
) -> Iterator[EntryRange]:
    """The ranges of a topic to read, ascending: everything in ``bounds`` that is not acknowledged."""
    for ledger in ledgers:
        first = bounds.first.entry_id if ledger.ledger_id == bounds.first.ledger_id else 0
        last = ledger.entries - 1
        if ledger.ledger_id == bounds.last.ledger_id:
            last = min(last, bounds.last.entry_id)
        if not bounds.first.ledger_id <= ledger.ledger_id <= bounds.last.ledger_id or max(first, 0) > last:
            continue
        gone = [] if acknowledged is None else acknowledged.within(ledger.ledger_id, last)
        whole = EntryRange(topic, partition, ledger, max(first, 0), last, tuple(gone))
        yield from _without_long_stretches(whole)


def split(found: Iterable[EntryRange], entries: int) -> list[list[EntryRange]]:
    """Groups of ranges to read together, of about ``entries`` entries each; large ranges are cut."""
    groups: list[list[EntryRange]] = []
    room = 0
    for one in found:
        first = one.first
        while first <= one.last:
            if room <= 0:
                groups.append([])
                room = entries
            last = min(one.last, first + room - 1)
            if one.last - last < entries // 4:  # no crumbs
                last = one.last
            groups[-1].append(one.part(first, last))
            room -= last - first + 1
            first = last + 1
    return groups


def _without_long_stretches(whole: EntryRange) -> Iterator[EntryRange]:
    first = whole.first
    for gone in whole.part(whole.first, whole.last).acknowledged:
        if gone.last - gone.first + 1 >= SKIPPED_MIN or gone.first == first or gone.last == whole.last:
            if gone.first > first:
                yield whole.part(first, gone.first - 1)
            first = gone.last + 1
    if first <= whole.last:
        yield whole.part(first, whole.last)


def _joined(found: list[Stretch]) -> list[Stretch]:
    """Ascending stretches, with adjacent ones joined."""
    joined: list[Stretch] = []
    for one in found:
        if joined and one.first <= joined[-1].last + 1:
            joined[-1] = Stretch(joined[-1].first, max(joined[-1].last, one.last))
        else:
            joined.append(one)
    return joined
