"""Checks every word that passes between the shims and one daemon's disk against docs/protocol.md.

What was answered with DURABLE is in every later HELD; what was not may be or not; nothing is acknowledged
that was not, or was taken back; what is due comes in order, once, within the horizon, and within the credit.
Kept outside of both sides, so that a crash of either leaves it as it is.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from tests.sim.belief import ACKNOWLEDGED, HELD, NEITHER, Belief, names
from tests.sim.bookkeeper import TopicLog
from tests.sim.clocks import MachineClock
from tests.sim.kernel import Violation
from tests.sim.store import Disk
from tests.sim.wire import Wire
from tidegate.index.positions import PositionSet
from tidegate.plugin.daemon.session import Change
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
    Open,
    Unack,
    Unheld,
)

Position = tuple[int, int]
Order = tuple[int, int]
"""Who may take over from whom: by epoch, then as OPEN was sent."""


@dataclass(slots=True)
class _Sent:
    """A change on its way to the daemon, or there; `end` is where its frame ends in the wire's bytes."""

    change: Change | Open
    stream: StreamWatch
    seq: int
    wire: Wire
    end: int


class _Subscription:
    """What is known of one subscription: `durable` on the disk, `live` in the daemon's memory.

    `sent` is what came after the former, of which the first `folded` are in the latter.
    """

    def __init__(self) -> None:
        self.durable = Belief()
        self.live = Belief()
        self.sent: list[_Sent] = []
        self.folded = 0
        self.based_on: Order = (0, 0)  # order of the newest stream that has made anything durable
        self.newest: StreamWatch | None = None
        self.opened: dict[Wire, Order] = {}  # order of the last stream of each connection

    def forget_before(self, stream: StreamWatch) -> None:
        """What was sent on other streams before this one was opened is in its answer."""
        kept = [
            sent.stream.order > stream.order or (sent.stream is stream and sent.seq > 0) for sent in self.sent
        ]
        self.folded = sum(kept[: self.folded])
        self.sent = [sent for sent, keep in zip(self.sent, kept, strict=True) if keep]

    def contested(self, stream: StreamWatch, wire: Wire) -> bool:
        """Whether a later stream of another connection may have taken over before a change on this one."""
        return any(order > stream.order for other, order in self.opened.items() if other is not wire)

    def daemon_died(self) -> None:
        for sent in self.sent:
            self.durable.fold(sent.change, sent.stream.generation, certain=False)
        self.live = self.durable.copy()
        self.sent, self.folded = [], 0
        self.newest = None
        self.opened.clear()
        self.based_on = (0, 0)


class Promises:
    """All subscriptions of one daemon's disk."""

    def __init__(self, log: TopicLog, disk: Disk, clock: MachineClock) -> None:
        self.log = log
        self.disk = disk
        self.clock = clock
        self.troubled = False  # the disk has refused something in this life of the daemon
        self.daemon_lives = 0
        self._disk_life = disk.life
        self._subscriptions: dict[str, _Subscription] = {}
        self._streams = 0

    def daemon_died(self) -> None:
        """What was not durable may be there or not."""
        self.troubled = self.disk.troubled
        self.daemon_lives += 1
        for each in self._subscriptions.values():
            each.daemon_died()
        if self.disk.life != self._disk_life:
            self._disk_life = self.disk.life
            self._subscriptions.clear()

    def knows_acknowledged(self, subscription: str, generation: int, position: Position) -> bool:
        """Whether the daemon surely knows that the position is acknowledged under this seal, now and after
        any crash."""
        found = self._subscriptions.get(subscription)
        if found is None or found.durable.generation != generation:
            return False
        return found.durable.of(position) == ACKNOWLEDGED

    def opened(self, wire: Wire, request: Open) -> StreamWatch:
        """A shim has sent OPEN."""
        found = self._subscriptions.setdefault(request.subscription, _Subscription())
        self._streams += 1
        watch = StreamWatch(self, found, wire, request, (request.epoch, self._streams))
        watch.expected, watch.doubted = found.live.copy(), found.live.copy()
        for sent in found.sent[found.folded :]:
            watch.expected.fold(
                sent.change, sent.stream.generation, certain=self._was_applied(found, sent, wire)
            )
            watch.doubted.fold(sent.change, sent.stream.generation, certain=False)
        found.opened[wire] = watch.order
        found.sent.append(_Sent(request, watch, 0, wire, wire.written_bytes))
        return watch

    def _was_applied(self, found: _Subscription, sent: _Sent, wire: Wire) -> bool:
        """Whether a change surely came before an OPEN that is sent on `wire` now."""
        if self.troubled or sent.stream.ended or found.contested(sent.stream, sent.wire):
            return False
        if sent.wire is wire:
            return True
        over = sent.wire
        return over.ended_by_client and not over.daemon_open and sent.end <= over.accepted_bytes


