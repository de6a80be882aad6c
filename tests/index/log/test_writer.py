"""The writer of an index log: busy, it catches up with all that comes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.index_logs import Shipper, copy_of, read, restored, run, run_beside
from tidegate.index.catalog.catalog import Catalog
from tidegate.index.clock import ManualClock
from tidegate.index.entries.entry import Entries
from tidegate.index.format.manifest import Identity
from tidegate.index.log.home import AwayError
from tidegate.index.log.log_options import LogOptions
from tidegate.index.log.memory_home import World
from tidegate.index.log.pointer import NO_LEDGER, Pointer
from tidegate.index.log.records import EntryKind
from tidegate.index.log.tap import TappedStore
from tidegate.index.names import SubscriptionName
from tidegate.index.options import IndexOptions
from tidegate.index.store import MemoryStore

IDENTITY = Identity(SubscriptionName("persistent://public/default/orders", "late"), b"\x01" * 16)
QUEUE_BYTES = 200


class Stand:
    """An index, with its positions in ledger 1, and its log. `amid` something, the clock stands at 11 ns.

    options: with `inline_bytes` 0 the index has blocks.
    """

    def __init__(self, options: LogOptions, dirty_ns: int | None = 0) -> None:
        self._has_blocks = not options.inline_bytes
        self.clock, self.world = ManualClock(), World()
        self._options = IndexOptions()
        store = TappedStore(MemoryStore(), self.clock)
        self._catalog = Catalog.open(store, self.clock, self._options)
        self._index = self._catalog.subscription(IDENTITY.name, IDENTITY.incarnation)
        self.shipper = Shipper(
            store,
            self._index.own_journal.subscription_id,
            IDENTITY,
            self.world,
            options=options,
            dirty_ns=dirty_ns,
            index=self._index if self._has_blocks else None,
        )

    def add(self, entry_id: int) -> None:
        """Have the index hold one more, due in 11 days, and the writer know."""
        self._index.add(Entries.of([(1_000_000_000, 1, entry_id)]))
        self._catalog.commit()
        self.shipper.note()

    def fill_the_log(self) -> None:
        """Ship until all is in the log, and another one is to begin."""
        self.add(1)
        if self._has_blocks:
            self._catalog.persist(IDENTITY.name)
            assert self._index.timeline.stored_bytes
        run(self.shipper.ship())
        while not self.shipper.writer.wants_to_ship:
            self.add(len(self.held()) + 1)
            run(self.shipper.ship())
        assert self.shipper.writer.since_ns is None

    def counting(self) -> int:
        """The ledger that counts."""
        pointer = Pointer.parse(self.world.pointer)
        assert pointer is not None
        return pointer.ledger_id

    def logged(self) -> set[int]:
        """The entries that an owner taking over now would find."""
        return run_beside(self._logged())

    async def _logged(self) -> set[int]:
        world = copy_of(self.world)
        log = await read(world, IDENTITY)
        with ThreadPoolExecutor(1) as beside:  # it runs its own loop
            found = beside.submit(restored, log, IDENTITY, self.clock, self._options, world).result()
        return {entry_id for _, entry_id in found.state.held}

    def held(self) -> set[int]:
        return {entry_id for _, entry_id in self._index.state.held}

    def before_point(self, do: Callable[[], None]) -> None:
        """Before each write of the pointer."""
        point = self.shipper.home.point

        async def point_watched(old: str, new: str) -> None:
            do()
            await point(old, new)

        self.shipper.home.point = point_watched  # type: ignore[method-assign]

    def amid(self, kind: EntryKind, do: Callable[[], None]) -> None:
        """Once, while an entry of this kind is appended."""
        append = self.shipper.home.append
        done = False

        async def append_watched(ledger_id: int, entry: bytes) -> int:
            nonlocal done
            if entry[3:4] == kind.value and not done:
                done = True
                self.clock.work(11)
                do()
            return await append(ledger_id, entry)

        self.shipper.home.append = append_watched  # type: ignore[method-assign]

    def lose(self, lost: int) -> None:
        """Nothing can be appended to a ledger any more."""
        append = self.shipper.home.append

        async def append_or_not(ledger_id: int, entry: bytes) -> int:
            if ledger_id == lost:
                raise AwayError("no bookie")
            return await append(ledger_id, entry)

        self.shipper.home.append = append_or_not  # type: ignore[method-assign]


def test_more_than_may_wait_while_the_pointer_is_written_begins_another_log() -> None:
    clock, options, world = ManualClock(), IndexOptions(), World()
    store = TappedStore(MemoryStore(), clock)
    catalog = Catalog.open(store, clock, options)
    index = catalog.subscription(IDENTITY.name, IDENTITY.incarnation)
    log_options = LogOptions(queue_bytes=QUEUE_BYTES)
    shipper = Shipper(
        store, index.own_journal.subscription_id, IDENTITY, world, options=log_options, dirty_ns=0
    )
    point = shipper.home.point
    busy = True

    def add(first: int, count: int) -> None:
        index.add(Entries.of((1_000, 1, first + at) for at in range(count)))
        catalog.commit()

    async def point_slowly(old: str, new: str) -> None:
        await point(old, new)
        if busy and not new.startswith("1;-1;"):
            add(1, QUEUE_BYTES)
            shipper.note()

    shipper.home.point = point_slowly  # type: ignore[method-assign]
    add(0, 1)
    run(shipper.ship())
    busy = False

    run(shipper.ship())

    assert not shipper.writer.wants_to_ship
    found = restored(run(read(world, IDENTITY)), IDENTITY, clock, options)
    assert found.state.held == index.state.held
    assert len(found.state.held) == 1 + QUEUE_BYTES


def test_nothing_is_in_the_log_before_the_pointer_says_so() -> None:
    """An earlier question would take the former ledger for a whole one."""
    stand = Stand(LogOptions(), dirty_ns=7)
    stand.add(1)
    seen: list[int | None] = []
    stand.before_point(lambda: seen.append(stand.shipper.writer.since_ns))

    run(stand.shipper.ship())

    assert seen == [7, 7]
    assert stand.shipper.writer.since_ns is None


@pytest.mark.parametrize("away", [False, True])
def test_a_log_that_has_grown_too_long_is_gone_on_with_until_the_next_one_counts(away: bool) -> None:
    """Its snapshot may take seconds: an owner taking over meanwhile would miss changes.

    away: the former ledger takes no appends; its missing changes are then reported.
    """
    stand = Stand(LogOptions(tail_bytes=100))
    stand.fill_the_log()
    former = stand.counting()
    stand.amid(EntryKind.SNAPSHOT, lambda: stand.add(100))
    if away:
        stand.lose(former)
    seen: list[tuple[int | None, bool]] = []
    stand.before_point(lambda: seen.append((stand.shipper.writer.since_ns, 100 in stand.logged())))

    run(stand.shipper.ship())

    assert seen == [(None, False), (11, False) if away else (None, True)]
    assert stand.counting() != former
    assert stand.shipper.writer.since_ns is None
    assert stand.logged() == stand.held()


def test_what_the_next_log_misses_is_said_while_it_may_be_the_one_that_counts() -> None:
    """The former one has it; until the pointer's answer nobody knows the one that counts."""
    stand = Stand(LogOptions(tail_bytes=100))
    stand.fill_the_log()
    stand.amid(EntryKind.SNAPSHOT_END, lambda: stand.add(100))
    seen: list[tuple[int | None, bool]] = []
    stand.before_point(lambda: seen.append((stand.shipper.writer.since_ns, 100 in stand.logged())))

    run(stand.shipper.ship())

    assert seen == [(None, False), (11, True)]
    assert 100 not in stand.logged() and stand.shipper.writer.since_ns == 11
    run(stand.shipper.ship())
    assert stand.logged() == stand.held()


