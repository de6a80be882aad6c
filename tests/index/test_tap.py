"""Notes of a tapped store."""

from __future__ import annotations

from collections.abc import Callable

from tidegate.index.clock import ManualClock
from tidegate.index.format import keys
from tidegate.index.log.tap import TappedStore
from tidegate.index.store import Batch, MemoryStore


class SlowStore(MemoryStore):
    """In which something happens after a write is visible, and before it returns."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], None] = lambda: None

    def write(self, batch: Batch, *, sync: bool) -> None:
        super().write(batch, sync=sync)
        self.meanwhile()


def test_a_write_under_way_when_watching_begins_is_noted() -> None:
    """A snapshot that is begun now may have seen a part of it."""
    store = SlowStore()
    tap = TappedStore(store, ManualClock(0))
    store.meanwhile = lambda: tap.watch(1)
    batch = Batch()
    batch.put(keys.subscription_key(keys.STATE, 1), b"state")
    tap.write(batch, sync=True)
    assert [each.subscription_id for each in tap.pop_noted()] == [1]
