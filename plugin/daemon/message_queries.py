"""The requests about waiting messages: count, list, show, cancel, reschedule, release and pace.

Invariants: the audit log has a change before its answer is sent, also one whose end is unknown; a wrong
request changes nothing and is in no log.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import TYPE_CHECKING, Any

from tidegate.index import Catalog, Clock, DelayIndex, Position, PositionSet, TidegateIndexError
from tidegate.plugin.api.changes import OUTCOMES
from tidegate.plugin.daemon.audit_log import IDS_MAX, UNFINISHED, AuditLog
from tidegate.plugin.daemon.cancelling import Cancelling, with_state
from tidegate.plugin.daemon.looking import Looking
from tidegate.plugin.daemon.pacing import Pacing
from tidegate.plugin.daemon.peeking import PAGE_MAX, Peeking, sought_of
from tidegate.plugin.daemon.rescheduling import Rescheduling
from tidegate.plugin.daemon.selection import name_of, named, of_partition, partition_of, partitions_of
from tidegate.plugin.errors import NotNowError, UserError
from tidegate.plugin.shared.message_ids import message_id
from tidegate.plugin.shared.topics import full_topic

if TYPE_CHECKING:
    import structlog

SHOW_PATIENCE_S = 10.0  # for the brokers of all partitions to which an id may belong
NS_PER_SECOND = 1_000_000_000


class MessageQueries:
    """Answers them, each by the part that knows."""

    def __init__(
        self,
        catalog: Catalog,
        clock: Clock,
        *,
        looking: Looking,
        peeking: Peeking,
        cancelling: Cancelling,
        rescheduling: Rescheduling,
        pacing: Pacing,
        audit_log: AuditLog,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._looking = looking
        self._peeking = peeking
        self._cancelling = cancelling
        self._rescheduling = rescheduling
        self._pacing = pacing
        self._audit_log = audit_log
        self._log = log

    async def answer(self, request: dict[str, object], peer: str | None = None) -> dict[str, Any]:
        """The answer to a request. Raises ``UserError``.

        peer: the process that asks, where known.
        """
        match request.get("what"):
            case "tide":
                return await self._looking.tide(request)
            case "waiting":
                return await self._waiting(request)
            case "show":
                return await self._show(request)
            case _:
                return await self._answer_change(request, peer)

    async def _answer_change(self, request: dict[str, object], peer: str | None) -> dict[str, Any]:
        match request.get("what"):
            case "cancel":
                return await self._change(request, peer, self._cancelling.change, "cancelled")
            case "reschedule":
                return await self._change(request, peer, self._rescheduling.reschedule, "rescheduled")
            case "release":
                return await self._change(request, peer, self._rescheduling.release, "released")
            case "pace":
                return await self._pace(request, peer)
            case what:
                raise UserError(f"unknown query {what!r}")

    async def _waiting(self, request: dict[str, object]) -> dict[str, Any]:
        sought = sought_of(request)
        if sought is None:
            return await self._looking.entries(request)
        limit = request.get("limit")
        bounded = min(limit, PAGE_MAX) if isinstance(limit, int) else PAGE_MAX
        indexes = named(self._catalog, *name_of(request))  # as in the page: one may vanish meanwhile
        page = await self._looking.entries(request | {"limit": bounded})
        return await self._peeking.select(indexes, sought, page)

    async def _show(self, request: dict[str, object]) -> dict[str, Any]:
        indexes, position = self._looking.find(request)
        unknown: dict[str, Any] = {}
        until_ns = self._clock.monotonic_ns() + int(SHOW_PATIENCE_S * NS_PER_SECOND)
        for index in indexes:
            if unknown and self._clock.monotonic_ns() >= until_ns:
                raise NotNowError("the brokers of its partitions are slow: give the id with its partition")
            answer = await self._shown(index, position)
            if answer["state"] != "unknown":
                contents = request.get("content") is not False
                return answer | (await self._peeking.content(index, position) if contents else {})
            unknown = unknown or answer
        return unknown

    async def _shown(self, index: DelayIndex, position: Position) -> dict[str, Any]:
        known = await self._looking.show(index, position)
        states = await self._cancelling.states(index, PositionSet.of([position]))
        return with_state(known, states)

    async def _change(
        self,
        request: dict[str, object],
        peer: str | None,
        change: Callable[[dict[str, object]], Awaitable[dict[str, Any]]],
        done: str,
    ) -> dict[str, Any]:
        """The result of a change, once the audit log has it. A wrong request is no change."""
        self._check_partitions(request)
        try:
            answer = await change(request)
        except BaseException as error:
            if request.get("dry_run") is not True:
                await self._unfinished(request, _first_ids(request), error, peer)
            if isinstance(error, NotNowError) and request.get("by_ms") is not None:
                error.may_repeat = False
            raise
        said = {name: answer[name] for name in OUTCOMES}
        self._log.info(f"messages {done}", topic=_topic(request), dry_run=answer["dry_run"], **said)
        if not answer["dry_run"]:
            await self._audit_log.write(request, _first_ids(request), answer, peer)
        return answer

    async def _unfinished(
        self, request: dict[str, object], ids: list[str], error: BaseException, peer: str | None
    ) -> None:
        """Record a change with an unknown end in the audit log; without waiting if this task ends."""
        if isinstance(error, UserError) and not isinstance(error, NotNowError):
            return  # The request was wrong: that shows before a broker is asked.
        known = {"outcome": UNFINISHED, "error": _reason(error)}
        if isinstance(error, Exception):
            await self._audit_log.write(request, ids, known, peer)
        else:
            self._audit_log.write_now(request, ids, known, peer)

    def _check_partitions(self, request: dict[str, object]) -> None:
        """Require all partitions that further requests will name to be of the topic. Raises ``UserError``."""
        partitions = partitions_of(request, "partitions")
        indexes = named(self._catalog, *name_of(request)) if partitions else []
        # A thousand partitions may be named of a topic with as many, and all others wait for this.
        for one in sorted(partitions - {partition_of(index.name) for index in indexes}):
            of_partition(indexes, one)

    async def _pace(self, request: dict[str, object], peer: str | None) -> dict[str, Any]:
        try:
            answer = await self._pacing.pace(request)
        except BaseException as error:
            if "kind" in request:
                await self._unfinished(request, [], error, peer)
            raise
        if "kind" in request:
            asked = {name: request.get(name) for name in ("subscription", "kind", "amount")}
            self._log.info("pace of release set", done=answer["done"], topic=_topic(request), **asked)
            await self._audit_log.write(request, [], answer, peer)
        return answer


def _topic(request: dict[str, object]) -> str:
    """The full name of the topic in a correct request."""
    return full_topic(name_of(request)[0])


def _reason(error: BaseException) -> str:
    if isinstance(error, UserError):
        return str(error)
    if not isinstance(error, Exception):
        return "the daemon stopped before the end was known"
    return f"a bug in the daemon, its log has more: {error!r}"


def _first_ids(request: dict[str, object]) -> list[str]:
    """Some ids of the messages in a correct request."""
    text, partition = request.get("positions"), request.get("partition")
    if not isinstance(text, str) or not isinstance(partition, int | None):
        return []
    try:
        positions = PositionSet.deserialize(base64.b64decode(text))
    except (TidegateIndexError, ValueError, IndexError):
        return []
    return [message_id(partition, *one) for one in islice(positions, IDS_MAX)]
