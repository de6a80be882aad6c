"""A subscription's debts to its user: messages to deliver and acknowledge, and why one came twice.

Reads nothing of daemon and shim: it gets publications, resets, deliveries and acknowledgements, and judges. A
cursor's state has gone through a chain of resets (`CursorRecord.resets`); a message covered by the last of
them is owed since then, a skipped one is not. An acknowledgement counts for every chain without a later reset
of that message: so a crash that makes a cursor forget differs from a reset that takes back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from tests.sim.kernel import Violation

Position = tuple[int, int]
Chain = tuple[int, ...]


class Cause(StrEnum):
    """Why a message came again."""

    IN_FLIGHT = "in flight"
    RESET = "reset"
    RACED = "acknowledged while it was read again"
    UNPERSISTED = "unpersisted acknowledgement"
    HOLES = "ack holes beyond the limit"
    MOVED = "another daemon"
    DATA_LOST = "data of the daemon lost"
    DECIDED_ALONE = "the daemon did not answer in time"
    PLAIN = "no delivery time: Pulsar's own"
    OVERWRITTEN = "a zombie's cursor write"


class Cancel(StrEnum):
    """The progress of a cancellation."""

    DECIDED = "decided"
    DONE = "done"


@dataclass(slots=True)
class Acknowledged:
    """An acknowledgement sent by a consumer and taken by a broker; or, with `cancel`, a cancellation decided
    by a broker. `receipts`, `resets`: how many there had been by then.
    """

    chain: Chain
    raced: bool
    owner: object
    at_ns: int
    cancel: Cancel | None = None
    receipts: int = 0
    resets: int = 0


@dataclass(slots=True)
class _Fate:
    """One message's events."""

    published_ms: int
    receipts: int = 0
    unanswered: bool = False  # not acknowledged since it was last received
    acknowledged: list[Acknowledged] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Account:
    """The debts at some time. Resets are numbered for good and are no part."""

    fates: dict[Position, _Fate]
    recovered: list[tuple[frozenset[Position], Chain]]


class Cursor(Protocol):
    """The cursor at which a message comes. `forgotten`: acknowledgements lost by Pulsar."""

    resets: Chain
    forgotten: set[Position]


