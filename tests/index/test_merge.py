"""The heap of runs: exact order from overlapping sources, and nothing opened before it is needed."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.index.entries.entry import Entries, EntryKey
from tidegate.index.entries.sort import sort_entries
from tidegate.index.errors import StorageError
from tidegate.index.timeline.in_flight import InFlightEntries
from tidegate.index.timeline.merge import Item, RunHeap, Taken
from tidegate.index.timeline.run import Run

FOREVER_MS = 1 << 62
keys = st.tuples(st.integers(0, 50), st.integers(0, 3), st.integers(0, 30))


class Keeper:
    """Owner of runs and, unopened, of one run that is opened on demand."""

    stored = True

    def __init__(self, rows: Iterable[EntryKey], error: Exception | None = None) -> None:
        self.entries = Entries.of(sorted(set(rows)))
        self.opened = False
        self.error = error
        self.consumed_entries = 0
        self.in_flight = InFlightEntries()

    def open_item(self) -> Iterable[tuple[EntryKey, Item]]:
        if self.error is not None:
            raise self.error
        self.opened = True
        run = Run(self.entries, self)
        return [(run.key(), run)] if len(run) else []

    def consumed(self, run: Run, count: int) -> None:
        self.consumed_entries += count


def everything(taken: Taken) -> Entries:
    return sort_entries(Entries.concat(part for _, part in taken))


@given(
    sources=st.lists(st.tuples(st.sets(keys, max_size=60), st.booleans()), max_size=9),
    limits=st.lists(st.integers(1, 90), min_size=1, max_size=6),
    now_ms=st.integers(0, 60),
)
@settings(deadline=None, max_examples=200)
def test_pops_are_the_sorted_union(
    sources: list[tuple[set[EntryKey], bool]], limits: list[int], now_ms: int
) -> None:
    heap = RunHeap()
    taken: set[EntryKey] = set()
    due = []
    for wanted, unopened in sources:
        rows = wanted - taken
        taken |= rows
        if not rows:
            continue
        due += [row for row in rows if row[0] <= now_ms]
        keeper = Keeper(rows)
        if unopened:
            heap.push((keeper.entries.key(0)[0], -1, -1), keeper)
        else:
            heap.push_run(Run(keeper.entries, keeper))
    due.sort()
    at = 0
    for limit in limits:
        popped = list(heap.pop_entries(now_ms, limit, FOREVER_MS, everything))
        assert popped == due[at : at + limit]
        at += len(popped)
    assert list(heap.pop_entries(now_ms, 1 << 20, FOREVER_MS, everything)) == due[at:]
    assert len(heap.pop_entries(now_ms, 1 << 20, FOREVER_MS, everything)) == 0


def test_only_what_the_limit_asks_for_is_opened() -> None:
    heap = RunHeap()
    keepers = [Keeper((100 * at + i, 0, i) for i in range(100)) for at in range(10)]
    for keeper in keepers:
        heap.push(keeper.entries.key(0), keeper)
    assert len(heap.pop_entries(FOREVER_MS, 150, FOREVER_MS, everything)) == 150
    assert [keeper.opened for keeper in keepers] == [True, True] + [False] * 8
    assert len(heap.pop_entries(250, 1_000, FOREVER_MS, everything)) == 101
    assert [keeper.opened for keeper in keepers] == [True] * 3 + [False] * 7


def test_dead_entries_do_not_stall_a_pop() -> None:
    heap = RunHeap()
    keeper = Keeper((i, 0, i) for i in range(10_000))
    heap.push_run(Run(keeper.entries, keeper))

    def last_only(taken: Taken) -> Entries:
        return Entries.concat(part.take(part.deliver_at_ms == 9_999) for _, part in taken)

    assert len(heap.pop_entries(FOREVER_MS, 10, 1_000, last_only)) == 0
    assert len(heap) == 1
    while not len(popped := heap.pop_entries(FOREVER_MS, 10, 1_000, last_only)):
        assert len(heap)
    assert list(popped) == [(9_999, 0, 9_999)]


def test_many_small_blocks_do_not_stall_a_pop() -> None:
    heap = RunHeap()
    keepers = [Keeper([(at, 0, at)]) for at in range(1_000)]
    for keeper in keepers:
        heap.push(keeper.entries.key(0), keeper)
    popped: list[EntryKey] = []
    while len(heap):
        before = sum(keeper.opened for keeper in keepers)
        popped += heap.pop_entries(FOREVER_MS, 1_000, 262_144, everything)
        assert 0 < sum(keeper.opened for keeper in keepers) - before <= 256
    assert popped == [(at, 0, at) for at in range(1_000)]


@pytest.mark.parametrize("error", [StorageError("the disk fails"), MemoryError(), RuntimeError("a bug")])
def test_a_source_that_fails_loses_nothing(error: Exception) -> None:
    heap = RunHeap()
    good = Keeper((i, 0, i) for i in range(10))
    bad = Keeper([(5, 9, 9)], error)
    heap.push_run(Run(good.entries, good))
    heap.push((5, 9, 9), bad)
    assert len(heap.pop_entries(FOREVER_MS, 100, FOREVER_MS, everything)) == 6
    with pytest.raises(type(error)):
        heap.pop_entries(FOREVER_MS, 100, FOREVER_MS, everything)
    bad.error = None
    assert list(heap.pop_entries(FOREVER_MS, 100, FOREVER_MS, everything)) == [
        (5, 9, 9),
        *((i, 0, i) for i in range(6, 10)),
    ]


def test_what_is_due_soon_is_opened_ahead_one_after_another() -> None:
    heap = RunHeap()
    keepers = [Keeper((10 * at + i, 0, i) for i in range(10)) for at in range(10)]
    for keeper in reversed(keepers):
        heap.push(keeper.entries.key(0), keeper)
    opened = []
    while heap.open_next(45):
        opened.append([keeper.opened for keeper in keepers].count(True))
    assert opened == [1, 2, 3, 4, 5]
    assert [keeper.opened for keeper in keepers] == [True] * 5 + [False] * 5


def test_a_large_pop_may_leave_a_few_and_never_the_order() -> None:
    heap = RunHeap()
    rows = [[(at // 3, run, at) for at in range(run, 5_000, 1 + run)] for run in range(4)]
    for each in rows:
        keeper = Keeper(each)
        heap.push_run(Run(keeper.entries, keeper))
    due = sorted(row for each in rows for row in each)
    popped: list[EntryKey] = []
    while len(heap):
        some = list(heap.pop_entries(FOREVER_MS, 2_000, FOREVER_MS, everything))
        assert len(some) <= 2_000
        assert len(some) >= min(1_875, len(due) - len(popped))
        popped += some
    assert popped == due


def test_a_large_pop_of_one_instant_is_exact() -> None:
    heap = RunHeap()
    for run in range(3):
        keeper = Keeper([(7, run, at) for at in range(3_000)])
        heap.push_run(Run(keeper.entries, keeper))
    sizes = []
    while len(heap):
        sizes.append(len(heap.pop_entries(FOREVER_MS, 2_000, FOREVER_MS, everything)))
    assert sizes == [2_000, 2_000, 2_000, 2_000, 1_000]


def test_a_dense_run_among_sparse_ones_is_popped_in_one_round() -> None:
    """Each round looks at all runs: a pop in many small ones would cost a multiple."""
    heap = RunHeap()
    dense = Keeper((at, 0, at) for at in range(10_000))
    heap.push_run(Run(dense.entries, dense))
    for run in range(1, 10):
        sparse = Keeper((1_000 * at, run, at) for at in range(100))
        heap.push_run(Run(sparse.entries, sparse))
    rounds = 0

    def counted(taken: Taken) -> Entries:
        nonlocal rounds
        rounds += 1
        return everything(taken)

    assert len(heap.pop_entries(FOREVER_MS, 5_000, FOREVER_MS, counted)) >= 4_600
    assert rounds <= 2


def test_the_worked_example_of_the_module() -> None:
    heap = RunHeap()
    for first, *rest in ((10, 20, 30, 60), (15, 25, 35)):
        keeper = Keeper((due, 1, due) for due in (first, *rest))
        heap.push_run(Run(keeper.entries, keeper))
    block = Keeper([(40, 1, 40), (45, 1, 45)])
    heap.push((40, 1, 40), block)
    popped = heap.pop_entries(50, 4, 1 << 20, everything)
    assert popped.deliver_at_ms.tolist() == [10, 15, 20, 25]
    assert sorted(key[0] for _, key in heap.items()) == [30, 35, 40]
    assert not block.opened
