"""Checks every word between the shims and one daemon's disk against docs/protocol.md.

A change answered with DURABLE is in every later HELD; another one may be; nothing counts as acknowledged that
was not, or was revoked; due entries come in order, once, within horizon and credit. Kept outside of both
sides, so that it survives a crash of either.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tests.sim.belief import ACKNOWLEDGED, HELD, NEITHER, Belief, Disowned, Served, names
from tests.sim.bookkeeper import TopicLog
from tests.sim.clocks import MachineClock
from tests.sim.kernel import Violation
from tests.sim.log_beliefs import Account, LogBeliefs
from tests.sim.log_home import current_ledger
from tests.sim.store import Disk
from tests.sim.wire import Wire
from tidegate.index.entries.entry import Entries
from tidegate.index.format import decode_block
from tidegate.index.state.positions import PositionSet
from tidegate.plugin.daemon.histories import Break
from tidegate.plugin.daemon.session import Change
from tidegate.plugin.wire.control_messages import Ingest
from tidegate.plugin.wire.messages import (
    Ack,
    Add,
    Clear,
    Close,
    Due,
    Durable,
    Error,
    Held,
    MarkDelete,
    Message,
    Move,
    Open,
    Unack,
    Unheld,
)

Position = tuple[int, int]
Order = tuple[int, int, int]
"""Who may take over from whom: by turn, by epoch, then by the order of the OPENs. A turn ends with an OPEN of
another life of the subscription, or after a restoration of Pulsar: incarnations have no order, and epochs
count within one life and one history of it.
"""


_NOBODY: Order = (-1, 0, 0)


@dataclass(slots=True)
class _Sent:
    """A change on its way to the daemon, or there; its frame ends at `end` of the wire's bytes."""

    change: Change | Open
    stream: StreamWatch
    seq: int
    wire: Wire
    end: int


class _Subscription:
    """The state of one subscription: `durable` on the disk, `live` in the daemon's memory.

    `sent`: later than `durable`; the first `folded` of it are in `live`.
    """

    def __init__(self) -> None:
        self.durable = Belief()
        self.live = Belief()
        self.sent: list[_Sent] = []
        self.folded = 0
        self.based_on: Order = _NOBODY  # order of the newest stream that has made anything durable
        self.newest: StreamWatch | None = None
        self.opened: dict[Wire, StreamWatch] = {}  # the last stream of each connection
        self.told: Account = []  # everything ever sent
        # Incarnations, and histories of Pulsar, in the order of their OPENs.
        self.turns: list[tuple[bytes, int]] = []
        self.taken_in: list[Add] = []  # from others than brokers, now or later
        self.brought: set[Position] = set()  # the positions of these, and those let go of
        self.disowned: set[Position] = set()
        self.away: set[Position] = set()  # perhaps in blocks that a dead daemon had not fetched
        self.streams: list[StreamWatch] = []  # of this life of the daemon
        self.restored: set[int] = set()  # log ledgers that the index came from
        self.may_restore: set[int] = (
            set()
        )  # those that it may have come from, by a daemon that has died since
        self.given_anew: set[int] = set()  # ids of log ledgers that the index may take for others
        self.made: set[int] = set()  # log ledgers that the daemon made since it last lost its data
        self.former: Belief | None = None  # before its restoration: back after a crash before a commit
        self.went_without: set[int] = set()  # log ledgers that could not be read; the next OPEN tries again
        self.complete: int | None = None  # the log ledger that had all when its writer was abandoned

    def forget_before(self, stream: StreamWatch) -> None:
        """The answer of this stream has the changes sent on others before its opening."""
        kept = [
            sent.stream.order > stream.order or (sent.stream is stream and sent.seq > 0) for sent in self.sent
        ]
        self.folded = sum(kept[: self.folded])
        self.sent = [sent for sent, keep in zip(self.sent, kept, strict=True) if keep]

    def moved(self, positions: Collection[Position]) -> None:
        """These are due at another time, now or later: held, out of turn, and handed out once more."""
        for stream in self.streams:
            stream.may_miss(positions)
            stream._may_hold.update(positions)
            stream._again.update(positions)

    def contested(self, stream: StreamWatch, wire: Wire) -> bool:
        """True if a stream of another connection may have taken over before a change on this one."""
        return any(
            other.order > stream.order or other.may_follow(stream)
            for at, other in self.opened.items()
            if at is not wire
        )

    def opening(self) -> list[Belief]:
        """The beliefs of the newest stream, and of unanswered ones."""
        streams = [each for each in self.streams if not each.answered or each is self.newest]
        beliefs = [(each.expected, each.doubted, each._collapsed) for each in streams]
        return [belief for each in beliefs for belief in each if belief is not None]

    def after_a_crash(self) -> Belief:
        """The state if the daemon dies now."""
        belief = self.durable.copy()
        for sent in self.sent:
            belief.fold(sent.change, sent.stream.generation, certain=False)
        self.fold_brought(belief)
        return belief

    def fold_brought(self, belief: Belief) -> None:
        """Entries from others than brokers may be held, those that they took back may be missing."""
        for add in self.taken_in:
            belief.fold(add, 0, certain=False)
        belief.fold(Disowned(frozenset(self.disowned)), 0, certain=False)

    def unanswered(self) -> list[StreamWatch]:
        """Streams that wait for HELD, in the order of opening."""
        return [
            sent.stream for sent in self.sent if isinstance(sent.change, Open) and not sent.stream.answered
        ]

    def daemon_died(self) -> None:
        self.durable = self.after_a_crash()
        self.live = self.durable.copy()
        self.sent, self.folded = [], 0
        self.newest = None
        self.streams.clear()
        self.opened.clear()
        self.based_on = _NOBODY


