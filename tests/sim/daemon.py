"""A daemon: the real catalog, engine, connections, committer, upkeep and timer, on virtual time and a
simulated disk.

Left out of the real process: its command line, its listener and HTTP side. Invariant: anything that the
product logs as a bug of its own, or lets escape to the loop, is a violation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from tests.sim.clocks import MachineClock
from tests.sim.kernel import NS_PER_MS, Kernel, Killed, Process, Violation
from tests.sim.loop import NotYet, VirtualExecutor, VirtualLoop
from tests.sim.objects import SimHomes, SimObjects
from tests.sim.promises import Promises
from tests.sim.settings import settings_of
from tests.sim.store import Disk, SimStore, Trouble
from tests.sim.wire import ClientEnd, Wire, WireOptions
from tidegate.index import ENTRY_BYTES
from tidegate.index.catalog.catalog import Catalog
from tidegate.index.errors import DamagedDirectoryError, TidegateIndexError
from tidegate.index.format import keys
from tidegate.index.format.envelope import FORMAT_VERSION
from tidegate.index.format.keys import SliceId
from tidegate.index.log.log_options import LogOptions
from tidegate.index.log.pointer import NO_LEDGER
from tidegate.index.log.tap import Noted, TappedStore
from tidegate.index.names import SubscriptionName
from tidegate.index.options import IndexOptions
from tidegate.index.subscription.delay_index import DelayIndex
from tidegate.plugin.daemon.connection import Connection
from tidegate.plugin.daemon.engine import DaemonEngine
from tidegate.plugin.daemon.half_frames import HalfFrames
from tidegate.plugin.daemon.histories import Break
from tidegate.plugin.daemon.index_logs.index_logs import IndexLogs
from tidegate.plugin.daemon.index_logs.log_failures import LogFailures
from tidegate.plugin.daemon.index_logs.restorer import Restored
from tidegate.plugin.daemon.index_logs.stream_log import StreamLog
from tidegate.plugin.errors import ErrorCode
from tidegate.plugin.telemetry.health import Health
from tidegate.plugin.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from tidegate.plugin.daemon.logs import Logger

BUG_LINES = (
    *("upkeep failed unexpectedly", "protocol error", "restoring an index failed unexpectedly"),
    "writing an index log failed unexpectedly",
)
RESTORED = "the index was restored from its log"
UNREADABLE = ("the index log cannot be read", "the index log is no longer needed")
CUT = "the end of an index log cannot be read"
GIVEN_UP = "the index log is another owner's now"
BROKER_GONE = "the broker is gone"
LOST_BLOCKS = "blocks of an index cannot be read where its log says"
UNREACHED = "blocks of an index cannot be reached"
ANOTHER_HISTORY = tuple(reason.said for reason in Break)
# The broker's settings have changed since the log was written, or its bookies have been away for long.
MAY_BE_UNREACHED = re.compile(r"which is not where this broker keeps its own|^not within ", re.ASCII)
DUE_UNREAD = "due entries cannot be read"
ABSENT = re.compile(r"there is no ledger ([0-9]+)", re.ASCII)
CORRUPT = re.compile(r"entry [0-9]+|ledger [0-9]+ ends|its snapshot", re.ASCII)
LEDGER = re.compile(r"ledger ([0-9]+)", re.ASCII)
_HEADER_BYTES = 8
_RETRY_STOP_NS = NS_PER_MS
_OVER_BUDGET_NS = 3_000 * NS_PER_MS
_START_AGAIN_NS = 1_000 * NS_PER_MS


@dataclass(frozen=True)
class DaemonOptions:
    """`settings`: those that differ from the daemon's; `lag_ns`: how late a turn of its loop may be."""

    index: IndexOptions = field(default_factory=IndexOptions)
    log: LogOptions = field(default_factory=LogOptions)
    settings: dict[str, Any] = field(default_factory=dict)
    tail_entries: int = 512
    lag_ns: int = 200_000
    job_delay_ns: int = NS_PER_MS
    start_ns: int = 200 * NS_PER_MS


