"""A model of the shim's tracker: the client's half of docs/protocol.md, as docs/shim.md describes it.

Small, for reading beside those pages; no port of the Java core, which runs the golden histories by itself.
States of a position: undecided, held, near, handed out, sought, asked for, moving, settling, reported,
doubtful. Invariants: a position is contained in all but the last two; nothing is handed out before the
broker's clock has passed its deliver_at; changes without DURABLE are kept and sent again.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

from tests.sim.kernel import Violation
from tests.sim.outbox import Change, Kind, Outbox
from tests.sim.overrides import OverrideHost, OverrideLog, Overrides, Stored, Times
from tests.sim.seal import NO_SEAL, Claim, ClaimHost, Owner, Seal, SealHost
from tests.sim.stored_deletions import Kept
from tidegate.index.state.positions import PositionSet
from tidegate.plugin.wire.messages import (
    Cancel,
    Cancelled,
    Due,
    Held,
    Open,
    Pace,
    Paced,
    Reschedule,
    Rescheduled,
    Standing,
    Unheld,
)
from tidegate.plugin.wire.payload_reader import CLAIMS_MAX
from tidegate.plugin.wire.release_pace import PaceKind, ReleasePace

if TYPE_CHECKING:
    from tests.sim.log_home import LogHome

Position = tuple[int, int]

_ANSWER_WAIT_MS = 1_000
_RESTORE_WAIT_MS = 5_000
RULES_WAIT_MS = 5_000
FIRST_WAIT_MS = 1_000
_MARK_DELETE_INTERVAL_MS = 1_000
_RETRY_MS = 1_000
_CLOSE_POLL_MS = 2_000
_DELETE_CHUNK = 100


@dataclass(frozen=True, slots=True)
class ShimOptions:
    """The keys of broker.conf that matter here (docs/shim.md)."""

    horizon_ms: int = 2_000
    credit: int = 20_000
    near_max: int = 200_000
    pending_max: int = 1_000_000
    ack_poll_ms: int = 50
    daemon_wait_ms: int = 10_000
    claims_max: int = CLAIMS_MAX


class Stream(Enum):
    """The state of the stream to the daemon."""

    UNOPENED = auto()
    OPENING = auto()
    OPEN = auto()
    CLOSING = auto()


@dataclass(slots=True)
class _Standings:
    """Positions to cancel or move, by state. One in no set does not wait."""

    waiting: set[Position] = field(default_factory=set)
    too_late: set[Position] = field(default_factory=set)
    acknowledged: set[Position] = field(default_factory=set)

    def sets(self) -> tuple[PositionSet, PositionSet, PositionSet]:
        return PositionSet.of(self.waiting), PositionSet.of(self.too_late), PositionSet.of(self.acknowledged)


def _undecided() -> tuple[PositionSet, PositionSet, PositionSet]:
    return PositionSet(), PositionSet(), PositionSet()


class Host(SealHost, ClaimHost, OverrideHost, Protocol):
    """A tracker's view of its broker. The wall clock `now_ms` decides about due times; waits go by
    `uptime_ms`, which nobody steps.
    """

    def now_ms(self) -> int: ...
    def is_deleted(self, position: Position) -> bool: ...
    def mark_delete(self) -> Position: ...
    def persisted_mark_delete(self) -> Position: ...
    def cursor_closed(self) -> bool: ...
    def consumers_replaced(self) -> bool: ...
    def is_outstanding(self, position: Position) -> bool: ...
    def redeliveries(self) -> int: ...
    def has_consumers(self) -> bool: ...
    def reaches_daemon(self) -> bool: ...
    def knows_rules(self) -> bool: ...
    def delete(self, positions: list[Position], seal: int, done: Callable[[bool], None]) -> None: ...
    def read_more(self) -> None: ...
    def wake_at(self, at_ms: int) -> None: ...
    def frames_waiting(self) -> None: ...
    def unsettle(self) -> None: ...
    def log(self) -> LogHome: ...
    def is_paused(self) -> bool: ...
    def put_pause(self, paused: bool, done: Callable[[bool], None]) -> None: ...
    def exists(self, position: Position) -> bool: ...
    def note_cancelled(self, positions: set[Position]) -> None: ...
    def delete_and_store(
        self, positions: list[Position], seal: int, done: Callable[[Kept], None]
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Identity:
    """OPEN's words about the subscription; `owner` in the cursor when the tracker was made."""

    topic: str
    subscription: str
    owner: Owner