class StreamWatch:
    """One stream, as somebody sees it who listens to both sides."""

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
        self.expected = Belief()
        self.doubted = Belief()  # the same, should the disk refuse something before OPEN arrives
        self.ended = False
        self._collapsed: Belief | None = None
        self._held: set[Position] = set()
        self._acknowledged: set[Position] = set()
        self._answered = False
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

    # ---- what the shim says

    def credit(self, more: int) -> None:
        """CREDIT."""
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
                if change.near:  # from now on the daemon may leave them out, once it is durable it must
                    for position in positions:
                        self._known.pop(position, None)
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
                self._handed.clear()
                self._known.clear()  # DUE of what is cleared may be on its way
            case Close():
                self._known.clear()

    def _note(self, sent: _Sent) -> None:
        found = self._subscription
        if found.newest is self or isinstance(sent.change, Close):
            found.sent.append(sent)
            return
        # Another stream has been opened since: this one may be over for the daemon, or not yet.
        for belief in (found.durable, found.live, *self._others()):
            belief.fold(sent.change, sent.stream.generation, certain=False)

    @property
    def _daemon_is_over(self) -> bool:
        """Whether the daemon of this stream is dead: what it had sent may still be read."""
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

    # ---- what the daemon says

    def received(self, message: Message, seq: int) -> None:
        """A frame of the daemon has reached the shim. Raises Violation."""
        if self._closed or self.ended:
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
                if at is not None and not self._answered:
                    self._withdraw(at)
            case Close():
                self._require(self._durable_seq == self._last_seq, "CLOSE before everything is durable")
                self._closed = True
            case _:
                raise Violation(f"the daemon does not send {message.type.name}")

    def _withdraw(self, at: int) -> None:
        """OPEN was refused, or its answer cut off: it may have been made or not."""
        found = self._subscription
        sent = found.sent.pop(at)
        found.folded -= at < found.folded
        for belief in (found.durable, found.live):
            belief.fold(sent.change, sent.stream.generation, certain=False)

    def _on_held(self, held: Held) -> None:
        self._require(not self._answered, "HELD after the last HELD")
        self._held.update(held.held)
        self._acknowledged.update(held.acknowledged)
        if not held.last:
            return
        self._answered = True
        self._require(not self._held & self._acknowledged, "held and acknowledged at once")
        self._verify()
        found = self._subscription
        actual = Belief(
            dict.fromkeys(self._held, HELD) | dict.fromkeys(self._acknowledged, ACKNOWLEDGED),
            self._request.mark_delete,
            self._request.incarnation,
            self.generation,
        )
        self._collapsed = actual
        if not self._daemon_is_over and (found.newest is None or found.newest.order < self.order):
            found.newest = self
            found.live = actual.copy()
            found.folded = next(  # a later OPEN, which was sent before this answer came, is not in it
                (at for at, sent in enumerate(found.sent) if sent.stream.order > self.order), len(found.sent)
            )
        self._may_hold |= self._held
        for position in self._held - self._handed:
            self._know(position)

    def _own_open(self) -> int | None:
        """Where this stream's OPEN is among what was sent; None if the daemon has died since."""
        return next((at for at, sent in enumerate(self._subscription.sent) if sent.stream is self), None)

    def _verify(self) -> None:
        at = self._own_open()
        if at is None:
            return  # the daemon has died since, and it is not known any more what others had sent
        if self._promises.troubled:
            self.expected = self.doubted
        for sent in self._subscription.sent[at + 1 :]:  # it came before OPEN, or never
            self.expected.fold(sent.change, sent.stream.generation, certain=False)
        self.expected.fold(self._request, self.generation, certain=True)
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
                continue  # what was damaged is read again, or delivered again
            raise Violation(
                f"HELD says that {position} is {names(actual)}, but it must be {names(states)} "
                f"(OPEN with mark-delete {self._request.mark_delete})"
            )

    def _on_durable(self, seq: int) -> None:
        self._require(self._durable_seq < seq <= self._last_seq, f"DURABLE {seq} after {self._durable_seq}")
        self._durable_seq = seq
        found = self._subscription
        if found.based_on > self.order or self._collapsed is None or self._daemon_is_over:
            return  # (in the last case it is true all the same, but what it covers is not known any more)
        if found.based_on < self.order:
            found.based_on = self.order
            found.durable = self._collapsed.copy()
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
        """The daemon has these for sure, but for what it may hear next; what is near it does not hand out."""
        found = self._subscription
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
        if position not in self._known and position > self._mark:
            self._known[position] = deliver_at_ms
            heapq.heappush(self._known_heap, (deliver_at_ms, position))

    def _on_unheld(self, positions: PositionSet) -> None:
        self._require(self._answered, "UNHELD before the last HELD")
        self._require(self._promises.disk.damaged, "UNHELD though nothing is damaged")
        found = self._subscription
        for position in positions:
            self._known.pop(position, None)
            for belief in (found.durable, found.live):
                belief.states[position] = belief.of(position) | NEITHER

    def _on_due(self, due: Due) -> None:
        self._require(self._answered, "DUE before the last HELD")
        entries = list(due.entries)
        self._credit -= len(entries)
        self._require(self._credit >= 0, f"{-self._credit} more DUE entries than there is credit")
        self._require(entries == sorted(entries), "DUE is not in order")
        stepped = self._promises.clock.steps != self._steps
        latest_ms = self._promises.clock.now_ms() + self._request.horizon_ms
        for deliver_at_ms, ledger_id, entry_id in entries:
            position = (ledger_id, entry_id)
            true_ms = self._promises.log.deliver_at_ms.get(position)
            self._require(
                deliver_at_ms == true_ms, f"DUE says {deliver_at_ms} of {position}, it is {true_ms}"
            )
            self._require(position in self._may_hold, f"DUE of {position}, which it does not hold")
            self._require(position not in self._handed, f"DUE of {position} again, or of what is in flight")
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