class _Log:
    """A structured logger that keeps only forbidden lines."""

    def __init__(
        self,
        kernel: Kernel,
        on_bug: Callable[[str], None],
        on_log: Callable[[str, SubscriptionName, str], None],
        on_unready: Callable[[], None],
    ) -> None:
        self._kernel = kernel
        self._on_bug = on_bug
        self._on_log = on_log
        self._on_unready = on_unready

    def _say(self, text: str, **values: object) -> None:
        if self._kernel.trace is not None:
            self._kernel.note(f"daemon: {text} {values}")
        if text.startswith(BUG_LINES):
            self._on_bug(f"{text}: {values}")
        elif text.startswith((RESTORED, *UNREADABLE, CUT, LOST_BLOCKS, UNREACHED, *ANOTHER_HISTORY)):
            name = SubscriptionName(str(values["topic"]), str(values["subscription"]))
            why = values.get("reason", values.get("error", values.get("damage", "")))
            self._on_log(text, name, str(why))
        elif text.startswith(DUE_UNREAD):
            self._on_unready()

    debug = info = warning = error = _say


class _Store(TappedStore):
    """Another thread's write is done when the simulation comes back to it: nobody can wait for it."""

    def drain(self) -> None:
        if self._writing:
            raise NotYet

    @property
    def has_noted(self) -> bool:
        return bool(self._noted)


class _Failures(LogFailures):
    """Tells of each log that is abandoned."""

    on_given_up: Callable[[SubscriptionName, str], None]

    def report(self, name: SubscriptionName, what: str, error: Exception) -> None:
        super().report(name, what, error)
        if what.startswith(GIVEN_UP):
            self.on_given_up(name, str(error))


class _Logs(IndexLogs):
    """Reports each stream's log when it is abandoned, and checks each log's queue."""

    on_end: Callable[[StreamLog], None]
    on_given_up: Callable[[StreamLog, str], None]
    on_restored: Callable[[Restored], None]
    queue_bytes: int

    def _pump(self) -> None:
        super()._pump()
        for log in self._by_id.values():
            self._check_queue(log)

    def _check_queue(self, log: StreamLog) -> None:
        """Raise Violation if more waits for a log than may, and one write."""
        for waiting in (log.writer._waiting, log.writer._next_waiting):
            self._check_size(() if waiting is None else waiting._noted)

    def _check_size(self, waiting: Iterable[Noted]) -> None:
        sizes = [sum(len(key) + len(value) for _, key, value in each.operations) for each in waiting]
        if sum(sizes) - max(sizes, default=0) > self.queue_bytes:
            raise Violation(
                f"{sum(sizes)} bytes wait for an index log, and {self.queue_bytes} and one write are allowed"
            )

    def given_up(self, name: SubscriptionName, why: str) -> None:
        # Exactly that stream's name, not of another one of the subscription.
        for log in [each for each in self._by_id.values() if each.stream.name is name]:
            self.on_given_up(log, why)

    def _on_restored(self, restored: Restored) -> None:
        self.on_restored(restored)
        super()._on_restored(restored)

    def _end_id(self, subscription_id: int) -> None:
        self._pump()
        log = self._by_id.get(subscription_id)
        if log is not None:
            self.on_end(log)
        super()._end_id(subscription_id)


