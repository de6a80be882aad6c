"""A broker: the process, the topic that it serves or believes to serve, and the shim's threads.

`ServedSubscription` is the tracker's host: cursor, dispatcher, timer. The work of link, ack watch and
wake-ups, which have their own threads in the shim, happens here as events of the one process.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.sim.bookkeeper import NO_DELAY, BookKeeper, ForwardMove, Position, Subscription
from tests.sim.clocks import MachineClock
from tests.sim.cursor import Cursor, CursorOptions
from tests.sim.cursor_properties import CursorProperties
from tests.sim.daemon import DaemonHost
from tests.sim.dispatcher import Dispatcher, DispatcherOptions
from tests.sim.kernel import NS_PER_MS, NS_PER_S, Event, Kernel, Process, Violation
from tests.sim.lateness import Patience
from tests.sim.link import Link
from tests.sim.log_home import LogBookies, LogHome
from tests.sim.override_ledgers import Entry, OverrideLedger
from tests.sim.overrides import Pointed, ledgers_of
from tests.sim.seal import NO_SEAL, Owner
from tests.sim.shim import FIRST_WAIT_MS, RULES_WAIT_MS, Identity, ShimOptions, Stream, Tracker
from tests.sim.stored_deletions import Kept, StoredDeletions
from tests.sim.wire import ClientEnd, Wire, WireOptions
from tidegate.plugin.wire.payload_reader import CLAIMS_MAX

TOPIC = "persistent://public/default/simulated"
OWNER = "#pulsar.internal.tidegate.owner"
PACE = "#pulsar.internal.tidegate.pace"
PAUSED = "PAUSED:0"
OVERRIDES = "#pulsar.internal.tidegate.overrides"
SEAL = "#pulsar.internal.tidegate.generation"

_CLEAR_TIMEOUT_NS = 5 * NS_PER_S
_REOPEN_REST_NS = 60 * NS_PER_S
_LOOK_NS = 50 * NS_PER_MS
_WITNESSED_NS = 3 * NS_PER_S  # a slow watch, and the next one
_SEALS_NS = 50 * NS_PER_MS
_SEALED_LOOKS = 40  # Pulsar's limit of one write a second, the write and the one before it
_RESET_DOUBLED = 8
_RESET_PAUSE_NS = 200 * NS_PER_MS
_UNDONE_WITHIN_NS = 3 * NS_PER_S  # a reset refused beside a write of ours


@dataclass(frozen=True)
class BrokerOptions:
    """A history's choices about a broker. `rules_ns`: how long the metadata store takes to tell a namespace's
    rules.
    """

    shim: ShimOptions
    cursor: CursorOptions
    dispatcher: DispatcherOptions
    wire: WireOptions
    log_home: str = ""
    patience: Patience = field(default_factory=Patience)
    reset_clears: bool = False
    rules_ns: int = 0


class Broker:
    """A broker through all its lives. `owns`: the metadata store names it the topic's owner."""

    def __init__(
        self,
        kernel: Kernel,
        name: str,
        clock: MachineClock,
        daemon: DaemonHost,
        bookkeeper: BookKeeper,
        log_bookies: LogBookies,
        options: BrokerOptions,
        owns: Callable[[], bool],
        reopen: Callable[[], None],
    ) -> None:
        self.kernel = kernel
        self.name = name
        self.clock = clock
        self.daemon = daemon
        self.bookkeeper = bookkeeper
        self.log_bookies = log_bookies
        self.options = options
        self.owns = owns
        self._reopen = reopen
        self._reopened_ns: int | None = None
        self.process: Process | None = None
        self.link: Link | None = None
        self.served: dict[str, ServedSubscription] = {}
        self._closing = 0  # cursors of a topic being unloaded
        self.watched: dict[Tracker, None] = {}
        self._watch: Event | None = None
        self._watched_slowly_ns = 0

    @property
    def up(self) -> bool:
        """True if the process is there, perhaps stopped."""
        return self.process is not None and not self.process.dead

    @property
    def running(self) -> bool:
        return self.process is not None and not self.process.dead and not self.process.stopped

    @property
    def is_closing(self) -> bool:
        """True if the topic is being unloaded."""
        return self._closing > 0

    @property
    def has_topic(self) -> bool:
        """True if the topic is loaded, or not closed yet: until then BrokerService.getTopic answers with the
        one being closed, whoever has the bundle, so that it cannot be loaded a second time.
        """
        return bool(self.served) or self._closing > 0

    # ---- the process

    def start(self) -> None:
        """Start the process, if there is none."""
        if self.up:
            return
        process = self.process = Process(self.name)

        def connect(client: ClientEnd) -> Wire | None:
            return self.daemon.connect(client, process, self.options.wire)

        self.link = Link(
            self.kernel,
            process,
            self.clock,
            self.name,
            connect,
            lambda: self.daemon.promises,
        )
        process.on_death.append(self._died)

    def _died(self) -> None:
        link, served = self.link, list(self.served.values())
        if link is not None and link.session is not None and link.session.wire is not None:
            link.session.wire.close_client()
        self.link = None
        self.served = {}
        self._closing = 0
        self.watched = {}
        self._watch = None
        for each in served:
            each.dispatcher.closed = True
            for consumer in list(each.dispatcher.consumers):
                consumer.connected = False
                consumer.receiver.on_disconnected(consumer)

    # ---- the topic

    def load(self, subscriptions: list[Subscription]) -> None:
        """Become the topic's owner."""
        self.bookkeeper.log.roll_over(self.kernel.random.randrange(3))
        for each in subscriptions:
            if each.info is not None:
                self.load_subscription(each)

    def load_subscription(self, subscription: Subscription) -> None:
        served = self.served[subscription.name] = ServedSubscription(self, subscription)
        served.cursor.tag = (self.daemon.name, self.daemon.disk.life)

    def unload(self, done: Callable[[], None]) -> None:
        """Close the topic: dispatchers first, then the cursors."""
        closing = list(self.served.values())
        self.served = {}
        if not closing:
            done()
            return
        for each in closing:
            each.dispatcher.close()
        self._closing = len(closing)

        def closed() -> None:
            self._closing -= 1
            if self._closing == 0:
                done()

        for each in closing:
            self.after(each.close_delay_ns(), each.cursor.close, closed)

    def reopen_topic(self) -> None:
        """The shim's `TopicUnloader`: have the topic closed, which loads it anew; once in a while."""
        now_ns = self.clock.monotonic_ns()
        if self._reopened_ns is None or now_ns - self._reopened_ns >= _REOPEN_REST_NS:
            self._reopened_ns = now_ns
            self.after(0, self._reopen)

    def check_budgets(self) -> None:
        """Require the shim's memory to be within its limits. Raises Violation."""
        for tracker in self.watched:
            # One normal and one replay read are under way when it reports that it is full.
            tracker.check_budgets(2 * self.options.dispatcher.read_batch)

    # ---- the shim's threads

    def watch_soon(self) -> None:
        """A tracker may have become busy."""
        self._watch_within(self._poll_ns)

    def _watch_within(self, delay_ns: int) -> None:
        at_ns = self.kernel.now_ns + delay_ns
        if self._watch is not None and self._watch.pending:
            if self._watch.at_ns <= at_ns:
                return
            self._watch.cancel()
        self._watch = self.after(delay_ns, self._watch_all)

    @property
    def _poll_ns(self) -> int:
        return self.options.shim.ack_poll_ms * NS_PER_MS

    def _watch_all(self) -> None:
        self._watch = None
        self.check_budgets()
        slow = self.kernel.now_ns - self._watched_slowly_ns >= NS_PER_S
        if slow:
            self._watched_slowly_ns = self.kernel.now_ns
        for tracker in list(self.watched):
            if tracker.finished:
                del self.watched[tracker]
            elif slow or tracker.busy:
                tracker.watch()
                self._require_decided(tracker)
        if self.link is not None:
            self.link.forget_closed()
        if self.watched:
            busy = any(tracker.busy for tracker in self.watched)
            self._watch_within(self._poll_ns if busy else NS_PER_S)

    @staticmethod
    def _require_decided(tracker: Tracker) -> None:
        """Raise Violation if a first owner waits for its daemon beyond a second, or for an absent one."""
        claim = tracker.claim
        if tracker.decided or tracker.finished or not (claim.owned and claim.owner.epoch == 1):
            return
        wait_ms = FIRST_WAIT_MS if tracker.host.reaches_daemon() else 0
        if tracker.may_be_opened and tracker.askable_for_ms >= wait_ms:
            raise Violation(f"{tracker.identity.subscription} is new, and its messages wait for a daemon")

    def after(self, delay_ns: int, call: Callable[..., None], *args: object) -> Event:
        """Call in this life of the process."""
        return self.kernel.after(delay_ns, self.process, call, *args)


