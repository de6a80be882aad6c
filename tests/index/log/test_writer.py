"""The writer of an index log: whatever comes while it is busy, it catches up."""

from __future__ import annotations

from tests.support.index_logs import Shipper, read, restored, run
from tidegate.index.catalog import Catalog
from tidegate.index.clock import ManualClock
from tidegate.index.entry import Entries
from tidegate.index.format.manifest import Identity
from tidegate.index.log.log_options import LogOptions
from tidegate.index.log.memory_home import World
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
    shipper = Shipper(store, index.log.subscription_id, IDENTITY, world, options=log_options, dirty_ns=0)
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
