"""A model of the shim's `Overrides` and `OverrideLog`: the times that hold for moved messages, and their
ledger (docs/decisions/overrides.md).

An override is moving from the decision until it is stored, live then until its message is acknowledged, and
leaving until the stored ones lack it, too. One write is under way at a time; changes meanwhile share the next
one. An owner's first change writes a new ledger, and then the pointer to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from tests.sim.override_ledgers import Entry, OverrideLedger

Position = tuple[int, int]
Times = dict[Position, int]

_FIRST_PAUSE_MS = 100
_MAX_PAUSE_MS = 10_000
_TIDY_MS = 1_000
_SLACK_RECORDS = 1_000
_MAX_CONFLICTS = 4


class Stored(Enum):
    """The fate of a change."""

    YES = auto()
    NO = auto()
    PERHAPS = auto()


class Pointed(Enum):
    """The outcome of changing the pointer; IN_DOUBT: it may have been written."""

    DONE = auto()
    REFUSED = auto()
    IN_DOUBT = auto()


class OverrideHost(Protocol):
    """The ledgers of a subscription's overrides, and the pointer among the cursor's properties."""

    def overrides_pointer(self) -> str: ...
    def may_store_overrides(self) -> bool: ...
    def create_overrides(self, answer: Callable[[OverrideLedger | None], None]) -> None: ...
    def append_override(
        self, ledger: OverrideLedger, entry: Entry, answer: Callable[[OverrideLedger | None], None]
    ) -> None: ...
    def read_overrides(
        self,
        ledger_id: int,
        answer: Callable[[OverrideLedger | None], None],
        gone: Callable[[OverrideLedger | None], None],
    ) -> None: ...
    def point_overrides(self, pointer: str, answer: Callable[[Pointed], None]) -> None: ...
    def delete_overrides(self, ledger_id: int) -> None: ...
    def reopen_topic(self) -> None: ...
    def now_ms(self) -> int: ...
    def uptime_ms(self) -> int: ...
    def is_deleted(self, position: Position) -> bool: ...
    def mark_delete(self) -> Position: ...
    def persisted_mark_delete(self) -> Position: ...
    def read_more(self) -> None: ...


def ledgers_of(pointer: str) -> list[int]:
    """The ledgers named by a pointer, the present one first."""
    return [int(each) for each in pointer.removeprefix("1;").split(",") if each]


class Overrides:
    """Positions, and the times that hold for them. `undone`: did not move after all, until read again.
    `returned`: brought back by a reset. `taken`: absent from the stored ones when written; None for one that
    came back.
    """

    def __init__(self) -> None:
        self.moving: Times = {}
        self.live: Times = {}
        self.leaving: Times = {}
        self.undone: set[Position] = set()
        self.returned: set[Position] = set()
        self.taken: dict[Position, int | None] = {}

    @property
    def is_empty(self) -> bool:
        """True if nothing needs to be stored."""
        return not (self.moving or self.live or self.leaving)

    def everything(self) -> Times:
        """Everything to be stored; of a position the last one."""
        return {**self.leaving, **self.live, **self.moving}

    def settle(self, position: Position, at_ms: int) -> bool:
        """It is stored: True if it is live now."""
        if self.moving.get(position) != at_ms:
            return False
        del self.moving[position]
        self.leaving.pop(position, None)
        self.live[position] = at_ms
        return True

    def undo(self, position: Position, at_ms: int) -> bool:
        """It is surely not stored: True if it no longer moves."""
        if self.moving.get(position) != at_ms:
            return False
        del self.moving[position]
        self.undone.add(position)
        return True

    def leave(self, position: Position) -> None:
        """Its message is acknowledged."""
        found = [each.pop(position) for each in (self.live, self.moving) if position in each]
        if found:
            self.leaving[position] = max(found)

    def stay(self, position: Position) -> None:
        """Its message is not acknowledged after all."""
        if position in self.leaving:
            self.live[position] = self.leaving.pop(position)

    def come_back(self, position: Position) -> None:
        """A reset has brought its message back: its own time counts."""
        if self.leaving.pop(position, None) is not None:
            self.returned.add(position)
        elif position in self.taken:
            self.taken[position] = None

    def is_leaving(self, position: Position) -> bool:
        """True if its message is known acknowledged, and the stored ones may have it."""
        return position in self.leaving or self.taken.get(position) is not None

    def leave_up_to(self, mark_delete: Position) -> None:
        """Everything up to there is acknowledged."""
        for each in [one for one in self.live if one <= mark_delete]:
            self.leaving[each] = self.live.pop(each)
        self.undone = {each for each in self.undone if each > mark_delete}
        self.leave_moving_up_to(mark_delete)

    def leave_moving_up_to(self, mark_delete: Position) -> None:
        """As `leave_up_to`, of moving ones."""
        for each in [one for one in self.moving if one <= mark_delete]:
            self.leaving[each] = self.moving.pop(each)

    def take_returned(self) -> set[Position]:
        """Take those that came back."""
        taken, self.returned = self.returned, set()
        self.taken |= dict.fromkeys(taken)
        return taken

    def take_left(self, now_ms: int, persisted: Position) -> set[Position]:
        """Take leaving ones that no crash brings back before their times."""
        left = {each for each, at_ms in self.leaving.items() if at_ms <= now_ms or each <= persisted}
        for each in left:
            self.taken[each] = self.leaving.pop(each)
        return left

    def untake(self) -> None:
        """The stored ones may have those taken."""
        for position, at_ms in self.taken.items():
            if at_ms is None:
                self.returned.add(position)
            else:
                self.leaving.setdefault(position, at_ms)
        self.taken.clear()


@dataclass(slots=True)
class _Change:
    records: Times
    done: Callable[[Stored], None]


class OverrideLog:
    """`owned`: whether the subscription is claimed. `on_stored` takes stored records, `on_undone` those that
    surely are not; `on_ready`: the stored ones were read.
    """

    def __init__(
        self,
        host: OverrideHost,
        overrides: Overrides,
        owned: Callable[[], bool],
        on_stored: Callable[[Times], None],
        on_undone: Callable[[Iterable[Position]], None],
        on_ready: Callable[[], None],
    ) -> None:
        self._host = host
        self._overrides = overrides
        self._owned = owned
        self._on_stored = on_stored
        self._on_undone = on_undone
        self._on_ready = on_ready
        self.ready = not host.overrides_pointer()
        self._reading = False
        self._ledger: OverrideLedger | None = None
        self._appended = 0
        self._former: list[int] = []
        self._writing = False
        self.uncertain = False
        self._ended = False
        self._queue: list[_Change] = []
        self._failures = 0
        self._conflicts = 0
        self._again_ms = 0
        self._tidied_ms = -_TIDY_MS

    # ---- reading

    def read(self) -> None:
        """Read the stored overrides, if due."""
        host = self._host
        if self.ready or self._reading or self._ended or not self._owned():
            return
        if host.uptime_ms() < self._again_ms:
            return
        self._reading = True
        self._read_first(ledgers_of(host.overrides_pointer()))

    def _read_first(self, ledgers: list[int]) -> None:
        if not ledgers:
            self._on_read([])
            return
        self._host.read_overrides(
            ledgers[0],
            lambda ledger: self._on_read(None if ledger is None else ledger.entries),
            lambda _: self._read_first(ledgers[1:]),
        )

    def _on_read(self, entries: list[Entry] | None) -> None:
        self._reading = False
        if entries is None:
            self._fail()
            return
        self._failures = 0
        self._former = ledgers_of(self._host.overrides_pointer())
        stored: Times = {}
        for entry in entries:
            for position in entry.left:
                stored.pop(position, None)
            stored.update(entry.moved)
        overrides = self._overrides
        overrides.live, overrides.leaving, overrides.returned = stored, {}, set()
        for position in [each for each in stored if self._host.is_deleted(each)]:
            overrides.leave(position)
        self.ready = True
        self._on_ready()

    def _fail(self) -> None:
        self._again_ms = self._host.uptime_ms() + min(
            _MAX_PAUSE_MS, _FIRST_PAUSE_MS << min(self._failures, 10)
        )
        self._failures += 1

    # ---- writing

    @property
    def takes(self) -> bool:
        """True if a change may come now."""
        return (
            self.ready
            and not (self.uncertain or self._ended)
            and self._host.uptime_ms() >= self._again_ms
            and self._host.may_store_overrides()
        )

    @property
    def is_busy(self) -> bool:
        """True if `look` should come soon."""
        return not self.ready or self.uncertain

    def store(self, records: Times, done: Callable[[Stored], None]) -> None:
        """Store the records, which move."""
        self._queue.append(_Change(records, done))
        self._write(tidies=False)

    def look(self) -> None:
        """Once a second have acknowledged messages forgotten; retry failures."""
        self.read()
        now_ms = self._host.uptime_ms()
        tidies = self.ready and now_ms - self._tidied_ms >= _TIDY_MS
        if tidies:
            self._tidied_ms = now_ms
            self._overrides.leave_up_to(self._host.mark_delete())
        self._write(tidies=tidies)

    def end(self) -> None:
        """No write begins any more."""
        self._ended = True
        self._write(tidies=False)

    def _write(self, *, tidies: bool) -> None:
        if self._ended:
            given, self._queue = self._queue, []
            for change in given:
                change.done(Stored.NO)
            return
        if self._writing or not self.ready:
            return
        overrides, host = self._overrides, self._host
        again = self.uncertain and host.uptime_ms() >= self._again_ms
        if self.uncertain and not again:
            return
        left: set[Position] = set()
        if tidies and host.may_store_overrides():
            left = overrides.take_left(host.now_ms(), host.persisted_mark_delete())
        if not (again or self._queue or left or (tidies and overrides.returned)):
            return
        left |= overrides.take_returned()  # a message that came back may be among the changes
        changes, self._queue = self._queue, []
        records: Times = {}
        for change in changes:
            records.update(change.records)
        self._writing = True
        full = self._appended > 2 * len(overrides.live) + _SLACK_RECORDS
        if self._ledger is None or full:
            self._rewrite(changes, dict(overrides.moving) if again else records)
        elif not records and overrides.is_empty:
            self._rewrite(changes, records)
        else:
            self._appended += len(records)
            self._append(changes, records, left)

    def _append(self, changes: list[_Change], records: Times, left: set[Position]) -> None:
        assert self._ledger is not None

        def appended(ledger: OverrideLedger | None) -> None:
            if ledger is not None:
                self._stored(records)
            else:
                self._in_doubt()
            self._end_write(changes, Stored.PERHAPS if ledger is None else Stored.YES)

        self._host.append_override(self._ledger, Entry(records, frozenset(left)), appended)

    def _rewrite(self, changes: list[_Change], records: Times) -> None:
        host, everything = self._host, self._overrides.everything()
        if not everything:
            if not self._former and not host.overrides_pointer():
                self._on_pointed(Pointed.DONE, None, 0, changes, records)
            else:
                host.point_overrides("", lambda how: self._on_pointed(how, None, 0, changes, records))
            return

        def created(ledger: OverrideLedger | None) -> None:
            if ledger is None:
                failed(None)
            else:
                host.append_override(
                    ledger, Entry(everything), lambda done: failed(ledger) if done is None else point(ledger)
                )

        def failed(ledger: OverrideLedger | None) -> None:
            self._undone(records)
            if ledger is not None:
                host.delete_overrides(ledger.ledger_id)
            self._end_write(changes, Stored.PERHAPS if self.uncertain else Stored.NO)

        def point(ledger: OverrideLedger) -> None:
            if self._ended:  # a successor may read the ledger that the pointer names
                host.delete_overrides(ledger.ledger_id)
                self._end_write(changes, Stored.PERHAPS)
                return
            after = "1;" + ",".join(map(str, [ledger.ledger_id, *self._former]))
            count = len(everything)
            host.point_overrides(after, lambda how: self._on_pointed(how, ledger, count, changes, records))

        host.create_overrides(created)

    def _on_pointed(
        self,
        how: Pointed,
        ledger: OverrideLedger | None,
        count: int,
        changes: list[_Change],
        records: Times,
    ) -> None:
        host, over, stale = self._host, list[int](), False
        new = [] if ledger is None else [ledger.ledger_id]
        if how is Pointed.IN_DOUBT:
            self._in_doubt()
            self._former += new
            self._conflicts += 1
            stale, fate = self._conflicts >= _MAX_CONFLICTS, Stored.PERHAPS
        elif how is Pointed.DONE:
            self._ledger, self._appended = ledger, count
            over, self._former = self._former, new
            self._stored(records)
            fate = Stored.PERHAPS if self._ended else Stored.YES
        else:
            fate = Stored.PERHAPS if self.uncertain else Stored.NO
            self._undone(records)
            self._conflicts += 1
            stale, over = self._conflicts >= _MAX_CONFLICTS, new
        for each in over:
            host.delete_overrides(each)
        if stale:
            host.reopen_topic()
        self._end_write(changes, fate)

    def _stored(self, records: Times) -> None:
        self._failures = self._conflicts = 0
        self.uncertain = False
        self._overrides.taken.clear()
        self._on_stored(records)

    def _in_doubt(self) -> None:
        self._ledger = None
        self.uncertain = True
        self._overrides.untake()
        self._fail()

    def _undone(self, records: Times) -> None:
        self._fail()
        self._overrides.untake()
        if not self.uncertain:
            self._undo(records)

    def _undo(self, records: Times) -> None:
        self._on_undone([each for each, at_ms in records.items() if self._overrides.undo(each, at_ms)])

    def _end_write(self, changes: list[_Change], fate: Stored) -> None:
        self._writing = False
        given: list[_Change] = []
        if self.uncertain or not self.ready:
            given, self._queue = self._queue, []
            for change in given:
                self._undo(change.records)
        for change in changes:
            change.done(fate)
        for change in given:
            change.done(Stored.NO)
        self._write(tidies=False)
        if fate is not Stored.YES:
            self._host.read_more()
