"""The writer of an index log: whatever comes while it is busy, it catches up."""

from __future__ import annotations

import contextlib

import pytest

from tests.support.index_logs import Shipper, read, restored, run
from tidegate.index.catalog import Catalog
from tidegate.index.clock import ManualClock
from tidegate.index.entry import Entries
from tidegate.index.format.manifest import Identity
from tidegate.index.log.home import AwayError
from tidegate.index.log.log_options import LogOptions
from tidegate.index.log.memory_home import World
from tidegate.index.log.pointer import NO_LEDGER, Pointer
from tidegate.index.log.records import EntryKind
from tidegate.index.names import SubscriptionName
from tidegate.index.options import IndexOptions
from tidegate.index.store import MemoryStore
from tidegate.index.tap import TappedStore

IDENTITY = Identity(SubscriptionName("persistent://public/default/orders", "late"), b"\x01" * 16)
QUEUE_BYTES = 200


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
    assert found.held() == index.held()
    assert len(found.held()) == 1 + QUEUE_BYTES


@pytest.mark.parametrize("meanwhile", [False, True])
def test_nothing_is_in_the_log_before_the_pointer_says_so(meanwhile: bool) -> None:
    """Who asks before would take the former ledger for one that has it all.

    meanwhile: it comes while another ledger is begun, for the length of the first one.
    """
    clock, options, world = ManualClock(), IndexOptions(), World()
    store = TappedStore(MemoryStore(), clock)
    catalog = Catalog.open(store, clock, options)
    index = catalog.subscription(IDENTITY.name, IDENTITY.incarnation)
    log_options = LogOptions(tail_bytes=100)
    shipper = Shipper(
        store, index.own_journal.subscription_id, IDENTITY, world, options=log_options, dirty_ns=7
    )
    point, append = shipper.home.point, shipper.home.append
    since_ns: list[int | None] = []

    def add(entry_id: int) -> None:
        index.add(Entries.of([(1_000, 1, entry_id)]))
        catalog.commit()

    async def point_watched(old: str, new: str) -> None:
        since_ns.append(shipper.writer.since_ns)
        await point(old, new)

    async def append_and_add(ledger_id: int, entry: bytes) -> int:
        if entry[3:4] == EntryKind.SNAPSHOT.value and not index.holds(Entries.of([(1_000, 1, 100)])).any():
            clock.work(11)
            add(100)
        return await append(ledger_id, entry)

    add(1)
    if meanwhile:
        run(shipper.ship())
        while not shipper.writer.wants_to_ship:
            add(len(index.held()) + 1)
            run(shipper.ship())
        assert shipper.writer.since_ns is None
        shipper.home.append = append_and_add  # type: ignore[method-assign]
    shipper.home.point = point_watched  # type: ignore[method-assign]

    run(shipper.ship())

    assert since_ns == ([None, 11] if meanwhile else [7, 7])
    assert shipper.writer.since_ns is None


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("done", [False, True])
def test_a_pointer_that_nobody_has_answered_for_may_stand_and_what_it_names_is_kept(
    number: int, done: bool
) -> None:
    """Which one it is that counts is found out by the next try.

    number: of the write of the pointer: two for each log. done: whether it was carried out.
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
    assert restored(run(read(world, IDENTITY)), IDENTITY, clock, options).held() == index.held()
    pointer = Pointer.parse(world.pointer)
    assert pointer is not None and set(world.ledgers) <= set(pointer.ledgers)


def test_a_pointer_does_not_grow_with_the_owners() -> None:
    """Each begins one log only, as it writes little; what it has deleted is not handed on for ever."""
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
    assert restored(run(read(world, IDENTITY)), IDENTITY, clock, options).held() == index.held()