class Promises:
    """All subscriptions of one daemon's disk."""

    def __init__(self, log: TopicLog, disk: Disk, clock: MachineClock, logs: LogBeliefs) -> None:
        self.log = log
        self.logs = logs
        self.disk = disk
        self.clock = clock
        self.troubled = False  # the disk has refused something in this life of the daemon
        self.unread = False  # it has refused to be read
        self.daemon_lives = 0
        self.histories = 0  # how often Pulsar was restored
        self._disk_life = disk.life
        self._subscriptions: dict[str, _Subscription] = {}
        self._streams = 0

    def left_without_blocks(self, name: str, held: Iterable[Position]) -> None:
        """These may be missing: a daemon dies before it has all blocks of a restored index, and may not read
        the log again, or the log goes with the subscription.
        """
        found = self._subscriptions.setdefault(name, _Subscription())
        found.away.update(held)
        away = Disowned(frozenset(found.away))
        beliefs = [found.durable, found.live]
        beliefs += [belief for each in found.streams for belief in (each.expected, each.doubted)]
        for belief in beliefs:
            belief.fold(away, 0, certain=False)
        for each in found.streams:
            each.may_miss(found.away)

    def daemon_died(self) -> None:
        """Changes that were not durable may be there or not."""
        self.troubled = self.disk.troubled
        self.unread = self.disk.refuses_reads
        self.daemon_lives += 1
        self.logs.writer_died(self)
        for each in self._subscriptions.values():
            each.daemon_died()
            if each.former is not None:
                each.durable.join(each.former)
                each.former = None
            for ledger_id in each.may_restore:  # the restored data may be there, unannounced
                each.durable.join(self.logs.read(ledger_id, cut=True))
            each.restored |= each.may_restore
            each.may_restore.clear()
            each.durable.fold(Disowned(frozenset(each.away)), 0, certain=False)
            each.live = each.durable.copy()
        if self.disk.life != self._disk_life:
            self._disk_life = self.disk.life
            self._subscriptions.clear()

    def put_back(self, since: Iterable[int]) -> None:
        """Pulsar was restored: the ledgers of index logs made since are gone, and their ids free. The disk
        may have data restored from one.
        """
        self.histories += 1
        lost = set(since)
        for found in self._subscriptions.values():
            for ledger_id in sorted(found.may_restore & lost):
                found.durable.join(self.logs.read(ledger_id, cut=True))
            found.may_restore -= lost
            found.restored -= lost
            found.given_anew |= lost

    def of_another_history(self, reason: str) -> None:
        """The daemon reports an index of another history. Raises Violation if it is the only history, and
        nothing excuses the report: a stopped owner, a seek amid an unload, a rebuild between a claim and its
        OPEN, damage.
        """
        excused = (
            reason in {Break.OLD, Break.EPOCH, Break.MARK_DELETE}
            or (reason == Break.END and (self.logs.others_put_in or self.disk.damaged))
            or (reason == Break.LOST and self.disk.damaged)
        )
        if not self.histories and not excused:
            raise Violation(f"an index is said to be of another history, and there is one: {reason}")

    def knows_acknowledged(self, subscription: str, generation: int, position: Position) -> bool:
        """True if the daemon surely knows the position acknowledged under this seal, now and after
        any crash.
        """
        found = self._subscriptions.get(subscription)
        if found is None or found.former is not None or found.durable.generation != generation:
            return False
        return found.durable.of(position) == found.live.of(position) == ACKNOWLEDGED

    def opened(self, wire: Wire, request: Open) -> StreamWatch:
        found = self._subscriptions.setdefault(request.subscription, _Subscription())
        self._streams += 2  # in between: the restored data for this one
        turn = (request.incarnation, self.histories)
        if found.turns[-1:] != [turn]:
            found.turns.append(turn)
        watch = StreamWatch(self, found, wire, request, (len(found.turns), request.epoch, self._streams))
        watch.expected, watch.doubted = found.live.copy(), found.live.copy()
        for sent in found.sent[found.folded :]:
            watch.expected.fold(
                sent.change, sent.stream.generation, certain=self._was_applied(found, sent, wire)
            )
            watch.doubted.fold(sent.change, sent.stream.generation, certain=False)
        found.opened[wire] = watch
        found.streams.append(watch)
        watch.taken_in(found.taken_in)
        found.told.append((request, request.generation))
        ledger_id = current_ledger(request.log_pointer)
        if ledger_id is not None:
            found.may_restore.add(ledger_id)
        found.sent.append(_Sent(request, watch, 0, wire, wire.written_bytes))
        return watch

    def taken_in(self, name: str, message: Ingest) -> None:
        """A client puts entries into an index, or has it let go of them, at an unknown time and with unknown
        effect: from now on they may be held or not.
        """
        found = self._subscriptions.setdefault(name, _Subscription())
        add = Add(decode_block(message.block), near=False)
        found.told.append((add, 0))
        found.taken_in.append(add)
        self.logs.others_put_in = True
        positions = {(ledger_id, entry_id) for _, ledger_id, entry_id in add.entries}
        found.brought |= positions
        if message.disown:
            found.disowned |= positions
            found.told.append((Disowned(frozenset(found.disowned)), 0))
        for stream in found.streams:
            stream.taken_in([add])

    def may_lose(self, name: str) -> bool:
        """True if the daemon was asked to let positions of the subscription go, or may have lost some."""
        found = self._subscriptions.get(name)
        return (
            found is None
            or self.disk.damaged
            or bool(found.disowned or found.away)
            or any(isinstance(each, Clear) for each, _ in found.told)
        )

    def surely_waiting(self, name: str) -> tuple[object, dict[Position, int]]:
        """The positions that the daemon surely holds and has not handed out, with their times; and the stream
        that knows it, None without one.
        """
        found = self._subscriptions.get(name)
        newest = None if found is None else found.newest
        return (None, {}) if newest is None or newest.over else (newest, dict(newest._known))

    # ---- cancelled and moved messages

    def times_asked(self, name: str) -> dict[Position, set[int]]:
        """The times requested of brokers for the subscription's messages."""
        return self.logs.asked_ms.setdefault(name, {})

    def cancelled(self, name: str, positions: Iterable[Position]) -> None:
        """The daemon has answered that these are cancelled: no longer held."""
        found = self._subscriptions.get(name)
        if found is None or self.disk.damaged:
            return
        for belief in (found.durable, found.live, *found.opening()):
            for position in positions:
                states = belief.of(position)
                if states & ~HELD and position not in found.brought:
                    belief.states[position] = states & ~HELD

    # ---- index logs

    def log_began(self, name: str, ledger_id: int) -> None:
        """The daemon has made a ledger for a subscription's index log."""
        found = self._subscriptions.setdefault(name, _Subscription())
        found.made.add(ledger_id)
        self.logs.began(ledger_id, self, found.after_a_crash(), found.told)

    def has_made(self, name: str, ledger_id: int) -> bool:
        """True if the daemon made the ledger, has neither lost its data since nor gone on without it, and no
        other daemon has gone on from it.
        """
        found = self._subscriptions.get(name)
        if found is None or ledger_id not in found.made - found.went_without:
            return False
        if self.logs.has_other_reader(ledger_id, self):
            return False
        return self.logs.writer(ledger_id) is self

    def log_complete(self, name: str, ledger_id: int) -> None:
        """The daemon reports that the log has everything durable."""
        found = self._subscriptions.setdefault(name, _Subscription())
        self.logs.complete(ledger_id, self, found.after_a_crash())

    def log_ended(self, name: str, complete: int | None) -> None:
        """A stream's log is abandoned; `complete`: the ledger, if it has all."""
        self._subscriptions.setdefault(name, _Subscription()).complete = complete

    def log_closed(self, name: str) -> None:
        """A stream is closed for the shim: a complete log has its DURABLE changes."""
        found = self._subscriptions[name]
        if found.complete is not None:
            self.logs.complete(found.complete, self, found.after_a_crash())

    def log_unreadable(self, name: str) -> None:
        """The daemon goes on with its own data."""
        found = self._subscriptions[name]
        for stream in found.unanswered():
            stream.log_unreadable = True
            if stream.log_ledger is not None:
                found.went_without.add(stream.log_ledger)

    def restored(self, name: str, ledger_id: int, *, cut: bool) -> None:
        """The daemon has replaced a subscription's index by that of a log."""
        found = self._subscriptions[name]
        waiting = [each for each in found.unanswered() if each.log_ledger == ledger_id]
        belief = self.logs.read(ledger_id, cut=cut)
        writer = self.logs.writer(ledger_id)
        if isinstance(writer, Promises) and writer.disk.damaged:
            # Its daemon's unreadable data was not in its snapshot either, and is missing on this disk now.
            self.disk.damaged = True
        found.restored.add(ledger_id)
        self.logs.went_on(ledger_id, self)
        if found.former is None:
            found.former = found.after_a_crash()
        local = found.live.copy()
        for sent in found.sent[found.folded :]:
            local.fold(sent.change, sent.stream.generation, certain=False)
        found.durable = belief.copy()
        for stream in waiting:
            if not self.disk.damaged and local.stays_beside(belief, stream._request):
                raise Violation(f"{name}: an index gives way to the log in {ledger_id}, of another history")
            found.durable.outlast(local, stream._request, certain=False)
        unanswered = found.unanswered()
        for each in found.streams:
            if not each.answered and each not in unanswered:  # given up, and perhaps served
                found.durable.fold(each._request, each.generation, certain=False)
        found.live, found.folded = found.durable.copy(), 0
        for stream in waiting:
            stream.restored(belief)
            for each in found.streams:
                if not each.answered and each.order[2] < stream.order[2]:
                    stream.may_come_after(each)  # also one abandoned while it waited
        if waiting:
            life, epoch, number = waiting[0].order
            found.based_on = (life, epoch, number - 1)

    def _was_applied(self, found: _Subscription, sent: _Sent, wire: Wire) -> bool:
        """True if a change surely came before an OPEN sent on `wire` now."""
        if self.troubled or sent.stream.ended or found.contested(sent.stream, sent.wire):
            return False
        if isinstance(sent.change, Open) and sent.stream.may_wait_for_log:
            return False
        if sent.wire is wire:
            return True
        over = sent.wire
        return over.ended_by_client and not over.daemon_open and sent.end <= over.accepted_bytes


