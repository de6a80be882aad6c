"""Changes of waiting messages decided by the broker, and durable before their answer.

The broker decides, because it may hand a message out at any moment. ``Cancelling`` and ``Rescheduling`` have
the question, and the index's part of the answer. Invariants:

- ``done`` is answered once Pulsar has stored the change, so that the next owner has it without a daemon, and
  journal and index log (if any) have it, too;
- a stream that ends, or a broker that cannot decide or store yet, leaves its share to the next one: earlier
  answers still count, see ``answered``;
- once a broker has, or may have, changed a part, the answer has counts: a failure leaves the rest undecided;
- without a broker of the subscription nothing is decided.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from tidegate.index import Catalog, Clock, DelayIndex, Entries, PositionSet, StorageError, TidegateIndexError
from tidegate.plugin.api.changes import NAMED_MAX, OUTCOMES, POSITIONS_MAX
from tidegate.plugin.daemon.committer import Committer
from tidegate.plugin.daemon.index_logs.index_logs import IndexLogs
from tidegate.plugin.daemon.ownership import Ownership
from tidegate.plugin.daemon.questions import Questions
from tidegate.plugin.daemon.selection import message_id, name_of, named, of_partition, partition_of
from tidegate.plugin.daemon.stream import Stream
from tidegate.plugin.daemon.told import told
from tidegate.plugin.errors import NotNowError, UserError
from tidegate.plugin.wire.messages import Decided, Message, Standing

SCHEMA = 1
PATIENCE_S = 10.0
LOOK_PATIENCE_S = 1.0  # for a caller that only asks
AGAIN_FIRST_S = 0.005
AGAIN_S = 0.1
LOG_AGAIN_S = 0.02
WHY_UNDECIDED = (
    "the broker cannot decide now, as amid a reset or before its cursor was stored: "
    "see that a consumer is connected, and ask again"
)
WHY_STORE_FAILING = "the store is failing, nothing can be made durable: try again later"
NS_PER_SECOND = 1_000_000_000
WantedT = TypeVar("WantedT")
"""The requested change besides the positions: a new time, or none."""


class Owner(Protocol):
    """The engine's part in these changes."""

    @property
    def storage_failing(self) -> bool:
        """True while nothing can be made durable."""
        ...

    def acknowledge_cancelled(self, stream: Stream, positions: PositionSet) -> int | None:
        """Note that the broker has cancelled these; returns that change's token.

        None if the index does not believe this stream, or met a bug, which has ended the stream.
        """
        ...

    def moved(self, stream: Stream, entries: Entries) -> int | None:
        """Note that the broker has moved these; a token as of ``acknowledge_cancelled``."""
        ...


@dataclass
class Outcome:
    """Positions by outcome."""

    done: PositionSet = field(default_factory=PositionSet)
    too_late: PositionSet = field(default_factory=PositionSet)
    acknowledged: PositionSet = field(default_factory=PositionSet)
    unknown: PositionSet = field(default_factory=PositionSet)
    undecided: PositionSet = field(default_factory=PositionSet)
    why: str = ""
    """Why some are undecided."""
    no_room: bool = False
    """True if this is why: the broker has decided."""
    store_failed: bool = False
    """True if this is why: the broker has decided, and the journal does not know."""


