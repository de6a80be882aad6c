"""The course of a change of many messages, as queries one after the other.

A course is a generator: it yields a QUERY (``docs/waiting.md``), takes the answer, and returns the sum, over
any transport: for the daemon's HTTP side, the commands and the clients. Invariants:

- every id is read and checked before the first query;
- a query has at most ``POSITIONS_MAX`` positions and fits into a frame;
- the answers of a course that ends early hold, and it can begin again.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from tidegate.index import PositionSet
from tidegate.plugin.api.known_form import known_form
from tidegate.plugin.errors import DaemonAwayError, UserError
from tidegate.plugin.shared.message_ids import message_id, parse_id

Query = dict[str, Any]
Answer = dict[str, Any]
AskedT = TypeVar("AskedT")
SaidT = TypeVar("SaidT")
T = TypeVar("T")
Asking = Generator[Query, Answer, T]
"""Yields a query, takes its answer, returns the result."""
Course = Asking[Answer]
Positions = dict[int | None, PositionSet]
OUTCOMES = ("done", "too_late", "acknowledged", "unknown", "undecided")
WHOLE_MAX = 512  # ids of one partition among which no chunk may lack the others: the broker reads all
POSITIONS_MAX = 10_000  # of one query: the broker checks each under a lock of the cursor
PARTITIONS_MAX = 1_000  # named in one query
NAMED_MAX = 1_000  # ids of one answer, by outcome
PAGE_ENTRIES = 5_000
FILTERS = ("key", "property")
"""Restrictions to messages of one content: the broker reads them."""
WHY_OVER = "one request takes no longer: ask again for these"
_SET_BYTES_MAX = 45_000  # in base64 a frame's worth
_BEGINNING = "0:0:0"
_MARK = "\ufeff"
Over = Callable[[], bool]
"""True once a course must end; it asks at least one query."""


def _never() -> bool:
    return False


@dataclass
class Total:
    """Counts and ids by outcome, over several answers."""

    dry_run: bool
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    ids: dict[str, list[str]] = field(default_factory=dict)
    why: str = ""
    """Why some are undecided."""
    stopped: bool = False
    """True if the course ended early, because nothing can be decided now."""

    def add(self, answer: Answer) -> None:
        """Add an answer. Raises ``UserError`` for another form."""
        with known_form():
            for name in OUTCOMES:
                self.counts[name] += int(answer[name])
            for name, named in answer["ids"].items():
                known = self.ids.setdefault(name, [])
                known += named[: max(0, NAMED_MAX - len(known))]
            self.why = answer.get("why", self.why)
            self.stopped = self.stopped or bool(answer.get("stopped"))

    def leave(self, partition: int | None, positions: PositionSet) -> None:
        """Count these as undecided."""
        self._leave(len(positions), (message_id(partition, *one) for one in positions))

    def leave_ids(self, ids: list[str]) -> None:
        """As ``leave``, for ids in text form."""
        self._leave(len(ids), ids)

    def _leave(self, count: int, ids: Iterable[str]) -> None:
        self.counts["undecided"] += count
        known = self.ids.setdefault("undecided", [])
        known += islice(ids, max(0, NAMED_MAX - len(known)))

    def stop(self, why: str) -> Answer:
        """The answer of a course that ends early."""
        self.why, self.stopped = why, True
        return self.answer()

    def answer(self) -> Answer:
        """The sum in the form of one answer."""
        why = {"why": self.why} if self.why else {}
        stopped = {"stopped": True} if self.stopped else {}
        return {"schema": 1, "dry_run": self.dry_run, **self.counts, "ids": self.ids} | why | stopped


def positions_of(lines: Iterable[tuple[int, str]], source: str) -> Positions:
    """The positions of ids by partition; `lines` are numbered for the error. Raises ``UserError``."""
    found: dict[int | None, dict[int, list[int]]] = {}
    for number, line in lines:
        text = line.strip().removeprefix(_MARK)  # as Windows begins a file
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


def check_span(query: Query, positions: Positions) -> None:
    """Raise ``UserError`` if two ids might add a span to one message."""
    if query.get("by_ms") is not None and None in positions and len(positions) > 1:
        raise UserError("by_ms: give all ids with their partition, or none; nothing was changed")


def change_of(query: Query, positions: Positions, total: Total, *, over: Over = _never) -> Course:
    """Ask `query` of all positions. `total` has the sum so far, also if it ends early.

    The first query names all partitions, so one outside the topic is refused before a change. Once `over`, or
    if a query fails after a change, the rest is undecided.
    """
    check_span(query, positions)
    if query["what"] != "cancel" and all(len(some) <= WHOLE_MAX for some in positions.values()):
        query = query | {"by_ids": True}
    yield from _ask_of(query, positions, total, over, set())
    return total.answer()


def _ask_of(
    query: Query, positions: Positions, total: Total, over: Over, stuck: set[int | None]
) -> Asking[bool]:
    """Ask `query` of all positions but those of `stuck` partitions, and add newly stuck ones there.

    They are undecided, as is the rest after a failure (then it returns False) or once `over`.
    """
    more = {"partitions": _partitions_text(positions)} if len(positions) > 1 else {}
    ended = failed = False
    for partition, some in positions.items():
        for part in _cut(some):
            if not ended and over() and any(total.counts.values()):
                ended, total.why = True, WHY_OVER
            if ended or partition in stuck:
                total.leave(partition, part)
                continue
            text = base64.b64encode(part.serialize()).decode("ascii")
            try:
                answer = yield query | more | {"partition": partition, "positions": text}
            except UserError as error:
                raise_unless_late(error, total)
                ended, failed, total.why = True, True, str(error)
                total.leave(partition, part)
                continue
            total.add(answer)
            if answer["undecided"] == len(part) and not answer.get("no_room"):
                stuck.add(partition)
            more = {}
    return not failed


def _partitions_text(partitions: Iterable[int | None]) -> str:
    """Partition numbers for a query, which has no lists; the first ones, as its length is bounded."""
    return ",".join(str(one) for one in sorted(one for one in partitions if one is not None)[:PARTITIONS_MAX])


def raise_unless_late(error: UserError, total: Total) -> None:
    """Raise an error, unless it follows a change that may be done and must be reported."""
    is_late = total.counts["done"] or total.counts["undecided"]
    if isinstance(error, DaemonAwayError) or not is_late:
        raise error


def change_of_due(
    query: Query,
    from_ms: int | None,
    to_ms: int | None,
    total: Total,
    *,
    now_ms: Callable[[], int],
    after: str | None = None,
    entries_max: int | None = None,
    over: Over = _never,
) -> Course:
    """Ask `query` of all waiting messages due in [from_ms, to_ms), a page at a time.

    A release skips due messages, a change to a time those that have it: neither meets its own. The answer's
    `next` is the cursor for a further course, once `entries_max` entries were read or it was `over`; null at
    the end. If nobody can decide about a page and no other partition has more, or a query fails after a
    change, the course is `stopped`, and `next` is before that page.
    """
    left = entries_max
    kept = {name: query[name] for name in FILTERS if query.get(name) is not None}
    query = {name: value for name, value in query.items() if name not in FILTERS}
    # A message moved by a span may come again on a later page: such a change begins after the last one.
    found: Positions | None = None if query.get("by_ms") is None else {}
    stuck: set[int | None] = set()
    while True:
        if query["what"] == "release":
            query = query | {"at_ms": max(now_ms(), query.get("at_ms", 0))}
            from_ms = max(query["at_ms"] + 1, from_ms or 0)
            if to_ms is not None and to_ms <= from_ms:
                return total.answer() | {"next": None}
        limit = PAGE_ENTRIES if left is None else min(left, PAGE_ENTRIES)
        asked = {"what": "waiting", "topic": query["topic"], "subscription": query["subscription"]}
        asked |= {"from_ms": from_ms, "to_ms": to_ms, **kept}
        try:
            page = yield asked | {"after": after, "limit": limit}
        except UserError as error:
            raise_unless_late(error, total)
            return total.stop(str(error)) | {"next": after or _BEGINNING}
        require_read(kept, page)
        entries = page["entries"]
        names = [one["message_id"] for one in entries if one["deliver_at_ms"] != query.get("at_ms")]
        if names:
            positions = positions_of(enumerate(names, start=1), "the index")
            if found is None:
                is_new = not stuck.issuperset(positions)
                well = yield from _ask_of(query, positions, total, over, stuck)
                may_end = is_new and stuck.issuperset(positions)
                if not well or (may_end and not (yield from _others_wait(asked, page["next"], stuck))):
                    return total.stop(total.why) | {"next": after or _before(entries[0])}
            else:
                unite(found, positions)
        after = page["next"]
        left = None if left is None else left - int(page.get("read", len(entries)))
        if after is None or (left is not None and left <= 0) or (found is None and over()):
            yield from _ask_of(query, found or {}, total, over, stuck)
            return total.answer() | {"next": after}


def require_read(kept: Query, page: Answer) -> None:
    """Require a page from a daemon that knows the filter. Raises ``UserError``."""
    if kept and "read" not in page:
        raise UserError(f"the daemon knows no {' and no '.join(kept)}: upgrade it; nothing was changed")


def _others_wait(asked: Query, after: str | None, stuck: set[int | None]) -> Generator[Query, Answer, bool]:
    """True if partitions other than the `stuck` ones have messages behind the cursor."""
    if after is None or None in stuck:
        return False
    page = yield asked | {"after": after, "limit": 1, "without": _partitions_text(stuck)}
    return bool(page["entries"] or page["next"])


def _before(entry: dict[str, Any]) -> str:
    return f"{max(0, int(entry['deliver_at_ms']) - 1)}:0:0"


async def run(course: Generator[AskedT, SaidT, T], ask: Callable[[AskedT], Awaitable[SaidT]]) -> T:
    """Follow a course to its end. Raises its errors, and those of `ask`."""
    try:
        query = next(course)
        while True:
            try:
                answer = await ask(query)
            except UserError as error:
                query = course.throw(error)
            else:
                query = course.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


def run_blocking(course: Generator[AskedT, SaidT, T], ask: Callable[[AskedT], SaidT]) -> T:
    """As ``run``, for an `ask` that blocks."""
    try:
        query = next(course)
        while True:
            try:
                answer = ask(query)
            except UserError as error:
                query = course.throw(error)
            else:
                query = course.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


def _cut(positions: PositionSet) -> Iterator[PositionSet]:
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
