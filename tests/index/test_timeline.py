"""The worked example in the timeline's docstring, step by step."""

from __future__ import annotations

from tests.support.catalogs import NAME, opened
from tidegate.index.entries.entry import Entries
from tidegate.index.options import IndexOptions
from tidegate.index.state.positions import PositionSet
from tidegate.index.store import MemoryStore
from tidegate.index.subscription.delay_index import DelayIndex

OPTIONS = IndexOptions(slice_width_ms=60_000, carry_ms=0)


def due_at(*seconds: int) -> Entries:
    return Entries.of((second * 1_000, 5, second) for second in seconds)


def slices_of(index: DelayIndex) -> list[tuple[int, int, str]]:
    return [(each.start_ms // 60_000, each.entries, each.state) for each in index.stats().slices]


def test_the_worked_example_of_the_module() -> None:
    catalog, index = opened(MemoryStore(), OPTIONS, now_ms=0)
    index.add(due_at(130, 70, 62))
    assert slices_of(index) == []
    catalog.persist(NAME)
    assert slices_of(index) == [(1, 2, "stored"), (2, 1, "stored")]
    index.add(due_at(65))
    popped = index.timeline.pop_due(71_000, 10)
    assert popped.deliver_at_ms.tolist() == [62_000, 65_000, 70_000]
    assert slices_of(index) == [(1, 2, "active"), (2, 1, "stored")]
    index.acknowledge(PositionSet.of_entries(popped))
    assert slices_of(index) == [(1, 2, "finished"), (2, 1, "stored")]
    catalog.persist(NAME)
    assert slices_of(index) == [(2, 1, "stored")]
    index.check()
