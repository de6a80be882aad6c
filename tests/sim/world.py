"""The whole world of a history: machines, daemons, brokers, clients, the topic's ownership, and the checks.

By the metadata store the topic has one owner. A broker killed, or stopped for longer than its session, loses
it; after a stop it believes for a while that it still has it (a zombie).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.sim.backups import Backups
from tests.sim.bookkeeper import NO_DELAY, BookKeeper, CursorInfo, CursorRecord, Position, Subscription
from tests.sim.broker import TOPIC, Broker, ServedSubscription
from tests.sim.changed import Request
from tests.sim.client import Client
from tests.sim.clocks import MachineClock
from tests.sim.config import Config
from tests.sim.counts import check_counts
from tests.sim.daemon import DaemonHost
from tests.sim.dispatcher import Dispatcher
from tests.sim.kernel import NS_PER_MS, NS_PER_S, START_MS, Event, Kernel, Process, Violation
from tests.sim.log_beliefs import LogBeliefs
from tests.sim.log_home import POINTER, LogBookies, LogDamage, current_ledger
from tests.sim.objects import SimObjects
from tests.sim.obligations import Cause, Obligations
from tests.sim.operator import Changer, Operator
from tests.sim.promises import Promises
from tests.sim.readers import Lister, StatusReader
from tests.sim.rebuild import Rebuild
from tests.sim.store import Disk, Trouble
from tests.sim.upkeep import UpkeepWatch
from tidegate.index.subscription.delay_index import DelayIndex

_ZOMBIE_MS = 400
_LOAD_NS = 20 * NS_PER_MS
_LATENCY_AT_THE_END_NS = NS_PER_MS // 5
_FINISH_STEP_NS = NS_PER_S
_FINISH_EXTRA_MS = 90_000
_SETTLE_NS = 10 * NS_PER_S  # a daemon gives up reading an index log after 8 s
_LOGS_NS = 90 * NS_PER_S  # for an index log that lacks something: it may have to try again after half of that
_LEFT_MS = 3_000
_CHECK_SHARE = 0.02


class World:
    """Everything in a run of a history."""

    def __init__(self, config: Config, seed: int) -> None:
        self.config = config
        self.kernel = kernel = Kernel(seed)
        self.bookkeeper = BookKeeper(kernel, config.first_ledger_id)
        self.skipped: Counter[str] = Counter()
        self.log_beliefs = LogBeliefs()
        self.log_bookies = LogBookies(kernel, config.log_io_us * 1_000, config.log_read_bytes)
        self.log_bookies.on_open = self._log_opened
        self.log_bookies.counts = self._log_counts
        self._log_answers_ns = 0
        self.objects = SimObjects(kernel, self.log_bookies)
        machines = 1 if config.shared_daemon else 2
        self.clocks = [MachineClock(kernel) for _ in range(machines)]
        self.disks = [Disk(kernel, f"disk-{number}") for number in range(machines)]
        self.daemons: list[DaemonHost] = []
        for number, (clock, disk) in enumerate(zip(self.clocks, self.disks, strict=True)):
            disk.write_ns = config.write_us * 1_000
            promises = Promises(self.bookkeeper.log, disk, clock, self.log_beliefs)
            options = config.daemon_options()
            self.daemons.append(
                DaemonHost(kernel, f"daemon-{number}", clock, disk, options, promises, self.objects)
            )
        self._upkeep = [UpkeepWatch(daemon) for daemon in self.daemons]
        self.owner: Broker | None = None
        self._owner_process: Process | None = None
        self._loading: Event | None = None
        self._preferred: int | None = None
        self.brokers = [self._make_broker(number) for number in range(2)]
        self.backups = Backups(self)
        self._rebuilds: list[Rebuild] = []
        self._operators: dict[str, Operator] = {}
        self._asked: dict[str, Request] = {}  # the last of each subscription
        self._session_ends: dict[Process, Event] = {}
        self.subscriptions = [self._make_subscription(number) for number in range(config.subscriptions)]
        self.clients = [self._make_client(number) for number in range(config.clients * config.subscriptions)]
        for daemon in self.daemons:
            daemon.start()
        for broker in self.brokers:
            broker.start()
            self._watch_session(broker)
        for client in self.clients:
            client.connect()
        if kernel.trace is not None:
            kernel.note(f"{config}")

    # ---- making it

    def machine_of(self, broker: int) -> int:
        return 0 if self.config.shared_daemon else broker

    def _make_broker(self, number: int) -> Broker:
        machine = self.machine_of(number)
        broker = Broker(
            self.kernel,
            f"broker-{number}",
            self.clocks[machine],
            self.daemons[machine],
            self.bookkeeper,
            self.log_bookies,
            self.config.broker_options(),
            lambda: self.owner is broker and broker.process is self._owner_process,
            lambda: self._close_topic(broker),
        )
        return broker

    def _make_subscription(self, number: int) -> Subscription:
        start: Position = (self.config.first_ledger_id, -1)
        record = CursorRecord(start, frozenset(), {}, ())
        return Subscription(f"sub-{number}", CursorInfo(0, None, record, {}), Obligations())

    def _make_client(self, number: int) -> Client:
        subscription = self.subscriptions[number % len(self.subscriptions)]
        client = Client(
            self.kernel,
            f"client-{number}",
            subscription.obligations,
            self.bookkeeper.log,
            lambda: self._find(subscription),
            lambda position: self._again_because(subscription, position),
            self.config.network_us * 1_000,
        )
        client.permits = self.config.permits
        if self.config.ack_after_ms >= 0:
            client.ack_after_ms = (0, self.config.ack_after_ms)
        return client

    # ---- rebuilds

    def rebuild(self, subscription: int, share: int, let_go: int, block_entries: int, ends_ms: int) -> None:
        """See `actions.rebuild`."""
        wanted = self.subscriptions[subscription % len(self.subscriptions)]
        served = next((each for each in self.served() if each.subscription is wanted), None)
        if wanted.info is None or self.backups.down:
            return
        luck = self.kernel.random
        if served is not None and served.broker.running:
            daemon, is_deleted = served.broker.daemon, served.is_deleted
        else:  # nobody serves it now: any daemon may come to, and the stored cursor counts
            daemon, is_deleted = luck.choice(self.daemons), wanted.info.latest().has
        times = self.bookkeeper.log.deliver_at_ms
        delayed = [position for position, at_ms in times.items() if at_ms != NO_DELAY]
        wrong = [position for position in delayed if luck.randrange(100) < let_go]
        entries = [
            (times[position], *position)
            for position in delayed
            if not is_deleted(position) and luck.randrange(100) < share
        ]
        blocks = [entries[at : at + block_entries] for at in range(0, len(entries), block_entries)]
        process = Process("rebuild")

        def index() -> DelayIndex | None:
            return next((each for each in daemon.indexes() if each.name.subscription == wanted.name), None)

        rebuild = Rebuild(self.kernel, process, daemon.promises, (TOPIC, wanted.name), blocks, wrong, index)
        wire = daemon.connect(rebuild, process, self.config.broker_options().wire)
        if wire is not None:
            rebuild.begin(wire)
            self._rebuilds.append(rebuild)
            if ends_ms >= 0:
                self.kernel.after(ends_ms * NS_PER_MS, process, rebuild.end)

    def pace(self, subscription: int, *, pauses: bool) -> None:
        """Pause or resume a subscription, at the daemon of the topic's owner."""
        wanted = self.subscriptions[subscription % len(self.subscriptions)]
        served = next((each for each in self.served() if each.subscription is wanted), None)
        if served is None or self.backups.down:
            return
        operator = Operator(self.kernel, TOPIC, wanted, pauses=pauses)
        wire = served.broker.daemon.connect(operator, operator.process, self.config.broker_options().wire)
        if wire is not None:
            self._operators[wanted.name] = operator
            operator.begin(wire)

    def _resume(self) -> None:
        """Resume everything: repeated, as an earlier request to pause may still take effect."""
        for number, subscription in enumerate(self.subscriptions):
            operator = self._operators.get(subscription.name)
            if subscription.pace.may_be_paused and (operator is None or operator.over):
                self.pace(number, pauses=False)

    def change(
        self, subscription: int, what: str, share: int, count: int, at_ms: int | None, *, again: bool = False
    ) -> None:
        """See `actions.cancel` and `actions.reschedule`."""
        wanted = self.subscriptions[subscription % len(self.subscriptions)]
        served = next((each for each in self.served() if each.subscription is wanted), None)
        if served is None or self.backups.down:
            self.skipped[what] += 1
            return
        own_ms = self.bookkeeper.log.deliver_at_ms
        if again and self._asked.get(wanted.name):
            request = self._asked[wanted.name]
            request = Request(request.positions & own_ms.keys(), request.at_ms)
        else:
            request = Request(frozenset(self._some_waiting(wanted, share, count)), at_ms)
        if not request.positions:
            self.skipped[what] += 1
            return
        self._asked[wanted.name] = request
        daemon = served.broker.daemon

        def done(positions: list[Position]) -> None:
            if request.at_ms is None:
                cancelled = filter(wanted.obligations.is_cancelled, positions)
                daemon.promises.cancelled(wanted.name, list(cancelled))

        changer = Changer(self.kernel, TOPIC, wanted, request, done)
        wire = daemon.connect(changer, changer.process, self.config.broker_options().wire)
        if wire is not None:
            changer.begin(wire)

    def look(self, subscription: int, limit: int, key: str) -> None:
        """See `actions.look`."""
        wanted = self.subscriptions[subscription % len(self.subscriptions)]
        for daemon in self.daemons:
            lister = Lister(self.kernel, TOPIC, wanted, daemon.promises, limit, key)
            for asker in (lister, StatusReader(self.kernel, TOPIC, wanted)):
                wire = daemon.connect(asker, asker.process, self.config.broker_options().wire)
                if wire is not None:
                    asker.begin(wire)

    def _some_waiting(self, subscription: Subscription, share: int, count: int) -> list[Position]:
        """Delayed messages, rather those that have not come: from so many thousandths of them on."""
        fates = subscription.obligations.fates
        delayed = [each for each, at_ms in self.bookkeeper.log.deliver_at_ms.items() if at_ms != NO_DELAY]
        waiting = [each for each in delayed if each in fates and not fates[each].receipts]
        some = waiting or delayed
        first = len(some) * share // 1_000
        return some[first : first + count]

    def end_rebuilds(self) -> None:
        """Hang up, wherever they are."""
        for rebuild in self._rebuilds:
            rebuild.end()

    # ---- index logs

    def _log_counts(self, name: str, ledger_id: int) -> bool:
        """True if a subscription's pointer in the metadata store names that ledger as the log."""
        return any(
            current_ledger(each.info.cursor_properties.get(POINTER, "")) == ledger_id
            for each in self.subscriptions
            if each.name == name and each.info is not None
        )

    def _log_opened(self, ledger_id: int) -> None:
        for daemon in self.daemons:
            if daemon.life is not None:
                daemon.life.note_complete()
        self.log_beliefs.ended(ledger_id)

    def damage_log(self, how: LogDamage) -> int | None:
        """Damage stored data of some bookie; the ledger."""
        stored = self.objects if self.config.log_objects else self.log_bookies
        ledger_id = stored.damage(how)
        if ledger_id is not None:
            self.log_beliefs.damaged(ledger_id)
        return ledger_id

    # ---- the topic's ownership

    def _find(self, subscription: Subscription) -> Dispatcher | None:
        """Where a client can subscribe now; a look-up makes some broker load the topic, and a missing
        subscription is made.
        """
        if self.owner is None:
            self._assign()
            return None
        if subscription.info is None:
            self._make_again(subscription)
        served = self.owner.served.get(subscription.name)
        if served is None or not self.owner.running or served.dispatcher.fenced or served.dispatcher.closed:
            return None
        return served.dispatcher

    def position_at(self, thousandths: int) -> Position:
        """A message, given in thousandths of the topic; 1000 is its end."""
        positions = self.bookkeeper.log.positions
        at = len(positions) * thousandths // 1_000
        return positions[at] if at < len(positions) else self.bookkeeper.log.end

    def _make_again(self, subscription: Subscription) -> None:
        """A new life of a deleted subscription. To its user the cursor looks reset."""
        owner = self.owner
        if (
            owner is None
            or owner.process is not self._owner_process  # started again, without the topic
            or not owner.running
            or owner.is_closing
            or self.kernel.now_ns < subscription.gone_until_ns
        ):
            return
        to = self.position_at(subscription.initial)
        number = subscription.obligations.begin_reset(to)
        self.bookkeeper.make(subscription, self.bookkeeper.log.before(to), (number,))
        subscription.obligations.complete_reset(number)
        subscription.pace.forget(may_be_paused=False)
        subscription.changed.forget()
        self.kernel.note(f"{subscription.name} is made again at {to}, reset {number}")
        owner.load_subscription(subscription)

    def _assign(self) -> None:
        if self.backups.down:
            return
        if self._loading is not None and self._loading.pending:
            process = self._loading.process
            if process is not None and not process.dead:
                return
        able = [
            number for number, broker in enumerate(self.brokers) if broker.running and not broker.has_topic
        ]
        if not able:
            return
        number = self._preferred if self._preferred in able else able[self.kernel.random.randrange(len(able))]
        self._preferred = None
        broker = self.brokers[number]
        self._loading = broker.after(self.kernel.between_ns(0, _LOAD_NS), self._load, broker)

    def _load(self, broker: Broker) -> None:
        if self.owner is None and not broker.has_topic:
            self.owner, self._owner_process = broker, broker.process
            self.kernel.note(f"{broker.name} loads the topic")
            broker.load(self.subscriptions)

    def _watch_session(self, broker: Broker) -> None:
        """The metadata store takes the topic from a broker dead or stopped for too long."""
        process = broker.process
        assert process is not None
        process.on_death.append(lambda: self._end_session_later(process))

    def _end_session_later(self, process: Process) -> None:
        pending = self._session_ends.get(process)
        if pending is None or not pending.pending:
            timeout_ns = self.config.session_timeout_ms * NS_PER_MS
            self._session_ends[process] = self.kernel.after(timeout_ns, None, self._end_session, process)

    def _end_session(self, process: Process) -> None:
        if self._owner_process is not process or not (process.dead or process.stopped):
            return
        self.kernel.note(f"the session of {process} is over")
        self.owner = self._owner_process = None
        for client in self.clients:
            if client.consumer is not None and client.consumer.dispatcher.process is process:
                client.drop()

    def forget_owner(self) -> None:
        """The metadata store is another one, and no broker runs."""
        self.owner = self._owner_process = None

    def unload(self, to: int | None) -> None:
        """The topic is closed by its owner and looked up again."""
        broker = self.owner
        if broker is None or not broker.running or not broker.served:
            return
        self._preferred = to
        self._close_topic(broker)

    def _close_topic(self, broker: Broker) -> None:
        process = broker.process

        def closed() -> None:
            if self._owner_process is process:
                self.owner = self._owner_process = None

        broker.unload(closed)

    def freeze(self, broker: Broker, for_ms: int) -> None:
        """SIGSTOP, and SIGCONT after that time."""
        process = broker.process
        if process is None or not broker.running:
            return
        self.kernel.stop(process)
        self._end_session_later(process)
        self.kernel.after(for_ms * NS_PER_MS, None, self.thaw, broker)

    def thaw(self, broker: Broker) -> None:
        """SIGCONT. A broker that has lost the topic takes some time to notice."""
        process = broker.process
        if process is None or process.dead or not process.stopped:
            return
        self.kernel.go_on(process)
        if self._owner_process is process:
            pending = self._session_ends.pop(process, None)
            if pending is not None:
                pending.cancel()
        elif broker.served:
            notice_ns = self.kernel.between_ns(0, _ZOMBIE_MS * NS_PER_MS)
            broker.after(notice_ns, self._end_zombie, broker, broker.served)

    @staticmethod
    def _end_zombie(broker: Broker, lost: dict[str, ServedSubscription]) -> None:
        if broker.served is lost:
            broker.unload(lambda: None)

    def start_broker(self, broker: Broker) -> None:
        if not broker.up and not self.backups.down:
            broker.start()
            self._watch_session(broker)

    # ---- judging

    def served(self) -> Iterator[ServedSubscription]:
        if self.owner is not None:
            yield from self.owner.served.values()

    def _again_because(self, subscription: Subscription, position: Position) -> Cause | None:
        """A reason outside the cursor why an acknowledged message comes again."""
        served = None if self.owner is None else self.owner.served.get(subscription.name)
        if served is None:
            return Cause.MOVED  # from a zombie
        last = subscription.obligations.fates[position].acknowledged[-1]
        tag = getattr(last.owner, "tag", None)
        if served.tracker is not None and position in served.tracker.given_unheard:
            return Cause.DECIDED_ALONE
        if tag is None or served.cursor.tag is None or tag[0] != served.cursor.tag[0]:
            return Cause.MOVED
        if tag[1] != served.broker.daemon.disk.life or served.broker.daemon.disk.damaged:
            return Cause.DATA_LOST
        # Pulsar, put back, lacks all acknowledgements after the backup.
        if served.was_known(position) and not served.broker.daemon.promises.histories:
            raise Violation(f"{position} comes again though the daemon knew, and was asked by this owner")
        return None

    def check(self) -> None:
        """The cheap part of the checks, after a step."""
        self._check_budgets()
        for daemon in self.daemons:
            for index in daemon.indexes():
                check_counts(index)
        if self.kernel.chance(_CHECK_SHARE):
            self._check_indexes()

    def _check_budgets(self) -> None:
        for daemon in self.daemons:
            daemon.check_budget()
            daemon.check_connections()
            daemon.check_given_up()
            daemon.check_quarantine()
        for broker in self.brokers:
            broker.check_budgets()

    def check_lateness(self) -> None:
        """Before a step: everything due was sent. Raises Violation."""
        for served in self.served():
            served.check_lateness()

    def _check_indexes(self) -> None:
        """Check the invariants of every index, except where unmet damage may lie, or blocks are missing that
        come with the next stream.
        """
        for daemon in self.daemons:
            daemon.check_logs()
            if not daemon.disk.damaged and not daemon.disk.refuses_reads:
                for index in daemon.indexes():
                    if not daemon.awaits_log(index):
                        index.check()

    # ---- the end

    def finish(self) -> None:
        """No more faults: everything owed must come within a bounded time. Raises Violation."""
        self._repair()
        self.finish_repaired()

    def _repair(self) -> None:
        self.end_rebuilds()
        self._log_answers_ns = self.log_bookies.away_until_ns
        self.log_bookies.away_until_ns = 0
        self.log_bookies.trap = None
        self.log_bookies.spoiling = None
        self.log_bookies.io_ns = self.config.log_io_us * 1_000
        for disk, daemon in zip(self.disks, self.daemons, strict=True):
            disk.kill_at_write = disk.fail_at_write = None
            disk.refuses_reads = False
            daemon.trouble(Trouble.NONE)
            process = daemon.process
            if process is not None:
                self.kernel.go_on(process)
            daemon.start()
        for clock in self.clocks:
            clock.correct()
        for broker in self.brokers:
            self.thaw(broker)
            self.start_broker(broker)
            # Through a socket that takes 64 bytes in a tenth of a second nothing ever comes to rest; nor
            # through one of which a busy daemon reads 7 bytes at a time, with an index log on its way.
            wire = broker.options.wire
            wire.latency_ns = min(wire.latency_ns, _LATENCY_AT_THE_END_NS)
            wire.piece_bytes = 0

    def finish_repaired(self) -> None:
        kernel = self.kernel
        self._have_consumers()
        for client in self.clients:
            client.ack_after_ms = (0, 20)
            for delivery in list(client.unprocessed.values()):
                kernel.after(kernel.between_ns(0, NS_PER_S), None, client.acknowledge, delivery.position)
        last_ms = max(self.bookkeeper.log.deliver_at_ms.values(), default=0)
        last_ms = max(last_ms, *(each.changed.latest_ms() for each in self.subscriptions))
        end_ns = max(last_ms * NS_PER_MS, kernel.now_ns) + _FINISH_EXTRA_MS * NS_PER_MS
        while kernel.now_ns < end_ns:
            kernel.run_until(kernel.now_ns + _FINISH_STEP_NS)
            self._keep_up()
            self._resume()
            self._check_budgets()
            self._check_upkeep()
            if any(served.dispatcher.waits_for_traffic for served in self.served()):
                self.publish([NO_DELAY])
            if not any(self._owed(each) for each in self.subscriptions):
                forgetful = [served for served in self.served() if served.has_forgotten()]
                if not forgetful:
                    break
                for served in forgetful:  # with the next consumers it comes again
                    served.dispatcher.disconnect_all()
        for subscription in self.subscriptions:
            owed = self._owed(subscription)
            if owed:
                raise Violation(
                    f"lost: {len(owed)} messages of {subscription.name} were not delivered and acknowledged "
                    f"within {_FINISH_EXTRA_MS} ms of the last one's time: {sorted(owed)[:8]}; "
                    f"{self._state(subscription)}"
                )
        for served in self.served():
            served.cursor.flush()
        # Requests to absent bookies have their answers once they are back.
        end_ns = max(kernel.now_ns, self._log_answers_ns) + _SETTLE_NS
        while kernel.now_ns < end_ns:
            kernel.run_until(min(end_ns, kernel.now_ns + _FINISH_STEP_NS))
            self._check_upkeep()
        end_ns = kernel.now_ns + _LOGS_NS
        while kernel.now_ns < end_ns and any(watch.has_behind for watch in self._upkeep):
            kernel.run_until(kernel.now_ns + _FINISH_STEP_NS)
            self._check_upkeep()
        self._check_empty()

    def _check_upkeep(self) -> None:
        for watch in self._upkeep:
            watch.look()

    def _have_consumers(self) -> None:
        """Add one where there is none. Present ones stay: a reconnection has everything read again, and would
        hide a stuck message.
        """
        every = len(self.subscriptions)
        for number in range(every):
            clients = self.clients[number::every]
            if not any(client.wanted for client in clients):
                clients[0].permits = max(clients[0].permits, 50)
                clients[0].connect()

    def publish(self, deliver_at_ms: list[int]) -> None:
        """Publish at the topic's owner, which must be there. NO_DELAY: a plain message."""
        assert self.owner is not None
        now_ms = self.kernel.now_ns // NS_PER_MS
        for at_ms in deliver_at_ms:
            position = self.bookkeeper.log.append(at_ms)
            for subscription in self.subscriptions:
                subscription.obligations.published(position, now_ms)
        for served in self.owner.served.values():
            self.owner.after(0, served.dispatcher.published)

    def _keep_up(self) -> None:
        """Supervisors start ended processes."""
        for daemon in self.daemons:
            daemon.start()
        for broker in self.brokers:
            self.start_broker(broker)

    def _owed(self, subscription: Subscription) -> list[Position]:
        for served in self.served():
            if served.subscription is subscription:
                return subscription.obligations.owed(served.cursor.resets)
        return [(-1, -1)]  # nobody serves it yet

    def _state(self, subscription: Subscription) -> str:
        for served in self.served():
            if served.subscription is subscription:
                tracker, cursor = served.tracker, served.cursor
                text = f"mark-delete {cursor.mark_delete}, read position {cursor.read_position}"
                if tracker is not None:
                    text += (
                        f", tracker {tracker.stream.name}: near {len(tracker.near)}, handed out "
                        f"{len(tracker.handed_out)}, settling {len(tracker.settling)}, "
                        f"undecided {len(tracker.undecided)}, contained {len(tracker.contained)}, "
                        f"consumers {len(served.dispatcher.consumers)}"
                    )
                return text
        return "nobody serves it"

    def _check_empty(self) -> None:
        """Everything is acknowledged: nothing is delayed, and nothing held, except, until it is due, a
        message with an acknowledgement that a crash has made the daemon forget.
        """
        for served in self.served():
            tracker = served.tracker
            if tracker is None:
                continue
            indexes = served.broker.daemon.indexes()
            held = [
                position
                for index in indexes
                if index.name.subscription == served.subscription.name
                for position in index.state.held
            ]
            for position in {*tracker.contained, *held}:
                ahead_ms = served.due_ms(position) - served.now_ms()
                comes_ms = self.config.horizon_ms if served.is_deleted(position) else 0
                if ahead_ms <= comes_ms - _LEFT_MS:
                    raise Violation(
                        f"{position} is contained or held at the end, {ahead_ms} ms before its time: "
                        f"{self._state(served.subscription)}"
                    )
        self._check_indexes()
        for daemon in self.daemons:
            if self._is_at_rest(daemon):
                daemon.check_stored()

    def _is_at_rest(self, daemon: DaemonHost) -> bool:
        """False if the daemon commits something all the time.

        Until the next commit the store has an index replaced by a new one. A stream opened again at each
        poll, while nothing is held, replaces it each time.
        """
        begun, end_ns = daemon.durable_token, self.kernel.now_ns + NS_PER_S
        while daemon.has_uncommitted and self.kernel.now_ns < end_ns:
            self.kernel.run_until(self.kernel.now_ns + NS_PER_MS)
        return not daemon.has_uncommitted or daemon.durable_token == begun

    def close(self) -> None:
        for broker in self.brokers:
            if broker.process is not None:
                self.kernel.kill(broker.process)
        for daemon in self.daemons:
            daemon.release()

    @property
    def repeats(self) -> Counter[Cause]:
        """How many messages came again, by cause."""
        return sum((each.obligations.repeats for each in self.subscriptions), Counter[Cause]())

    @property
    def elapsed_ms(self) -> int:
        """True time since the beginning."""
        return self.kernel.now_ns // NS_PER_MS - START_MS