class StreamWatch:
    """One stream, as a listener to both sides sees it."""

    def __init__(
        self, promises: Promises, subscription: _Subscription, wire: Wire, request: Open, order: Order
    ) -> None:
        self._promises = promises
        self._subscription = subscription
        self._wire = wire
        self._request = request
        self.generation = request.generation
        self.order = order
        self._daemon_life = promises.daemon_lives
        self._turn = (request.incarnation, promises.histories)
        self.expected = Belief()
        self.doubted = Belief()  # the same, should the disk refuse something before OPEN arrives
        self.ended = False
        self.answered = False
        self._before = [other for other in subscription.opened.values() if other.answered or other.over]
        self.log_ledger = current_ledger(request.log_pointer)
        self.log_unreadable = False
        self._collapsed: Belief | None = None
        self._held: set[Position] = set()
        self._acknowledged: set[Position] = set()
        self._mark = request.mark_delete
        self._credit = request.credit
        self._durable_seq = 0
        self._last_seq = 0
        self._closed = False
        self._handed = set(request.in_flight)
        self._may_hold: set[Position] = set()
        self._known: dict[Position, int] = {}
        self._known_heap: list[tuple[int, Position]] = []
        self._steps = promises.clock.steps
        self._cleared = False
        self._again: set[Position] = set()

    def taken_in(self, adds: Iterable[Add]) -> None:
        """These may become held, or not, whoever has added them."""
        disowned = self._subscription.disowned
        for add in adds:
            for _, ledger_id, entry_id in add.entries:
                self._may_hold.add((ledger_id, entry_id))
                if (ledger_id, entry_id) in disowned:
                    self._known.pop((ledger_id, entry_id), None)

    def may_miss(self, positions: Iterable[Position]) -> None:
        """The daemon may be unable to hand these out, or in their turn."""
        for position in positions:
            self._known.pop(position, None)

    @property
    def may_wait_for_log(self) -> bool:
        """True if the daemon may still be reading a log for it, and begin others meanwhile."""
        return self.log_ledger is not None and not self.answered

    def may_follow(self, stream: StreamWatch) -> bool:
        """True if the daemon may serve this one after `stream`, though sent before: by another connection, of
        another life of the subscription or another history of Pulsar. Of the same it would be refused.
        """
        of_another_life = self._turn != stream._turn
        return of_another_life and self.order < stream.order and self not in stream._before

    @property
    def over(self) -> bool:
        """True if the daemon has ended it."""
        return self._closed or self.ended

    # ---- cancelled and moved messages

    def asked_to_move(self, entries: Entries) -> None:
        """The daemon has asked for these times."""
        asked = self._promises.times_asked(self._request.subscription)
        for at_ms, ledger_id, entry_id in entries:
            asked.setdefault((ledger_id, entry_id), set()).add(at_ms)
        self._subscription.moved(asked.keys())

    def decided(self, changed: PositionSet, *, moves: bool) -> None:
        """The broker has changed these, and the daemon learns it later by this answer."""
        if not changed:
            return
        found = self._subscription
        change: Change = Ack(changed)
        if moves:
            change = Move(Entries.of((0, *position) for position in changed), near=False)
            found.moved(set(changed))
        found.told.append((change, self.generation))
        if self._daemon_is_over:
            return
        for belief in (found.durable, found.live, *self._others()):
            belief.fold(change, self.generation, certain=False)
        for stream in found.streams if not moves else ():
            stream.may_miss(changed)

    # ---- frames of the shim

    def credit(self, more: int) -> None:
        self._credit += more

    def changed(self, seq: int, change: Change) -> None:
        """A counted frame was sent."""
        self._last_seq = seq
        if not self._daemon_is_over:
            self._note(_Sent(change, self, seq, self._wire, self._wire.written_bytes))
        match change:
            case Add():
                positions = {(ledger_id, entry_id) for _, ledger_id, entry_id in change.entries}
                self._may_hold |= positions
                if self._cleared:  # a DUE from before the CLEAR may be on its way, and comes again
                    self._again |= positions
                if change.near:  # from now on the daemon may leave them out, once durable it must
                    for position in positions:
                        self._known.pop(position, None)
            case Move():
                self._subscription.moved({(ledger_id, entry_id) for _, ledger_id, entry_id in change.entries})
            case Ack():
                self._no_more(change.positions)
            case Unack():
                self._handed.difference_update(change.positions)
            case MarkDelete():
                self._mark = change.position
                self._handed = {each for each in self._handed if each > change.position}
                for position in [each for each in self._known if each <= change.position]:
                    del self._known[position]
            case Clear():
                self._cleared = True
                self._handed.clear()
                self._known.clear()  # a DUE of cleared entries may be on its way
            case Close():
                self._known.clear()

    def _note(self, sent: _Sent) -> None:
        found = self._subscription
        found.told.append((sent.change, self.generation))
        if found.newest is self or isinstance(sent.change, Close):
            found.sent.append(sent)
            return
        # Another stream has opened since: for the daemon this one may be over, or not yet.
        for belief in (found.durable, found.live, *self._others()):
            belief.fold(sent.change, sent.stream.generation, certain=False)

    @property
    def _daemon_is_over(self) -> bool:
        """True if this stream's daemon is dead: its frames may still arrive."""
        return self._daemon_life != self._promises.daemon_lives

    def _others(self) -> list[Belief]:
        newest = self._subscription.newest
        if newest is None:
            return []
        beliefs = (newest.expected, newest.doubted, newest._collapsed)
        return [belief for belief in beliefs if belief is not None]

    def _no_more(self, positions: Iterable[Position]) -> None:
        for position in positions:
            self._handed.discard(position)
            self._known.pop(position, None)

    # ---- frames of the daemon

    def received(self, message: Message, seq: int) -> None:
        """A frame of the daemon has reached the shim. Raises Violation."""
        if self.over:
            raise Violation(f"{message.type.name} on a stream that has ended")
        match message:
            case Held():
                self._on_held(message)
            case Due():
                self._on_due(message)
            case Durable():
                self._on_durable(seq)
            case Unheld():
                self._on_unheld(message.positions)
            case Error():
                self.ended = True
                at = self._own_open()
                if at is not None and not self.answered:
                    self._withdraw(at)
            case Close():
                self._require(self._durable_seq == self._last_seq, "CLOSE before everything is durable")
                self._closed = True
                if self._subscription.newest is self and not self._daemon_is_over:
                    self._promises.log_closed(self._request.subscription)
            case _:
                raise Violation(f"the daemon does not send {message.type.name}")

    def abandoned(self) -> None:
        """The shim has ended it, perhaps before the daemon's answer to OPEN."""
        self.ended = True
        at = self._own_open()
        if at is not None and not self.answered:
            self._withdraw(at)

    def _withdraw(self, at: int) -> None:
        """OPEN was refused, or its answer cut off: it may have taken effect."""
        found = self._subscription
        sent = found.sent.pop(at)
        found.folded -= at < found.folded
        for belief in (found.durable, found.live):
            belief.fold(sent.change, sent.stream.generation, certain=False)

    def _on_held(self, held: Held) -> None:
        if self.answered:
            self._on_held_since(held)
            return
        self._held.update(held.held)
        self._acknowledged.update(held.acknowledged)
        if not held.last:
            return
        self.answered = True
        self._require(not self._held & self._acknowledged, "held and acknowledged at once")
        self._verify()
        gone = (self._held | self._acknowledged) - self._promises.log.deliver_at_ms.keys()
        self._require(not gone, f"HELD says something of {sorted(gone)[:8]}, which the topic does not have")
        found = self._subscription
        actual = Belief(
            dict.fromkeys(self._held, HELD) | dict.fromkeys(self._acknowledged, ACKNOWLEDGED),
            self._request.mark_delete,
            self._request.incarnation,
            self.generation,
            frozenset({Served(self._request.incarnation, self._request.epoch, self._request.claims[-1])})
            if self._request.claims
            else self.expected.served,
        )
        for other in found.opened.values():
            if other.may_follow(self):
                actual.fold(other._request, other.generation, certain=False)
        for other in found.unanswered():
            if other.order[2] < self.order[2]:  # sent before, on a slower wire, and perhaps served after
                other.may_come_after(self)
        if self.log_unreadable:
            # Held, and perhaps in a block that never came: the daemon then has the topic read again.
            actual.fold(Disowned(frozenset(found.away)), 0, certain=False)
        self._collapsed = actual
        if not self._daemon_is_over and (found.newest is None or found.newest.order < self.order):
            found.newest = self
            found.complete = None  # of a stream before; this one may have no log
            found.live = actual.copy()
            found.folded = next(  # without a later OPEN, sent before this answer came
                (at for at, sent in enumerate(found.sent) if sent.stream.order > self.order), len(found.sent)
            )
        self._may_hold |= self._held
        for position in self._held - self._handed:
            self._know(position)

    def _on_held_since(self, held: Held) -> None:
        self._require(not held.last and not held.acknowledged, "HELD after the last HELD")
        self._require(
            set(held.held) <= self._subscription.brought, "HELD after the last HELD of what nobody has put in"
        )

    def restored(self, belief: Belief) -> None:
        """For this stream the index came from a log with this content."""
        local = self.expected, self.doubted
        self.expected, self.doubted = belief.copy(), belief.copy()
        # Damage may have taken a later owner's word that a message is held, told to this daemon alone. The
        # log has it acknowledged, as a consumer did; a message lost so would fail the end's check `lost`.
        is_whole = not self._promises.disk.damaged
        self.expected.outlast(local[0], self._request, certain=is_whole)
        self.doubted.outlast(local[1], self._request, certain=False)

    def may_come_after(self, other: StreamWatch) -> None:
        """The OPEN of another stream may have been served before this one's."""
        for belief in (self.expected, self.doubted):
            belief.fold(other._request, other.generation, certain=False)

    def _own_open(self) -> int | None:
        """The place of this stream's OPEN in `sent`; None if the daemon has died since."""
        return next((at for at, sent in enumerate(self._subscription.sent) if sent.stream is self), None)

    def _verify(self) -> None:
        at = self._own_open()
        if at is None:
            return  # the daemon has died since: the others' changes are unknown
        # A later OPEN may have come first, and ended the stream of earlier changes.
        overtaken = any(
            other.order[2] > self.order[2]
            for wire, other in self._subscription.opened.items()
            if wire is not self._wire
        )
        if self._promises.troubled or overtaken:
            self.expected = self.doubted
        self._verify_log()
        for sent in self._subscription.sent[at + 1 :]:  # it came before OPEN, or never
            self.expected.fold(sent.change, sent.stream.generation, certain=False)
        # Before OPEN, too: foreign entries may show a restoration of Pulsar.
        self._subscription.fold_brought(self.expected)
        self.expected.fold(self._request, self.generation, certain=True)
        self._subscription.fold_brought(self.expected)
        damaged = self._promises.disk.damaged
        for position in self.expected.states.keys() | self._held | self._acknowledged:
            actual = (
                HELD
                if position in self._held
                else ACKNOWLEDGED
                if position in self._acknowledged
                else NEITHER
            )
            states = self.expected.of(position)
            if states & actual:
                continue
            if damaged and actual != ACKNOWLEDGED:
                continue  # damaged: read again, or delivered again
            raise Violation(
                f"HELD says that {position} is {names(actual)}, but it must be {names(states)} "
                f"(OPEN with mark-delete {self._request.mark_delete})"
            )

    def _verify_log(self) -> None:
        """Before its answer to OPEN the daemon reads another daemon's log, or gives its reason."""
        found, ledger_id = self._subscription, self.log_ledger
        if (
            ledger_id is None
            or ledger_id in found.restored | found.given_anew
            or self.log_unreadable
            or self._promises.logs.is_of(ledger_id, self._promises)
            or found.contested(self, self._wire)
        ):
            return
        raise Violation(f"the index log in ledger {ledger_id} of another daemon was not read")

    def _on_durable(self, seq: int) -> None:
        self._require(self._durable_seq < seq <= self._last_seq, f"DURABLE {seq} after {self._durable_seq}")
        self._durable_seq = seq
        found = self._subscription
        if found.based_on > self.order or self._collapsed is None or self._daemon_is_over:
            return  # (in the last case it is true, but what it covers is unknown)
        if found.based_on < self.order:
            found.based_on = self.order
            found.durable = self._collapsed.copy()
            found.former = None
            found.may_restore.clear()
            found.forget_before(self)
        added: list[Add] = []
        while found.sent and found.sent[0].stream is self and found.sent[0].seq <= seq:
            change = found.sent.pop(0).change
            if found.folded:
                found.folded -= 1
            else:
                found.live.fold(change, self.generation, certain=True)
            found.durable.fold(change, self.generation, certain=True)
            if isinstance(change, Add):
                added.append(change)
        if added:
            self._added(added)

    def _added(self, added: list[Add]) -> None:
        """The daemon surely has these, but for changes on their way; near ones it does not hand out."""
        found = self._subscription
        if any(isinstance(sent.change, Clear) for sent in found.sent):
            return
        leaving: set[Position] = set()
        gated: set[Position] = set()
        mark = self._mark
        for sent in found.sent:
            if isinstance(sent.change, Ack):
                leaving.update(sent.change.positions)
            elif isinstance(sent.change, Add) and sent.change.near:
                gated.update((ledger_id, entry_id) for _, ledger_id, entry_id in sent.change.entries)
            elif isinstance(sent.change, MarkDelete):
                mark = max(mark, sent.change.position)
        for change in added:
            for _, ledger_id, entry_id in change.entries:
                position = (ledger_id, entry_id)
                if position in leaving or position <= mark:
                    continue
                if change.near:
                    self._handed.add(position)
                    self._known.pop(position, None)
                elif (
                    found.durable.of(position) == HELD
                    and position not in gated
                    and position not in self._handed
                ):
                    self._know(position)

    def _know(self, position: Position) -> None:
        """The daemon surely holds the position and has not handed it out."""
        deliver_at_ms = self._promises.log.deliver_at_ms[position]
        if position in self._subscription.disowned or position in self._subscription.away:
            return
        if position in self._promises.times_asked(self._request.subscription):
            return
        if position not in self._known and position > self._mark:
            self._known[position] = deliver_at_ms
            heapq.heappush(self._known_heap, (deliver_at_ms, position))

    def _on_unheld(self, positions: PositionSet) -> None:
        self._require(self.answered, "UNHELD before the last HELD")
        found = self._subscription
        excused = found.disowned.issuperset(positions) or found.away.issuperset(positions)
        self._require(self._promises.disk.damaged or excused, "UNHELD though nothing is damaged")
        for position in positions:
            self._known.pop(position, None)
            for belief in (found.durable, found.live):
                belief.states[position] = belief.of(position) | NEITHER

    def _on_due(self, due: Due) -> None:
        self._require(self.answered, "DUE before the last HELD")
        entries = list(due.entries)
        self._credit -= len(entries)
        self._require(self._credit >= 0, f"{-self._credit} more DUE entries than there is credit")
        self._require(entries == sorted(entries), "DUE is not in order")
        stepped = self._promises.clock.steps != self._steps
        latest_ms = self._promises.clock.now_ms() + self._request.horizon_ms
        asked = self._promises.times_asked(self._request.subscription)
        for deliver_at_ms, ledger_id, entry_id in entries:
            position = (ledger_id, entry_id)
            true_ms = self._promises.log.deliver_at_ms.get(position)
            self._require(
                deliver_at_ms == true_ms or deliver_at_ms in asked.get(position, ()),
                f"DUE says {deliver_at_ms} of {position}, it is {true_ms}",
            )
            self._require(position in self._may_hold, f"DUE of {position}, which it does not hold")
            # An entry in flight and not held, from another source, is not known to be in flight.
            may_be = position in self._subscription.brought or position in self._again
            again = position in self._handed and not may_be
            self._require(not again, f"DUE of {position} again, or of what is in flight")
            self._require(stepped or deliver_at_ms <= latest_ms, f"DUE of {position} beyond the horizon")
            self._handed.add(position)
            self._known.pop(position, None)
        if entries and not self._promises.disk.damaged:
            self._in_order((entries[-1][0], (entries[-1][1], entries[-1][2])))

    def _in_order(self, last: tuple[int, Position]) -> None:
        heap = self._known_heap
        while heap and heap[0][1] not in self._known:
            heapq.heappop(heap)
        self._require(not heap or heap[0] > last, f"DUE up to {last}, but {heap[:1]} is held and earlier")

    def _require(self, holds: bool, message: str) -> None:
        if not holds:
            raise Violation(f"{self._request.subscription}: {message}")
