"""The course of a change of many messages, as queries one after the other.

A course is a generator: it yields a QUERY (``docs/waiting.md``), takes the answer, and returns the sum. The
daemon's HTTP side, the commands and the clients share it, whatever they ask through. Invariants:

- every id is read and checked before the first query;
- a query has at most ``POSITIONS_MAX`` positions and fits into a frame;
- the answers of a course that ends early hold, and it can be begun again.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tidegate.index import PositionSet
from tidegate.plugin.errors import UserError
from tidegate.plugin.message_ids import parse_id

Query = dict[str, Any]
Answer = dict[str, Any]
Course = Generator[Query, Answer, Answer]
Positions = dict[int | None, PositionSet]
OUTCOMES = ("done", "too_late", "acknowledged", "unknown", "undecided")
POSITIONS_MAX = 10_000  # of one query: the broker looks at each with a lock of the cursor
NAMED_MAX = 1_000  # ids of one answer, by outcome
PAGE_ENTRIES = 5_000
_SET_BYTES_MAX = 45_000  # in base64 a frame's worth


@dataclass
class Total:
    """Counts and ids by outcome, over several answers."""

    dry_run: bool
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    ids: dict[str, list[str]] = field(default_factory=dict)
    why: str = ""
    """Why some are undecided."""

    def add(self, answer: Answer) -> None:
        """Raises ``UserError`` for an answer of another form."""
        try:
            for name in OUTCOMES:
                self.counts[name] += int(answer[name])
            for name, named in answer["ids"].items():
                known = self.ids.setdefault(name, [])
                known += named[: max(0, NAMED_MAX - len(known))]
            self.why = answer.get("why", self.why)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(
                f"the daemon answers in a form that this version does not know: {error!r}"
            ) from error

    def answer(self) -> Answer:
        """All of it in the form of one answer."""
        why = {"why": self.why} if self.why else {}
        return {"schema": 1, "dry_run": self.dry_run, **self.counts, "ids": self.ids} | why


def positions_of(lines: Iterable[tuple[int, str]], source: str) -> Positions:
    """The positions of ids by partition; `lines` are numbered for the error. Raises ``UserError``."""
    found: dict[int | None, dict[int, list[int]]] = {}
    for number, line in lines:
        text = line.strip()
        if not text:
            continue
        try:
            (ledger_id, entry_id), partition = parse_id(text)
        except UserError as error:
            raise UserError(f"{source}, line {number}: {error}; nothing was changed") from error
        found.setdefault(partition, {}).setdefault(ledger_id, []).append(entry_id)
    if not found:
        raise UserError(f"{source} has no message ids: nothing was changed")
    return {
        partition: PositionSet.of(
            (ledger_id, one) for ledger_id, entries in ledgers.items() for one in entries
        )
        for partition, ledgers in found.items()
    }


def unite(found: Positions, more: Positions) -> None:
    """Add positions to those found so far."""
    for partition, some in more.items():
        found.setdefault(partition, PositionSet()).update(some)


def change_of(query: Query, positions: Positions, total: Total) -> Course:
    """Ask `query` of all positions. `total` has the sum so far, also if it ends early.

    The first query names all partitions, so that one that is none of the topic's is refused before a change.
    """
    more = {"partitions": [one for one in positions if one is not None]} if len(positions) > 1 else {}
    for partition, some in positions.items():
        for part in _cut(some):
            text = base64.b64encode(part.serialize()).decode("ascii")
            total.add((yield query | more | {"partition": partition, "positions": text}))
            more = {}
    return total.answer()


def change_of_due(
    query: Query,
    from_ms: int | None,
    to_ms: int | None,
    total: Total,
    *,
    after: str | None = None,
    entries_max: int | None = None,
) -> Course:
    """Ask `query` of all that waits and is due in [from_ms, to_ms), a page at a time.

    The answer's `next` is the cursor at which a further course begins, null at the end: there is one once
    `entries_max` entries were asked about.
    """
    left = entries_max
    # A message moved by a span may come again on a later page: such a change begins after the last one.
    found: Positions | None = None if query.get("by_ms") is None else {}
    while True:
        limit = PAGE_ENTRIES if left is None else min(left, PAGE_ENTRIES)
        asked = {"what": "waiting", "topic": query["topic"], "subscription": query["subscription"]}
        page = yield asked | {"from_ms": from_ms, "to_ms": to_ms, "after": after, "limit": limit}
        names = [one["message_id"] for one in page["entries"]]
        if names:
            positions = positions_of(enumerate(names, start=1), "the index")
            if found is None:
                yield from change_of(query, positions, total)
            else:
                unite(found, positions)
        after = page["next"]
        left = None if left is None else left - len(names)
        if after is None or left == 0:
            yield from change_of(query, found or {}, total)
            return total.answer() | {"next": after}


async def run(course: Course, ask: Callable[[Query], Awaitable[Answer]]) -> Answer:
    """Follow a course to its end. Raises what it and `ask` raise."""
    try:
        query = next(course)
        while True:
            query = course.send(await ask(query))
    except StopIteration as end:
        answer: Answer = end.value
        return answer


def run_blocking(course: Course, ask: Callable[[Query], Answer]) -> Answer:
    """As ``run``, for an `ask` that blocks."""
    try:
        query = next(course)
        while True:
            query = course.send(ask(query))
    except StopIteration as end:
        answer: Answer = end.value
        return answer


def _cut(positions: PositionSet) -> Iterator[PositionSet]:
    """Parts that fit into a query."""
    part: list[tuple[int, int]] = []
    for position in positions:
        part.append(position)
        if len(part) == POSITIONS_MAX:
            yield from _small(part)
            part = []
    if part:
        yield from _small(part)


def _small(part: list[tuple[int, int]]) -> Iterator[PositionSet]:
    made = PositionSet.of(part)
    if len(made.serialize()) <= _SET_BYTES_MAX:
        yield made
        return
    half = len(part) // 2
    yield from _small(part[:half])
    yield from _small(part[half:])