class Tracker:
    """One subscription's delayed messages, in one broker."""

    def __init__(self, host: Host, options: ShimOptions, identity: Identity) -> None:
        self.host = host
        self.options = options
        self.identity = identity
        self.seal = Seal(host)
        self.claim = Claim(host, identity.owner, options.claims_max)
        self.opened_under = 0
        self.outbox = Outbox()
        self.contained: set[Position] = set()
        self.handed_out: set[Position] = set()
        self.sought: set[Position] = set()
        self.asked_for: set[Position] = set()
        self._asked_once: set[Position] = set()
        self.settling: set[Position] = set()
        self.reported: set[Position] = set()
        self.doubtful: set[Position] = set()
        self.undecided: dict[Position, int] = {}
        self.near: dict[Position, int] = {}
        self.credited: set[Position] = set()
        self._paces: deque[tuple[Pace, Callable[[Paced], None]]] = deque()
        self.soon: set[Position] = set()  # its own near ones beside a daemon: bounded by `near_max`
        self.inherited = 0  # entries of former trackers that are not durable
        self._near_heap: list[tuple[int, Position]] = []
        self.stream = Stream.UNOPENED
        self.decided = False
        self.decided_alone = False  # with a daemon that may know acknowledgements
        self.given_unheard: set[Position] = set()  # before its first word
        self.held_once = False
        self.finished = False
        self.closing = False
        self._reopen = False
        self._created_ms = host.uptime_ms()
        self._askable_ms = self._created_ms  # since when claim and rules let the daemon be asked
        self._answer_wait_ms = _RESTORE_WAIT_MS if host.log().pointer else _ANSWER_WAIT_MS
        self._retry_open_ms: int | None = None
        self._close_deadline_ms = 0
        self._in_flight_told: set[Position] = set()
        self._held_now: set[Position] = set()
        self._acknowledged_now: set[Position] = set()
        self._credit_back = 0
        self._mark_sent: Position = (-1, -1)
        self._mark_seen = host.mark_delete()
        self._mark_sent_ms = 0
        self._deleting: list[Position] | None = None
        self._delete_retry_ms = 0
        self._delete_max = _DELETE_CHUNK
        self._awaiting = False
        self._paused = False
        self.is_paused = host.is_paused()
        self._given: set[Position] = set()  # delivered, and not all consumers have gone since
        self.overrides = Overrides()
        self.override_log = OverrideLog(
            host,
            self.overrides,
            lambda: self.claim.owned,
            self._on_moves_stored,
            self._on_moves_undone,
            self._on_overrides_read,
        )

    # ---- ownership, and resets of the cursor

    def make_claim(self) -> None:
        """Claim the subscription, if due. The daemon gets nothing before."""
        if not self.closing:
            self.claim.make(self._on_claimed)

    def _on_claimed(self) -> None:
        self._askable_ms = self.host.uptime_ms()
        self.override_log.read()
        self.host.frames_waiting()

    def _notice_reset(self) -> None:
        if self.seal.is_intact and not self.seal.is_wanted:
            return
        # First: everything examined from now on is then true of the new seal.
        if self.seal.replace():
            self._on_other_seal(set(self.settling))
        else:
            self._on_other_seal(set())

    def _on_reset(self) -> None:
        """Handle a reset of the cursor, whatever its seal."""
        self.seal.renew()
        self._on_other_seal(set())

    def _on_other_seal(self, true: set[Position]) -> None:
        """Examine known acknowledgements again; the daemon learns the new seal before anything else. `true`:
        settling ones that are acknowledged nevertheless.
        """
        self.outbox.drop_acknowledgements()
        self.doubtful |= self.reported - true
        self.reported &= true
        doubted = self.settling - true
        self._seek_again(doubted)  # not deleted, and not every loss of the seal comes with a rewind
        self._stay(doubted)
        self.settling &= true
        self.outbox.acknowledge(self.settling)  # under the new seal
        self._deleting = None
        self._reopen = self.stream in (Stream.OPENING, Stream.OPEN)
        self.host.frames_waiting()
        self._follow_mark_delete(self.host.mark_delete())

    # ---- the dispatcher's side

    def add_message(self, position: Position, deliver_at_ms: int) -> bool:
        """True to keep the message, which was read; False to deliver it now."""
        if deliver_at_ms < 0:
            return False
        if position in self.contained:
            return self._add_again(position, deliver_at_ms)
        self.contained.add(position)
        if not self.decided:
            self.undecided[position] = deliver_at_ms  # the overrides may be unknown so far
            return True
        return self._add_found(position, self._time_of(position, deliver_at_ms))

    def _time_of(self, position: Position, own_ms: int) -> int:
        """The time that holds."""
        return self.overrides.live.get(position, own_ms)

    def _add_found(self, position: Position, deliver_at_ms: int) -> bool:
        """Take a contained message without a holder, which was read."""
        now_ms = self.host.now_ms()
        was_reported = position in self.reported
        doubtful = position in self.doubtful
        may_be_deleted = was_reported or doubtful or deliver_at_ms <= now_ms or position <= self._mark_seen
        if may_be_deleted and self.host.is_deleted(position):
            self.contained.discard(position)
            return True  # acknowledged while it was read
        if was_reported:
            self._on_reset()  # otherwise it would not have been read
        self._notice_return(position)
        if deliver_at_ms <= now_ms and not self.is_paused:
            self._give(position)
            return False
        self._track(position, deliver_at_ms, now_ms)
        return True

    def _notice_return(self, position: Position) -> None:
        """Notice a reset: the message is no longer acknowledged."""
        if self.overrides.is_leaving(position) and not self.host.is_deleted(position):
            self.overrides.come_back(position)

    def _add_again(self, position: Position, own_ms: int) -> bool:
        if not self.decided or position in self.settling or position in self.overrides.moving:
            return True
        deliver_at_ms = self._time_of(position, own_ms)
        if self._find(position):
            return self._add_found(position, deliver_at_ms)
        if deliver_at_ms <= self.host.now_ms():
            if position in self.handed_out and (
                self.host.is_outstanding(position) or self.host.is_deleted(position)
            ):
                return True  # read twice for one delivery
            if self.is_paused and position not in self._given:
                if position in self.handed_out:  # and no consumer has it
                    self.handed_out.discard(position)
                    self._put_near(position, deliver_at_ms, credited=False)
                return True
            self._give(position)
            return False
        if position in self.handed_out:
            self.handed_out.discard(position)  # the clock went back meanwhile
            self._put_near(position, deliver_at_ms, credited=False)
            self._arm()
        return True

    def _give(self, position: Position) -> None:
        self._hand_out(position)
        self._given.add(position)

    def _hand_out(self, position: Position) -> None:
        if self.decided_alone and not self.held_once:
            self.given_unheard.add(position)
        self._leave_near(position)
        self._find(position)
        self.handed_out.add(position)

    def _track(self, position: Position, deliver_at_ms: int, now_ms: int) -> None:
        undone = position in self.overrides.undone
        self.overrides.undone.discard(position)
        soon = deliver_at_ms <= now_ms + self.options.horizon_ms and len(self.near) < self.options.near_max
        if self.stream is not Stream.OPEN or soon:
            self._put_near(position, deliver_at_ms, credited=False)
            if self.stream is Stream.OPEN:
                self.soon.add(position)
            self.outbox.add(position, deliver_at_ms, near=True)
            self._arm()
        elif undone and not self.finished:
            self.outbox.move(position, deliver_at_ms, here=False)
        else:
            self.outbox.add(position, deliver_at_ms, near=False)
        if self.stream is Stream.OPEN:
            self.host.frames_waiting()

    def contains(self, position: Position) -> bool:
        """True if the dispatcher must not read the position."""
        return position in self.contained

    def has_due(self) -> bool:
        """True if something can be handed out now."""
        head_ms = self._head_ms()
        if head_ms is not None and head_ms <= self.host.now_ms():
            return True
        self._arm()
        return self._may_ask()

    def _may_ask(self) -> bool:
        """True if the dispatcher is to read messages without a holder: not while too much waits."""
        return bool(self.sought) and self.decided and not self._is_full()

    def _is_full(self) -> bool:
        return self.outbox.pending_entries + len(self.undecided) > self.options.pending_max

    def on_wake(self) -> None:
        """The wake-up that was asked for."""
        if self.has_due():
            self.host.read_more()

    def pop_due(self, most: int) -> list[Position]:
        """Due messages in (deliver_at, position) order; then those to be read again."""
        now_ms = self.host.now_ms()
        popped: list[Position] = []
        while len(popped) < most:
            head_ms = self._head_ms()
            if head_ms is None or head_ms > now_ms:
                break
            position = self._near_heap[0][1]
            self._hand_out(position)
            popped.append(position)
        if len(popped) < most and self._may_ask():
            asked = sorted(self.sought)[: most - len(popped)]
            self.sought.difference_update(asked)
            self.asked_for.update(asked)
            self._asked_once.update(asked)
            popped += asked
        self._arm()
        self._signal()
        return popped

    def should_pause(self) -> bool:
        """Called before every read."""
        replaced = self.host.consumers_replaced()
        self._notice_reset()
        if replaced:
            self._on_consumers_replaced()
        if self._awaits_answer() and self.host.redeliveries() == 0:
            self._awaiting = True
            return True
        self._paused = self._is_full() and not self.has_due() and self.host.redeliveries() == 0
        return self._paused

    def _awaits_answer(self) -> bool:
        asking = self.stream is Stream.OPENING or not self.claim.owned or not self.may_be_opened
        return not self.decided and asking and self._age_ms < self._answer_wait_ms

    @property
    def _age_ms(self) -> int:
        return self.host.uptime_ms() - self._created_ms

    @property
    def is_ruled(self) -> bool:
        """True if the namespace's rules are known, or were waited for long enough: messages have their own
        times.
        """
        return self.host.knows_rules() or self._age_ms >= RULES_WAIT_MS

    @property
    def may_be_opened(self) -> bool:
        """True if nothing but the claim must come before the daemon is asked."""
        return self.override_log.ready and self.is_ruled

    def on_rules(self) -> None:
        """The rules are known."""
        self.host.frames_waiting()

    def _on_consumers_replaced(self) -> None:
        """Pulsar has forgotten its hand-outs, and has rewound."""
        self.sought |= self.asked_for
        self.asked_for.clear()
        for position in self.handed_out:  # due at once: a time by a clock that is set right would be far
            self._put_near(position, 0, credited=False)
        self.handed_out.clear()
        self._given.clear()

    @property
    def delayed(self) -> int:
        """Pulsar's msgDelayed."""
        return len(self.contained) - len(self.handed_out) - len(self.settling)

    def clear(self) -> None:
        """Forget a cleared backlog, or a subscription being deleted. With consumers it is the former, and
        mark-delete shows its extent; without, forget everything: the next consumer rewinds.
        """
        if self.host.has_consumers():
            self._on_mark_delete(self.host.mark_delete())
            self._report_mark_delete()
            self.host.frames_waiting()
            return
        forgotten = set(self.contained)
        self._stay(self.settling)
        for each in (self.contained, self.handed_out, self.sought, self.asked_for, self.settling):
            each.clear()
        for each in (self.reported, self.doubtful):
            each.clear()
        self.contained |= self.overrides.moving.keys()  # nobody may read moving ones
        self._credit_back += len(self.credited)
        self.credited.clear()
        self.near.clear()
        self.soon.clear()
        self.undecided.clear()
        self.outbox.clear()
        self.host.frames_waiting()
        if self.host.has_consumers():
            self._on_forgotten(forgotten)

    def _on_forgotten(self, forgotten: set[Position]) -> None:
        """A consumer that came just before has rewound already: nobody has the positions that it skipped."""
        lost = {
            position
            for position in forgotten
            if not self.host.is_deleted(position) and not self.host.is_outstanding(position)
        }
        self.contained |= lost
        self._seek_again(lost)
        self.host.read_more()

    def close(self) -> None:
        """The dispatcher is done; acknowledgements are watched until the cursor is closed."""
        if not self.closing:
            self.closing = True
            self.override_log.end()
            self._close_deadline_ms = self.host.uptime_ms() + _CLOSE_POLL_MS

    # ---- the daemon's side

    def open(self) -> Open | None:
        """The OPEN to send now, or None."""
        early = self._retry_open_ms is not None and self.host.uptime_ms() < self._retry_open_ms
        over = self.finished and self.outbox.is_empty
        unread = not self.may_be_opened and not self.finished
        if self.stream is not Stream.UNOPENED or early or over or unread or not self.claim.owned:
            return None
        self.stream = Stream.OPENING
        self._reopen = False
        self.seal.watch()
        self.opened_under = self.seal.tell()
        self._held_now, self._acknowledged_now = set(), set()
        # Without later entries gated here for want of a daemon, which hands those out.
        until_ms = self.host.now_ms() + self.options.horizon_ms
        in_flight = {each for each, at_ms in self.near.items() if at_ms <= until_ms} | self.handed_out
        self._in_flight_told = in_flight
        self._mark_sent = self.host.persisted_mark_delete()
        self.outbox.opened(in_flight, finished=self.finished)
        identity = self.identity
        return Open(
            incarnation=self.claim.owner.incarnation,
            epoch=self.claim.owner.epoch,
            generation=self.opened_under,
            horizon_ms=self.options.horizon_ms,
            credit=self.options.credit,
            mark_delete=self._mark_sent,
            topic=identity.topic,
            subscription=identity.subscription,
            in_flight=PositionSet.of(in_flight),
            log_home=self.host.log().home,
            log_pointer=self.host.log().pointer,
            claims=self.claim.owner.claims,
            end=self.claim.end,
        )

    def on_held(self, held: Held) -> None:
        """A part of the answer to OPEN."""
        if self.stream is Stream.OPEN and not self.finished:
            self._on_held_since(set(held.held))
        if self.stream is not Stream.OPENING:
            return
        self._held_now.update(held.held)
        self._acknowledged_now.update(held.acknowledged)
        if held.last:
            self._on_answered()

    def _on_held_since(self, held: set[Position]) -> None:
        """The daemon has entries from elsewhere: they need not be read."""
        self.outbox.apply_pending_to(held, set())
        mark_delete = self.host.mark_delete()
        held = {position for position in held if position > mark_delete} - self.reported - self.doubtful
        self.contained |= held
        self.sought -= held

    def _on_answered(self) -> None:
        held, acknowledged = self._held_now, self._acknowledged_now
        self._held_now, self._acknowledged_now = set(), set()
        self.outbox.apply_pending_to(held, acknowledged)
        mark_delete = self.host.mark_delete()
        held = {position for position in held if position > mark_delete}
        acknowledged = {position for position in acknowledged if position > mark_delete}
        undone = {position for position in acknowledged if not self.host.is_deleted(position)}
        self._on_mark_delete(mark_delete)
        # A crash made the cursor forget these, unless this tracker saw one deleted: then a reset.
        if undone & (self.reported - self.settling):
            self._on_reset()
        else:
            self._notice_reset()
        if NO_SEAL in (self.seal.told, self.seal.generation):
            acknowledged, undone = set(), set()
        elif self.seal.told != self.seal.generation:  # OPEN with another makes the daemon forget them
            self.outbox.acknowledge(acknowledged)
            self._reopen = True
        self.seal.heard()
        lost = self._not_held(held) - self.overrides.live.keys() if self.held_once else set()
        self.contained |= held
        self.sought -= held
        self._leave_to_daemon(held)
        for position in undone:
            self._settle(position)
        self.reported |= acknowledged
        self.stream = Stream.OPEN
        self._retry_open_ms = None
        self.held_once = True
        self._decide(held)
        for position, at_ms in self.overrides.live.items():
            self._tell_move(position, at_ms)  # the daemon may not know it
        self.host.frames_waiting()
        self._seek(lost)
        self.host.read_more()
        self._delete_settling()

    def _decide(self, held: set[Position]) -> None:
        """Decide about messages read before the daemon's held ones were known."""
        self.decided = True
        self.host.unsettle()
        undecided, self.undecided = self.undecided, {}
        now_ms = self.host.now_ms()
        for position, deliver_at_ms in undecided.items():
            if position not in self.contained or position in held or position in self.settling:
                continue
            is_passed = position <= self._mark_seen and self.host.is_deleted(position)
            if is_passed or position in self.reported:
                self.contained.discard(position)
            else:
                self._notice_return(position)
                self._track(position, self._time_of(position, deliver_at_ms), now_ms)

    def _leave_to_daemon(self, held: set[Position]) -> None:
        """Entries held by the daemon, and not reported in flight, need no gate here. A change sent again as
        near does.
        """
        pending = self.outbox.pending_adds().keys()
        for position in [each for each in self.near if each in held and each not in pending]:
            if position not in self._in_flight_told:
                self._leave_near(position)

    def _settle(self, position: Position) -> None:
        self._leave_near(position)
        self._find(position)
        self.handed_out.discard(position)
        self.contained.add(position)
        self.overrides.leave(position)
        self.settling.add(position)

    def _stay(self, positions: set[Position]) -> None:
        """These are not acknowledged after all."""
        for position in positions if self.overrides.leaving else ():
            self.overrides.stay(position)

    def _take_back(self, position: Position) -> None:
        """The cursor refuses to delete it, so it is delivered again."""
        self.reported.discard(position)
        if position in self.settling:
            self.settling.discard(position)
            self._stay({position})
            self._seek_again({position})  # the dispatcher may have passed it
        self.outbox.unacknowledge({position})
        self.host.frames_waiting()

    def _not_held(self, held: set[Position]) -> set[Position]:
        """Contained positions that neither the daemon nor this broker will hand out."""
        answered = held | set(self.near) | self.handed_out | self.settling | set(self.undecided)
        answered |= self.overrides.moving.keys()
        return self.contained - answered - self.sought - self.asked_for - self.outbox.pending_adds().keys()

    def _seek(self, lost: Iterable[Position]) -> None:
        """Have exactly these read again; they stay contained until then."""
        for position in lost:
            if self.host.is_deleted(position):
                self.contained.discard(position)
            else:
                self.sought.add(position)

    def _seek_again(self, positions: set[Position]) -> None:
        """Have these contained positions read again. Asked-for ones will be anyhow."""
        self.sought |= positions - self.asked_for

    def _find(self, position: Position) -> bool:
        """True if it was sought, or asked for, until now."""
        was = position in self.sought or position in self.asked_for
        self.sought.discard(position)
        self.asked_for.discard(position)
        return was

    def on_due(self, due: Due) -> None:
        """Entries due within the horizon."""
        if self.stream is not Stream.OPEN or self.finished:
            return
        acknowledged = set()
        sure = self.seal.is_intact  # else it is handed out when due, and Pulsar omits deleted ones
        for deliver_at_ms, ledger_id, entry_id in due.entries:
            position = (ledger_id, entry_id)
            if sure and self.host.is_deleted(position):
                self._credit_back += 1
                self._acknowledge(position)
                acknowledged.add(position)
            elif self._was_moved_later(position, deliver_at_ms):
                self._credit_back += 1
                self._tell_move(position, self.overrides.live[position])  # it may not know
            elif (
                position in self.handed_out
                or position in self.settling
                or position in self.near
                or position in self.overrides.moving
            ):
                self._credit_back += 1
            else:
                self._put_near(position, self._time_of(position, deliver_at_ms), credited=True)
                self.contained.add(position)
                self.sought.discard(position)
        self.outbox.acknowledge(acknowledged)
        if self.has_due():
            self.host.read_more()
        self._signal()

    def _was_moved_later(self, position: Position, deliver_at_ms: int) -> bool:
        later = self._time_of(position, deliver_at_ms) > deliver_at_ms
        return later and position not in self.near and position not in self.handed_out

    def on_durable(self, seq: int) -> None:
        """Everything up to `seq` is on the daemon's disk."""
        if self.stream in (Stream.OPEN, Stream.CLOSING):
            self.outbox.durable(seq)
            if self._paused:
                self.host.read_more()

    def on_unheld(self, unheld: Unheld) -> None:
        """The daemon has lost these."""
        if self.finished:
            return  # CLOSE is its last word
        lost = {
            position
            for position in unheld.positions
            if position in self.contained and position not in self.near and position not in self.handed_out
        }
        lost -= self.settling | self.overrides.moving.keys()
        pending = self.outbox.pending_adds()
        for position in sorted(lost & pending.keys()):
            # It may have come before the loss, DURABLE or not.
            self.outbox.add(position, self._time_of(position, pending[position]), near=False)
        self._seek(lost - pending.keys())
        self.host.read_more()

    def on_stream_error(self, *, stale: bool) -> None:
        """The daemon has given the stream up; `stale`: for a greater epoch."""
        if stale:
            self.claim.lost()
        self._retry_open_ms = self.host.uptime_ms() + _RETRY_MS
        self.on_disconnected()

    def on_closed(self) -> None:
        """The daemon has closed the stream, on request."""
        if self.stream is Stream.CLOSING or (self.finished and self.stream is Stream.OPEN):
            self._unopened()

    def on_disconnected(self) -> None:
        """Gate known entries that are not durable here until the daemon is back."""
        self._unopened()
        self.host.unsettle()
        if self.decided:
            away = self.handed_out | self.settling | self.overrides.moving.keys()
            for position, deliver_at_ms in self.outbox.gate_here():
                if position in self.contained and position not in away:
                    self._put_near(position, self._time_of(position, deliver_at_ms), credited=False)
            self._arm()
        self.host.read_more()

    def _unopened(self) -> None:
        self.stream = Stream.UNOPENED
        self._credit_back = 0
        self.credited.clear()
        self.outbox.restart()

    def take_frames(self) -> tuple[list[Change], int]:
        """Frames to send now, and the credit to give back."""
        if self.stream is not Stream.OPEN:
            return [], 0
        if self._reopen and (not self.finished or self.outbox.has_unsent_ack):
            self.stream = Stream.CLOSING
            return self.outbox.take_close(), 0
        changes = self.outbox.take_unsent()
        credit = 0
        if not self.finished and self._is_credit_due:
            credit, self._credit_back = self._credit_back, 0
        return changes, credit

    @property
    def _is_credit_due(self) -> bool:
        """True if credit should go back: when worth a frame, or when no entry holds any: a daemon that keeps
        less than its credit then has none left.
        """
        is_worth_it = self._credit_back >= max(1, self.options.credit // 8)
        return is_worth_it or (self._credit_back > 0 and not self.credited)

    def _signal(self) -> None:
        wants = self.outbox.has_unsent or self._reopen or self._is_credit_due
        if self.stream is Stream.OPEN and wants:
            self.host.frames_waiting()

    def adopt(self, former: Tracker) -> None:
        """Take over a former tracker's changes that are not on the daemon's disk."""
        former.finished = True
        former.override_log.end()
        former.stream = Stream.UNOPENED
        if former.claim.owner.incarnation == self.claim.owner.incarnation:
            if former.seal.generation != self.seal.generation:
                former.outbox.drop_acknowledgements()
            if self.claim.follows(former.claim):
                self.seal.adopt(former.seal)
            self.inherited += former.outbox.pending_entries
            self.outbox.adopt(former.outbox)

    # ---- the watch

    @property
    def busy(self) -> bool:
        """True if each poll of the watch has something to see."""
        looked_at = self.handed_out or self.reported or self.doubtful or self.settling
        to_read = self.sought or self.asked_for
        return bool(looked_at or to_read or self.closing or not self.decided or self.override_log.is_busy)

    def watch(self) -> None:
        """Examine the cursor: acknowledgements, progress of mark-delete, resets."""
        self.make_claim()
        if self.finished:
            return
        now_ms = self.host.uptime_ms()
        self._report_acknowledged()
        self._on_mark_delete(self.host.mark_delete())
        self._notice_lost_report()
        if now_ms - self._mark_sent_ms >= _MARK_DELETE_INTERVAL_MS:
            self._mark_sent_ms = now_ms
            self._report_mark_delete()
        read = self._paused or self._may_ask()
        if self._waits_in_vain(now_ms):
            self.decided_alone = not self.claim.is_first
            self._decide(set())
            read = True
        if self._awaiting and not self._awaits_answer():
            self._awaiting = False
            read = True
        if read:
            self.host.read_more()
        self._delete_settling()
        self.override_log.look()
        if self.host.cursor_closed() or (self.closing and now_ms >= self._close_deadline_ms):
            self.finish()
        self._signal()

    def _waits_in_vain(self, now_ms: int) -> bool:
        """True if the messages read so far are to be gated here, without a daemon. A first owner hardly
        waits: no daemon knows an acknowledgement that its cursor lacks.
        """
        if self.decided:
            return False
        if not self.claim.owned or not self.is_ruled:
            self._askable_ms = now_ms
        if not self.may_be_opened:
            return False
        if not self.claim.is_first:
            return self._age_ms >= self.options.daemon_wait_ms
        wait_ms = FIRST_WAIT_MS if self.host.reaches_daemon() else 0
        return self.askable_for_ms >= min(self.options.daemon_wait_ms, wait_ms)

    @property
    def askable_for_ms(self) -> int:
        """For how long claim and rules have let the daemon be asked."""
        return self.host.uptime_ms() - self._askable_ms

    def _report_acknowledged(self) -> None:
        then = self.seal.generation
        self.seal.watch()
        unseen = self.handed_out | self.asked_for | self.doubtful
        found = {each for each in unseen if self.host.is_deleted(each)}
        self._notice_reset()
        if not self.seal.stood(then):
            return
        self.doubtful.clear()  # those not found will be read again
        for position in found:
            self._acknowledge(position)
        self.outbox.acknowledge(found)

    def _acknowledge(self, position: Position) -> None:
        self._leave_near(position)
        self._find(position)
        self.handed_out.discard(position)
        self.contained.discard(position)
        self.settling.discard(position)
        self.overrides.leave(position)
        self.reported.add(position)

    def _on_mark_delete(self, mark_delete: Position) -> None:
        if mark_delete == self._mark_seen:
            return
        if mark_delete < self._mark_seen:
            self._on_reset()  # should one ever leave the seal; it follows the position, too
        else:
            self._follow_mark_delete(mark_delete)

    def _follow_mark_delete(self, mark_delete: Position) -> None:
        self._mark_seen = mark_delete
        overrides = self.overrides
        if overrides.live and self.seal.is_intact:
            for position in [
                each for each in overrides.live if each <= mark_delete and each in self.contained
            ]:
                overrides.leave(position)
        overrides.leave_moving_up_to(mark_delete)
        for each in (self.contained, self.handed_out, self.sought, self.asked_for, self.settling):
            each -= {position for position in each if position <= mark_delete}
        for position in [each for each in self.near if each <= mark_delete]:
            self._leave_near(position)

    def _report_mark_delete(self) -> None:
        """Only forward: OPEN has a position that goes back."""
        persisted = self.host.persisted_mark_delete()
        if persisted > self._mark_sent:
            self._mark_sent = persisted
            self.reported = {position for position in self.reported if position > persisted}
            self.outbox.mark_delete(persisted)

    def _notice_lost_report(self) -> None:
        """Should a reset ever leave the seal: it takes all back, so the highest one shows it."""
        if self.reported:
            last = max(self.reported)
            if last not in self.settling and not self.host.is_deleted(last):
                self._on_reset()

    def _delete_settling(self) -> None:
        if self._deleting is not None or not self.settling or self.host.cursor_closed():
            return
        if self.host.uptime_ms() < self._delete_retry_ms:
            return
        if not self.host.has_consumers():
            return  # a seek, which disconnects them first, may be under way
        chunk = sorted(self.settling)[: self._delete_max]
        self._deleting = chunk
        self.host.delete(chunk, self.seal.generation, lambda done: self._on_deleted(chunk, done))

    def _on_deleted(self, chunk: list[Position], done: bool) -> None:
        if self._deleting is not chunk:
            return  # a reset came between
        self._deleting = None
        if done:
            self._delete_max = min(_DELETE_CHUNK, 2 * self._delete_max)
            self.contained -= self.settling & set(chunk)
            self.settling -= set(chunk)
            return
        if self.host.cursor_closed():
            return  # the next owner has them deleted
        self._delete_retry_ms = self.host.uptime_ms() + _RETRY_MS
        # One that could not write its record has deleted them nevertheless, and writes that later.
        deleted = {position for position in chunk if self.host.is_deleted(position)}
        self.contained -= self.settling & deleted
        self.settling -= deleted
        if len(deleted) == len(chunk):
            return
        if len(chunk) > 1:
            self._delete_max = max(1, len(chunk) // 2)
        else:
            self._take_back(chunk[0])

    def finish(self) -> None:
        """Report the last acknowledgements and end the stream."""
        if self.finished:
            return
        self._report_acknowledged()
        self._report_mark_delete()
        self.closing = self.finished = True
        self.override_log.end()
        self.undecided.clear()
        if self.stream in (Stream.OPEN, Stream.OPENING) or not self.outbox.is_empty:
            self.outbox.close()
        self.near.clear()
        self.soon.clear()
        self.credited.clear()
        self.host.frames_waiting()

    @property
    def is_over(self) -> bool:
        """Finished, with nothing left to send, and no stream for last words of the daemon."""
        return self.finished and self.outbox.is_empty and self.stream is Stream.UNOPENED

    def check_budgets(self, read_entries: int) -> None:
        """Raise Violation with too many near entries, or too many that are not durable.

        So many may have been read since it was full, besides those given to the dispatcher before, which it
        reads behind other redeliveries.
        """
        options = self.options
        soon = self.soon & self.near.keys()
        if len(soon) > options.near_max + 1:
            raise Violation(f"{len(soon)} entries are near beside the daemon, {options.near_max} are allowed")
        pending = len((self.outbox.pending_adds().keys() | self.undecided.keys()) - self._asked_once)
        allowed = options.pending_max + read_entries + self.inherited
        if pending > allowed:
            raise Violation(f"{pending} entries wait for DURABLE, {allowed} are allowed")

    # ---- the pace of release: paused or not

    def tell_pace(self) -> Paced | None:
        """The pace for a new stream."""
        return Paced(self._pace()) if self.is_paused else None

    def on_pace(self, asked: Pace, answer: Callable[[Paced], None]) -> None:
        """Pause or resume the subscription: in force once stored, and then answered. One after the other, so
        that the last one holds.
        """
        if self._lets_go():
            answer(Paced(self._pace(), 0, "the broker lets the topic go"))
        elif asked.ask:
            answer(Paced(self._pace()))
        else:
            self._paces.append((asked, answer))
            if len(self._paces) == 1:
                self._store_pace()

    def _lets_go(self) -> bool:
        return self.stream is not Stream.OPEN or self._reopen or self.closing or self.host.cursor_closed()

    def _store_pace(self) -> None:
        """Store the first of those that wait."""
        asked, _ = self._paces[0]
        pauses = asked.pace.kind == PaceKind.PAUSED
        if self._lets_go():
            self._answer_pace("the broker lets the topic go")
        elif pauses == self.is_paused:
            self._answer_pace("")
        else:
            self.host.put_pause(pauses, lambda written: self._on_pause_put(written, pauses))

    def _on_pause_put(self, written: bool, pauses: bool) -> None:
        if written:
            self.is_paused = self.host.is_paused()
            if self.has_due():
                self.host.read_more()
        self._answer_pace("" if written and pauses == self.is_paused else "it was not stored")

    def _answer_pace(self, why: str) -> None:
        _, answer = self._paces.popleft()
        answer(Paced(self._pace(), 0, why))
        if self._paces:
            self._store_pace()

    def _pace(self) -> ReleasePace:
        return ReleasePace(PaceKind.PAUSED if self.is_paused else PaceKind.NONE)

    # ---- cancelled and moved messages

    def _sort(self, asked: Iterable[Position]) -> _Standings:
        """Sort by state. Only this broker knows: the dispatcher has a position, or not."""
        found = _Standings()
        for position in asked:
            if not self.host.exists(position):
                continue
            if self.host.is_deleted(position) or position in self.settling:
                found.acknowledged.add(position)
            elif position in self.handed_out:
                found.too_late.add(position)
            elif position in self.contained:
                found.waiting.add(position)
        return found

    def _holds(self, look: int) -> bool:
        """True if a look at the cursor under that seal is complete."""
        return self.seal.stood(look) and self.decided

    @property
    def _takes_more(self) -> bool:
        return self.stream is Stream.OPEN and not self._reopen and not self.closing

    def on_cancel(self, asked: Cancel, answer: Callable[[Cancelled], None]) -> None:
        """Cancel messages. The answer comes when the cursor's record agrees."""
        look = self.seal.generation
        if self._takes_more:
            self._notice_reset()
        kept = asked.ask or look != NO_SEAL
        if not (self._takes_more and kept and self._holds(look)):
            answer(Cancelled(*_undecided(), Standing.UNDECIDED))
            return
        found = self._sort(asked.positions)
        to_store = []
        if not asked.ask:
            self._cancel(found.waiting)
            persisted = self.host.persisted_mark_delete()
            to_store = [each for each in sorted(found.waiting | found.acknowledged) if each > persisted]
        if not to_store:
            answer(Cancelled(*found.sets()))
            return
        standings = {
            Kept.YES: Standing.SETTLED,
            Kept.NOT_NOW: Standing.UNSTORED,
            Kept.NO_ROOM: Standing.NO_ROOM,
        }
        self.host.delete_and_store(
            to_store, look, lambda kept: answer(Cancelled(*found.sets(), standings[kept]))
        )

    def _cancel(self, positions: set[Position]) -> None:
        if positions:
            self.host.note_cancelled(positions)
            for position in sorted(positions):
                self._settle(position)
            self.reported |= positions
            self.outbox.acknowledge(positions)
            self._arm()
            self.host.frames_waiting()

    def on_reschedule(self, asked: Reschedule, answer: Callable[[Rescheduled], None]) -> None:
        """Move messages to other times. The answer comes when these are stored."""
        look = self.seal.generation
        if self._takes_more:
            self._notice_reset()
        may = asked.ask or self.override_log.takes
        times = {(ledger_id, entry_id): at_ms for at_ms, ledger_id, entry_id in asked.entries}
        if not (self._takes_more and may and self._holds(look)):
            answer(Rescheduled(*_undecided(), Standing.UNDECIDED))
            return
        found = self._sort(times)
        changes: Times = {}
        if not asked.ask:
            overrides = self.overrides
            changes = {
                each: times[each]
                for each in sorted(found.waiting)
                if each in overrides.moving or overrides.live.get(each) != times[each]
            }
        if not changes:
            answer(Rescheduled(*found.sets()))
            return
        for position, at_ms in changes.items():
            self._leave_near(position)
            self._find(position)
            self.overrides.moving[position] = at_ms
        self.override_log.store(changes, lambda stored: self._on_moved(found, stored, answer))

    def _on_moved(self, found: _Standings, stored: Stored, answer: Callable[[Rescheduled], None]) -> None:
        if self.has_due():
            self.host.read_more()
        self._signal()
        if stored is Stored.NO:
            answer(Rescheduled(*_undecided(), Standing.UNDECIDED))
        else:
            standing = Standing.SETTLED if stored is Stored.YES else Standing.UNSTORED
            answer(Rescheduled(*found.sets(), standing))

    def _on_moves_stored(self, records: Times) -> None:
        """From now on they leave at the new times."""
        until_ms = self.host.now_ms() + self.options.horizon_ms
        for position, at_ms in records.items():
            if self.overrides.settle(position, at_ms):
                soon = at_ms <= until_ms and len(self.near) < self.options.near_max
                if self.stream is not Stream.OPEN or soon:
                    self._put_near(position, at_ms, credited=False)
                self._tell_move(position, at_ms)
        self._arm()

    def _tell_move(self, position: Position, at_ms: int) -> None:
        """An open stream sends it; one that opens later sends all."""
        if self.stream is Stream.OPEN and not self.finished:
            here = position in self.near or position in self.handed_out
            self.outbox.move(position, at_ms, here=here)

    def _on_moves_undone(self, positions: Iterable[Position]) -> None:
        """Have them read again: nobody else may know their times."""
        self._seek_again({each for each in positions if each in self.contained})

    def _on_overrides_read(self) -> None:
        """The daemon may be asked, and messages may leave."""
        self.host.frames_waiting()
        self.host.read_more()

    # ---- near

    def _put_near(self, position: Position, deliver_at_ms: int, *, credited: bool) -> None:
        if position in self.near:
            return
        self.near[position] = deliver_at_ms
        heapq.heappush(self._near_heap, (deliver_at_ms, position))
        if credited:
            self.credited.add(position)

    def _leave_near(self, position: Position) -> None:
        self.soon.discard(position)
        if self.near.pop(position, None) is not None and position in self.credited:
            self.credited.discard(position)
            self._credit_back += 1

    def _head_ms(self) -> int | None:
        heap = self._near_heap
        while heap and self.near.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        if self.is_paused:
            return None
        return heap[0][0] if heap else None

    def _arm(self) -> None:
        head_ms = self._head_ms()
        if head_ms is not None and not self.closing:
            self.host.wake_at(head_ms)

    def sent(self) -> set[Kind]:
        """Kinds of changes that wait for DURABLE; for reports."""
        return {change.kind for change in self.outbox.pending}