class ServedSubscription:
    """A subscription in a broker with the topic loaded. Implements `shim.Host`."""

    def __init__(self, broker: Broker, subscription: Subscription) -> None:
        self.broker = broker
        self.subscription = subscription
        kernel, process = broker.kernel, broker.process
        assert process is not None
        self._process = process
        self._link = broker.link
        options = broker.options
        self.cursor = Cursor(kernel, process, broker.bookkeeper, subscription, options.cursor, broker.owns)
        self.properties = CursorProperties(broker.after, self.cursor, self.reset)
        subscription.obligations.loaded(self.cursor.resets)
        subscription.obligations.pushed_out |= self.cursor.beyond
        self.deletions = StoredDeletions(
            broker.after, self.cursor, self.seal, self._delete_cancelled, self.properties.look
        )
        self._looked = self._loaded_sealed = self._pending_reset = False
        self._known: frozenset[Position] = frozenset()
        self._loaded_resets = self.cursor.resets
        self._moved_ns: list[int] = []  # when mark-delete moved forward, with the seal gone
        self._moved_alone = False
        self.dispatcher = Dispatcher(
            kernel,
            process,
            broker.clock,
            broker.bookkeeper.log,
            self.cursor,
            options.dispatcher,
            self._make_tracker,
            lambda: self.owner() is not None,
            self._knows_acknowledged,
            self._judge_lateness,
            self._judge_time,
        )
        self._log = LogHome(
            process,
            broker.log_bookies,
            self.cursor,
            self.properties,
            lambda ledger_id: broker.daemon.promises.log_began(subscription.name, ledger_id),
            options.log_home,
        )
        self._rules_asked_ms = 0
        self._knows_rules = False
        self._wake: Event | None = None
        self._wake_ms: int | None = None
        self._go_by_what_is_loaded()
        self._stored_seal = self.seal()
        self._beyond = False
        self._keep_seal()
        # A thread of its own reports a loaded topic, and consumers may be there first.
        broker.after(kernel.numbers.randrange(_LOOK_NS), self._look)

    # ---- the loaded cursor: the shim's `UndoneResets`

    def _look(self) -> None:
        """Check once: at the topic's loading, or before that, as a tracker is about to be made."""
        if self._looked or self.cursor.closed:
            return
        self._looked = True
        self._loaded_sealed = self.seal() != NO_SEAL
        self._pending_reset = self._is_undone
        if self._pending_reset:
            self._require_a_reset()
            # Where no lock is held.
            self.broker.after(0, self._reset_once_more, self.cursor.mark_delete, 1)

    @property
    def _is_undone(self) -> bool:
        """True if the cursor is as in a reset's own record, with the acknowledgements taken back."""
        owner = self.owner()
        sealed = owner is not None and owner.sealed
        return sealed and self.seal() == NO_SEAL and bool(self.cursor.acknowledged)

    def _go_by_what_is_loaded(self) -> None:
        """Forgive nothing taken back by a reset where the shim can tell."""
        owner = self.owner()
        told = owner is not None and owner.sealed and self.seal() == NO_SEAL
        if not told:
            kept = self.cursor.acknowledged | self.cursor.beyond
            self.subscription.obligations.recovered(frozenset(kept), self.cursor.resets)

    def _reset_once_more(self, loaded: Position, tries: int) -> None:
        """Reset to the loaded position: early consumers may have moved it since."""
        if self.cursor.closed:
            return
        there = self.cursor.mark_delete
        if tries > 1 and (there < loaded or (there == loaded and not self.cursor.acknowledged)):
            self._reset_is_done()  # by another
            return

        def done(written: bool) -> None:
            if written:
                self._reset_is_done()
            else:
                pause_ns = _RESET_PAUSE_NS << min(tries, _RESET_DOUBLED)
                self.broker.after(pause_ns, self._reset_once_more, loaded, tries + 1)

        self.reset((loaded[0], loaded[1] + 1), done)

    def _reset_is_done(self) -> None:
        """Its record still has the acknowledgements; from now on the shim has the time to store one
        without.
        """
        self._pending_reset = False
        self._beyond, self._stored_seal = True, NO_SEAL
        self.subscription.forward = ForwardMove(len(self.subscription.obligations.reset_to))

    # ---- a stored seal for acknowledgements beyond mark-delete: the shim's `StoredSeals`

    def _keep_seal(self) -> None:
        if self.cursor.closed:
            return
        self.broker.after(_SEALS_NS, self._keep_seal)
        if not self._looked or self._pending_reset or self.owner() is None:
            return
        self._beyond = self._beyond or bool(self.cursor.acknowledged)
        there = self.seal()
        if self._beyond and (there == NO_SEAL or there != self._stored_seal):
            self._store_seal()
        forward, persisted = self.subscription.forward, self.cursor.persisted_mark_delete
        if forward is not None:
            # Without a persisted position none is stored: no fault of the shim.
            forward.looks = forward.looks + 1 if persisted is not None else 0

    def _store_seal(self) -> None:
        """Refused during a reset, which begins in one step here."""
        cursor = self.cursor
        persisted = cursor.persisted_mark_delete
        if cursor.resetting or persisted is None or persisted > cursor.mark_delete:
            return
        number = self.seal() or self.broker.kernel.numbers.randrange(1, 1 << 63)
        is_written = not cursor.is_limited

        def done(written: bool) -> None:
            if written and is_written and self.seal() == number:
                self._stored_seal = number
                self._beyond = bool(cursor.acknowledged)

        cursor.move_to(cursor.mark_delete, {**cursor.position_properties, SEAL: number}, done)

    def _note_forward_move(self) -> None:
        resets = len(self.subscription.obligations.reset_to)
        self.subscription.forward = ForwardMove(resets)
        self._moved_ns.append(self.broker.kernel.now_ns)
        self._moved_alone |= not self.has_consumers()

    def _require_a_reset(self) -> None:
        """The cursor counts as loaded from a reset's own record. Raises Violation if nobody has reset it
        since mark-delete moved forward, or a reset was repeated, and the shim has had the time to store a
        seal.
        """
        forward = self.subscription.forward
        if (
            forward is not None
            and forward.looks > _SEALED_LOOKS
            and forward.resets == len(self.subscription.obligations.reset_to)
        ):
            raise Violation(
                f"{self.subscription.name} is reset once more, which nobody had reset: mark-delete "
                f"{self.cursor.mark_delete}, {len(self.cursor.acknowledged)} acknowledged beyond"
            )

    # ---- the tracker

    @property
    def tracker(self) -> Tracker | None:
        """The tracker, once the first delayed message was read."""
        return self.dispatcher.tracker

    def _make_tracker(self) -> Tracker:
        broker = self.broker
        self._look()
        first = Owner(broker.kernel.random.randbytes(16), 0)
        identity = Identity(TOPIC, self.subscription.name, self.owner() or first)
        self._ask_for_rules()
        tracker = Tracker(self, broker.options.shim, identity)
        tracker.make_claim()
        self._note_known()
        assert self._link is not None
        broker.watched[tracker] = None
        broker.watch_soon()
        # The link has its own thread.
        broker.after(0, self._link.register, tracker)
        return tracker

    # ---- the namespace's rules: the shim's `PolicyProperties`

    def _ask_for_rules(self) -> None:
        self._rules_asked_ms = self.uptime_ms()
        if self.broker.options.rules_ns:
            self.broker.after(self.broker.options.rules_ns, self._on_rules)
        else:
            self._knows_rules = True

    def _on_rules(self) -> None:
        self._knows_rules = True
        if self.tracker is not None:
            self.tracker.on_rules()

    def _require_rules(self, position: Position) -> None:
        """A message is sent. Raises Violation if it is delayed, and its rules are still awaited."""
        if self._knows_rules or self.broker.bookkeeper.log.deliver_at_ms[position] == NO_DELAY:
            return
        if self.uptime_ms() - self._rules_asked_ms < RULES_WAIT_MS:
            raise Violation(f"{position} of {self.subscription.name} leaves before the rules are known")

    # ---- the daemon's knowledge

    def _note_known(self) -> None:
        """Note the daemon's knowledge before it is asked; nothing where a log may give it other data, or
        claims leave the list soon, for lack of which it empties the index.
        """
        seal, name = self.seal(), self.subscription.name
        has_log = self._log.pointer or self._log.home
        if seal != NO_SEAL and not has_log and self.broker.options.shim.claims_max == CLAIMS_MAX:
            promises, fates = self.broker.daemon.promises, self.subscription.obligations.fates
            self._known = frozenset(
                position
                for position, fate in fates.items()
                if fate.acknowledged and promises.knows_acknowledged(name, seal, position)
            )

    def was_known(self, position: Position) -> bool:
        """True if the daemon surely knew it acknowledged when this owner asked, and nothing made that
        doubtful: no reset, done or not, nor a move of mark-delete without a consumer that stayed.
        """
        if not self.subscription.obligations.reset_to.keys() <= set(self.cursor.resets):
            return False
        if position not in self._known or self.cursor.resets != self._loaded_resets or self._moved_alone:
            return False
        alone_ns = self.dispatcher.alone_ns
        return all(abs(moved_ns - each) > _WITNESSED_NS for moved_ns in self._moved_ns for each in alone_ns)

    def _knows_acknowledged(self, position: Position) -> bool:
        tracker = self.tracker
        answered = tracker is not None and tracker.held_once and tracker.stream is Stream.OPEN
        if tracker is None or not answered:
            return False
        promises = self.broker.daemon.promises
        return promises.knows_acknowledged(self.subscription.name, tracker.opened_under, position)

    # ---- in time

    def _judge_time(self, position: Position) -> None:
        """A message is sent. Raises Violation if none of the times that may hold for it has come."""
        self._require_rules(position)
        changed, now_ms = self.subscription.changed, self.broker.clock.now_ms()
        first_ms = min(changed.times_of(position, self.broker.bookkeeper.log.deliver_at_ms[position]))
        if now_ms >= first_ms:
            return
        if changed.was_acknowledged(position) and (
            position in self.cursor.forgotten or self.broker.clock.was_stepped
        ):
            return  # its time had come before, by another clock
        raise Violation(f"{position} of {self.subscription.name} is sent {first_ms - now_ms} ms early")

    def due_ms(self, position: Position) -> int:
        """The last of the times that may hold for it."""
        changed, own_ms = self.subscription.changed, self.broker.bookkeeper.log.deliver_at_ms[position]
        if own_ms == NO_DELAY:
            return own_ms
        latest_ms = max(changed.times_of(position, own_ms))
        # Its override has left with its acknowledgement; a crash may have brought back the message alone.
        return max(latest_ms, own_ms) if changed.was_acknowledged(position) else latest_ms

    def _judge_lateness(self, position: Position) -> None:
        """A message is sent. Raises Violation if it is the first time, and too late, or from a paused
        subscription.
        """
        pace, is_delayed = (
            self.subscription.pace,
            self.broker.bookkeeper.log.deliver_at_ms[position] != NO_DELAY,
        )
        if pace.paused and is_delayed and position not in pace.sent and self.broker.owns():
            raise Violation(f"{position} of {self.subscription.name} leaves while it is paused")
        pace.sent.add(position)
        if not self.subscription.obligations.fates[position].receipts:
            self._require_in_time(position, "is sent")

    def check_lateness(self) -> None:
        """Raise Violation if something should have been sent long ago."""
        fates = self.subscription.obligations.fates
        if self.dispatcher.has_free_permit and not self.dispatcher.waits_for_traffic:
            for position in self.subscription.obligations.owed(self.cursor.resets):
                never = not fates[position].receipts and not self.is_deleted(position)
                if never and not self.is_outstanding(position):
                    self._require_in_time(position, "is not sent yet")

    def _require_in_time(self, position: Position, what: str) -> None:
        log, kernel = self.broker.bookkeeper.log, self.broker.kernel
        tracker, deliver_at_ms = self.tracker, self.due_ms(position)
        if tracker is None or tracker.closing or self._waits_for_daemon(tracker, position):
            return
        if tracker.is_paused or self.subscription.pace.may_be_paused:
            return
        if deliver_at_ms == NO_DELAY or not self.broker.owns() or self.broker.daemon.disk.damaged:
            return
        now_ns = kernel.now_ns
        since_ns = max(
            now_ns - (self.now_ms() - deliver_at_ms) * NS_PER_MS,
            self.subscription.obligations.fates[position].published_ms * NS_PER_MS,
            kernel.disturbed_until_ns,
            self.dispatcher.settled_ns,
            self.subscription.pace.changed_ns,
            self.subscription.changed.changed_ns,
        )
        allowed_ns = self.broker.options.patience.allows_ns(len(log.positions))
        if now_ns - since_ns > allowed_ns:
            raise Violation(
                f"late: {position} of {self.subscription.name} {what}, and nothing has kept it for "
                f"{(now_ns - since_ns) // NS_PER_MS} ms; {allowed_ns // NS_PER_MS} are allowed"
            )

    @staticmethod
    def _waits_for_daemon(tracker: Tracker, position: Position) -> bool:
        """True if the message may have to wait for the daemon. One near at the broker needs none."""
        return not tracker.decided or (tracker.stream is not Stream.OPEN and position not in tracker.near)

    # ---- shim.Host

    def unsettle(self) -> None:
        self.dispatcher.unsettle()

    def now_ms(self) -> int:
        return self.broker.clock.now_ms()

    def uptime_ms(self) -> int:
        return self.broker.clock.monotonic_ns() // NS_PER_MS

    def is_deleted(self, position: Position) -> bool:
        return self.cursor.is_deleted(position)

    def mark_delete(self) -> Position:
        return self.cursor.mark_delete

    def persisted_mark_delete(self) -> Position:
        persisted = self.cursor.persisted_mark_delete
        # Beyond mark-delete it was written behind a seek's record, with the position from before it.
        return (-1, -1) if persisted is None or persisted > self.cursor.mark_delete else persisted

    def cursor_closed(self) -> bool:
        return self.cursor.closed

    def consumers_replaced(self) -> bool:
        return self.dispatcher.replaced()

    def is_outstanding(self, position: Position) -> bool:
        return any(position in consumer.pending for consumer in self.dispatcher.consumers)

    def has_forgotten(self) -> bool:
        """True if the cursor has forgotten the acknowledgement of a handed-out message.

        So does Pulsar 4.0.8 if a write is done behind a seek's, and something was acknowledged in between
        (see `cursor`). Nobody learns of it: the message comes again when all consumers are replaced.
        """
        return self.tracker is not None and any(
            not self.is_deleted(position) and not self.is_outstanding(position)
            for position in self.cursor.forgotten & self.tracker.handed_out
        )

    def redeliveries(self) -> int:
        return len(self.dispatcher.redelivery)

    def seal(self) -> int:
        return self.cursor.get_property(SEAL) or NO_SEAL

    def put_seal(self, seal: int) -> bool:
        return self.cursor.put_property(SEAL, seal)

    def random(self) -> random.Random:
        return self.broker.kernel.random

    def draw_claim(self) -> int:
        return self.broker.kernel.numbers.getrandbits(32)

    def stores_sealed(self) -> bool:
        return self._loaded_sealed or (self.seal() != NO_SEAL and not self.cursor.acknowledged)

    def last_position(self) -> Position:
        return self.broker.bookkeeper.log.last

    def owner(self) -> Owner | None:
        text = self.cursor.cursor_properties.get(OWNER)
        return None if text is None else Owner.parse(text)

    def put_owner(self, owner: Owner, done: Callable[[bool], None]) -> None:
        self.properties.put(OWNER, owner.text(), done)

    def is_paused(self) -> bool:
        return self.cursor.cursor_properties.get(PACE) == PAUSED

    def put_pause(self, paused: bool, done: Callable[[bool], None]) -> None:
        self.properties.put(PACE, PAUSED if paused else "", done)

    def reopen_topic(self) -> None:
        self.broker.reopen_topic()

    # ---- cancelled and moved messages

    def exists(self, position: Position) -> bool:
        return position in self.broker.bookkeeper.log.deliver_at_ms

    def note_cancelled(self, positions: set[Position]) -> None:
        """For the account only. Raises Violation if it is too late."""
        obligations, cursor = self.subscription.obligations, self.cursor
        for position in positions:
            if self.is_outstanding(position):
                raise Violation(f"{position} is cancelled though a consumer has it")
            obligations.decided(position, cursor.resets, owner=cursor, at_ns=self.broker.kernel.now_ns)

    def delete_and_store(self, positions: list[Position], seal: int, done: Callable[[Kept], None]) -> None:
        def stored(kept: Kept) -> None:
            self.subscription.changed.no_room += kept is Kept.NO_ROOM
            done(kept)

        self.deletions.store(positions, seal, stored)

    def _delete_cancelled(self, positions: list[Position]) -> bool:
        self._require_not_owed(positions)
        self.cursor.acknowledge(positions)
        return not self.cursor.closed

    def overrides_pointer(self) -> str:
        return self.cursor.cursor_properties.get(OVERRIDES, "")

    def may_store_overrides(self) -> bool:
        return not self.cursor.closed and not self.properties.is_being_reset

    def create_overrides(self, answer: Callable[[OverrideLedger | None], None]) -> None:
        self.broker.bookkeeper.overrides.create(self._process, self.cursor.round_trip_ns(), answer)

    def append_override(
        self, ledger: OverrideLedger, entry: Entry, answer: Callable[[OverrideLedger | None], None]
    ) -> None:
        ledgers = self.broker.bookkeeper.overrides
        ledgers.append(self._process, self.cursor.round_trip_ns(), ledger, entry, answer)

    def read_overrides(
        self,
        ledger_id: int,
        answer: Callable[[OverrideLedger | None], None],
        gone: Callable[[OverrideLedger | None], None],
    ) -> None:
        ledgers = self.broker.bookkeeper.overrides
        ledgers.open(self._process, self.cursor.round_trip_ns(), ledger_id, answer, gone=gone)

    def point_overrides(self, pointer: str, answer: Callable[[Pointed], None]) -> None:
        if self.cursor.closed or self.properties.is_being_reset:
            self.properties.look()
            self.broker.after(0, answer, Pointed.REFUSED)
            return
        self.properties.put(
            OVERRIDES, pointer, lambda done: answer(Pointed.DONE if done else Pointed.IN_DOUBT)
        )

    def delete_overrides(self, ledger_id: int) -> None:
        self.broker.bookkeeper.overrides.delete(ledger_id)

    def log(self) -> LogHome:
        return self._log

    def may_seal(self) -> bool:
        return self.has_consumers() and not self._pending_reset

    def has_consumers(self) -> bool:
        return bool(self.dispatcher.consumers)

    def reaches_daemon(self) -> bool:
        return self._link is not None and self._link.reaches_daemon

    def knows_rules(self) -> bool:
        return self._knows_rules

    def consumers(self) -> Sequence[object]:
        return tuple(self.dispatcher.consumers)

    def delete(self, positions: list[Position], seal: int, done: Callable[[bool], None]) -> None:
        if self.seal() != seal:
            positions = []
        self._require_not_owed(positions)
        self.cursor.acknowledge(positions, done)

    def _require_not_owed(self, positions: list[Position]) -> None:
        obligations, chain = self.subscription.obligations, self.cursor.resets
        for position in positions:
            if obligations.is_owed(position, chain):
                obligations.wrongly_deleted(position, chain)

    def read_more(self) -> None:
        self.broker.watch_soon()
        self.dispatcher.read_more_soon()

    def wake_at(self, at_ms: int) -> None:
        if self._wake is not None and self._wake.pending:
            if self._wake_ms is not None and self.now_ms() < self._wake_ms <= at_ms:
                return
            self._wake.cancel()
        self._wake_ms = at_ms
        wake_ns = self.broker.clock.true_ns_of(at_ms) - self.broker.kernel.now_ns
        self._wake = self.broker.kernel.after(wake_ns, self._process, self._on_wake)

    def _on_wake(self) -> None:
        self.broker.watch_soon()
        if self.tracker is not None:
            self.tracker.on_wake()

    def frames_waiting(self) -> None:
        self.broker.watch_soon()
        if self._link is not None and self.tracker is not None:
            self._link.frames_waiting(self.tracker)

    # ---- the user

    def reset(self, to: Position, done: Callable[[bool], None]) -> None:
        """Seek: disconnect the consumers, reset the cursor, and let consumers in again.

        With `reset_clears` first have the tracker forget everything, as apache/pulsar#26420 does.
        """
        dispatcher = self.dispatcher
        if dispatcher.fenced or dispatcher.closed:
            done(False)
            return
        dispatcher.fenced = True
        dispatcher.disconnect_all()
        number = self.subscription.obligations.begin_reset(to)

        def complete(written: bool) -> None:
            dispatcher.fenced = False
            if written:
                self.subscription.obligations.complete_reset(number)
            elif self.cursor.reset_met_property:
                self.broker.after(_UNDONE_WITHIN_NS, self._refused, number)
            done(written)

        if self.broker.options.reset_clears and self.tracker is not None:
            self.tracker.clear()
            self._when_cleared(lambda: self.cursor.reset(to, number, complete))
        else:
            self.cursor.reset(to, number, complete)

    def _refused(self, number: int) -> None:
        """The user got this answer a while ago."""
        if not self.cursor.closed and self.broker.owns():
            self.subscription.obligations.refuse_reset(number)

    def skip(self, count: int) -> None:
        """Skip some, as the admin and a quota do."""
        cursor = self.cursor
        if not self.dispatcher.fenced and cursor.skip(count, lambda written: None):
            self._note_forward_move()
            self.subscription.obligations.cleared(
                cursor.mark_delete, cursor.resets, owner=cursor, at_ns=self.broker.kernel.now_ns
            )
            self.dispatcher.read_more_soon()

    def clear_backlog(self) -> None:
        """Skip everything, then have the tracker forget it. Consumers stay."""
        cursor = self.cursor

        def complete(written: bool) -> None:
            if written and self.tracker is not None and not self.dispatcher.closed:
                self.tracker.clear()

        if not self.dispatcher.fenced and cursor.clear_backlog(complete):
            self._note_forward_move()
            self.subscription.obligations.cleared(
                cursor.mark_delete, cursor.resets, owner=cursor, at_ns=self.broker.kernel.now_ns
            )
            self.dispatcher.read_more_soon()

    def unsubscribe(self) -> None:
        """Have the tracker forget everything, wait a bounded time for the daemon, then delete the cursor."""
        if self.dispatcher.fenced or self.dispatcher.closed or self.cursor.resetting:
            return
        self.dispatcher.fenced = True
        self.dispatcher.disconnect_all()
        if self.tracker is not None:
            self.tracker.clear()
        # The cursor leaves the metadata store.
        self._when_cleared(lambda: self.broker.after(self.cursor.round_trip_ns(), self._delete))

    def _when_cleared(self, then: Callable[[], object]) -> None:
        """Go on when the daemon has forgotten everything, or after a while."""
        self._look_if_cleared(self.broker.kernel.now_ns + _CLEAR_TIMEOUT_NS, then)

    def _look_if_cleared(self, deadline_ns: int, then: Callable[[], object]) -> None:
        kernel = self.broker.kernel
        told = self.tracker is None or self.tracker.outbox.is_empty
        if not told and kernel.now_ns < deadline_ns:
            kernel.after(20 * NS_PER_MS, self._process, self._look_if_cleared, deadline_ns, then)
        else:
            then()

    def _delete(self) -> None:
        """Unless the topic has been unloaded meanwhile, or taken over."""
        if self.dispatcher.closed or not self.broker.owns():
            self.dispatcher.fenced = False
            return
        self.dispatcher.closed = self.cursor.closed = True
        if self.tracker is not None:
            self.tracker.close()
        for ledger_id in ledgers_of(self.overrides_pointer()):
            self.delete_overrides(ledger_id)
        self.broker.bookkeeper.delete(self.subscription)
        self.subscription.forward = None
        self.broker.kernel.note(f"{self.subscription.name} is deleted")
        del self.broker.served[self.subscription.name]
        self._delete_log()

    def _delete_log(self) -> None:
        """After the daemon's last word: the shim's `LogDeletions`."""
        if self.tracker is None or self.tracker.is_over:
            self._log.delete_all()
        else:
            self.broker.after(NS_PER_S, self._delete_log)

    def close_delay_ns(self) -> int:
        """From the dispatcher's close to the cursor's."""
        kernel = self.broker.kernel
        return kernel.between_ns(0, self.broker.options.cursor.io_ns)
