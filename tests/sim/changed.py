"""The account of a client that cancels and moves messages of one subscription: requests and answers.

It judges by that alone: a message may come at its time, or at a requested one that got no other answer.
*Done* settles it, but for requests under way at the same time. An acknowledged message brought back by a
reset has its own time again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from tests.sim.kernel import Violation
from tests.sim.obligations import Obligations

Position = tuple[int, int]


@dataclass(eq=False)
class Request:
    """`at_ms`: the new time, None to cancel. `cancelled`: for certain, at the request. `beside`: times of
    other requests, under way at the same time. `acknowledged`, `resets`: how many there had been at the
    request.
    """

    positions: frozenset[Position]
    at_ms: int | None
    cancelled: frozenset[Position] = frozenset()
    beside: dict[Position, set[int]] = field(default_factory=dict)
    acknowledged: dict[Position, int] = field(default_factory=dict)
    resets: int = 0


@dataclass(slots=True)
class _Moved:
    """`base`, with the message's own if `own`: the times of which one holds, but for requests in `open`.
    `ever`: all requested. `acknowledged`, `resets`: of the request that settled it.
    """

    base: set[int] = field(default_factory=set)
    own: bool = True
    ever: set[int] = field(default_factory=set)
    open: list[Request] = field(default_factory=list)
    acknowledged: int = 0
    resets: int = 0


class Changed:
    """Of one subscription. `changed_ns`: time of the last request or answer."""

    def __init__(self, obligations: Obligations) -> None:
        self._obligations = obligations
        self._moved: dict[Position, _Moved] = {}
        self.changed_ns = 0
        self.no_room = 0  # how often a broker had no room for a cancellation
        self.answers: dict[str, int] = {}

    # ---- moves

    def asked(self, request: Request, now_ns: int) -> None:
        """A request: it may be in force before the answer."""
        self.changed_ns = now_ns
        is_cancelled = self._obligations.is_cancelled
        request.cancelled = frozenset(each for each in request.positions if is_cancelled(each))
        if request.at_ms is None:
            return
        request.resets = len(self._obligations.reset_to)
        for position in request.positions:
            request.acknowledged[position] = len(self._obligations.fates[position].acknowledged)
            moved = self._moved.setdefault(position, _Moved())
            beside = request.beside[position] = set()
            for other in moved.open:
                assert other.at_ms is not None
                beside.add(other.at_ms)
                other.beside[position].add(request.at_ms)
            moved.open.append(request)
            moved.ever.add(request.at_ms)

    def answered(self, request: Request, outcomes: dict[Position, str], now_ns: int) -> None:
        """The answer, by position. Raises Violation if it is wrong."""
        self.changed_ns = now_ns
        for position, outcome in outcomes.items():
            self.answers[outcome] = self.answers.get(outcome, 0) + 1
            self._require_right(request, position, outcome)
            if request.at_ms is None:
                self._cancel_answered(position, outcome)
            elif outcome != "undecided":
                self._move_answered(request, position, outcome)

    def _move_answered(self, request: Request, position: Position, outcome: str) -> None:
        moved = self._moved.get(position)
        if moved is None or request not in moved.open:
            return
        moved.open.remove(request)
        if outcome == "done":
            assert request.at_ms is not None
            moved.base, moved.own = {request.at_ms} | request.beside[position], False
            moved.acknowledged, moved.resets = request.acknowledged[position], request.resets
        elif outcome in {"too_late", "acknowledged"}:
            assert request.at_ms is not None
            moved.base.add(request.at_ms)  # a former owner may have moved it, without an answer

    def times_of(self, position: Position, own_ms: int) -> Collection[int]:
        """The times of which one holds."""
        moved = self._moved.get(position)
        if moved is None:
            return (own_ms,)
        times = moved.base | {each.at_ms for each in moved.open if each.at_ms is not None}
        fate = self._obligations.fates[position]
        acknowledged = len(fate.acknowledged) > moved.acknowledged
        is_done_with = acknowledged or self._obligations.was_skipped(position, moved.resets)
        if moved.own or (is_done_with and len(self._obligations.reset_to) > moved.resets):
            times.add(own_ms)  # perhaps a reset has brought it back
        return times

    def was_acknowledged(self, position: Position) -> bool:
        """True if it was acknowledged since its time was settled."""
        moved = self._moved.get(position)
        return moved is not None and len(self._obligations.fates[position].acknowledged) > moved.acknowledged

    def latest_ms(self) -> int:
        """The last time that anything was moved to; 0 without any."""
        return max((max(each.ever) for each in self._moved.values()), default=0)

    def forget(self) -> None:
        """Another life of the subscription, or an earlier state of Pulsar: any of the times may hold, and a
        request under way may still be executed.
        """
        for each in self._moved.values():
            each.base, each.own = set(each.ever), True

    # ---- cancellations

    def _cancel_answered(self, position: Position, outcome: str) -> None:
        if outcome == "done":
            self._obligations.cancelled(position)

    def _require_right(self, request: Request, position: Position, outcome: str) -> None:
        fate = self._obligations.fates.get(position)
        if fate is None:
            return  # Pulsar has gone back since
        if (
            outcome == "acknowledged"
            and not fate.acknowledged
            and not self._obligations.was_skipped(position)
        ):
            raise Violation(f"{position} is said to be acknowledged, and nobody has acknowledged it")
        was_cancelled = position in request.cancelled and self._obligations.is_cancelled(position)
        if was_cancelled and outcome not in {"acknowledged", "undecided"}:
            raise Violation(f"{position} is cancelled, and asked again the answer is {outcome}")
