"""The quarantine keeps damaged bytes within its budget, the newest of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.catalogs import NAME, OPTIONS, START_MS, damage, drained, opened, reopened, spread, stored
from tidegate.index.errors import DamagedDirectoryError
from tidegate.index.format import keys
from tidegate.index.journal.damaged_values import set_aside
from tidegate.index.store import Batch, MemoryStore


def kept(store: MemoryStore) -> list[tuple[bytes, bytes]]:
    """Its content, oldest first: (key of the damaged value, value)."""
    return [
        (key[10:] if keys.parse_quarantine_key(key) else key[1:], value)
        for key, value in stored(store, keys.QUARANTINE)
    ]


def size_bytes(store: MemoryStore) -> int:
    return sum(len(key) + len(value) for key, value in stored(store, keys.QUARANTINE))


@given(
    rounds=st.lists(st.lists(st.integers(0, 60), max_size=4), max_size=12),
    budget_bytes=st.integers(0, 300),
    old=st.lists(st.integers(0, 60), max_size=3),
)
def test_the_newest_stay_within_the_budget(
    rounds: list[list[int]], budget_bytes: int, old: list[int]
) -> None:
    store = MemoryStore()
    batch = Batch()
    everything = []
    for number, size in enumerate(old):
        everything.append((b"B%03d" % number, bytes(size)))
        batch.put(b"Q" + everything[-1][0], everything[-1][1])  # as before they were numbered
    store.write(batch, sync=True)
    for number, sizes in enumerate(rounds):
        damaged = [(b"B%03d-%d" % (number, at), bytes(size)) for at, size in enumerate(sizes)]
        everything += damaged
        store.write(set_aside(store, damaged, budget_bytes), sync=True)
        found = kept(store)
        assert found == everything[len(everything) - len(found) :]
        assert size_bytes(store) <= budget_bytes
        if len(found) < len(everything):
            key, value = everything[-len(found) - 1]
            prefix_bytes = 1 if len(found) >= len(everything) - len(old) else 10
            assert size_bytes(store) + prefix_bytes + len(key) + len(value) > budget_bytes


def test_corrupt_blocks_one_after_another() -> None:
    budget_bytes = 2_500
    store = MemoryStore()
    options = replace(OPTIONS, quarantine_budget_bytes=budget_bytes)
    catalog, index = opened(store, options)
    index.add(spread(500, 10_000))
    catalog.persist(NAME)
    values = [key for key, _ in stored(store, keys.BLOCK)]
    assert len(values) == 10, "one a second"
    for second, key in enumerate(values):
        damage(store, key)
        drained(index, START_MS + 1_000 * second + 999)
        for _ in range(3):
            catalog.maintain(START_MS)
        assert size_bytes(store) <= budget_bytes
    found = [key for key, _ in kept(store)]
    assert 1 < len(found) < len(values)
    assert found == values[-len(found) :]
    index.check()


def test_a_smaller_budget_counts_from_the_next_start() -> None:
    store = MemoryStore()
    catalog, index = opened(store)
    index.add(spread(1_000, 10_000))
    catalog.persist(NAME)
    for key, _ in stored(store, keys.SLICE):
        damage(store, key)
    reopened(store)
    assert len(kept(store)) == 10
    reopened(store, replace(OPTIONS, quarantine_budget_bytes=200))
    assert 0 < size_bytes(store) <= 200
    reopened(store, replace(OPTIONS, quarantine_budget_bytes=0))
    assert not kept(store)


class DamagedAgain(MemoryStore):
    """A store whose quarantine cannot be read."""

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        if start[:1] == keys.QUARANTINE:
            raise DamagedDirectoryError("in memory", "a test")
        return super().scan(start, end)


def test_a_quarantine_that_cannot_be_read_is_emptied() -> None:
    store = DamagedAgain()
    store.write(set_aside(store, [(b"Ba", b"1")], 100), sync=True)
    store.write(set_aside(store, [(b"Bb", b"2")], 100), sync=True)
    assert store.get(keys.quarantine_key(1, b"Ba")) is None
    assert store.get(keys.quarantine_key(1, b"Bb")) == b"2"


def test_a_negative_budget_is_refused() -> None:
    with pytest.raises(ValueError, match="quarantine_budget_bytes"):
        replace(OPTIONS, quarantine_budget_bytes=-1)
