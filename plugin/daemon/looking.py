"""Answers about waiting entries: the tide, the entries in due order, one entry.

Invariants:

- the loop takes an outline of an index, at a pointer a block, and never reads or counts;
- an answer is of one moment of each index; pages of several moments fit together;
- a long answer comes in pages.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any, TypeVar

import numpy as np

from tidegate.index import (
    FIRST_KEY,
    BlockAwayError,
    Borders,
    Catalog,
    Clock,
    CorruptBlockError,
    DelayIndex,
    Entries,
    EntryKey,
    Int64Array,
    Outline,
    Position,
    PositionSet,
    Tide,
    TidegateIndexError,
)
from tidegate.plugin.daemon.drain_rates import DrainRates
from tidegate.plugin.daemon.selection import (
    matching,
    message_id,
    name_of,
    named,
    of_namespace,
    of_partition,
    of_topic,
    parse_id,
    partition_of,
    partitions_of,
)
from tidegate.plugin.errors import NotNowError, UserError
from tidegate.plugin.telemetry.survey import in_turns

T = TypeVar("T")
SCHEMA = 1
LIMIT_MAX = 10_000  # entries of one answer, then of 0.5 MB
BUCKETS_MAX = 1_000
BUCKETS = 60  # unless a step is given
TOGETHER = 64  # small indexes: handing one to the thread takes longer than its tide
TRIES = 3  # a persist may replace blocks that are about to be read
_STEPS_S = (1, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 10_800, 21_600, 43_200, 86_400)
_WEEK_MS = 604_800_000
_PAGE_ENTRIES = 65_536
_TIME_MAX = (1 << 63) - 1


class Looking:
    """The answers about waiting entries. executor: reads blocks and counts; None: the caller's thread."""

    def __init__(
        self, catalog: Catalog, clock: Clock, executor: Executor | None, drain_rates: DrainRates
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._drain_rates = drain_rates
        self._executor = executor
        self._borders = Borders()

    # ---- tide

    async def tide(self, request: dict[str, object]) -> dict[str, Any]:
        """The query `tide`. Raises ``UserError``."""
        topic, subscription = name_of(request, optional=True)
        step_ms, span_ms = (_optional(request, key, 1) for key in ("step_ms", "span_ms"))
        now_ms = self._clock.now_ms()
        outlines: dict[DelayIndex, Outline] = {}
        away = 0
        async for index in in_turns(self._meant(request, topic, subscription)):
            try:
                outlines[index] = index.outline()
            except BlockAwayError:
                away += 1
        last_ms = await self._run(lambda: max((one.last_ms or 0 for one in outlines.values()), default=0))
        edges = edges_of(now_ms, last_ms, step_ms, span_ms)
        before = after = inexact = 0
        counts = np.zeros(len(edges) - 1, dtype=np.int64)
        async for tide in self._tides(list(outlines.items()), edges):
            before, after, inexact = before + tide.before, after + tide.after, inexact + tide.inexact
            counts += tide.counts
        bounds = edges.tolist()
        return {
            "schema": SCHEMA,
            "now_ms": now_ms,
            "subscriptions": len(outlines),
            "subscriptions_away": away,
            "entries": int(before + counts.sum() + after),
            "overdue": before,
            "buckets": [
                {"from_ms": start, "until_ms": stop, "entries": entries}
                for start, stop, entries in zip(bounds, bounds[1:], counts.tolist(), strict=False)
            ],
            "later": after,
            "inexact_entries": inexact,
            "drain_per_second": self._drain_rates.per_second(outlines),
        }

    def _meant(self, request: dict[str, object], topic: str, subscription: str) -> list[DelayIndex]:
        """The indexes of the query `tide`; with `exact` a ``*`` in a name is itself."""
        if (namespace := request.get("namespace")) is not None:
            return of_namespace(self._catalog, namespace)
        exact = request.get("exact", False)
        if not isinstance(exact, bool):
            raise UserError("exact must be true or false")
        if not exact:
            return matching(self._catalog, topic, subscription)
        if request.get("subscription") is None:
            return of_topic(self._catalog, topic)
        return named(self._catalog, topic, subscription)

    async def count_due(self, index: DelayIndex) -> int:
        """Held entries due now, handed out or not; 0 while the index cannot be read."""
        now_ms = self._clock.now_ms()
        try:
            return int((await self._tide(index, index.outline(), np.array([now_ms, now_ms + 1]))).before)
        except (BlockAwayError, UserError):
            return 0

    async def _tides(
        self, outlines: list[tuple[DelayIndex, Outline]], edges: Int64Array
    ) -> AsyncIterator[Tide]:
        """Each one's tide. Raises as ``_read``."""

        def counted(some: list[Outline]) -> list[Tide | None]:
            return [self._tide_or_none(one, edges) for one in some]

        for start in range(0, len(outlines), TOGETHER):
            some = outlines[start : start + TOGETHER]
            tides = await self._run(partial(counted, [one for _, one in some]))
            for (index, outline), tide in zip(some, tides, strict=True):
                yield await self._tide(index, outline, edges, self._borders) if tide is None else tide

    def _tide_or_none(self, outline: Outline, edges: Int64Array) -> Tide | None:
        try:
            return outline.tide(edges, self._borders)
        except TidegateIndexError:
            return None  # read once more, or reported by name

    async def _tide(
        self, index: DelayIndex, outline: Outline, edges: Int64Array, borders: Borders | None = None
    ) -> Tide:
        return await self._read(index, lambda one: one.tide(edges, borders), outline)

    async def _read(
        self, index: DelayIndex, read: Callable[[Outline], T], outline: Outline | None = None
    ) -> T:
        """The result of `read` on an outline, a new one if a persist has replaced its blocks."""
        for tries_left in reversed(range(TRIES)):
            try:
                return await self._run(partial(read, outline or index.outline()))
            except CorruptBlockError as error:
                outline = None
                if not tries_left:
                    raise UserError(f"the index of {index.name} cannot be read: {error}") from error
            except BlockAwayError as error:
                raise _away(index) from error
            except TidegateIndexError as error:
                raise UserError(f"the index of {index.name} cannot be read: {error}") from error
        raise AssertionError("the last try raises")

    async def _run(self, work: Callable[[], T]) -> T:
        if self._executor is None:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    # ---- entries

    async def entries(self, request: dict[str, object]) -> dict[str, Any]:
        """The query `waiting`: a page of held entries, in due order. Raises ``UserError``."""
        topic, subscription = name_of(request)
        from_ms = _optional(request, "from_ms", 0) or 0
        to_ms = _optional(request, "to_ms", 0)
        limit = _optional(request, "limit", 1) or 1_000
        if limit > LIMIT_MAX:
            raise UserError(f"limit is {LIMIT_MAX} at most: ask for the next page with after")
        if to_ms is not None and to_ms <= from_ms:
            raise UserError("to_ms must be later than from_ms")
        key = max(_cursor(request.get("after")), (from_ms, *FIRST_KEY[1:]))
        found: list[tuple[EntryKey, int | None]] = []
        more = False
        without = partitions_of(request, "without")
        for index in named(self._catalog, topic, subscription):
            if partition_of(index.name) in without:
                continue
            entries, left = await self._page(index, key, to_ms, limit)
            found += [(entry, partition_of(index.name)) for entry in entries]
            more = more or left
        found.sort()
        page = found[:limit]
        more = bool(page) and (more or len(found) > limit)
        return {
            "schema": SCHEMA,
            "entries": [
                {"message_id": message_id(partition, *entry[1:]), "deliver_at_ms": entry[0]}
                for entry, partition in page
            ],
            "next": cursor_text(page[-1][0]) if more else None,
        }

    async def _page(
        self, index: DelayIndex, key: EntryKey, to_ms: int | None, limit: int
    ) -> tuple[Entries, bool]:
        """Up to `limit` held entries after `key`, due before `to_ms`; and true if there may be more."""
        found = Entries.empty()
        size = limit
        while True:
            page = await self.page(index, key, size)
            entries = page.entries.take(index.state.held.contains(page.entries))
            over = to_ms is not None and len(page.entries) > 0 and page.entries.deliver_at_ms[-1] >= to_ms
            if over:
                entries = entries.take(entries.deliver_at_ms < to_ms)
            found = Entries.concat((found, entries))
            if len(found) > limit or (len(found) == limit and not over and page.last is not None):
                return found.part(0, limit), True
            if over or page.last is None:
                return found, False
            key, size = page.last, _PAGE_ENTRIES

    async def page(self, index: DelayIndex, key: EntryKey, limit: int) -> Any:
        """About `limit` entries after `key`, held or not. Raises ``UserError``."""
        for tries_left in reversed(range(TRIES)):
            try:
                reader = index.page_reader(with_moved=True)
                return await self._run(partial(reader.after, key, limit, strict=tries_left > 0))
            except CorruptBlockError:
                continue
            except BlockAwayError as error:
                raise _away(index) from error
            except TidegateIndexError as error:
                raise UserError(f"the index of {index.name} cannot be read: {error}") from error
        raise AssertionError("the last try leaves out unreadable blocks")

    # ---- some entries

    async def find_entries(self, index: DelayIndex, positions: PositionSet) -> Entries:
        """The held entries of these positions, with the times that hold. Raises ``UserError``."""
        return await self._read(index, lambda outline: outline.find(index.state.held_among(positions)))

    def find(self, request: dict[str, object]) -> tuple[list[DelayIndex], Position]:
        """The message in the query `show`, and the indexes that may know it. Raises ``UserError``.

        An id without its partition belongs to one of them: an index that holds it surely knows it.
        """
        topic, subscription = name_of(request)
        text = request.get("id")
        if not isinstance(text, str):
            raise UserError("show needs id, as in 17:4711")
        position, partition = parse_id(text)
        indexes = of_partition(named(self._catalog, topic, subscription), partition)
        only = PositionSet.of([position])
        return [one for one in indexes if one.state.held_among(only)] or indexes, position

    async def show(self, index: DelayIndex, position: Position) -> dict[str, Any]:
        """The query `show`: the index's knowledge of one message. Raises ``UserError``."""
        only = PositionSet.of([position])
        answer: dict[str, Any] = {
            "schema": SCHEMA,
            "topic": index.name.topic,
            "subscription": index.name.subscription,
            "message_id": message_id(partition_of(index.name), *position),
            "state": state_of(index, only),
        }
        if answer["state"] == "waiting":
            found = await self._read(index, lambda outline: outline.find(only))
            if len(found):
                answer["deliver_at_ms"] = int(found.deliver_at_ms[0])
            if only.intersection(index.state.moved.positions):
                own = await self._read(index, lambda outline: outline.find_own(only))
                if len(own):
                    answer["moved_from_ms"] = int(own.deliver_at_ms[0])
        return answer


def state_of(index: DelayIndex, only: PositionSet) -> str:
    """The state of one position, by the index alone."""
    if index.state.held_among(only):
        return "waiting"
    return "acknowledged" if index.state.acknowledged_among(only) else "unknown"


def edges_of(now_ms: int, last_ms: int, step_ms: int | None, span_ms: int | None) -> Int64Array:
    """The buckets' edges: the first moment that is not due yet, then whole steps, as slices have.

    last_ms: no entry is due later. Without a step there are about `BUCKETS` buckets at most. Raises
    ``UserError`` for too many buckets.
    """
    span = span_ms or max(1, last_ms + 1 - now_ms)
    if step_ms is None:
        wanted_ms = -(-span // BUCKETS)
        step_ms = next((one * 1_000 for one in _STEPS_S if one * 1_000 >= wanted_ms), 0)
        step_ms = step_ms or -(-wanted_ms // _WEEK_MS) * _WEEK_MS
    first = now_ms + 1
    border = (first // step_ms + 1) * step_ms
    count = max(0, -(-(now_ms + span - border) // step_ms)) + 1
    if count > BUCKETS_MAX and span_ms is not None:
        raise UserError(
            f"{count} buckets, at most {BUCKETS_MAX} are possible: give a longer step, or a shorter span"
        )
    count = min(count, BUCKETS_MAX)
    if border + count * step_ms > _TIME_MAX:
        if span_ms is not None:
            raise UserError("the span ends beyond the last possible time: give a shorter one")
        count = max(0, _TIME_MAX - border) // step_ms + 1  # a client may have a message wait for ever
    return np.array([first, *range(border, border + count * step_ms, step_ms)], dtype=np.int64)


def cursor_text(key: EntryKey) -> str:
    """A key as a page's cursor."""
    return ":".join(map(str, key))


def _cursor(value: object) -> EntryKey:
    if value is None:
        return FIRST_KEY
    parts = value.split(":") if isinstance(value, str) else []
    if len(parts) != len(FIRST_KEY) or not all(one.isascii() and one.isdigit() for one in parts):
        raise UserError("after is the cursor that ended the page before, as in 1760000000000:17:4711")
    deliver_at_ms, ledger_id, entry_id = (min(int(one[:19]), _TIME_MAX) for one in parts)
    return deliver_at_ms, ledger_id, entry_id


def _optional(request: dict[str, object], key: str, least: int) -> int | None:
    value = request.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _TIME_MAX:
        raise UserError(f"{key} must be a number, {least} or more")
    return value


def _away(index: DelayIndex) -> NotNowError:
    return NotNowError(f"the index of {index.name} is still being brought here from its log: try again soon")
