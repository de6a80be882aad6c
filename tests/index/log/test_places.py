"""Places of blocks: which of them count; blocks that come twice, or are not the right ones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from tests.support.index_logs import Shipper, adopted, copy_of, land, read, run
from tests.support.stores import CrashStore
from tidegate.index.catalog.catalog import Catalog
from tidegate.index.clock import ManualClock
from tidegate.index.entries.entry import Entries
from tidegate.index.errors import StorageError
from tidegate.index.format import keys
from tidegate.index.format.manifest import Identity
from tidegate.index.log.log_options import LogOptions
from tidegate.index.log.memory_home import MemoryHome, World
from tidegate.index.log.places import Place, Places, by_record, read_record, wasteful_ledgers, writes
from tidegate.index.log.restore import named_places
from tidegate.index.log.tap import TappedStore
from tidegate.index.names import SubscriptionName
from tidegate.index.options import IndexOptions
from tidegate.index.store import Batch
from tidegate.index.subscription.delay_index import DelayIndex

IDENTITY = Identity(SubscriptionName("persistent://public/default/orders", "late"), b"\x01" * 16)
OPTIONS = IndexOptions(slice_width_ms=1_000_000_000, block_entries=4, carry_ms=0, write_piece_bytes=1)
PLACED = LogOptions(inline_bytes=0)
NOW_MS, DUE_MS, LATER_MS = 1_000_000, 2_000_000_000, 9_000_000_000


class DyingStore(CrashStore):
    """A store that takes only so many writes more."""

    left: int | None = None

    def write(self, batch: Batch, *, sync: bool) -> None:
        if self.left == 0:
            raise StorageError("killed here")
        if self.left is not None:
            self.left -= 1
        super().write(batch, sync=sync)


class Owner:
    """An index in a store of its own, and who ships its log."""

    def __init__(self, world: World) -> None:
        self.clock, self.world = ManualClock(NOW_MS), world
        self.store = DyingStore()
        self.tap = TappedStore(self.store, self.clock)
        self.catalog = Catalog.open(self.tap, self.clock, OPTIONS)
        self.places: Places = {}

    def make(self) -> DelayIndex:
        self.index = self.catalog.subscription(IDENTITY.name, IDENTITY.incarnation)
        self.catalog.commit()
        return self.index

    def take_over(self, choose: Callable[[Places, Places], Places] = lambda _, named: named) -> DelayIndex:
        """Restore what the log says, and bring no block yet. choose: of all places and the named ones."""
        log = run(read(copy_of(self.world), IDENTITY))
        assert not log.damage
        self.index = adopted(log, IDENTITY, self.catalog, self.store)
        self.catalog.commit()
        self.places = choose(log.content.places, named_places(log.content))
        return self.index

    def begin_log(self) -> Shipper:
        self.shipper = Shipper(
            self.tap, self.index.own_journal.subscription_id, IDENTITY, self.world, options=PLACED,
            dirty_ns=self.clock.monotonic_ns(), index=self.index, places=self.places,
        )  # fmt: skip
        return self.shipper

    def persist(self, entries: Entries) -> None:
        self.index.add(entries)
        self.catalog.commit()
        self.catalog.persist(IDENTITY.name)

    def ship(self) -> None:
        run(self.shipper.ship())

    def land(self) -> None:
        land(self.index, self.store, self.places, self.world)


def filled() -> Owner:
    """Four entries in a block, which lies in a ledger of blocks."""
    owner = Owner(World())
    owner.make()
    owner.persist(Entries.of((LATER_MS + at, 7, at) for at in range(4)))
    owner.begin_log()
    owner.ship()
    assert len(owner.places) == 1
    return owner


def cut_off() -> Owner:
    """As `filled`; and a persist has been killed after its first block, of which the log has the place."""
    owner = filled()
    owner.index.add(Entries.of((DUE_MS + 10 * at, 1, at) for at in range(8)))
    owner.catalog.commit()
    owner.store.left = 1
    with contextlib.suppress(StorageError):
        owner.catalog.persist(IDENTITY.name)
    owner.ship()
    return owner


@pytest.mark.parametrize("garbage", [False, True])
def test_what_a_persist_had_written_ahead_is_taken_for_no_other_block(garbage: bool) -> None:
    """The next shipper gives its id once more. garbage: the next owner knows its place all the same."""
    world = cut_off().world
    owner = Owner(world)
    owner.take_over((lambda every, _: every) if garbage else (lambda _, named: named))
    assert len(owner.places) == 1 + garbage
    owner.land()
    owner.begin_log()
    owner.persist(Entries.of((DUE_MS + 10 * at + 5, 2, at) for at in range(8)))
    owner.ship()

    last = Owner(world)
    index = last.take_over()
    last.land()

    index.check()
    assert len(index.state.held) == 20
    assert len(index.timeline.pop_due(LATER_MS + 1_000, 1_000)) == 20
    assert not last.catalog.stats().corrupt_records


def test_a_block_that_comes_twice_stays() -> None:
    """Two streams, one after the other, may each have brought it."""
    owner = Owner(filled().world)
    index = owner.take_over()
    ((slice_id, descriptor),) = index.upkeep.absent_in_order()
    owner.land()
    index.upkeep.land([keys.block_key(index.own_journal.subscription_id, slice_id, descriptor.block_id)])
    for _ in range(2):
        owner.persist(Entries.of([(DUE_MS, 3, 0)]))

    index.check()
    assert len(index.timeline.pop_due(LATER_MS + 1_000, 1_000)) == 5
    assert not owner.catalog.stats().corrupt_records


def test_a_block_that_is_gone_when_it_comes_is_deleted() -> None:
    owner = Owner(filled().world)
    index = owner.take_over()
    ((slice_id, descriptor),) = index.upkeep.absent_in_order()
    index.clear()
    assert not index.upkeep.absent_blocks
    key = keys.block_key(index.own_journal.subscription_id, slice_id, descriptor.block_id)
    batch = Batch()
    batch.put(key, b"late")
    owner.store.write(batch, sync=False)
    index.upkeep.land([key])
    owner.persist(Entries.of([(DUE_MS, 3, 0)]))
    assert owner.store.get(key) is None


def test_a_block_of_another_size_is_not_taken() -> None:
    owner = Owner(filled().world)
    index = owner.take_over()
    ((record, blocks),) = by_record(owner.places, index.upkeep.absent_in_order()).items()
    assert record is not None
    home = MemoryHome(owner.world)

    async def found() -> dict[bytes, bytes]:
        return await read_record(home, record, await home.open(record.ledger_id))

    right = run(found())
    assert not writes(right, 1, blocks)[1]
    wrong = {key: value + b"\0" for key, value in right.items()}
    batch, missing = writes(wrong, 1, blocks)
    assert missing == blocks
    assert not len(batch)


def test_a_ledger_that_is_mostly_garbage_is_wasteful_and_the_emptiest_of_too_many() -> None:
    def place(ledger_id: int, size_bytes: int, end_bytes: int) -> Place:
        return Place(ledger_id, 0, 1, end_bytes, size_bytes)

    assert wasteful_ledgers({b"a": place(1, 10, 31), b"b": place(2, 10, 30)}) == {1}
    many = {bytes([at]): place(at, 1_000 + at, 1_000 + at) for at in range(18)}
    assert wasteful_ledgers(many) == {0, 1}