def test_what_an_append_has_failed_for_is_in_the_next_log() -> None:
    """The log that lacks a write ends: the next owner would miss it."""
    stand = Stand(LogOptions())
    stand.add(1)
    run(stand.shipper.ship())
    former, append = stand.counting(), stand.shipper.home.append
    stand.lose(former)
    stand.add(100)
    with pytest.raises(AwayError, match="no bookie"):
        run(stand.shipper.ship())
    assert stand.shipper.writer.since_ns is not None and stand.shipper.writer.wants_to_ship
    stand.shipper.home.append = append  # type: ignore[method-assign]
    stand.add(101)

    run(stand.shipper.ship())

    assert stand.counting() != former
    assert stand.logged() == stand.held() == {1, 100, 101}


@pytest.mark.parametrize("inline_bytes", [0, 1 << 20])
def test_where_no_ledger_can_be_made_the_former_one_is_gone_on_with(inline_bytes: int) -> None:
    stand = Stand(LogOptions(tail_bytes=100, inline_bytes=inline_bytes))
    stand.fill_the_log()
    former, create = stand.counting(), stand.shipper.home.create
    away = True

    async def create_or_not() -> int:
        if away:
            raise AwayError("no bookie")
        return await create()

    stand.shipper.home.create = create_or_not  # type: ignore[method-assign]
    for entry_id in (100, 101):
        stand.add(entry_id)
        with pytest.raises(AwayError, match="no bookie"):
            run(stand.shipper.ship())
        assert stand.counting() == former
        assert stand.logged() == stand.held()
        assert stand.shipper.writer.since_ns is None and stand.shipper.writer.wants_to_ship
    away = False

    run(stand.shipper.ship())

    assert stand.counting() != former
    assert stand.logged() == stand.held()


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("done", [False, True])
def test_a_pointer_that_nobody_has_answered_for_may_stand_and_what_it_names_is_kept(
    number: int, done: bool
) -> None:
    """The next try finds the one that counts.

    number: of the pointer's write: two for each log. done: whether it was executed.
    """
    clock, options, world = ManualClock(), IndexOptions(), World()
    store = TappedStore(MemoryStore(), clock)
    catalog = Catalog.open(store, clock, options)
    index = catalog.subscription(IDENTITY.name, IDENTITY.incarnation)
    log_options = LogOptions(tail_bytes=100)
    shipper = Shipper(
        store, index.own_journal.subscription_id, IDENTITY, world, options=log_options, dirty_ns=0
    )
    point = shipper.home.point
    calls = 0

    async def point_unanswered(old: str, new: str) -> None:
        nonlocal calls
        calls += 1
        if calls == number + 1 and not done:
            raise AwayError("not answered")
        await point(old, new)
        if calls == number + 1:
            raise AwayError("not answered")

    shipper.home.point = point_unanswered  # type: ignore[method-assign]
    added = 0
    while calls < number + 1:
        for _ in range(20):
            index.add(Entries.of([(1_000, 1, added)]))
            added += 1
            catalog.commit()
        shipper.note()
        with contextlib.suppress(AwayError):
            run(shipper.ship())
    pointer = Pointer.parse(world.pointer)
    if pointer is not None:
        assert pointer.ledger_id in {NO_LEDGER, *world.ledgers}, "what counts is there"
    while shipper.writer.wants_to_ship:
        run(shipper.ship())
    assert world.pointer == shipper.writer.pointer_text
    assert restored(run(read(world, IDENTITY)), IDENTITY, clock, options).state.held == index.state.held
    pointer = Pointer.parse(world.pointer)
    assert pointer is not None and set(world.ledgers) <= set(pointer.ledgers)


def test_a_pointer_does_not_grow_with_the_owners() -> None:
    """Each begins one log only, as it writes little; deleted ledgers are not handed on for ever."""
    clock, options, world = ManualClock(), IndexOptions(), World()
    store = TappedStore(MemoryStore(), clock)
    catalog = Catalog.open(store, clock, options)
    index = catalog.subscription(IDENTITY.name, IDENTITY.incarnation)
    named = []
    for owner in range(50):
        index.add(Entries.of([(1_000, 1, owner)]))
        catalog.commit()
        shipper = Shipper(
            store,
            index.own_journal.subscription_id,
            IDENTITY,
            world,
            options=LogOptions(),
            dirty_ns=0,
            index=index,
        )
        run(shipper.ship())
        shipper.writer.check()
        pointer = Pointer.parse(world.pointer)
        assert pointer is not None and set(world.ledgers) <= set(pointer.ledgers)
        named.append(len(pointer.others))
        assert shipper.writer.pointer_text == world.pointer
    assert max(named) <= 10
    assert restored(run(read(world, IDENTITY)), IDENTITY, clock, options).state.held == index.state.held
