"""The pace at which messages leave: set by the broker that serves the subscription, shown here.

Invariants:

- the broker keeps the setting, and reports the one in force; the daemon remembers none;
- a pace counts as set once the serving stream's broker has answered that it is in force and stored;
- if a stream ends, or a broker cannot store it yet, the request goes to the next one, for a while;
- an answer has the pace only from the last broker asked: else it is unknown;
- the answer has a partition's new pace even if the next one's broker cannot answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tidegate.index import Catalog, Clock, DelayIndex
from tidegate.plugin.daemon.ownership import Ownership
from tidegate.plugin.daemon.questions import Questions
from tidegate.plugin.daemon.selection import name_of, named
from tidegate.plugin.daemon.stream import Stream
from tidegate.plugin.errors import NotNowError, UserError
from tidegate.plugin.wire.messages import PACE_VERSION, Behind, Pace, Paced
from tidegate.plugin.wire.release_pace import PACE_AMOUNTS, PaceKind, ReleasePace

SCHEMA = 1
PATIENCE_S = 10.0  # of a request, for all its partitions
ANSWER_S = 1.0  # for a broker asked late
AGAIN_S = 0.1
COUNT_S = 1.0
BEHIND_MAX = 2**32 - 1
NS_PER_SECOND = 1_000_000_000
_NO_BROKER = "no broker serves it now: subscribe a consumer, and ask again"
_NO_ANSWER = "the broker has not answered: ask again"
_KINDS = {kind.name.lower(): kind for kind in PaceKind}


class Pacing:
    """The running requests for another pace. count_due: an index's number of due entries."""

    def __init__(
        self,
        catalog: Catalog,
        clock: Clock,
        ownership: Ownership,
        count_due: Callable[[DelayIndex], Awaitable[int]],
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._ownership = ownership
        self._count_due = count_due
        self._questions: Questions[Paced] = Questions()
        self._counting: dict[Stream, asyncio.Task[None]] = {}

    def stop(self) -> None:
        """Stop counting."""
        for task in self._counting.values():
            task.cancel()

    # ---- news from the broker

    def told(self, stream: Stream, seq: int, paced: Paced) -> None:
        """Note the pace in force at the broker."""
        stream.told_pace.tell(paced.pace, self._clock.now_ms())
        if paced.pace.kind == PaceKind.SPREAD and stream not in self._counting:
            task = asyncio.get_running_loop().create_task(self._tell_behind(stream))
            self._counting[stream] = task
            task.add_done_callback(lambda ended: self._count_no_more(stream, ended))
        # Another tracker of the subscription may have another pace.
        serves = self._ownership.get(stream.name) is stream and not stream.session.closing
        self._questions.answered(stream, seq, paced if serves else None)

    def ended(self, stream: Stream) -> None:
        """End an ended stream's questions."""
        if stream in self._counting:
            self._counting[stream].cancel()
        self._questions.ended(stream)

    def _count_no_more(self, stream: Stream, task: asyncio.Task[None] | None) -> None:
        if self._counting.get(stream) is task:
            del self._counting[stream]

    async def _tell_behind(self, stream: Stream) -> None:
        """Report to a broker that spreads a burst how much of it is still here, each second."""
        told = None  # the broker may know a former spread's number
        while stream.pace.kind == PaceKind.SPREAD:
            behind = 0
            if stream.answer_sent and stream.credit == 0 and self._ownership.get(stream.name) is stream:
                behind = await self._behind(stream.session.index)
            if behind != told:
                stream.send(Behind(min(behind, BEHIND_MAX)))
                told = behind
            await asyncio.sleep(COUNT_S)
        # At once: another spread may begin before a callback learns of the end, and would go uncounted.
        self._count_no_more(stream, asyncio.current_task())

    async def _behind(self, index: DelayIndex) -> int:
        """About how many due entries lack room at the broker, which has the earliest."""
        return max(0, await self._count_due(index) - index.stats().in_flight)

    # ---- requests

    async def pace(self, request: dict[str, object]) -> dict[str, Any]:
        """The query `pace`. Raises ``UserError``; paces set until then stay."""
        wanted = _wanted(request)
        until_ns = self._clock.monotonic_ns() + int(PATIENCE_S * NS_PER_SECOND)
        said: list[dict[str, Any]] = []
        for index in named(self._catalog, *name_of(request)):
            try:
                said.append(await self._of_index(index, wanted, until_ns))
            except NotNowError as error:
                if not said:
                    raise
                said.append(_named(index) | {"why": str(error)})
        return {
            "schema": SCHEMA,
            "done": all("why" not in one for one in said),
            "held_back": sum(one.get("held_back", 0) for one in said),
            "subscriptions": said,
        }

    async def _of_index(self, index: DelayIndex, wanted: ReleasePace | None, until_ns: int) -> dict[str, Any]:
        answer = _named(index)
        paced, why = await self._asked(index, wanted, until_ns)
        if paced is not None:
            waiting = 0
            if paced.pace.is_on:
                waiting = await self._behind(index)
            answer |= paced.pace.as_json() | {"held_back": paced.held_back + waiting}
        return answer | ({"why": why} if why else {})

    async def _asked(
        self, index: DelayIndex, wanted: ReleasePace | None, until_ns: int
    ) -> tuple[Paced | None, str]:
        """The broker's last answer, if any, and the reason why the pace is not the wanted one."""
        while True:
            paced, why = None, _NO_BROKER
            stream = self._ownership.get(index.name)
            if stream is not None and stream.answer_sent and not stream.session.closing:
                if stream.connection.version < PACE_VERSION:
                    raise NotNowError(
                        "the broker has a shim that knows no pace: restart it with this version's jar"
                    )
                question = Pace(wanted or ReleasePace(), ask=wanted is None)
                left_s = (until_ns - self._clock.monotonic_ns()) / NS_PER_SECOND
                paced = await self._questions.ask(stream, question, max(ANSWER_S, left_s))
                why = _NO_ANSWER if paced is None else paced.why
            if not why or self._clock.monotonic_ns() >= until_ns:
                return paced, why
            await asyncio.sleep(AGAIN_S)


def _named(index: DelayIndex) -> dict[str, Any]:
    return {"topic": index.name.topic, "subscription": index.name.subscription}


def _wanted(request: dict[str, object]) -> ReleasePace | None:
    """The pace to set; None for a question only. Raises ``UserError``."""
    kind, amount = request.get("kind"), request.get("amount", 0)
    if kind is None:
        return None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise UserError(f"kind must be one of {', '.join(_KINDS)}")
    least, most = PACE_AMOUNTS[_KINDS[kind]]
    if not isinstance(amount, int) or isinstance(amount, bool) or not least <= amount <= most:
        raise UserError(f"the amount of a pace of kind {kind} must be a whole number, {least} to {most}")
    return ReleasePace(_KINDS[kind], amount)
