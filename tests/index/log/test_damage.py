"""A store whose disk has damaged a value, and the index log that is written from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.index_logs import Shipper, copy_of, read, restored, run
from tidegate.index import (
    Catalog,
    DelayIndex,
    Entries,
    IndexOptions,
    ManualClock,
    PositionSet,
    RocksStore,
    SubscriptionName,
)
from tidegate.index.errors import CorruptRecordError
from tidegate.index.format import keys
from tidegate.index.format.envelope import unwrap
from tidegate.index.format.manifest import Identity
from tidegate.index.log.log_options import LogOptions
from tidegate.index.log.memory_home import World
from tidegate.index.log.reader import LogText
from tidegate.index.log.tap import LOGGED_KINDS, TappedStore
from tidegate.index.store import Batch

IDENTITY = Identity(SubscriptionName("persistent://public/default/orders", "late"), b"\x01" * 16)
OPTIONS = IndexOptions(block_entries=100, carry_ms=5_000)
T0 = 1_800_000_000_000
COUNT = 1_000


class Daemon:
    """An index on a real RocksDB whose values can be damaged, and its log."""

    def __init__(self, path: Path) -> None:
        self.clock = ManualClock(T0)
        self.rocks = RocksStore.open(path)
        store = TappedStore(self.rocks, self.clock)
        self.catalog = Catalog.open(store, self.clock, OPTIONS)
        self.index: DelayIndex = self.catalog.subscription(IDENTITY.name, IDENTITY.incarnation)
        self.world = World()
        subscription_id = self.index.own_journal.subscription_id
        self.shipper = Shipper(
            store, subscription_id, IDENTITY, self.world,
            options=LogOptions(), dirty_ns=0, damaged=self.index.upkeep.met_damage,
        )  # fmt: skip
        # Soon due and carried, later and in blocks, acknowledged, and in the journal.
        self.index.add(Entries.of((T0 + 1_000 + at, 1, at) for at in range(10)))
        self.index.add(Entries.of((T0 + 3_600_000 + at, 2, at) for at in range(COUNT)))
        self.index.acknowledge(PositionSet.of_entries(Entries.of((0, 2, at) for at in range(0, COUNT, 10))))
        self.persist()
        self.index.add(Entries.of((T0 + 7_200_000 + at, 3, at) for at in range(10)))
        self.catalog.commit()

    def persist(self) -> None:
        """All that is staged."""
        self.catalog.commit()
        self.catalog.persist(IDENTITY.name)

    def damage(self, kind: bytes) -> bytes:
        """Turn a bit of the first value of that kind; returns its key."""
        key, value = next(
            self.rocks.scan(*keys.subscription_range(kind, self.index.own_journal.subscription_id))
        )
        batch = Batch()
        batch.put(key, value[:-1] + bytes([value[-1] ^ 1]))
        self.rocks.write(batch, sync=True)
        return key

    def ship(self) -> None:
        """As often as the daemon would, while its upkeep goes on."""
        for _ in range(3):
            with suppress(CorruptRecordError):
                run(self.shipper.ship())
            self.catalog.maintain(self.clock.now_ms())

    def log(self) -> LogText:
        """The log as a new owner reads it."""
        return run(read(copy_of(self.world), IDENTITY))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "data")
    yield made
    made.catalog.close()


def assert_intact(log: LogText) -> None:
    """Nothing of it is damaged."""
    for kind in LOGGED_KINDS:
        for value in log.content.of(kind).values():
            unwrap(kind, value)


def test_a_damaged_block_is_in_no_log(daemon: Daemon) -> None:
    daemon.damage(keys.BLOCK)
    held = daemon.index.state.held.snapshot()

    run(daemon.shipper.ship())
    first = daemon.log()
    daemon.ship()

    lost = daemon.index.take_unheld()
    assert len(lost) == OPTIONS.block_entries
    assert daemon.catalog.stats().blocks_quarantined == 1
    assert_intact(first)
    now = daemon.log()
    assert_intact(now)
    found = restored(now, IDENTITY, daemon.clock, OPTIONS)
    assert found.state.held == daemon.index.state.held == held.difference(lost)


@pytest.mark.parametrize(
    "kind", [keys.STATE, keys.SLICE, keys.HELD, keys.ACKNOWLEDGED, keys.CARRY, keys.JOURNAL]
)
def test_what_is_in_memory_is_written_anew(daemon: Daemon, kind: bytes) -> None:
    held, acknowledged = daemon.index.state.held.snapshot(), daemon.index.state.acknowledged.snapshot()
    key = daemon.damage(kind)

    daemon.ship()

    assert len(daemon.index.take_unheld()) == 0
    assert daemon.catalog.stats().corrupt_records == 1
    now = daemon.log()
    assert_intact(now)
    found = restored(now, IDENTITY, daemon.clock, OPTIONS)
    assert found.state.held == held
    assert found.state.acknowledged == acknowledged
    value = daemon.rocks.get(key)
    assert value is None or unwrap(kind, value) is not None