class BrokerChanges(ABC, Generic[WantedT]):
    """The running changes of one kind."""

    WHAT: ClassVar[str]
    VERSION: ClassVar[int]
    """The first version of the protocol that asks a broker."""
    ACKNOWLEDGES: ClassVar[bool]
    """True if the broker acknowledges changed messages when asked once more."""
    WHY_UNSTORED: ClassVar[str]
    WHY_NO_ROOM: ClassVar[str]

    def __init__(
        self,
        catalog: Catalog,
        clock: Clock,
        ownership: Ownership,
        owner: Owner,
        *,
        committer: Committer,
        logs: IndexLogs | None,
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._ownership = ownership
        self._owner = owner
        self._committer = committer
        self._logs = logs
        self.questions: Questions[Decided] = Questions()

    # ---- differences of the kinds

    @abstractmethod
    async def _prepare(
        self, indexes: list[DelayIndex], request: dict[str, object], positions: PositionSet
    ) -> list[WantedT]:
        """The requested change of the positions of each index; asks no broker. Raises ``UserError``."""
        ...

    async def _askable(
        self,
        index: DelayIndex,  # noqa: ARG002
        positions: PositionSet,
        wanted: WantedT,  # noqa: ARG002
        outcome: Outcome,  # noqa: ARG002
        patience_s: float,  # noqa: ARG002
    ) -> PositionSet:
        """The positions to ask the broker about; `outcome` gets the others. Raises ``UserError``."""
        return positions

    @abstractmethod
    def _message(self, positions: PositionSet, wanted: WantedT, *, ask: bool) -> Message:
        """The request to the broker."""
        ...

    @abstractmethod
    def _learn(self, stream: Stream, positions: PositionSet, wanted: WantedT) -> int | None:
        """Note changed positions in the index; returns the token that covers them.

        None if the index does not believe this stream, or the stream has failed over it.
        """
        ...

    # ---- requests

    async def change(self, request: dict[str, object]) -> dict[str, Any]:
        """Answer the query. Raises ``UserError``; a failure after a change leaves the rest undecided."""
        positions, partition = _positions(request), request.get("partition")
        if partition is not None and (not isinstance(partition, int) or partition < 0):
            raise UserError("partition must be a number, 0 or more")
        dry_run = request.get("dry_run", False)
        if not isinstance(dry_run, bool):
            raise UserError("dry_run must be true or false")
        indexes = of_partition(named(self._catalog, *name_of(request)), partition)
        # Those without a broker last, such as ended segments: they leave their share undecided.
        indexes.sort(
            key=lambda index: (
                self._ownership.get(index.name) is None,
                not index.state.held_among(positions),
            )
        )
        answer: dict[str, Any] = {"schema": SCHEMA, "dry_run": dry_run} | dict.fromkeys(OUTCOMES, 0)
        ids: dict[str, list[str]] = {}
        left = positions
        wanted = await self._prepare(indexes, request, positions)
        until_ns = self._until_ns(PATIENCE_S)
        for at, index in enumerate(indexes):
            is_last = at == len(indexes) - 1
            try:
                if self._owner.storage_failing and not dry_run:
                    raise NotNowError(WHY_STORE_FAILING)
                outcome = await self._of_request(index, left, wanted[at], dry_run=dry_run, until_ns=until_ns)
            except UserError as error:
                if not answer["done"] and not answer["undecided"]:
                    raise
                outcome = Outcome(undecided=left, why=str(error))
            left = PositionSet() if is_last else outcome.unknown
            if not is_last:
                outcome.unknown = PositionSet()
            for name in OUTCOMES:
                found: PositionSet = getattr(outcome, name)
                answer[name] += len(found)
                if name != "done" and found:
                    shown = ids.setdefault(name, [])
                    of = partition_of(index.name)
                    room = NAMED_MAX - len(shown)
                    shown += [message_id(of, *one) for one in list(found)[: max(0, room)]]
            if outcome.why:
                answer["why"] = outcome.why
            if outcome.no_room:
                answer["no_room"] = True
            if not left:
                break
        return answer | {"ids": ids}

    async def _of_request(
        self,
        index: DelayIndex,
        positions: PositionSet,
        wanted: WantedT,
        *,
        dry_run: bool,
        until_ns: int,
    ) -> Outcome:
        outcome = Outcome()
        asked = await self._askable(index, positions, wanted, outcome, self._left_s(until_ns))
        patience_s = self._left_s(until_ns)
        return await self._of_index(
            index, asked, wanted, dry_run=dry_run, patience_s=patience_s, outcome=outcome
        )

    def _until_ns(self, patience_s: float) -> int:
        return self._clock.monotonic_ns() + int(patience_s * NS_PER_SECOND)

    def _left_s(self, until_ns: int) -> float:
        return max(0.0, (until_ns - self._clock.monotonic_ns()) / NS_PER_SECOND)

    async def _of_index(
        self,
        index: DelayIndex,
        positions: PositionSet,
        wanted: WantedT,
        *,
        dry_run: bool,
        patience_s: float,
        outcome: Outcome | None = None,
    ) -> Outcome:
        outcome, left = outcome or Outcome(), positions
        before, why = outcome.undecided, outcome.why
        answered = PositionSet()  # changed by a former answer, perhaps not durably
        was_asked = False
        until_ns = self._until_ns(patience_s)
        pause_s = AGAIN_FIRST_S
        while left:
            stream = self._ownership.get(index.name)
            said = None
            if stream is None or not stream.answer_sent or stream.session.closing:
                outcome.why = f"no broker serves {index.name} now: subscribe a consumer, and ask again"
            elif stream.connection.version < self.VERSION:
                outcome.why = (
                    f"the broker has a shim that cannot {self.WHAT}: restart it with this version's jar"
                )
                if not was_asked:
                    raise NotNowError(outcome.why)
                break
            else:
                was_asked = True
                outcome.why = WHY_UNDECIDED
                message = self._message(left, wanted, ask=dry_run)
                said = await self.questions.ask(stream, message, max(patience_s, LOOK_PATIENCE_S))
            if said is not None and stream is not None and said.standing != Standing.UNDECIDED:
                left = left.difference(
                    await self._take(stream, said, left, wanted, answered, outcome, dry_run=dry_run)
                )
                if left and said.standing == Standing.NO_ROOM:
                    outcome.no_room = True
                    break
                if left and outcome.store_failed:
                    break
            if left:
                if self._clock.monotonic_ns() >= until_ns:
                    break
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, AGAIN_S)
        if not left:
            outcome.why = why
        outcome.undecided = left
        outcome.undecided.update(before)
        return outcome

    async def _take(  # noqa: PLR0917 all of one answer
        self,
        stream: Stream,
        said: Decided,
        asked: PositionSet,
        wanted: WantedT,
        answered: PositionSet,
        outcome: Outcome,
        *,
        dry_run: bool,
    ) -> PositionSet:
        """Note the broker's answer; returns the decided positions."""
        changed = said.changed.intersection(asked)
        acknowledged = said.acknowledged.intersection(asked)
        too_late = said.too_late.intersection(asked)
        done = changed.snapshot()
        if self.ACKNOWLEDGES:
            done.update(acknowledged.intersection(answered))
        decided = asked.snapshot()
        lasts = dry_run
        if not dry_run:
            answered.update(changed)
            outcome.why = self.WHY_NO_ROOM if said.standing == Standing.NO_ROOM else self.WHY_UNSTORED
            if said.standing == Standing.SETTLED:
                try:
                    lasts = await self._made_durable(stream, done, wanted)
                except StorageError as error:
                    outcome.store_failed = True
                    outcome.why = f"the store fails, a crash may undo what was changed: {error}"
        if lasts:
            outcome.done.update(done)
        else:
            decided.difference_update(done)
        if lasts or said.standing == Standing.SETTLED:
            outcome.acknowledged.update(acknowledged.difference(done))
        else:
            decided.difference_update(acknowledged)
        outcome.too_late.update(too_late)
        known = changed
        for one in (acknowledged, too_late):
            known.update(one)
        # A next owner that has not read them yet does not know them; perhaps they are changed.
        decided.difference_update(answered.difference(known))
        outcome.unknown.update(decided.difference(known))
        return decided

    async def _made_durable(self, stream: Stream, positions: PositionSet, wanted: WantedT) -> bool:
        """Note the broker's changes in the index; true if they are durable, and in the log.

        Raises ``StorageError`` if the store fails.
        """
        if not positions:
            return True
        if self._ownership.get(stream.name) is not stream:
            return False
        token = self._learn(stream, positions, wanted)
        if token is None:
            return False
        await self._durable(token)
        return await self._in_log(stream, self._clock.monotonic_ns())

    async def _durable(self, token: int) -> None:
        error = await told(partial(self._committer.after, token))
        if error is not None:
            raise error

    async def _in_log(self, stream: Stream, durable_ns: int) -> bool:
        """True once the index log, for the next owner, has everything durable at `durable_ns`."""
        logs = self._logs
        if logs is None:
            return self._ownership.get(stream.name) is stream
        shipped: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def then() -> None:
            if not shipped.done():
                shipped.set_result(None)

        logs.after_last_words(stream, then)
        await shipped
        until_ns = durable_ns + int(PATIENCE_S * NS_PER_SECOND)
        while not logs.is_logged(stream, durable_ns):
            if self._ownership.get(stream.name) is not stream or self._clock.monotonic_ns() >= until_ns:
                return False
            await asyncio.sleep(LOG_AGAIN_S)
        return self._ownership.get(stream.name) is stream


def _positions(request: dict[str, object]) -> PositionSet:
    text = request.get("positions")
    if not isinstance(text, str):
        raise UserError("a change needs positions, a set in base64")
    try:
        positions = PositionSet.deserialize(base64.b64decode(text, validate=True))
    except (binascii.Error, TidegateIndexError, ValueError, IndexError) as error:
        raise UserError(f"positions must be a set in base64: {error}") from error
    if not 0 < len(positions) <= POSITIONS_MAX:
        raise UserError(f"{len(positions)} positions, and 1 to {POSITIONS_MAX} can be in one request")
    return positions
