"""Counts of entries in memory, also while a persist writes them; the times of a block without the rest."""

from __future__ import annotations

from unittest.mock import Mock, patch

import numpy as np
import pytest

from tests.support.catalogs import START_MS, opened, stored
from tidegate.index.blocks import persist
from tidegate.index.entries.entry import Entries, Int64Array, bounds
from tidegate.index.errors import CorruptBlockError
from tidegate.index.format import keys
from tidegate.index.format.block import encode_block
from tidegate.index.state.positions import PositionSet
from tidegate.index.store import Batch, MemoryStore
from tidegate.index.subscription.delay_index import DelayIndex
from tidegate.index.timeline import tide
from tidegate.index.timeline.part import Part

HOUR_MS = 3_600_000
FIFTY_DAYS_MS = 50 * 24 * HOUR_MS


def made(times_ms: Int64Array, first_id: int = 0) -> Entries:
    ids = np.arange(first_id, first_id + len(times_ms))
    return Entries(times_ms, np.full(len(times_ms), 5), ids)


def true_counts(times_ms: Int64Array, edges: Int64Array) -> list[int]:
    places = np.searchsorted(edges, times_ms, side="right")
    return list(np.bincount(places, minlength=len(edges) + 1).tolist())


def counted(index: DelayIndex, edges: Int64Array) -> list[int]:
    before, counts, after, inexact = index.outline().tide(edges)
    assert inexact == 0
    return [before, *counts.tolist(), after]


@pytest.mark.parametrize("piece", [7, 64, tide.PIECE])
@pytest.mark.parametrize("buckets", [1, 2, 60, 70])
@pytest.mark.parametrize("step_ms", [1, 1_000, HOUR_MS, FIFTY_DAYS_MS])
def test_each_time_is_in_its_bucket(piece: int, buckets: int, step_ms: int) -> None:
    """At the borders, before and behind all, in one part or many, in 32 bits or more."""
    random = np.random.default_rng(buckets)
    first = START_MS // step_ms * step_ms + step_ms // 3
    edges = np.array([first, *(START_MS // step_ms * step_ms + step_ms * np.arange(1, buckets + 1))])
    within = random.integers(edges[0], edges[-1], 501)
    odd = np.concatenate([edges[:-1], edges[1:] - 1, within])
    outside = np.concatenate([odd, edges - 1, edges, edges[:1] - 5 * step_ms, edges[-1:] + 5 * step_ms])
    for times_ms in within, odd, odd[:1], outside:
        thirds = [made(one) for one in np.array_split(times_ms, 3) if len(one)]
        parts = [Part(one, *bounds(one.deliver_at_ms)) for one in thirds]
        unknown = [Part(part.entries) for part in parts]
        in_order = [Part.of_sorted(made(np.sort(part.entries.deliver_at_ms))) for part in parts]
        with patch.object(tide, "PIECE", piece):
            for some in parts, unknown, in_order, [*parts, *unknown, *in_order]:
                found = sum(part.entries.deliver_at_ms.size for part in some)
                counts = tide._count(some, edges).tolist()
                assert counts == [one * found // len(times_ms) for one in true_counts(times_ms, edges)]


def test_what_a_persist_writes_is_counted_as_it_has_sorted_it() -> None:
    store = MemoryStore()
    _, index = opened(store)
    random = np.random.default_rng(1)
    frozen = START_MS + HOUR_MS + random.integers(0, 24 * HOUR_MS, 300)
    index.add(made(frozen))
    index.acknowledge(PositionSet.of([(5, 0), (5, 1)]))
    job = index.upkeep.begin_persist(START_MS)
    younger = START_MS + HOUR_MS + random.integers(0, 24 * HOUR_MS, 100)
    index.add(made(younger, 1_000))
    edges = START_MS + HOUR_MS * np.arange(30)
    all_ms = np.concatenate([frozen[2:], younger])
    seen: list[list[int]] = []
    job.between = lambda: seen.append(counted(index, edges))
    with patch.object(persist, "_UNBROKEN_ENTRIES", 1):
        job.run()
    assert seen
    assert all(one == true_counts(all_ms, edges) for one in seen), "dead ones are not counted"
    assert job.in_order is None, "it is not kept"


def test_sorted_ones_are_not_counted_one_by_one() -> None:
    _, index = opened(MemoryStore())
    times_ms = START_MS + HOUR_MS + 977 * np.arange(5_000) % (24 * HOUR_MS)
    index.add(made(times_ms))
    job = index.upkeep.begin_persist(START_MS)
    edges = START_MS + HOUR_MS * np.arange(30)
    seen: list[list[int]] = []
    fail = Mock(side_effect=AssertionError("counted one by one"))

    def between() -> None:
        with patch.multiple(tide, _count_near=fail, _histogram=fail):
            seen.append(counted(index, edges))

    job.between = between
    with patch.object(persist, "_UNBROKEN_ENTRIES", 1):
        job.run()
    assert seen
    assert all(one == true_counts(times_ms, edges) for one in seen)


@pytest.mark.parametrize("change", ["cut", "other", "gone"])
def test_a_damaged_block_is_told(change: str) -> None:
    store = MemoryStore()
    catalog, index = opened(store)
    index.add(made(START_MS + HOUR_MS + np.arange(100)))
    catalog.persist(index.name)
    [(key, value)] = stored(store, keys.BLOCK)
    batch = Batch()
    if change == "gone":
        batch.delete(key)
    else:
        batch.put(key, value[:-1] if change == "cut" else encode_block(made(START_MS + np.arange(100))))
    store.write(batch, sync=True)
    with pytest.raises(CorruptBlockError):
        index.outline().tide(np.array([START_MS, START_MS + HOUR_MS + 50, START_MS + 2 * HOUR_MS]))