class Obligations:
    """The account of one subscription."""

    def __init__(self) -> None:
        self.fates: dict[Position, _Fate] = {}
        self.reset_to: dict[int, Position] = {}
        self.completed: set[int] = set()
        self.refused: set[int] = set()
        self.forgiven = 0
        self.pushed_out: set[Position] = set()  # from a cursor's record, by others
        self._has_cancelled = False
        self._recovered: list[tuple[frozenset[Position], Chain]] = []
        self.repeats: Counter[Cause] = Counter()
        self.deliveries = 0

    def account(self) -> Account:
        """The debts now, for a later return to them."""
        return Account(_copied(self.fates), list(self._recovered))

    def put_back(self, account: Account) -> None:
        """Nothing has happened since."""
        self.fates, self._recovered = _copied(account.fates), list(account.recovered)

    def published(self, position: Position, now_ms: int) -> None:
        """A message is in the topic."""
        self.fates[position] = _Fate(now_ms)

    def begin_reset(self, to: Position) -> int:
        """A reset is requested; its number, in the chain of each cursor that has gone through it."""
        number = len(self.reset_to) + 1
        self.reset_to[number] = to
        return number

    def complete_reset(self, number: int) -> None:
        """The requester was told that the reset is done. One that is not may have had any effect.

        The next owner may have loaded the topic by then: a broker that closed it amid the reset learns of the
        reset's record only after the closing one, and then reports it done.
        """
        self.completed.add(number)
        for positions, chain in self._recovered:
            if number in chain:
                self._forgive(positions, chain)

    def refuse_reset(self, number: int) -> None:
        """The requester was told that the reset is not done, by now for good."""
        self.refused.add(number)

    def loaded(self, chain: Chain) -> None:
        """A cursor is loaded that has gone through these resets."""
        done = self.refused.intersection(chain)
        if done:
            raise Violation(f"resets that were refused are done all the same: {sorted(done)}")

    def recovered(self, positions: frozenset[Position], chain: Chain) -> None:
        """A recovered cursor has these acknowledged, or had them past the limit of ranges when it was
        written. Pulsar lost those debts: the record of a reset, or of a topic closed amid one, still has the
        acknowledgements of before (see `cursor`).
        """
        self._recovered.append((positions, chain))
        self._forgive(positions, chain)

    def _forgive(self, positions: Iterable[Position], chain: Chain) -> None:
        for position in positions:
            if self.is_owed(position, chain):
                self.forgiven += 1
                self.fates[position].acknowledged.append(Acknowledged(chain, True, None, 0))

    # ---- what is owed

    def owed_since(self, position: Position, chain: Chain) -> int | None:
        """The reset since which the message is owed, 0 for its publishing, None if it was skipped."""
        for number in reversed(chain):
            if position < self.reset_to[number]:
                return None
            if number in self.completed:
                return number
        return 0

    def is_owed(self, position: Position, chain: Chain) -> bool:
        """True if the message has not been acknowledged since it is owed."""
        since = self.owed_since(position, chain)
        if since is None:
            return False
        return not any(since == 0 or since in one.chain for one in self.fates[position].acknowledged)

    def owed(self, chain: Chain) -> list[Position]:
        return [position for position in self.fates if self.is_owed(position, chain)]

    # ---- events

    def received(self, position: Position) -> None:
        fate = self.fates[position]
        self.deliveries += 1
        fate.receipts += 1
        fate.unanswered = True

    def acknowledge(
        self, position: Position, chain: Chain, *, raced: bool, owner: object, at_ns: int
    ) -> None:
        """A broker has taken a consumer's acknowledgement; `owner` is its cursor."""
        fate = self.fates[position]
        fate.unanswered = False
        fate.acknowledged.append(Acknowledged(chain, raced, owner, at_ns))

    def cleared(self, last: Position, chain: Chain, *, owner: object, at_ns: int) -> None:
        """The user has cleared the backlog: everything up to there need not come, and still may."""
        for position, fate in self.fates.items():
            if position <= last:
                fate.acknowledged.append(Acknowledged(chain, True, owner, at_ns))

    def decided(self, position: Position, chain: Chain, *, owner: object, at_ns: int) -> None:
        """A broker has decided that a message is cancelled: it need not come, and still may."""
        fate = self.fates[position]
        self.pushed_out.discard(position)
        fate.acknowledged.append(
            Acknowledged(chain, True, owner, at_ns, Cancel.DECIDED, fate.receipts, len(self.reset_to))
        )

    def cancelled(self, position: Position) -> None:
        """The requester was told so. Raises Violation if it has come since the decision."""
        fate = self.fates.get(position)
        last = None if fate is None else _last_cancel(fate)
        if fate is None or last is None:
            return  # Pulsar has gone back since
        if last.cancel is Cancel.DECIDED:
            last.cancel, last.raced = Cancel.DONE, False
            self._has_cancelled = True
        if fate.receipts > last.receipts and last is fate.acknowledged[-1] and not self._reset_since(last):
            raise Violation(f"{position} is cancelled, and came after that was decided")

    def is_cancelled(self, position: Position) -> bool:
        """True if that was answered, no reset was requested since, and Pulsar's record still has it."""
        last = _last_cancel(self.fates[position])
        if last is None or last.cancel is not Cancel.DONE or position in self.pushed_out:
            return False
        return not self._reset_since(last)

    def was_skipped(self, position: Position, since: int = 0) -> bool:
        """True if a reset after that one may have gone beyond it."""
        return any(position < to for number, to in self.reset_to.items() if number > since)

    def require_not_cancelled(self, position: Position, cursor: Cursor) -> None:
        """A message comes. Raises Violation if it was cancelled for good, and no reset brings it back."""
        if not self._has_cancelled:
            return
        last = _last_cancel(self.fates[position])
        if last is None or last.cancel is not Cancel.DONE:
            return
        excused = position in self.pushed_out or position in cursor.forgotten
        if not excused and all(number in last.chain for number in cursor.resets):
            raise Violation(f"{position} comes though it is cancelled (resets {cursor.resets})")

    def _reset_since(self, one: Acknowledged) -> bool:
        return len(self.reset_to) > one.resets

    def wrongly_deleted(self, position: Position, chain: Chain) -> None:
        """The shim deletes in the cursor a message not acknowledged since the last reset."""
        raise Violation(f"{position} is deleted in the cursor though it is owed (resets {chain})")

    def repeated(self, cause: Cause) -> None:
        """A message came again for this reason."""
        self.repeats[cause] += 1


def _last_cancel(fate: _Fate) -> Acknowledged | None:
    return next((each for each in reversed(fate.acknowledged) if each.cancel is not None), None)


def _copied(fates: dict[Position, _Fate]) -> dict[Position, _Fate]:
    return {
        at: replace(fate, acknowledged=[replace(each) for each in fate.acknowledged])
        for at, fate in fates.items()
    }
