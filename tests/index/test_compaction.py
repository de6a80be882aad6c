"""Compactions: what they write and delete, in whatever order, however often they pause, fail or crash."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import pytest

from tests.support.catalogs import (
    NAME,
    OPTIONS,
    START_MS,
    LaterExecutor,
    damage,
    drained,
    opened,
    positions_of,
    reopened,
    spread,
    stored,
)
from tests.support.stores import CrashStore, FailingStore
from tidegate.index.catalog.catalog import Catalog
from tidegate.index.clock import ManualClock
from tidegate.index.entries.entry import Entries, EntryKey
from tidegate.index.entries.sort import sort_entries
from tidegate.index.errors import StorageError
from tidegate.index.format import keys
from tidegate.index.format.manifest import decode_keys
from tidegate.index.state.positions import PositionSet
from tidegate.index.store import Batch, MemoryStore, Store
from tidegate.index.subscription.delay_index import DelayIndex

RUNS = 4
CROWDED = dataclasses.replace(OPTIONS, merge_runs=2, block_entries=20, write_piece_bytes=300)


def never() -> bool:
    return False


def after(blocks: int) -> Callable[[], bool]:
    asked = itertools.count(1)
    return lambda: next(asked) >= blocks


def crowded(store: Store) -> tuple[Catalog, DelayIndex, list[EntryKey]]:
    """Three slices with `RUNS` runs each."""
    catalog, index = opened(store, CROWDED)
    added = [spread(60, 3_000, ledger_id=at, seed=at) for at in range(RUNS)]
    for part in added:
        index.add(part)
        catalog.persist(NAME)
    assert {len(each.run_entries) for each in index.timeline.slices} == {RUNS}
    return catalog, index, list(sort_entries(Entries.concat(added)))


def compact(index: DelayIndex, pause: Callable[[], bool] = never) -> None:
    merge = index.upkeep.begin_compaction()
    assert merge is not None
    merge(pause)
    index.upkeep.finish_compaction()


def runs(index: DelayIndex) -> list[int]:
    return [len(each.run_entries) for each in index.timeline.slices]


def nothing_is_left_over(store: Store, index: DelayIndex) -> None:
    assert len(stored(store, keys.BLOCK)) == index.stats().blocks
    assert len(stored(store, keys.SLICE)) == index.stats().slices_on_disk
    assert not stored(store, keys.INTENT)


def test_runs_become_one_and_nothing_else_changes() -> None:
    store = MemoryStore()
    _, index, expected = crowded(store)
    assert index.stats().slices_crowded == 3
    before = index.state.held.snapshot()
    compact(index)
    index.check()
    assert runs(index) == [1, 1, 1]
    assert index.upkeep.begin_compaction() is None
    nothing_is_left_over(store, index)
    assert index.state.held == before
    _, index = reopened(store, CROWDED)
    index.check()
    assert drained(index) == expected


class IntentStore(MemoryStore):
    """Notes how many keys are listed each time that replaced blocks are."""

    def __init__(self) -> None:
        super().__init__()
        self.listed: list[int] = []

    def write(self, batch: Batch, *, sync: bool) -> None:
        for kind, key, value in batch.operations:
            if kind == Batch.PUT and key[:1] == keys.INTENT and key[-8:] > bytes(8 * [0x7F]):
                self.listed.append(len(decode_keys(value)))
        super().write(batch, sync=sync)


def test_what_is_replaced_is_listed_once_however_many_slices_a_compaction_has() -> None:
    store = IntentStore()
    _, index, _ = crowded(store)
    replaced = index.stats().blocks
    compact(index)
    assert len(store.listed) == 3
    assert sum(store.listed) == replaced
    nothing_is_left_over(store, index)


def test_a_persist_does_not_merge_and_maintain_does_when_nothing_is_to_be_persisted() -> None:
    store = MemoryStore()
    catalog, index, expected = crowded(store)
    catalog.persist(NAME)
    assert runs(index) == [RUNS] * 3
    catalog.maintain(START_MS)
    assert runs(index) == [1, 1, 1]
    assert (catalog.stats().compactions, catalog.stats().slices_crowded) == (3, 0)
    nothing_is_left_over(store, index)
    assert drained(index) == expected


@pytest.mark.parametrize("blocks", [1, 2, 3, 5])
def test_one_that_pauses_goes_on_where_it_was(blocks: int) -> None:
    store = MemoryStore()
    _, index, expected = crowded(store)
    popped: list[EntryKey] = []
    pauses = 0
    while (merge := index.upkeep.begin_compaction()) is not None:
        merge(after(blocks))
        index.upkeep.finish_compaction()
        index.check()
        pauses += 1
        popped += index.timeline.pop_due(START_MS + 10_000, 5)
    assert pauses >= 14 // blocks
    assert runs(index) == [1, 1, 1]
    nothing_is_left_over(store, index)
    assert popped + drained(index) == expected


def test_what_is_merged_beside_a_persist_is_committed_after_it() -> None:
    store = MemoryStore()
    catalog, index, expected = crowded(store)
    more = spread(60, 3_000, ledger_id=9, seed=9)
    index.add(more)
    catalog.commit()
    job = index.upkeep.begin_persist(START_MS)
    merge = index.upkeep.begin_compaction(commits=False)
    assert merge is not None
    merge(after(4))
    job.run()
    merge(never)
    index.upkeep.finish_persist()
    index.upkeep.finish_compaction()
    index.check()
    assert runs(index) == [RUNS + 1] * 3, "only merged"
    assert index.upkeep.has_merged and stored(store, keys.INTENT)
    compact(index, after(1))
    assert not index.upkeep.has_merged
    assert sorted(runs(index)) in ([2, 2, 2], [1, 2, 2])
    while (merge := index.upkeep.begin_compaction()) is not None:
        merge(never)
        index.upkeep.finish_compaction()
    index.check()
    assert runs(index) == [1, 1, 1]
    nothing_is_left_over(store, index)
    assert drained(index) == list(sort_entries(Entries.concat([Entries.of(expected), more])))


@pytest.mark.parametrize("blocks", [1, 4, 100])
def test_a_crash_after_any_write_leaves_the_old_blocks_or_the_new_ones(blocks: int) -> None:
    """Nothing of a compaction is synced by itself: any number of its last writes may be gone."""
    kept_writes = 0
    while True:
        store = CrashStore()
        _, index, expected = crowded(store)
        while (merge := index.upkeep.begin_compaction()) is not None:
            merge(after(blocks))
            index.upkeep.finish_compaction()
        unsynced = store.unsynced
        again = store.crashed(kept_writes)
        _, index = opened(again, CROWDED)
        index.check()
        nothing_is_left_over(again, index)
        assert drained(index) == expected
        if kept_writes == unsynced:
            assert runs(index) == [1, 1, 1]
            return
        kept_writes += 1


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("then", ["nothing", "acknowledge", "clear"])
def test_one_that_fails_at_any_write_leaves_nothing(applied: bool, then: str) -> None:
    for writes_left in range(100):
        store = FailingStore()
        catalog, index, expected = crowded(store)
        store.writes_left, store.applies_refused = writes_left, applied
        failed = False
        try:
            catalog.maintain(START_MS)
        except StorageError:
            failed = True
            assert catalog.background.failure is not None
            assert catalog.stats().persist_failures == 1
        store.writes_left = None
        index.check()
        if then == "acknowledge":
            index.acknowledge(PositionSet.of((0, at) for at in range(60)))
            expected = [row for row in expected if row[1] != 0]
        elif then == "clear":
            index.clear()
            expected = []
        catalog.commit()
        for _ in range(4):  # what is in doubt is put right by a persist, then it is tried again
            catalog.maintain(START_MS + 2 * CROWDED.retry_ms)
        assert catalog.background.failure is None
        index.check()
        assert set(runs(index)) <= {1}
        nothing_is_left_over(store, index)
        catalog, index = reopened(store.memory, CROWDED)
        index.check()
        assert drained(index) == expected
        if not failed:
            assert writes_left > 5
            return
    pytest.fail("no compaction succeeded: the writes are more than expected")


def test_while_it_is_not_certain_what_a_slice_has_it_is_not_compacted() -> None:
    """The persist may have been applied: a slice record without its blocks would lose them."""
    store = FailingStore()
    catalog, index, expected = crowded(store)
    more = spread(60, 3_000, ledger_id=9, seed=9)
    index.add(more)
    catalog.commit()
    store.writes_left, store.applies_refused = 0, True
    with pytest.raises(StorageError):
        catalog.persist(NAME)
    store.writes_left = None
    assert index.upkeep.begin_compaction() is None and index.upkeep.crowding is None
    catalog.maintain(START_MS + 2 * CROWDED.retry_ms)
    assert index.upkeep.crowding is not None
    catalog.maintain(START_MS + 2 * CROWDED.retry_ms)
    assert runs(index) == [1, 1, 1]
    nothing_is_left_over(store, index)
    catalog, index = reopened(store.memory, CROWDED)
    assert drained(index) == list(sort_entries(Entries.concat([Entries.of(expected), more])))


def finish_first_slice(catalog: Catalog, index: DelayIndex) -> None:
    index.acknowledge(positions_of(drained(index, START_MS + 999)))
    catalog.persist(NAME)


def clear(catalog: Catalog, index: DelayIndex) -> None:
    index.clear()


def clear_and_persist(catalog: Catalog, index: DelayIndex) -> None:
    index.clear()
    catalog.persist(NAME)


def pop_all(catalog: Catalog, index: DelayIndex) -> None:
    drained(index)


def acknowledge_all(catalog: Catalog, index: DelayIndex) -> None:
    index.acknowledge(index.state.held.snapshot())
    catalog.persist(NAME)


def add_and_persist(catalog: Catalog, index: DelayIndex) -> None:
    index.add(spread(60, 3_000, ledger_id=9, seed=9))
    catalog.persist(NAME)


@pytest.mark.parametrize("blocks", [1, 2, 5, 9])
@pytest.mark.parametrize(
    "meanwhile", [finish_first_slice, clear, clear_and_persist, pop_all, acknowledge_all, add_and_persist]
)
@pytest.mark.parametrize("commits", [True, False])
def test_whatever_happens_while_one_pauses(
    meanwhile: Callable[[Catalog, DelayIndex], None], blocks: int, commits: bool
) -> None:
    store = MemoryStore()
    catalog, index, _ = crowded(store)
    merge = index.upkeep.begin_compaction(commits=commits)
    assert merge is not None
    merge(after(blocks))
    index.upkeep.finish_compaction()
    meanwhile(catalog, index)
    index.check()
    held = index.state.held.snapshot()
    for _ in range(5):
        catalog.maintain(START_MS)
        index.check()
    catalog.persist(NAME)
    assert set(runs(index)) <= {1}
    nothing_is_left_over(store, index)
    assert index.state.held == held
    catalog, index = reopened(store, CROWDED)
    index.check()
    nothing_is_left_over(store, index)
    assert positions_of(drained(index)) == held


@pytest.mark.parametrize("commits", [True, False])
def test_a_clear_while_one_runs(commits: bool) -> None:
    store = MemoryStore()
    catalog, index, _ = crowded(store)
    merge = index.upkeep.begin_compaction(commits=commits)
    assert merge is not None
    merge(after(3))
    index.clear()
    kept = spread(10, 3_000, ledger_id=9)
    index.add(kept)
    merge(never)
    index.upkeep.finish_compaction()
    index.check()
    catalog.persist(NAME)
    index.check()
    nothing_is_left_over(store, index)
    catalog, index = reopened(store, CROWDED)
    assert drained(index) == list(sort_entries(kept))


def test_a_removed_subscription_leaves_nothing_of_a_compaction_on_its_way() -> None:
    store, executor = MemoryStore(), LaterExecutor()
    crowded(store)[0].close()
    catalog = Catalog.open(store.reopen(), ManualClock(START_MS), CROWDED, executor)
    catalog.maintain(START_MS)
    assert catalog.background.running is not None
    catalog.remove(NAME)
    catalog.commit()
    executor.run_all()
    catalog.maintain(START_MS)
    catalog.commit()
    assert [key for key, _ in store.scan(b"", b"\xff" * 40)] == [keys.FORMAT_KEY]


def test_a_corrupt_block_is_left_for_a_persist_to_put_aside() -> None:
    store = MemoryStore()
    catalog, index, expected = crowded(store)
    key, _ = stored(store, keys.BLOCK)[0]
    lost = next(each for each in index.timeline.slices if keys.parse_slice_key(key) == each.id)
    block = lost.blocks[keys.parse_block_key(key)]
    gone = list(index._blocks.load(block) or ())
    damage(store, key)
    compact(index)
    index.check()
    assert index.stats().blocks_quarantined == 1
    for _ in range(3):
        catalog.maintain(START_MS)
    index.check()
    assert set(runs(index)) == {1}
    assert positions_of(gone) == index.take_unheld()
    nothing_is_left_over(store, index)
    assert drained(index) == [row for row in expected if row not in gone]


def test_dead_entries_go_if_the_store_knows_that_they_are_dead() -> None:
    """Otherwise a crash would bring them back to life, without their entries."""
    store = CrashStore()
    catalog, index, expected = crowded(store)
    known = PositionSet.of((0, at) for at in range(60))
    index.acknowledge(known)
    catalog.persist(NAME)
    index.acknowledge(PositionSet.of((1, at) for at in range(60)))
    compact(index)
    index.check()
    assert sum(each.entries for each in index.timeline.slices) == 3 * 60
    again = store.crashed(store.unsynced)
    catalog, index = opened(again, CROWDED)
    index.check()
    assert drained(index) == [row for row in expected if row[1] != 0], "the last words were not committed"


def test_the_slice_that_is_due_first_comes_first_of_those_with_as_many_runs() -> None:
    _, index, _ = crowded(MemoryStore())
    compact(index, after(1))
    by_time = sorted(index.timeline.slices, key=lambda each: each.id.start_ms)
    merge = index.upkeep.begin_compaction()
    assert merge is not None
    merge(after(5))
    index.upkeep.finish_compaction()
    assert len(by_time[0].run_entries) == 1 and len(by_time[2].run_entries) == RUNS