class Life:
    """One life of the daemon's process."""

    def __init__(self, host: DaemonHost) -> None:
        self._host = host
        self.process = Process(host.name)
        self.process.on_death.append(self._died)
        options, kernel = host.options, host.kernel
        self.loop = VirtualLoop(  # type: ignore[abstract]
            kernel, self.process, host.clock, host.on_bug, options.lag_ns
        )
        self.wires: list[Wire] = []
        self.store = _Store(SimStore(host.disk, self.process), host.clock)
        self.persisting = VirtualExecutor(kernel, self.process, options.job_delay_ns)
        self.committing = VirtualExecutor(kernel, self.process, options.job_delay_ns)
        self.logging = VirtualExecutor(kernel, self.process, options.job_delay_ns)
        self.loop.others = VirtualExecutor(kernel, self.process, options.job_delay_ns)
        self.logs: _Logs | None = None
        self._cut: set[SubscriptionName] = set()
        self._given_up: set[StreamLog] = set()
        self.broken = ""  # the first broken promise about index logs
        self.catalog: Catalog | None = None
        self.engine: DaemonEngine | None = None
        self.quarantine_bytes = 0  # as the catalog was opened with
        self.stopping = False
        self.widths = 0  # how often they were set
        kernel.after(kernel.between_ns(0, options.start_ns), self.process, self._start)

    def _start(self) -> None:
        host = self._host
        self.quarantine_bytes = host.options.index.quarantine_budget_bytes
        try:
            self.catalog = Catalog.open(
                self.store, host.clock, host.options.index, self.persisting, parked=True
            )
        except Killed:
            return
        except TidegateIndexError as error:
            self._cannot_start(error)
            return
        host.check_stored()
        host.check_blocks()
        settings = settings_of(host.options.settings)
        log = cast(
            "Logger",
            _Log(host.kernel, lambda text: host.on_bug(Violation(text)), self._on_log, self._on_unready),
        )
        self.metrics = Metrics(lambda: "simulated")
        failures = _Failures(host.clock, self.metrics, log)
        self.health = Health()
        self.logs = _Logs(
            self.catalog,
            self.store,
            host.clock,
            self.loop,
            executor=self.logging,
            metrics=self.metrics,
            log=log,
            homes=SimHomes(
                host.objects, self.process, self.loop, host.options.tail_entries, host.promises.log_began
            ),
            options=host.options.log,
            failures=failures,
        )
        failures.on_given_up = self.logs.given_up
        self.logs.on_end = self._log_ended
        self.logs.on_given_up = self._log_given_up
        self.logs.on_restored = self._check_own_log
        self.logs.queue_bytes = host.options.log.queue_bytes
        self.engine = DaemonEngine(
            self.catalog,
            host.clock,
            self.loop,
            commit_executor=self.committing,
            settings=settings,
            metrics=self.metrics,
            health=self.health,
            log=log,
            product=lambda: "simulated",
            daemon_id=host.kernel.random.getrandbits(64),
            logs=self.logs,
        )
        self._log = log
        self._settings = settings
        self.loop.call_soon(self.engine.start)

    def _cannot_start(self, error: TidegateIndexError) -> None:
        """The process ends and is started again; a damaged data directory is moved away before."""
        host = self._host
        if isinstance(error, DamagedDirectoryError) and host.disk.damaged:
            host.disk.lose()
        elif not host.disk.take_refused():
            raise Violation(f"{host.name} does not start: {error!r}")
        host.kernel.kill(self.process)
        host.kernel.after(_START_AGAIN_NS, None, host.start)

    def _on_unready(self) -> None:
        """The daemon has just logged that it cannot read due entries."""
        self._host.kernel.after(0, self.process, self._require_unready)

    def _require_unready(self) -> None:
        if not any(reason.startswith("due entries of ") for reason in self.health.reasons()):
            raise Violation(f"{self._host.name} is ready, and cannot read due entries")

    # ---- index logs

    def _on_log(self, text: str, name: SubscriptionName, reason: str) -> None:
        assert self.catalog is not None
        promises = self._host.promises
        if text.startswith(ANOTHER_HISTORY):
            promises.of_another_history(reason)
            return
        if text.startswith(UNREADABLE):
            absent = ABSENT.fullmatch(reason)
            if absent is not None and self._host.objects.has_ledger(int(absent[1])):
                raise Violation(f"{self._host.name} says that {reason}, but it is where it was made")
            if CORRUPT.match(reason):
                self._require_damage(reason)
            promises.log_unreadable(name.subscription)
            return
        if text.startswith(CUT):
            self._require_damage(reason)
            self._cut.add(name)
            return
        if text.startswith(LOST_BLOCKS):
            ledger = LEDGER.search(reason)
            ledger_id = -1 if ledger is None else int(ledger[1])
            index = self.catalog.get(name)
            chain = None if index is None else self.catalog.chains.get(index)
            bookies = self._host.objects.bookies
            # The new owner has its own log, and has deleted the former one's ledgers.
            stale = chain is not None and not bookies.counts(name.subscription, chain.ledger_id)
            if index is not None and (stale or ledger_id in bookies.gone):
                promises.left_without_blocks(name.subscription, index.state.held.snapshot())
                return
            if not promises.logs.is_damaged(ledger_id):
                raise Violation(f"{self._host.name} loses blocks: {reason}, and nothing of that is damaged")
            self._host.disk.damaged = True
            return
        if text.startswith(UNREACHED):
            index = self.catalog.get(name)
            if MAY_BE_UNREACHED.search(reason) is None or index is None:
                raise Violation(f"{self._host.name} loses blocks: {reason}")
            promises.left_without_blocks(name.subscription, index.state.held.snapshot())
            return
        index = self.catalog.get(name)
        chain = None if index is None else self.catalog.chains.get(index)
        assert chain is not None, "what was restored says from where"
        promises.restored(name.subscription, chain.ledger_id, cut=name in self._cut)
        self._cut.discard(name)

    def _require_damage(self, reason: str) -> None:
        """Raise Violation if no log was damaged: written data can be read until it is deleted."""
        promises = self._host.promises
        absent = ABSENT.fullmatch(reason)
        if "is not open, or has no entry" in reason or (
            absent is not None and not self._host.objects.has_ledger(int(absent[1]))
        ):
            return
        if not (promises.logs.have_damage or promises.histories):
            raise Violation(f"{self._host.name} cannot read an index log that nobody has damaged: {reason}")

    def _check_own_log(self, restored: Restored) -> None:
        """Raise Violation if the daemon takes its own log for another owner's: it would forget everything
        since. Not of one that lacks blocks, which it has to read again.
        """
        former, promises = restored.former, self._host.promises
        if former is None or former.incarnation != restored.index.incarnation or former.state.empty:
            return
        if self._host.disk.damaged or promises.histories or self._host.awaits_log(former):
            return
        if promises.unread:  # perhaps when the chain was to be read for the first time
            return
        name = former.name.subscription
        if promises.has_made(name, restored.chain.ledger_id):
            raise Violation(
                f"{self._host.name} reads its own log in ledger {restored.chain.ledger_id}, though its disk "
                f"has all of {name}"
            )

    def note_complete(self) -> None:
        """Report the logs that have everything durable, according to the daemon."""
        for log in [] if self.logs is None else self.logs._by_id.values():
            self._note_complete(log)

    def _note_complete(self, log: StreamLog) -> bool:
        writer = log.writer
        complete = bool(writer.ledger_bytes) and writer.since_ns is None and not self.store.has_noted
        if complete:
            self._host.promises.log_complete(log.stream.name.subscription, writer.ledger_id)
        return complete

    def _log_ended(self, log: StreamLog) -> None:
        complete = self._note_complete(log)
        self._host.promises.log_ended(
            log.stream.name.subscription, log.writer.ledger_id if complete else None
        )

    def _log_given_up(self, log: StreamLog, reason: str) -> None:
        wires = [each for each in self.wires if each.connection is log.stream.connection]
        if log in self._given_up:
            self.broken = f"writes an index log on that it has given up, of {log.stream.name}: {reason}"
        elif reason == BROKER_GONE and any(each.is_open for each in wires):
            self.broken = f"asks nothing of a broker that is there, for {log.stream.name}"
        self._given_up.add(log)

    @property
    def serving(self) -> bool:
        return self.engine is not None and not self.stopping and not self.process.dead

    def connect(self, client: ClientEnd, broker: Process, options: WireOptions) -> Wire:
        """A shim connects."""
        assert self.engine is not None
        wire = Wire(self._host.kernel, client, broker, self.loop, options)
        connection = Connection(
            self.engine,
            self._host.clock,
            self.loop,
            metrics=self.metrics,
            log=self._log,
            heartbeat_ms=self._settings.heartbeat_ms,
            write_buffer_bytes=self._settings.write_buffer_bytes,
            may_talk=lambda _: True,
            half_frames=HalfFrames(),
        )
        wire.connection = connection
        self.wires = [each for each in self.wires if each.daemon_open] + [wire]
        self.loop.call_soon(connection.connection_made, wire.transport)
        return wire

    def stop(self) -> None:
        """SIGTERM: as `tidegate serve` ends."""
        if self.engine is None:
            self._host.kernel.kill(self.process)
        elif not self.stopping:
            self.stopping = True
            self.loop.call_soon(self._stop)

    def _stop(self) -> None:
        engine, catalog = self.engine, self.catalog
        assert engine is not None and catalog is not None
        if not (self.persisting.idle and self.committing.idle):
            # The real one waits for its threads; here their jobs are done first.
            self.loop.call_later(_RETRY_STOP_NS / 1e9, self._stop)
            return
        engine.stop()
        for wire in self.wires:
            if wire.daemon_open and wire.connection is not None:
                wire.connection.fail(ErrorCode.SHUTTING_DOWN, "the daemon is shutting down")
        self.loop.call_later(0.01, self._close)

    def _close(self) -> None:
        assert self.catalog is not None
        if not (self.persisting.idle and self.committing.idle):
            self.loop.call_later(_RETRY_STOP_NS / 1e9, self._close)
            return
        try:
            self.catalog.close()
        except TidegateIndexError:
            if not self._host.disk.take_refused():
                raise
        self._host.kernel.kill(self.process)

    def _died(self) -> None:
        self.note_complete()
        for index in self._host.indexes():
            if index.upkeep.absent_blocks:
                self._host.promises.left_without_blocks(index.name.subscription, index.state.held.snapshot())
        for wire in self.wires:
            wire.kill_daemon()
        self.wires.clear()
        self._host.died()


