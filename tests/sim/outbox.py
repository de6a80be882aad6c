"""A tracker's changes for the daemon that are not durable there, in order, sent or not.

Invariant: a change leaves only at the daemon's DURABLE for it. Everything is sent again, from seq 1, on the
next stream. An add may go out after a later acknowledgement, never before an earlier change that takes
something back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from tidegate.index.entries.entry import Entries
from tidegate.index.state.positions import PositionSet
from tidegate.plugin.daemon.session import Change as ChangeMessage
from tidegate.plugin.wire.messages import Ack, Add, Clear, Close, MarkDelete, Move, Unack

Position = tuple[int, int]


class Kind(Enum):
    """The kind of a change."""

    ADD = auto()
    MOVE = auto()
    ACK = auto()
    UNACK = auto()
    MARK_DELETE = auto()
    CLEAR = auto()
    CLOSE = auto()


@dataclass(slots=True)
class Change:
    """One counted frame. `seq` is 0 until it is sent."""

    kind: Kind
    entries: dict[Position, int] = field(default_factory=dict)
    near: bool = False
    positions: set[Position] = field(default_factory=set)
    mark_delete: Position = (-1, -1)
    seq: int = 0

    def message(self) -> ChangeMessage:
        match self.kind:
            case Kind.ADD:
                return Add(Entries.of((at, *position) for position, at in self.entries.items()), self.near)
            case Kind.MOVE:
                moved = sorted((at, *position) for position, at in self.entries.items())
                return Move(Entries.of(moved), self.near)
            case Kind.ACK:
                return Ack(PositionSet.of(self.positions))
            case Kind.UNACK:
                return Unack(PositionSet.of(self.positions))
            case Kind.MARK_DELETE:
                return MarkDelete(self.mark_delete)
            case Kind.CLEAR:
                return Clear()
            case Kind.CLOSE:
                return Close()


class Outbox:
    """`pending`: changes that no open batch has, the sent ones first."""

    def __init__(self) -> None:
        self.pending: list[Change] = []
        self._far: dict[Position, int] = {}
        self._near: dict[Position, int] = {}
        self._moved: dict[Position, int] = {}
        self._moved_near: dict[Position, int] = {}
        self._sent = 0
        self._seq = 0

    @property
    def is_empty(self) -> bool:
        return not self.pending and not self._has_open

    @property
    def has_unsent(self) -> bool:
        return len(self.pending) > self._sent or self._has_open

    @property
    def _has_open(self) -> bool:
        return bool(self._far or self._near or self._moved or self._moved_near)

    @property
    def has_unsent_ack(self) -> bool:
        """True if an acknowledgement is still to be sent."""
        return any(change.kind is Kind.ACK and change.positions for change in self.pending[self._sent :])

    @property
    def pending_entries(self) -> int:
        """Entries that are not durable."""
        adds = sum(len(change.entries) for change in self.pending if change.kind is Kind.ADD)
        return adds + len(self._far) + len(self._near)

    def pending_adds(self) -> dict[Position, int]:
        """Due times of the entries that are not durable, by position."""
        found = {**self._far, **self._near}
        for change in self.pending:
            if change.kind is Kind.ADD:
                found.update(change.entries)
        return found

    # ---- changes

    def add(self, position: Position, deliver_at_ms: int, *, near: bool) -> None:
        (self._near if near else self._far)[position] = deliver_at_ms

    def move(self, position: Position, deliver_at_ms: int, *, here: bool) -> None:
        """A message is due at another time; `here`: this broker hands it out."""
        (self._moved_near if here else self._moved)[position] = deliver_at_ms

    def acknowledge(self, positions: set[Position]) -> None:
        """It joins the last unsent one, if nothing between takes something back."""
        if not positions:
            return
        for change in reversed(self.pending[self._sent :]):
            if change.kind is Kind.ACK:
                change.positions |= positions
                return
            if change.kind in (Kind.UNACK, Kind.CLEAR, Kind.CLOSE):
                break
        self._append(Change(Kind.ACK, positions=set(positions)))

    def unacknowledge(self, positions: set[Position]) -> None:
        self._close_adds()
        self._append(Change(Kind.UNACK, positions=set(positions)))

    def mark_delete(self, position: Position) -> None:
        """It replaces the last unsent one."""
        for change in self.pending[self._sent :]:
            if change.kind is Kind.ACK:
                change.positions = {each for each in change.positions if each > position}
        for at in reversed(range(self._sent, len(self.pending))):
            if self.pending[at].kind is Kind.MARK_DELETE:
                del self.pending[at]
                break
            if self.pending[at].kind in (Kind.CLEAR, Kind.CLOSE):
                break
        self._append(Change(Kind.MARK_DELETE, mark_delete=position))

    def _append(self, change: Change) -> None:
        """Nothing comes after CLOSE."""
        if len(self.pending) > self._sent and self.pending[-1].kind is Kind.CLOSE:
            self.pending.insert(-1, change)
        else:
            self.pending.append(change)

    def clear(self) -> None:
        """The mark-delete position is still to be sent."""
        self._far.clear()
        self._near.clear()
        self._moved.clear()
        self._moved_near.clear()
        unsent = self.pending[self._sent :]
        self.pending[self._sent :] = [change for change in unsent if change.kind is Kind.MARK_DELETE]
        self.pending.append(Change(Kind.CLEAR))

    def close(self) -> None:
        self._close_adds()
        self.pending.append(Change(Kind.CLOSE))

    def _close_adds(self) -> None:
        if self._far:
            self._append(Change(Kind.ADD, entries=self._far))
            self._far = {}
        if self._near:
            self._append(Change(Kind.ADD, entries=self._near, near=True))
            self._near = {}
        if self._moved:
            self._append(Change(Kind.MOVE, entries=self._moved))
            self._moved = {}
        if self._moved_near:
            self._append(Change(Kind.MOVE, entries=self._moved_near, near=True))
            self._moved_near = {}

    # ---- the stream's life

    def drop_acknowledgements(self) -> None:
        """Forget the acknowledgements: they were true of a seal that the cursor has lost."""
        before = self.pending[: self._sent]
        self._sent = sum(change.kind is not Kind.ACK for change in before)
        self.pending = [change for change in self.pending if change.kind is not Kind.ACK]

    def opened(self, in_flight: set[Position], *, finished: bool) -> None:
        """The stream opens anew, and its OPEN has the mark-delete position: older ones go. All moves follow
        its answer. A CLOSE for reopening has had its effect, a finished tracker's comes last. An add is near
        only as long as its position is in flight.
        """
        self._close_adds()
        changes, self.pending = self.pending, []
        for change in changes:
            if change.kind is Kind.ADD and change.near:
                here = {each: at for each, at in change.entries.items() if each in in_flight}
                gone = {each: at for each, at in change.entries.items() if each not in in_flight}
                if gone:
                    self.pending.append(Change(Kind.ADD, entries=gone))
                if here:
                    self.pending.append(Change(Kind.ADD, entries=here, near=True))
            elif change.kind is Kind.ACK:
                self.acknowledge(change.positions)
            elif change.kind not in (Kind.MARK_DELETE, Kind.CLOSE, Kind.MOVE):
                self.pending.append(change)
        if finished:
            self.pending.append(Change(Kind.CLOSE))

    def take_close(self) -> list[Change]:
        """A CLOSE that goes out before the unsent changes, which wait for the stream's next opening."""
        self._seq += 1
        close = Change(Kind.CLOSE, seq=self._seq)
        self.pending.insert(self._sent, close)
        self._sent += 1
        return [close]

    def take_unsent(self) -> list[Change]:
        """Everything not sent on this stream, numbered."""
        self._close_adds()
        self.pending[self._sent :] = [
            change for change in self.pending[self._sent :] if change.kind is not Kind.ACK or change.positions
        ]
        changes = self.pending[self._sent :]
        for change in changes:
            self._seq += 1
            change.seq = self._seq
        self._sent = len(self.pending)
        return changes

    def durable(self, seq: int) -> None:
        """The daemon has everything up to `seq` on disk."""
        count = sum(1 for change in self.pending[: self._sent] if change.seq <= seq)
        del self.pending[:count]
        self._sent -= count

    def restart(self) -> None:
        """The stream is gone: everything goes out again."""
        self._seq = self._sent = 0
        for change in self.pending:
            change.seq = 0

    def gate_here(self) -> Iterator[tuple[Position, int]]:
        """Entries that only the broker can gate now; they are near from now on."""
        self._close_adds()
        for change in self.pending:
            if change.kind is Kind.ADD and not change.near:
                change.near = True
                yield from change.entries.items()
            elif change.kind is Kind.MOVE:
                yield from change.entries.items()

    def adopt(self, other: Outbox) -> None:
        """Another tracker's remaining changes come first. Its near tier is gone. Revocations are dropped:
        another owner may have reported acknowledgements since.
        """
        other._close_adds()
        other.restart()
        taken_back = Kind.UNACK, Kind.CLEAR, Kind.CLOSE, Kind.MOVE  # the stored overrides have its moves
        left = [change for change in other.pending if change.kind not in taken_back]
        for change in left:
            change.near = False
        other.pending = []
        self.pending[:0] = left

    def apply_pending_to(self, held: set[Position], acknowledged: set[Position]) -> None:
        """Correct the daemon's held positions by changes still unknown to it."""
        for change in self.pending:
            if change.kind is Kind.ACK:
                held -= change.positions
                acknowledged |= change.positions
            elif change.kind is Kind.UNACK:
                acknowledged -= change.positions
            elif change.kind is Kind.MARK_DELETE:
                for each in (held, acknowledged):
                    each -= {position for position in each if position <= change.mark_delete}
            elif change.kind is Kind.CLEAR:
                held.clear()
                acknowledged.clear()
