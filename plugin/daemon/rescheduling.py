"""Messages moved to another time, or released: due at once.

Invariants: a span is added to the time that holds when the request comes, once, however often the broker is
asked; no clock, set back or not, makes a released message wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from tidegate.index import Catalog, Clock, DelayIndex, Entries, Position, PositionSet, sort_entries
from tidegate.plugin.api.changes import WHOLE_MAX
from tidegate.plugin.daemon.broker_changes import PATIENCE_S, BrokerChanges, Outcome, Owner
from tidegate.plugin.daemon.committer import Committer
from tidegate.plugin.daemon.index_logs.index_logs import IndexLogs
from tidegate.plugin.daemon.ownership import Ownership
from tidegate.plugin.daemon.peeking import Chunk
from tidegate.plugin.daemon.selection import message_id, name_of, named, partition_of, whole_topic
from tidegate.plugin.daemon.span_turns import SpanTurns
from tidegate.plugin.daemon.stream import Stream
from tidegate.plugin.errors import NotNowError, UserError
from tidegate.plugin.shared.moments import AT_MS_MAX, AT_ONCE_MS, checked_ms
from tidegate.plugin.wire.messages import RESCHEDULE_VERSION, Reschedule

Find = Callable[[DelayIndex, PositionSet], Awaitable[Entries]]
"""The entries of positions in an index, with the times that hold."""
Chunks = Callable[[DelayIndex, PositionSet], Awaitable[dict[Position, Chunk]]]
"""The messages that are chunks of larger ones, as far as known."""
WHY_SPAN = "a span may be added, and is added again if asked again: see each message's time first"
WHY_WHOLE = (
    "and a consumer throws away a message of which a chunk comes without the others: give the ids of all, "
    "which are due at the same time, or choose by key, property or due; nothing was changed"
)
WHY_OTHERS = "other changes of its messages' times are under way: ask again, nothing was changed"
WHY_NOT_READ = "the broker has a message that the index does not have yet: ask again"


class Rescheduling(BrokerChanges[Entries]):
    """The moves that are under way. find, chunks: see ``Find`` and ``Chunks``."""

    WHAT = "reschedule"
    VERSION = RESCHEDULE_VERSION
    ACKNOWLEDGES = False
    WHY_UNSTORED = "perhaps moved, but Pulsar has not stored it: ask again"
    WHY_NO_ROOM = "not moved, the subscription has too many moved messages: ask again when some are due"

    def __init__(
        self,
        catalog: Catalog,
        clock: Clock,
        ownership: Ownership,
        owner: Owner,
        *,
        committer: Committer,
        logs: IndexLogs | None,
        find: Find,
        chunks: Chunks,
    ) -> None:
        super().__init__(catalog, clock, ownership, owner, committer=committer, logs=logs)
        self._find = find
        self._chunks = chunks
        self._turns: WeakValueDictionary[tuple[str, str], SpanTurns] = WeakValueDictionary()

    async def reschedule(self, request: dict[str, object]) -> dict[str, Any]:
        """The query `reschedule`, with `at_ms` or `by_ms`. Raises ``UserError``."""
        at_ms, by_ms = _number(request, "at_ms"), _number(request, "by_ms")
        if (at_ms is None) == (by_ms is None):
            raise UserError("reschedule needs at_ms or by_ms, one of them")
        if at_ms is not None:
            _check_at(at_ms)
        elif abs(by_ms or 0) > AT_MS_MAX:
            raise UserError("by_ms: no message can wait so long")
        answer = await self.change(request)
        if by_ms is not None and answer["undecided"] and not answer["dry_run"]:
            answer["why"] = f"{answer['why']}; {WHY_SPAN}"
        return answer

    async def release(self, request: dict[str, object]) -> dict[str, Any]:
        """The query `release`: due at once, whatever `at_ms`. Raises ``UserError``."""
        at_ms = _number(request, "at_ms")
        if at_ms is not None:
            _check_at(at_ms)
        return await self.change({**request, "at_ms": AT_ONCE_MS, "by_ms": None})

    async def change(self, request: dict[str, object]) -> dict[str, Any]:
        """See ``BrokerChanges``. A span waits for the changes before it, and others wait for it."""
        first = named(self._catalog, *name_of(request))[0].name
        turns = self._turns.setdefault((whole_topic(first.topic), first.subscription), SpanTurns())
        try:
            async with asyncio.timeout(PATIENCE_S):
                await turns.begin(alone=request.get("by_ms") is not None and not request.get("dry_run"))
        except TimeoutError:
            raise NotNowError(WHY_OTHERS) from None
        try:
            return await super().change(request)
        finally:
            turns.end()

    async def _prepare(
        self, indexes: list[DelayIndex], request: dict[str, object], positions: PositionSet
    ) -> list[Entries]:
        at_ms, by_ms = _number(request, "at_ms"), _number(request, "by_ms") or 0
        if request.get("by_ids") is True and len(positions) <= WHOLE_MAX:
            for index in indexes:
                # One partition has the ledger of an id. An index has not heard of the newest messages yet.
                some = positions if len(indexes) == 1 else index.state.held_among(positions)
                await self._require_whole(index, some)
        if at_ms is not None:
            return [Entries.of((at_ms, *one) for one in positions)] * len(indexes)
        now_ms = self._clock.now_ms()
        return [_later(await self._find(index, positions), by_ms, now_ms) for index in indexes]

    async def _require_whole(self, index: DelayIndex, positions: PositionSet) -> None:
        """Raise ``UserError`` if the positions have some chunks of a message, but not all."""
        if not positions:
            return
        given: dict[str, set[int]] = {}
        chunks = await self._chunks(index, positions)
        for one in chunks.values():
            given.setdefault(one.uuid, set()).add(one.number)
        for position, one in sorted(chunks.items()):
            if len(given[one.uuid]) < one.count:
                name = message_id(partition_of(index.name), *position)
                raise UserError(f"{name} is chunk {one.number + 1} of {one.count} of a message, {WHY_WHOLE}")

    async def _askable(
        self,
        index: DelayIndex,
        positions: PositionSet,
        wanted: Entries,
        outcome: Outcome,
        patience_s: float,
    ) -> PositionSet:
        there = PositionSet.of_entries(wanted).intersection(positions)
        await self._of_missing(index, positions.difference(there), outcome, patience_s)
        return there

    async def _of_missing(
        self, index: DelayIndex, missing: PositionSet, outcome: Outcome, patience_s: float
    ) -> None:
        """The outcome of positions without times in the index."""
        if not missing:
            return
        wanted = Entries.of((0, *one) for one in missing)
        known = await self._of_index(index, missing, wanted, dry_run=True, patience_s=patience_s)
        outcome.too_late, outcome.acknowledged = known.too_late, known.acknowledged
        outcome.unknown, outcome.undecided, outcome.why = known.unknown, known.undecided, known.why
        if known.done:
            outcome.undecided.update(known.done)
            outcome.why = WHY_NOT_READ

    def _message(self, positions: PositionSet, wanted: Entries, *, ask: bool) -> Reschedule:
        return Reschedule(sort_entries(wanted.take(positions.contains(wanted))), ask=ask)

    def _learn(self, stream: Stream, positions: PositionSet, wanted: Entries) -> int | None:
        return self._owner.moved(stream, wanted.take(positions.contains(wanted)))


def _later(found: Entries, by_ms: int, now_ms: int) -> Entries:
    """Entries, moved by a span: for a released one it begins now. Raises ``UserError``."""
    times_ms = np.where(found.deliver_at_ms == AT_ONCE_MS, now_ms, found.deliver_at_ms)
    if len(found) and int(times_ms.max()) > AT_MS_MAX - by_ms:  # the sum could be a time long past
        raise UserError("by_ms: no message can wait so long, nothing was changed")
    return Entries(np.maximum(times_ms + by_ms, 0), found.ledger_id, found.entry_id)


def _check_at(at_ms: int) -> None:
    try:
        checked_ms(at_ms)
    except ValueError as error:
        raise UserError(f"at_ms: {error}") from None


def _number(request: dict[str, object], key: str) -> int | None:
    value = request.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise UserError(f"{key} must be a whole number of milliseconds")
    return value