def _blocks_of(subscription_id: int, slice_id: SliceId) -> tuple[bytes, bytes]:
    """All keys of a slice's blocks."""
    return keys.block_key(subscription_id, slice_id, 0), keys.block_key(
        subscription_id, slice_id, (1 << 64) - 1
    )


class DaemonHost:
    """A daemon on a machine, through all its lives."""

    def __init__(
        self,
        kernel: Kernel,
        name: str,
        clock: MachineClock,
        disk: Disk,
        options: DaemonOptions,
        promises: Promises,
        objects: SimObjects,
    ) -> None:
        self.objects = objects
        self.kernel = kernel
        self.name = name
        self.clock = clock
        self.disk = disk
        self.options = options
        self.promises = promises
        self.life: Life | None = None
        self._wires: list[Wire] = []
        self._loops: list[VirtualLoop] = []
        self._over_since_ns: int | None = None
        self._released = False

    def on_bug(self, error: BaseException) -> None:
        """The product has raised an error that nothing in it handles.

        After the run nothing can: its tasks are ended from outside.
        """
        if self._released:
            return
        raise Violation(f"{self.name}: {error!r}") from error

    @property
    def up(self) -> bool:
        """True if the process is there, perhaps stopped."""
        return self.life is not None

    @property
    def process(self) -> Process | None:
        return None if self.life is None else self.life.process

    def start(self) -> None:
        """Start the process, if there is none."""
        if self.life is None:
            self.life = Life(self)
            self._loops.append(self.life.loop)

    def kill(self) -> None:
        """kill -9."""
        if self.life is not None:
            self.kernel.kill(self.life.process)

    def stop(self) -> None:
        """SIGTERM."""
        if self.life is not None:
            self.life.stop()

    def died(self) -> None:
        self.life = None
        self.promises.daemon_died()

    def connect(self, client: ClientEnd, broker: Process, options: WireOptions) -> Wire | None:
        """A connection to the daemon, None if nobody listens."""
        if self.life is None or not self.life.serving:
            return None
        wire = self.life.connect(client, broker, options)
        self._wires.append(wire)
        return wire

    def release(self) -> None:
        """The run is over: give every socket back."""
        self._released = True
        self.kill()
        for wire in self._wires:
            wire.release()
        for loop in self._loops:
            loop.release()

    def trouble(self, trouble: Trouble) -> None:
        """The disk begins to refuse writes, or is well again."""
        self.disk.trouble = trouble
        self.promises.troubled |= self.disk.troubled

    def check_budget(self) -> None:
        """Require that a daemon beyond its staging budget reads no more from its brokers. Raises
        Violation.
        """
        life = self.life
        staged_bytes = sum(index.upkeep.staged_entries for index in self.indexes()) * ENTRY_BYTES
        over = staged_bytes > self.options.settings["staging_bytes_max"]
        if (
            life is None
            or life.engine is None
            or life.process.stopped
            or not over
            or life.engine._reading_pace.stopped
        ):
            self._over_since_ns = None
            return
        if self._over_since_ns is None:
            self._over_since_ns = self.kernel.now_ns
        if self.kernel.now_ns - self._over_since_ns > _OVER_BUDGET_NS and not life.stopping:
            raise Violation(f"{self.name} reads on though it has staged {staged_bytes} bytes")

    def check_given_up(self) -> None:
        """Raise Violation if a log was written after its end, or ended without a reason."""
        if self.life is not None and self.life.broken:
            raise Violation(f"{self.name} {self.life.broken}")

    def check_logs(self) -> None:
        """Check the invariants of every index log being written."""
        if self.life is not None and self.life.logs is not None:
            for log in self.life.logs._by_id.values():
                log.writer.check()

    def check_connections(self) -> None:
        """Raise Violation if a broker has two connections: the older one ends as the newer one greets."""
        wires = [] if self.life is None else self.life.wires
        found = [each.connection for each in wires if each.daemon_open and not each.transport.is_closing()]
        names = [each.peer_name for each in found if each is not None and each.is_broker]
        if len(set(names)) < len(names):
            raise Violation(f"{self.name} has more than one connection of a broker: {names}")

    def check_quarantine(self) -> None:
        """Require the quarantine to be within its limit, or one value. Raises Violation."""
        life = self.life
        if life is None or life.catalog is None:
            return  # the budget may have changed since, and holds from the store's opening on
        sizes = [len(key) + len(value) for key, value in self.disk.scan(*keys.kind_range(keys.QUARANTINE))]
        if sum(sizes) - max(sizes, default=0) > life.quarantine_bytes:
            raise Violation(
                f"{self.name} keeps {sum(sizes)} damaged bytes, {life.quarantine_bytes} are allowed"
            )

    @property
    def durable_token(self) -> int:
        """Grows with each commit of the living daemon; 0 without one."""
        return (
            0 if self.life is None or self.life.catalog is None else self.life.catalog.journal.durable_token
        )

    @property
    def has_uncommitted(self) -> bool:
        """True while changes of the living daemon are not in its store."""
        if self.life is None or self.life.catalog is None:
            return False
        return self.life.catalog.journal.appended_token != self.durable_token

    def check_stored(self) -> None:
        """Require that everything stored has a subscription, and that the record of the format is readable:
        when the daemon has begun, or is at rest. Raises Violation.
        """
        if self.disk.damaged:
            return
        record = self.disk.get(keys.FORMAT_KEY)
        if record is not None and record[_HEADER_BYTES:] != FORMAT_VERSION.to_bytes(4, "little"):
            raise Violation(f"{self.name} has a record of its format that nobody can read: {record.hex()}")
        known = {index.own_journal.subscription_id for index in self.indexes()}
        kinds = (keys.IDENTITY, *keys.SUBSCRIPTION_KINDS)
        found = {
            keys.subscription_id_of(key)
            for kind in kinds
            for key, _ in self.disk.scan(*keys.kind_range(kind))
        }
        if found - known:
            raise Violation(f"{self.name} has stored what is of no subscription: ids {sorted(found - known)}")

    def check_blocks(self) -> None:
        """Require that each stored block has a slice, or the next persist deletes it: when the daemon has
        begun. Raises Violation.
        """
        if self.disk.damaged:
            return
        by_id = {index.own_journal.subscription_id: index for index in self.indexes()}
        named = {
            keys.block_key(subscription_id, each.id, descriptor.block_id)
            for subscription_id, index in by_id.items()
            for each in index.timeline.slices
            for descriptor in each.descriptors
        }
        for key, _ in self.disk.scan(*keys.kind_range(keys.BLOCK)):
            remains = by_id[keys.subscription_id_of(key)]._persister._leftovers.remains()
            of_slice = any(
                first <= key < end
                for each in remains.cleared
                for first, end in [_blocks_of(keys.subscription_id_of(key), each)]
            )
            if key not in named and key not in remains.orphans and not of_slice:
                raise Violation(f"{self.name} has stored a block that no slice names: {key.hex()}")

    def awaits_log(self, index: DelayIndex) -> bool:
        """True if a crash has left an index without all of its log, and no stream has asked for it."""
        assert self.life is not None
        assert self.life.catalog is not None
        chain = self.life.catalog.chains.get(index)
        looked = self.life.logs is not None and index in self.life.logs._fetches._looked
        return chain is not None and chain.ledger_id == NO_LEDGER and not looked

    def indexes(self) -> list[DelayIndex]:
        if self.life is None or self.life.catalog is None:
            return []
        return list(self.life.catalog)
