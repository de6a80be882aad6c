"""Knowledge from outside about one subscription in a daemon: for each position, its possible states.

A change with a known fate is certain; one that may have been lost with a connection, or with the daemon, is
not, and leaves both possibilities. Follows docs/protocol.md, rule 6.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from tidegate.index import PositionSet
from tidegate.plugin.daemon.session import Change
from tidegate.plugin.wire.messages import Ack, Add, Clear, Close, MarkDelete, Move, Open, Unack

Position = tuple[int, int]


@dataclass(frozen=True)
class Disowned:
    """A client that is no broker has had the index let go of these."""

    positions: frozenset[Position]


@dataclass(frozen=True, slots=True)
class Served:
    """The owner that an index served last: the life of the subscription, its epoch, its claim."""

    incarnation: bytes
    epoch: int
    claim: int


class Past(Enum):
    """An OPEN's view of an index's history."""

    SAME = auto()
    ANOTHER = auto()
    EITHER = auto()


Told = Change | Open | Disowned
HELD, ACKNOWLEDGED, NEITHER = 1, 2, 4
_NAMES = {HELD: "held", ACKNOWLEDGED: "acknowledged", NEITHER: "unknown to it"}
NOWHERE = (-1, -1)


def names(states: int) -> str:
    """The states in words."""
    return " or ".join(name for state, name in _NAMES.items() if states & state)


@dataclass
class Belief:
    """`states`: positions perhaps in another state than NEITHER. `served`: the possible last owners, None for
    nobody. The others: None if unknown.
    """

    states: dict[Position, int] = field(default_factory=dict)
    mark: Position | None = NOWHERE
    incarnation: bytes | None = None
    generation: int | None = 0
    served: frozenset[Served | None] = frozenset({None})

    def copy(self) -> Belief:
        return Belief(dict(self.states), self.mark, self.incarnation, self.generation, self.served)

    def of(self, position: Position) -> int:
        """The position's possible states."""
        return self.states.get(position, NEITHER)

    def fold(self, change: Told, generation: int, *, certain: bool) -> None:
        """The change was made, or may have been made, on a stream opened under this generation."""
        if isinstance(change, Ack | MarkDelete) and generation != self.generation:
            if self.generation is not None:
                return  # a newer stream has reported a reset of the cursor since
            certain = False
        if certain:
            self._make(change)
            return
        before = self.copy()
        self._make(change)
        self.join(before)

    def join(self, other: Belief) -> None:
        """The other one is just as possible."""
        for position in self.states.keys() | other.states.keys():
            self.states[position] = self.of(position) | other.of(position)
        self.served |= other.served
        self.mark = self.mark if self.mark == other.mark else None
        self.incarnation = self.incarnation if self.incarnation == other.incarnation else None
        self.generation = self.generation if self.generation == other.generation else None

    def outlast(self, former: Belief, request: Open, *, certain: bool) -> None:
        """It comes from a log, for this OPEN; `former`, the local data, adds its news, see `last_words`."""
        if former.incarnation not in {None, request.incarnation}:
            return
        certain = certain and former.incarnation is not None
        if self.states and (found := self._is_of_another(request)) is not False:
            if found and any(not states & NEITHER for states in self.states.values()):
                return  # it is emptied
            certain = False
        no_older = former._is_no_older_than(self)
        another = former._is_of_another(request)
        if another is not False:
            same = former._pasts(request) == {Past.SAME}
            self._doubt_acknowledged(certain=bool(certain and another and no_older and same))
            if another:
                return
            certain = False
        if no_older is False or not request.generation or former.generation not in {None, request.generation}:
            return
        told = former.copy()
        told._open(request)
        if certain and no_older and former.generation:
            sure = [
                PositionSet.of(each for each, states in told.states.items() if states == state)
                for state in (ACKNOWLEDGED, HELD)
            ]
            self._hear(sure[0], sure[1], former, request)
        perhaps = [
            PositionSet.of(each for each, states in told.states.items() if states & state)
            for state in (ACKNOWLEDGED, HELD)
        ]
        before = self.copy()
        self._hear(perhaps[0], perhaps[1], former, request)
        for position in perhaps[0].intersection(perhaps[1]):  # either, so perhaps forgotten
            self._set(position, self.of(position) | NEITHER)
        self.join(before)

    def stays_beside(self, log: Belief, request: Open) -> bool:
        """True if its claims show that it is surely of the cursor's history, and an earlier owner's log
        surely not: that would only be emptied.
        """
        if self.incarnation != request.incarnation or log.incarnation != request.incarnation:
            return False
        if any(None in each.served for each in (self, log)) or log._is_no_older_than(self) is not False:
            return False
        says_much = [any(not states & NEITHER for states in each.states.values()) for each in (self, log)]
        return all(says_much) and log._pasts(request) == {Past.ANOTHER} and not self._is_of_another(request)

    def _pasts(self, request: Open) -> set[Past]:
        """The history that the claims show, for each possible last owner."""
        if not request.claims:
            return {Past.SAME}
        owner = Served(request.incarnation, request.epoch, request.claims[-1])
        return {self._past(served, owner, request) for served in self.served}

    def _is_put_back(self, request: Open) -> bool | None:
        """True if the cursor is older than its own reports; None if unknown."""
        if not request.generation or request.mark_delete == NOWHERE:
            return False
        if self.generation not in {None, request.generation}:
            return False
        if self.generation is None or self.mark is None:
            return None
        return request.mark_delete < self.mark

    def _is_of_another(self, request: Open) -> bool | None:
        """True if its contents are of another history; None if unknown."""
        pasts = self._pasts(request)
        if pasts == {Past.ANOTHER}:
            return True
        put_back = self._is_put_back(request)
        return put_back if put_back or pasts == {Past.SAME} else None

    def _doubt_acknowledged(self, *, certain: bool) -> None:
        for position, states in list(self.states.items()):
            if certain:
                self._forget(position)
            elif states & ACKNOWLEDGED:
                self.states[position] = states | NEITHER

    def _is_no_older_than(self, log: Belief) -> bool | None:
        """True if the last owner served is the log's or a later one; None if unknown."""
        epochs = {0 if served is None else served.epoch for served in self.served}
        logged = {0 if served is None else served.epoch for served in log.served}
        if min(epochs) >= max(logged):
            return True
        return False if max(epochs) < min(logged) else None

    def _hear(self, acknowledged: PositionSet, held: PositionSet, former: Belief, request: Open) -> None:
        """With the owner comes the mark-delete position of that time."""
        self.served = former.served
        same = self.generation == former.generation == request.generation
        self._begin_generation(request.generation)
        if former.mark is None or self.mark is None:
            self.mark = None
            for position in self.states:
                self.states[position] |= NEITHER
        elif not same or former.mark > self.mark:
            self._mark_delete(former.mark)
        self._make(Unack(held))
        self._make(Ack(acknowledged))

    def _make(self, change: Told) -> None:
        match change:
            case Add() | Move():
                for _, ledger_id, entry_id in change.entries:
                    self._add((ledger_id, entry_id))
            case Ack():
                for position in change.positions:
                    above = self.mark is not None and position > self.mark
                    below = self.mark is not None and not above
                    self._set(
                        position, ACKNOWLEDGED if above else NEITHER if below else ACKNOWLEDGED | NEITHER
                    )
            case Unack():
                for position in change.positions:
                    self._forget(position)
            case MarkDelete():
                self._mark_delete(change.position)
            case Clear():
                self.states.clear()
            case Close():
                pass
            case Open():
                self._open(change)
            case Disowned():
                for position in change.positions:
                    states = self.of(position)
                    if states & HELD:
                        self._set(position, states & ~HELD | NEITHER)

    def _add(self, position: Position) -> None:
        if self.mark is not None and position <= self.mark:
            return
        states = self.of(position)
        if states & NEITHER:
            unsure = NEITHER if self.mark is None else 0
            self.states[position] = states & ~NEITHER | HELD | unsure

    def _forget(self, position: Position) -> None:
        states = self.of(position)
        if states & ACKNOWLEDGED:
            self._set(position, states & ~ACKNOWLEDGED | NEITHER)

    def _set(self, position: Position, states: int) -> None:
        if states == NEITHER:
            self.states.pop(position, None)
        else:
            self.states[position] = states

    def _mark_delete(self, mark: Position) -> None:
        if self.mark is None:
            for position, states in list(self.states.items()):
                if states & ACKNOWLEDGED:
                    self.states[position] = states | NEITHER
        elif mark < self.mark:
            for position in list(self.states):
                self._forget(position)
        for position in [each for each in self.states if each <= mark]:
            del self.states[position]
        self.mark = mark

    def _begin_generation(self, generation: int) -> None:
        for position in list(self.states):
            if generation and self.generation is None and self.of(position) & ACKNOWLEDGED:
                self.states[position] |= NEITHER
            elif generation != self.generation or not generation:
                self._forget(position)
        self.generation = generation

    def _open(self, request: Open) -> None:
        if self.incarnation is None and self.states:
            for position, states in list(self.states.items()):
                self.states[position] = states | NEITHER
        elif request.incarnation != self.incarnation:
            self.states.clear()
            self.mark = NOWHERE
        self.incarnation = request.incarnation
        self._empty_if_of_another_history(request)
        self._empty_if_put_back(request)
        self._begin_generation(request.generation)
        self._mark_delete(request.mark_delete)

    def _empty_if_of_another_history(self, request: Open) -> None:
        """Rule 18."""
        if not request.claims:
            return
        found = self._pasts(request)
        if found == {Past.ANOTHER}:
            self.states.clear()
        elif found != {Past.SAME}:
            for position, states in self.states.items():
                self.states[position] = states | NEITHER
        self.served = frozenset({Served(request.incarnation, request.epoch, request.claims[-1])})

    def _past(self, served: Served | None, owner: Served, request: Open) -> Past:
        if served is not None:
            if served.incarnation != owner.incarnation:
                return Past.SAME  # it is empty
            back = owner.epoch - served.epoch
            if not 0 <= back < len(request.claims) or request.claims[-1 - back] != served.claim:
                return Past.ANOTHER
        if served == owner or request.end == NOWHERE:
            return Past.SAME
        beyond = [states for position, states in self.states.items() if position > request.end]
        if not beyond:
            return Past.SAME
        return Past.EITHER if all(states & NEITHER for states in beyond) else Past.ANOTHER

    def _empty_if_put_back(self, request: Open) -> None:
        """For a cursor older than its own reports. A seek amid an unload can leave one behind, too."""
        found = self._is_put_back(request)
        if found:
            self.states.clear()
        elif found is None:
            for position, states in self.states.items():
                self.states[position] = states | NEITHER
