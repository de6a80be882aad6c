"""Pages of an index: together they have each entry once."""

from __future__ import annotations

import pytest

from tests.support.catalogs import START_MS, opened
from tidegate.index.entries.entry import Entries
from tidegate.index.state.positions import PositionSet
from tidegate.index.store import MemoryStore
from tidegate.index.subscription.delay_index import DelayIndex
from tidegate.index.timeline.page_reader import FIRST_KEY

COUNT = 50


def positions_by_pages(index: DelayIndex, limit: int) -> list[tuple[int, int]]:
    reader, key, found = index.page_reader(with_moved=True), FIRST_KEY, []
    while True:
        page = reader.after(key, limit, strict=True)
        found += [one[1:] for one in page.entries]
        if page.last is None:
            return found
        assert page.last > key
        key = page.last


@pytest.mark.parametrize("limit", [1, 7, 10, 20, 24, 25, 49, 60])
@pytest.mark.parametrize("apart_ms", [0, 1_000])
def test_an_entry_that_was_staged_twice_ends_no_page_early(limit: int, apart_ms: int) -> None:
    """A cancelled message of which the cursor is reset comes back while its first copy is still staged."""
    _, index = opened(MemoryStore())
    entries = [(START_MS + 60_000 + apart_ms * n, 5, n) for n in range(COUNT)]
    index.add(Entries.of(entries))
    again = PositionSet.of((5, n) for n in (0, 1, 2, 11, 30))
    for _ in range(3):
        index.acknowledge(again)
        index.unacknowledge(again)
        index.add(Entries.of(entries))
    assert positions_by_pages(index, limit) == [(5, n) for n in range(COUNT)]
