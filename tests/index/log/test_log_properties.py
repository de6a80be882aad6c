"""A restored index holds nothing that it cannot hand out, and knows nothing acknowledged that was not,
whatever happened to the index and wherever its log ends. A log shipped to its end has all the index's
knowledge.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.support.index_logs import Shipper, adopted, copy_of, land, read, restored, run_beside
from tests.support.oracle import ENTRY_IDS, LEDGERS, START_MS, Oracle, entries_of
from tests.support.stores import CrashStore
from tidegate.index.catalog.catalog import Catalog
from tidegate.index.clock import ManualClock
from tidegate.index.errors import BlockAwayError, UnreadableLogError
from tidegate.index.format.chain import Chain
from tidegate.index.format.manifest import Identity
from tidegate.index.log.home import HomeError
from tidegate.index.log.log_options import LogOptions
from tidegate.index.log.memory_home import World
from tidegate.index.log.places import Places
from tidegate.index.log.pointer import Pointer
from tidegate.index.log.restore import named_places
from tidegate.index.log.tap import TappedStore
from tidegate.index.names import SubscriptionName
from tidegate.index.options import IndexOptions
from tidegate.index.state.positions import Position, PositionSet
from tidegate.index.store import MemoryStore
from tidegate.index.subscription.delay_index import DelayIndex

IDENTITY = Identity(SubscriptionName("persistent://public/default/orders", "late"), b"\x01" * 16)

positions = st.tuples(st.integers(0, LEDGERS - 1), st.integers(0, ENTRY_IDS - 1))
position_sets = st.sets(positions, max_size=12)


class FuzzyStore(CrashStore):
    """A store with something happening at a snapshot's begin."""

    def __init__(self, durable: MemoryStore | None = None) -> None:
        super().__init__(durable)
        self.meanwhile: Callable[[], None] = lambda: None

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        happens, self.meanwhile = self.meanwhile, lambda: None  # it scans, too
        happens()
        self.meanwhile = happens
        return super().scan(start, end)


MEANWHILE = ("nothing", "add", "commit", "persist", "acknowledge")


class LogMachine(RuleBasedStateMachine):
    """An owner's index with its log; at any time the log is cut and restored elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()

    def teardown(self) -> None:
        self.loop.close()

    @property
    def shipper(self) -> Shipper:
        """The present shipper; there must be one."""
        assert self._shipper is not None
        return self._shipper

    @initialize(
        options=st.builds(
            IndexOptions,
            slice_width_ms=st.sampled_from([3, 50, 1_000]),
            staging_budget_bytes=st.sampled_from([0, 240, 2_400, 1 << 20]),
            carry_ms=st.sampled_from([0, 5, 50]),
            persist_age_ms=st.sampled_from([50, 1 << 30]),
            block_entries=st.sampled_from([1, 3, 64]),
            merge_runs=st.sampled_from([2, 3]),
            write_piece_bytes=st.sampled_from([1, 300, 10_000]),
        ),
        log_options=st.builds(
            LogOptions,
            tail_bytes=st.sampled_from([1, 100, 3_000, 1 << 20]),
            tail_snapshots=st.sampled_from([0, 2]),
            queue_bytes=st.sampled_from([100, 5_000, 1 << 20]),
            record_bytes=st.sampled_from([1, 500, 1 << 20]),
            inline_bytes=st.sampled_from([0, 0, 300, 1 << 20]),
            blocks_ledger_bytes=st.sampled_from([0, 500, 1 << 20]),
        ),
        log_from_the_start=st.booleans(),
    )
    def start(self, options: IndexOptions, log_options: LogOptions, log_from_the_start: bool) -> None:
        self.options, self.log_options = options, log_options
        self.clock = ManualClock(START_MS)
        self.world = World()
        self.store = FuzzyStore()
        self.tap = TappedStore(self.store, self.clock)
        self.catalog = Catalog.open(self.tap, self.clock, options)
        self.index: DelayIndex = self.catalog.subscription(IDENTITY.name, IDENTITY.incarnation)
        self.oracle = Oracle()
        self.ever_held: set[Position] = set()
        self.ever_acknowledged: set[Position] = set()
        self._shipper: Shipper | None = None
        self.places: Places = {}
        self.catalog.commit()
        if log_from_the_start:
            self.begin_log(untouched=True)

    @precondition(lambda self: self._shipper is None)
    @rule()
    def begin_log(self, untouched: bool = False) -> None:
        self._shipper = Shipper(
            self.tap,
            self.index.own_journal.subscription_id,
            IDENTITY,
            self.world,
            options=self.log_options,
            dirty_ns=None if untouched else self.clock.monotonic_ns(),
            index=self.index,
            places=self.places,
        )

    @rule(which=st.lists(positions, min_size=1, max_size=20))
    def add(self, which: list[Position]) -> None:
        self.index.add(entries_of(which))
        self.oracle.add(which)
        self.ever_held.update(which)

    @rule(limit=st.integers(0, 30))
    def pop(self, limit: int) -> None:
        with contextlib.suppress(BlockAwayError):
            self.index.timeline.pop_due(self.clock.now_ms(), limit)

    @rule(which=position_sets)
    def acknowledge(self, which: set[Position]) -> None:
        self.index.acknowledge(PositionSet.of(which))
        self.oracle.acknowledge(which)
        self.ever_acknowledged.update(which)

    @rule(which=position_sets)
    def unacknowledge(self, which: set[Position]) -> None:
        self.index.unacknowledge(PositionSet.of(which))
        self.oracle.unacknowledge(which)

    @rule(ledger_id=st.integers(0, LEDGERS - 2), entry_id=st.integers(-1, ENTRY_IDS))
    def mark_delete(self, ledger_id: int, entry_id: int) -> None:
        self.index.mark_delete(ledger_id, entry_id)
        self.oracle.mark_delete((ledger_id, entry_id))

    @precondition(lambda self: len(self.oracle.held) > 10)
    @rule()
    def clear(self) -> None:
        self.index.clear()
        self.oracle.clear()

    @rule(by_ms=st.integers(1, 60))
    def time_passes(self, by_ms: int) -> None:
        self.clock.advance(by_ms)

    @rule()
    def commit(self) -> None:
        self.catalog.commit()

    @rule()
    def maintain(self) -> None:
        self.catalog.maintain(self.clock.now_ms())

    @rule()
    def persist(self) -> None:
        self.catalog.persist(IDENTITY.name)

    @precondition(lambda self: self._shipper is not None)
    @rule(
        left=st.none() | st.integers(0, 6),
        meanwhile=st.lists(st.tuples(st.sampled_from(MEANWHILE), position_sets), max_size=8),
        during_scan=st.lists(st.tuples(st.sampled_from(MEANWHILE), position_sets), max_size=8),
    )
    def ship(
        self,
        left: int | None,
        meanwhile: list[tuple[str, set[Position]]],
        during_scan: list[tuple[str, set[Position]]],
    ) -> None:
        """The home goes away after some appends; between them, and within a snapshot, the index changes."""
        self.world.appends_left = left

        def between_appends() -> None:
            self._something(meanwhile)
            self._require_claim()

        self.shipper.home.meanwhile = between_appends
        self.store.meanwhile = lambda: self._something(during_scan)
        with contextlib.suppress(HomeError):
            self.loop.run_until_complete(self.shipper.ship())
        self.shipper.home.meanwhile = self.store.meanwhile = lambda: None
        self.world.appends_left, self.world.away = None, False
        self._require_claim()

    @precondition(lambda self: self._shipper is not None)
    @rule(
        which=position_sets,
        left=st.none() | st.integers(3, 12),
        meanwhile=st.lists(position_sets, max_size=8),
    )
    def ship_more(self, which: set[Position], left: int | None, meanwhile: list[set[Position]]) -> None:
        """The log has all, and goes on; it may have grown too long by that."""
        self.settle()
        self.add(sorted(which))
        self.catalog.commit()
        self.loop.run_until_complete(self.shipper.ship())
        self.ship(left, [each for some in meanwhile for each in (("commit", some), ("add", some))], [])

    def _require_claim(self) -> None:
        """If the writer reports that the log has all, a reader now finds everything in the store."""
        self.shipper.note()
        pointer = Pointer.parse(self.world.pointer)
        if self.shipper.writer.since_ns is not None or pointer is None:
            return
        log = run_beside(read(copy_of(self.world), IDENTITY))
        store = self.store.crashed(self.store.unsynced)
        stored = Catalog.open(store, self.clock, self.options).get(IDENTITY.name)
        assert stored is not None
        found = restored(log, IDENTITY, self.clock, self.options)
        assert list(found.state.held) == list(stored.state.held)
        assert list(found.state.acknowledged) == list(stored.state.acknowledged)

    def _something(self, left: list[tuple[str, set[Position]]]) -> None:
        what, which = left.pop() if left else ("nothing", set())
        if what == "add" and which:
            self.add(sorted(which))
        elif what == "commit":
            self.commit()
        elif what == "persist":
            self.persist()
        elif what == "acknowledge":
            self.acknowledge(which)

    @precondition(lambda self: self._shipper is not None)
    @rule()
    def settle(self) -> None:
        self.catalog.commit()
        self.shipper.note()
        for _ in range(20):
            if self.shipper.writer.wants_to_ship:
                with contextlib.suppress(HomeError):
                    self.loop.run_until_complete(self.shipper.ship())
        writer = self.shipper.writer
        writer.check()
        assert writer.since_ns is None and writer.waiting_bytes == 0
        pointer = Pointer.parse(self.world.pointer)
        if pointer is None:
            assert not self.oracle.held and not self.world.ledgers
            return
        assert pointer.ledger_id in self.world.ledgers
        assert set(self.world.ledgers) <= set(pointer.ledgers)
        assert self.shipper.chained[-1:] in ([], [pointer.ledger_id])
        log = self.loop.run_until_complete(read(copy_of(self.world), IDENTITY))
        assert not log.damage
        index = restored(log, IDENTITY, self.clock, self.options, self.world)
        index.check()
        assert list(index.state.held) == sorted(self.oracle.held)
        assert list(index.state.acknowledged) == sorted(self.oracle.acknowledged)
        assert index.state.mark == self.oracle.mark

    @precondition(lambda self: self._shipper is not None and not self.index.upkeep.absent_blocks)
    @rule()
    def another_owner(self) -> None:
        """Another process opens the local data, and the log anew; the former cannot change the pointer."""
        former = self.shipper
        self.catalog.commit()
        self.store = FuzzyStore(self.store.crashed(0).durable)
        self.tap = TappedStore(self.store, self.clock)
        self.catalog = Catalog.open(self.tap, self.clock, self.options)
        index = self.catalog.get(IDENTITY.name)
        assert index is not None
        self.index = index
        self.places = {}
        self._shipper = None
        self.begin_log()
        before = self.world.pointer
        with contextlib.suppress(HomeError):
            self.loop.run_until_complete(former.ship())
        assert self.world.pointer == before

    @precondition(lambda self: self._shipper is not None and Pointer.parse(self.world.pointer) is not None)
    @rule(count=st.integers(0, 3))
    def take_over(self, count: int) -> None:
        """Another machine has the log's content, some of the blocks perhaps later, and goes on with it."""
        self.settle()
        pointer = Pointer.parse(self.world.pointer)
        if pointer is None or pointer.ledger_id not in self.world.ledgers:
            return
        log = self.loop.run_until_complete(read(self.world, IDENTITY))
        self.store = FuzzyStore()
        self.tap = TappedStore(self.store, self.clock)
        self.catalog = Catalog.open(self.tap, self.clock, self.options)
        self.index = adopted(log, IDENTITY, self.catalog, self.store)
        self.places = named_places(log.content)
        self.catalog.commit()
        self._shipper = None
        self.begin_log()
        self.land(count)

    @precondition(lambda self: self.index.upkeep.absent_blocks)
    @rule(count=st.integers(1, 5))
    def land(self, count: int) -> None:
        """Absent blocks come. As in the daemon, the next commit has them on the disk."""
        land(self.index, self.store, self.places, self.world, count)
        self.catalog.chains.set(self.index, Chain(1, "memory"))

    @precondition(lambda self: Pointer.parse(self.world.pointer) is not None)
    @rule(cut=st.integers(0, 40), flip=st.booleans(), which=st.integers(0, 1))
    def restore_a_part(self, cut: int, flip: bool, which: int) -> None:
        """The log ends early, or is damaged there; or a ledger of its blocks is."""
        world = copy_of(self.world)
        pointer = Pointer.parse(world.pointer)
        assert pointer is not None
        ledger = world.ledgers.get(([pointer.ledger_id, *pointer.others] * 2)[which])
        if ledger is not None and flip and cut < len(ledger.entries):
            entry = bytearray(ledger.entries[cut])
            entry[len(entry) // 2] ^= 16
            ledger.entries[cut] = bytes(entry)
        elif ledger is not None:
            del ledger.entries[cut:]
        try:
            log = self.loop.run_until_complete(read(world, IDENTITY))
        except UnreadableLogError:
            return
        index = restored(log, IDENTITY, self.clock, self.options, world)
        index.check()  # which tests that everything held can be popped
        assert set(index.state.held) <= self.ever_held
        assert set(index.state.acknowledged) <= self.ever_acknowledged


LogMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLogMachine = LogMachine.TestCase
