"""Persists: what they write and delete, when they fail, and how little memory a backlog needs."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from tests.support.catalogs import (
    INCARNATION,
    NAME,
    OPTIONS,
    START_MS,
    LaterExecutor,
    drained,
    opened,
    overwrite,
    positions_of,
    reopened,
    spread,
    stored,
)
from tests.support.stores import FailingStore
from tidegate.index.blocks import persister
from tidegate.index.blocks.persist import PersistJob
from tidegate.index.catalog.catalog import Catalog
from tidegate.index.clock import ManualClock
from tidegate.index.entries.entry import ENTRY_BYTES, Entries
from tidegate.index.entries.sort import sort_entries
from tidegate.index.errors import StorageError
from tidegate.index.format import keys
from tidegate.index.format.envelope import wrap
from tidegate.index.options import IndexOptions
from tidegate.index.state import positions as positions_module
from tidegate.index.state import roaring
from tidegate.index.state.positions import PositionSet
from tidegate.index.state.roaring import serialize_bitmap
from tidegate.index.store import MemoryStore
from tidegate.index.timeline import staging
from tidegate.index.timeline.crowding import choose_runs


def test_a_persist_moves_the_journal_into_blocks() -> None:
    store = MemoryStore()
    catalog, index = opened(store)
    index.add(spread(500, 5_000))
    catalog.commit()
    assert stored(store, keys.JOURNAL)
    catalog.persist(NAME)
    assert not stored(store, keys.JOURNAL)
    assert not stored(store, keys.INTENT)
    stats = index.stats()
    assert (stats.staged, stats.journal_bytes, stats.slices_on_disk) == (0, 0, 5)
    assert stats.blocks == len(stored(store, keys.BLOCK))
    assert [each.start_ms for each in stats.slices] == [START_MS + 1_000 * at for at in range(5)]


def test_entries_count_as_staged_until_a_persist_has_written_them() -> None:
    catalog, index = opened(MemoryStore())
    index.add(spread(500, 5_000))
    catalog.commit()
    job = index.upkeep.begin_persist(START_MS)
    index.add(spread(10, 5_000, ledger_id=6))
    assert index.stats().staged == 510
    assert index.stats().memory_bytes >= 510 * ENTRY_BYTES
    job.run()
    index.upkeep.finish_persist()
    assert index.stats().staged == 10


def test_a_block_takes_the_memory_that_the_page_on_sizing_names() -> None:
    page = (Path(__file__).parents[2] / "docs" / "sizing.md").read_text(encoding="utf-8")
    named = re.search(r"\+ ([0-9]+) bytes × blocks", page)
    assert named is not None
    catalog, index = opened(MemoryStore())
    index.add(spread(500, 5_000))
    catalog.persist(NAME)
    blocks_bytes = index.timeline.memory_bytes() - index.timeline.entries_in_memory * ENTRY_BYTES
    assert blocks_bytes == int(named[1]) * index.stats().blocks > 0


def test_short_delays_stay_staged_and_survive() -> None:
    options = dataclasses.replace(OPTIONS, carry_ms=1_000)
    store = MemoryStore()
    catalog, index = opened(store, options)
    index.add(spread(500, 5_000))
    catalog.persist(NAME)
    near = index.stats().staged
    assert 0 < near < 200
    assert sum(each.entries for each in index.stats().slices) == 500 - near
    catalog, index = reopened(store, options)
    index.check()
    assert drained(index) == list(sort_entries(spread(500, 5_000)))
    # Acknowledged ones are not carried again.
    index.acknowledge(index.state.held.snapshot())
    catalog.persist(NAME)
    assert index.stats().staged == 0
    assert not stored(store, keys.CARRY)


def test_finished_slices_are_deleted_with_their_blocks() -> None:
    store = MemoryStore()
    catalog, index = opened(store, IndexOptions(slice_width_ms=1_000, carry_ms=0, drop_entries=900))
    index.add(spread(2_000, 10_000))
    catalog.persist(NAME)
    index.acknowledge(positions_of(drained(index, START_MS + 2_999)))
    catalog.maintain(START_MS)
    assert index.stats().slices_on_disk == 10, "too little to be worth a persist"
    index.acknowledge(positions_of(drained(index, START_MS + 4_999)))
    catalog.maintain(START_MS)
    assert index.stats().slices_on_disk == 5
    assert len({key[:25] for key, _ in stored(store, keys.BLOCK)}) == 5
    index.check()
    index.acknowledge(index.state.held.snapshot())
    catalog.maintain(START_MS)
    assert index.stats().slices_on_disk == 0
    assert not stored(store, keys.BLOCK) and not stored(store, keys.SLICE) and not stored(store, keys.HELD)


def test_a_slice_with_one_entry_unacknowledged_stays() -> None:
    store = MemoryStore()
    catalog, index = opened(store)
    index.add(spread(100, 1_000))
    catalog.persist(NAME)
    popped = drained(index)
    index.acknowledge(positions_of(popped[1:]))
    catalog.maintain(START_MS)
    assert index.stats().slices_on_disk == 1
    index.rewind(PositionSet())
    assert drained(index) == popped[:1]
    index.acknowledge(positions_of(popped))
    catalog.maintain(START_MS)
    assert index.stats().slices_on_disk == 0


def test_slices_below_the_mark_delete_position_go_before_they_are_due() -> None:
    store = MemoryStore()
    catalog, index = opened(store)
    index.add(spread(100, 1_000, ledger_id=1))
    far = spread(100, 1_000, ledger_id=2)
    index.add(Entries(far.deliver_at_ms + 60_000, far.ledger_id, far.entry_id))
    catalog.persist(NAME)
    index.mark_delete(1, 99)
    catalog.persist(NAME)
    assert len(index.stats().slices) == 1
    index.check()


def test_a_slice_half_below_the_mark_delete_position_keeps_the_other_half() -> None:
    """Pulsar's Bucket tracker deleted such a snapshot whole (apache/pulsar#26240)."""
    store = MemoryStore()
    catalog, index = opened(store)
    both = [spread(100, 1_000, ledger_id=ledger_id, seed=ledger_id) for ledger_id in (1, 2)]
    index.add(Entries.concat(both))
    catalog.persist(NAME)
    assert len(index.stats().slices) == 1
    index.mark_delete(1, 99)
    catalog.persist(NAME)
    catalog.maintain(START_MS)
    _, index = reopened(store)
    index.check()
    assert drained(index) == list(sort_entries(both[1]))


def test_blocks_of_a_busy_slice_stay_few() -> None:
    store = MemoryStore()
    catalog, index = opened(store)
    added = []
    for at in range(100):
        batch = spread(20, 1_000, ledger_id=at, seed=at)
        index.add(batch)
        added.append(batch)
        catalog.persist(NAME)
        catalog.maintain(START_MS)
    runs = {block.descriptor.run_id for each in index.timeline.slices for block in each.blocks.values()}
    assert len(runs) <= OPTIONS.merge_runs
    assert len(stored(store, keys.BLOCK)) == index.stats().blocks
    assert drained(index) == list(sort_entries(Entries.concat(added)))


def test_a_slice_is_merged_while_it_is_popped() -> None:
    store = MemoryStore()
    catalog, index = opened(store)
    expected: list[tuple[int, int, int]] = []
    popped: list[tuple[int, int, int]] = []
    for at in range(30):
        batch = spread(50, 1_000, ledger_id=at, seed=at)
        late = batch.take(batch.deliver_at_ms > START_MS + 20 * at)
        index.add(late)
        expected += list(late)
        catalog.persist(NAME)
        popped += drained(index, START_MS + 20 * at, limit=3)
        if at % 3 == 0:
            index.acknowledge(positions_of(popped[-5:]))
        index.check()
    popped += drained(index)
    assert popped == sorted(expected)


@given(runs=st.lists(st.integers(1, 10_000), min_size=1, max_size=20), runs_max=st.integers(2, 10))
@settings(deadline=None)
def test_merged_runs_are_two_or_more_small_ones(runs: list[int], runs_max: int) -> None:
    chosen = choose_runs(dict(enumerate(runs)), runs_max)
    if len(runs) < runs_max:
        assert not chosen
    else:
        assert len(chosen) >= 2
        assert max(runs[at] for at in chosen) <= min(
            (size for at, size in enumerate(runs) if at not in chosen), default=10_000
        )


def test_a_large_run_is_not_rewritten_for_small_ones() -> None:
    assert choose_runs({0: 10_000_000, 1: 5, 2: 5, 3: 5}, 4) == {1, 2, 3}


def test_a_burst_is_loaded_block_by_block() -> None:
    """A million entries due at one instant: a pop of 1,000 needs one block of each run."""
    options = IndexOptions(staging_budget_bytes=6 << 20)
    catalog, index = opened(MemoryStore(), options)
    count, batch = 1_000_000, 10_000
    for at in range(0, count, batch):
        position = np.arange(at, at + batch)
        index.add(Entries(np.full(batch, START_MS + 60_000), position // 50_000, position % 50_000))
        catalog.maintain(START_MS)
    catalog.persist(NAME)
    popped = 0
    while len(some := index.timeline.pop_due(START_MS + 60_000, 1_000)):
        popped += len(some)
        index.acknowledge(PositionSet.of_entries(some))
        catalog.maintain(START_MS)
        if popped % 50_000 == 0:
            loaded = sum(each.loaded_entries() for each in index.timeline.slices)
            assert loaded <= (options.merge_runs + 1) * options.block_entries
    assert popped == count


def test_a_long_downtime_is_loaded_block_by_block() -> None:
    catalog, index = opened(MemoryStore())
    for day in range(20):
        batch = spread(1_000, 10_000, ledger_id=day)
        index.add(Entries(batch.deliver_at_ms + 60_000 * day, batch.ledger_id, batch.entry_id))
        catalog.persist(NAME)
    index.timeline.pop_due(1 << 60, 10)
    assert sum(each.loaded_entries() for each in index.timeline.slices) <= 2 * OPTIONS.block_entries
    assert index.stats().slices_in_memory <= 2


def test_a_full_disk_loses_nothing_at_whatever_write_it_comes() -> None:
    options = dataclasses.replace(OPTIONS, write_piece_bytes=200, merge_runs=2)
    expected = sort_entries(Entries.concat(spread(200, 3_000, ledger_id=at) for at in range(3)))
    for writes_left in range(40):
        store = FailingStore()
        catalog, index = opened(store, options)
        for at in range(3):
            index.add(spread(200, 3_000, ledger_id=at))
            if at < 2:
                catalog.persist(NAME)
        catalog.commit()
        store.writes_left = writes_left
        failed = False
        try:
            catalog.persist(NAME)
        except StorageError:
            failed = True
            assert catalog.stats().persist_failures == 1
            assert catalog.stats().last_failure
        index.check()
        store.writes_left = 0
        with pytest.raises(StorageError):
            index.add(spread(10, 1_000, ledger_id=9))
            catalog.commit()
        assert catalog.journal.durable_token < catalog.stats().appended_token
        store.writes_left = None
        catalog.commit()
        assert catalog.journal.durable_token == catalog.stats().appended_token
        catalog.persist(NAME)
        index.check()
        assert len(stored(store, keys.BLOCK)) == index.stats().blocks, "blocks that nobody knows are left"
        assert not stored(store, keys.INTENT)
        again, index = reopened(store.memory, options)
        index.check()
        assert [row for row in drained(index) if row[1] != 9] == list(expected)
        again.close()
        if not failed:
            return
    pytest.fail("no persist succeeded: the writes are more than expected")


def test_a_crash_at_any_write_of_a_persist_leaves_nothing_behind() -> None:
    options = dataclasses.replace(OPTIONS, write_piece_bytes=200, merge_runs=2)
    for writes_left in range(40):
        store = FailingStore()
        catalog, index = opened(store, options)
        for at in range(2):
            index.add(spread(200, 3_000, ledger_id=at))
            catalog.commit()
            if at < 1:
                catalog.persist(NAME)
        store.writes_left = writes_left
        try:
            catalog.persist(NAME)
            done = True
        except StorageError:
            done = False
        catalog, index = reopened(store.memory, options)
        index.check()
        assert len(stored(store, keys.BLOCK)) == index.stats().blocks
        assert not stored(store, keys.INTENT)
        assert len(drained(index)) == 400
        if done:
            return
    pytest.fail("no persist succeeded: the writes are more than expected")


@pytest.mark.parametrize("piece_bytes", [1, 200, 1 << 20])
@pytest.mark.parametrize("then", ["acknowledge", "clear", "forget", "nothing"])
def test_a_persist_that_was_applied_but_reported_as_failed_leaves_nothing(
    piece_bytes: int, then: str
) -> None:
    options = dataclasses.replace(OPTIONS, write_piece_bytes=piece_bytes, merge_runs=2)
    for writes_left in range(200):
        store = FailingStore()
        catalog, index = opened(store, options)
        index.add(spread(100, 3_000, ledger_id=0))
        catalog.persist(NAME)
        index.add(spread(100, 5_000, ledger_id=1))
        index.acknowledge(PositionSet.of((2, at) for at in range(10)))
        index.mark_delete(0, 50)
        catalog.commit()
        store.writes_left, store.applies_refused = writes_left, True
        failed = False
        try:
            catalog.persist(NAME)
        except StorageError:
            failed = True
        store.writes_left = None
        if then == "acknowledge":
            index.acknowledge(index.state.held.snapshot())
        elif then == "clear":
            index.clear()
        elif then == "forget":
            index.unacknowledge(index.state.acknowledged.snapshot())
            index.mark_delete(9, 9)
        held, acknowledged = index.state.held.snapshot(), index.state.acknowledged.snapshot()
        catalog.persist(NAME)
        index.check()
        for kind, positions in ((keys.HELD, held), (keys.ACKNOWLEDGED, acknowledged)):
            ledgers = [keys.parse_bitmap_key(key)[0] for key, _ in stored(store, kind)]
            assert ledgers == positions.ledgers()
        assert len(stored(store, keys.BLOCK)) == index.stats().blocks
        assert len(stored(store, keys.SLICE)) == index.stats().slices_on_disk
        assert not stored(store, keys.INTENT)
        catalog, index = reopened(store.memory, options)
        assert (index.state.held.snapshot(), index.state.acknowledged.snapshot()) == (held, acknowledged)
        index.check()
        assert positions_of(drained(index)) == held
        assert catalog.stats().corrupt_records == 0
        if not failed:
            assert writes_left > 0
            return
    pytest.fail("no persist succeeded: the writes are more than expected")


def test_a_slice_of_a_persist_that_was_applied_but_reported_as_failed_is_told_again() -> None:
    """The next one carries its spilled blocks, so that nothing else rewrites the slice's record."""
    store = FailingStore()
    options = dataclasses.replace(OPTIONS, carry_ms=2_000)
    clock = ManualClock(START_MS - 100_000)
    catalog = Catalog.open(store, clock, options)
    index = catalog.subscription(NAME, b"1" * 16)
    index.add(spread(100, 1_000))
    catalog.commit()
    store.writes_left, store.applies_refused = 0, True
    with pytest.raises(StorageError):
        catalog.persist(NAME)
    store.writes_left = None
    clock.advance(100_000)
    catalog.persist(NAME)
    assert index.stats().staged == 100
    assert not stored(store, keys.SLICE) and not stored(store, keys.BLOCK)
    index.check()


def test_a_bitmap_of_a_persist_that_does_not_count_is_deleted_when_opening() -> None:
    """It must not begin to count when the number of its persist is reached."""
    store = MemoryStore()
    catalog, index = opened(store)
    index.add(spread(10, 1_000, ledger_id=1))
    catalog.persist(NAME)
    for kind in (keys.HELD, keys.ACKNOWLEDGED):
        value = wrap(kind, serialize_bitmap(BitMap([1, 2, 3])))
        overwrite(store, keys.bitmap_key(kind, index.own_journal.subscription_id, 7, 2), value)
    catalog, index = reopened(store)
    assert (index.state.held.ledgers(), index.state.acknowledged.ledgers()) == ([1], [])
    catalog.persist(NAME)
    catalog, index = reopened(store)
    assert (index.state.held.ledgers(), index.state.acknowledged.ledgers()) == ([1], [])
    assert catalog.stats().corrupt_records == 0


def test_after_a_failure_maintain_waits_before_it_tries_again() -> None:
    store = FailingStore()
    catalog, index = opened(store, dataclasses.replace(OPTIONS, staging_budget_bytes=0))
    index.add(spread(100, 1_000))
    catalog.commit()
    store.writes_left = 0
    with pytest.raises(StorageError):
        catalog.maintain(START_MS)
    catalog.maintain(START_MS + 1)
    assert store.refused == 1
    assert catalog.background.failure is not None and "no space" in catalog.background.failure
    store.writes_left = None
    catalog.maintain(START_MS + OPTIONS.retry_ms)
    assert catalog.background.failure is None
    assert index.stats().staged == 0
    assert drained(index) == list(sort_entries(spread(100, 1_000)))


def test_a_clock_that_is_set_back_after_a_failure_is_no_reason_to_wait() -> None:
    """Staged entries fill the memory meanwhile, and then reading stops."""
    store, clock = FailingStore(), ManualClock(START_MS)
    catalog = Catalog.open(store, clock, dataclasses.replace(OPTIONS, staging_budget_bytes=0))
    index = catalog.subscription(NAME, b"1" * 16)
    index.add(spread(100, 1_000))
    catalog.commit()
    store.writes_left = 0
    with pytest.raises(StorageError):
        catalog.maintain(clock.now_ms())
    store.writes_left = None
    clock.set_ms(START_MS - 3_600_000)
    catalog.maintain(clock.now_ms())
    assert catalog.background.failure is None
    assert catalog.stats().persists == 1


def test_a_persist_that_fails_for_any_reason_says_so_and_is_tried_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Were nothing said, nothing would be read when memory is full, acknowledgements and credit neither."""
    clock = ManualClock(START_MS)
    catalog = Catalog.open(MemoryStore(), clock, dataclasses.replace(OPTIONS, staging_budget_bytes=0))
    index = catalog.subscription(NAME, b"1" * 16)
    index.add(spread(100, 1_000))
    catalog.commit()

    def bug(_: PersistJob) -> None:
        raise MemoryError("it does not fit")

    with monkeypatch.context() as patched:
        patched.setattr(PersistJob, "run", bug)
        with pytest.raises(MemoryError):
            catalog.maintain(START_MS)
        assert "it does not fit" in (catalog.background.failure or "")
        assert catalog.stats().persist_failures == 1
        catalog.maintain(START_MS)  # not at once
    clock.advance(OPTIONS.retry_ms)
    catalog.maintain(clock.now_ms())
    assert catalog.background.failure is None
    assert catalog.stats().persists == 1
    index.check()


def test_entries_that_could_not_be_sorted_for_want_of_memory_are_there_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog, index = opened(MemoryStore())
    rows = spread(100, 1_000)
    index.add(rows)

    def bug(_: Entries, **__: bool) -> Entries:
        raise MemoryError("it does not fit")

    with monkeypatch.context() as patched:
        patched.setattr(staging, "sort_entries", bug)
        with pytest.raises(MemoryError):
            index.timeline.pop_due(START_MS + 1_000, 10)
    index.check()
    catalog.persist(NAME)
    assert drained(index) == sorted(rows)


@pytest.mark.parametrize("what", ["PersistPlan", "PersistJob"])
def test_a_persist_that_could_not_begin_for_want_of_memory_takes_nothing_along(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    store, clock = MemoryStore(), ManualClock(START_MS)
    options = dataclasses.replace(OPTIONS, staging_budget_bytes=0)
    catalog = Catalog.open(store, clock, options)
    index = catalog.subscription(NAME, INCARNATION)
    rows = spread(100, 1_000)
    index.add(rows)
    index.acknowledge(PositionSet.of([(5, 1)]))
    catalog.commit()

    def bug(*_: object, **__: object) -> None:
        raise MemoryError("it does not fit")

    with monkeypatch.context() as patched:
        patched.setattr(persister, what, bug)
        with pytest.raises(MemoryError):
            catalog.maintain(START_MS)
        assert "it does not fit" in (catalog.background.failure or "")
    index.check()
    index.unacknowledge(PositionSet.of([(5, 1)]))
    catalog.commit()
    clock.advance(OPTIONS.retry_ms)
    catalog.maintain(clock.now_ms())
    assert catalog.stats().persists == 1
    index.check()
    _, again = reopened(store, options)
    again.check()
    assert not again.state.acknowledged
    assert drained(again) == sorted(row for row in rows if row[1:] != (5, 1))


def test_what_a_persist_has_moved_and_nobody_has_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, index = opened(MemoryStore(), dataclasses.replace(OPTIONS, staging_budget_bytes=0))
    index.add(spread(100, 1_000))
    catalog.commit()

    def bug(_: object) -> None:
        raise MemoryError("it does not fit")

    with monkeypatch.context() as patched:
        patched.setattr(index.timeline, "exchange", bug)
        with pytest.raises(MemoryError):
            catalog.maintain(START_MS)
    for _ in range(4):
        catalog.commit()
        catalog.maintain(START_MS)
    assert len(index.take_unheld()) == 100
    assert not index.state.held
    index.check()


@pytest.mark.parametrize("meanwhile", ["clear", "remove", "new life", "acknowledge", "rewind", "fail"])
def test_changes_during_a_persist(meanwhile: str) -> None:
    store = FailingStore()
    executor = LaterExecutor()
    options = dataclasses.replace(OPTIONS, staging_budget_bytes=0, merge_runs=2)
    catalog = Catalog.open(store, ManualClock(START_MS), options, executor)
    index = catalog.subscription(NAME, b"1" * 16)
    first, second, third = (spread(200, 2_000, ledger_id=at) for at in range(3))
    index.add(first)
    catalog.commit()
    catalog.maintain(START_MS)
    executor.run_all()
    catalog.maintain(START_MS)
    index.add(second)
    catalog.commit()
    popped = drained(index, START_MS + 500)
    catalog.maintain(START_MS)
    assert executor.waiting
    expected = {*first, *second, *third}
    if meanwhile == "clear":
        index.clear()
        expected = set(third)
    elif meanwhile == "remove":
        catalog.remove(NAME)
        index = catalog.subscription(NAME, b"1" * 16)
        expected = set(third)
    elif meanwhile == "new life":
        index = catalog.subscription(NAME, b"2" * 16)
        expected = set(third)
    elif meanwhile == "acknowledge":
        index.acknowledge(positions_of(popped))
        expected -= set(popped)
    elif meanwhile == "rewind":
        index.rewind(PositionSet())
    else:
        store.writes_left = 0
    index.add(third)
    index.check()
    executor.run_all()
    store.writes_left = None
    if meanwhile == "fail":
        with pytest.raises(StorageError):
            catalog.maintain(START_MS)
    catalog.maintain(START_MS)
    index.check()
    catalog.commit()
    for _ in range(8):
        catalog.maintain(START_MS + OPTIONS.retry_ms)
        executor.run_all()
    index.check()
    catalog.commit()
    assert len(stored(store, keys.BLOCK)) == index.stats().blocks
    index.rewind(PositionSet())
    assert drained(index) == sorted(expected)
    catalog.close()
    again = Catalog.open(store.memory.reopen(), ManualClock(START_MS), options).get(NAME)
    assert again is not None
    again.check()
    assert drained(again) == sorted(expected)


def test_a_seek_back_is_not_hidden_by_the_next_mark_delete() -> None:
    store = MemoryStore()
    catalog, index = opened(store)
    index.mark_delete(5, 10)
    index.acknowledge(PositionSet.of([(5, 20)]))
    catalog.commit()
    index.mark_delete(5, 9)
    index.mark_delete(5, 10)
    catalog.commit()
    assert not index.state.acknowledged
    _, index = reopened(store)
    assert not index.state.acknowledged


def test_slices_that_finish_without_a_journal_record_are_dropped_one_day() -> None:
    """Everything was acknowledged and persisted before: only the pop finds out that a slice is dead."""
    store = MemoryStore()
    options = IndexOptions(slice_width_ms=1_000, carry_ms=0, persist_age_ms=60_000)
    catalog, index = opened(store, options)
    index.add(spread(2_000, 10_000))
    index.add(Entries.of([(START_MS + 90_000_000, 999, 1)]))
    catalog.persist(NAME)
    index.acknowledge(positions_of(Entries.of(row for row in spread(2_000, 10_000))))
    catalog.persist(NAME)
    catalog, index = reopened(store, options)
    while index.timeline.next_due_ms() != START_MS + 90_000_000:
        assert not len(index.timeline.pop_due(START_MS + 20_000, 1_000))
    catalog.maintain(START_MS + 1_000)
    catalog.maintain(START_MS + 70_000)
    assert index.stats().slices_on_disk == 1
    assert len(stored(store, keys.BLOCK)) == 1


@pytest.mark.parametrize("acknowledged", [False, True])
def test_a_persist_copies_what_has_changed_however_many_ledgers_there_are(
    monkeypatch: pytest.MonkeyPatch, acknowledged: bool
) -> None:
    """With 100,000 of them a copy of everything stops the daemon for tens of milliseconds."""
    store = MemoryStore()
    options = dataclasses.replace(OPTIONS, carry_ms=300)
    catalog, index = opened(store, options)
    # The first ones are carried: staged, in ledgers that do not change any more.
    index.add(Entries.of((START_MS + at, at, 0) for at in range(4_000)))
    catalog.persist(NAME)
    assert 0 < index.stats().staged < 4_000
    index.add(spread(10, 10_000, ledger_id=5_000))  # all have changed before: that was a snapshot
    copied: list[int] = []
    original = positions_module._copied

    def noted(bitmap: BitMap64) -> BitMap64:
        copied.append(roaring.containers(bitmap))
        return original(bitmap)

    monkeypatch.setattr(positions_module, "_copied", noted)
    if acknowledged:
        index.acknowledge(PositionSet.of([(7, 0), (5_000, 1)]))
    catalog.commit()
    before = list(index.state.held)
    job = index.upkeep.begin_persist(START_MS)
    index.add(spread(10, 10_000, ledger_id=5_001))
    index.acknowledge(PositionSet.of([(8, 0)]))
    job.run()
    index.upkeep.finish_persist()
    assert max(copied, default=0) < 10
    assert len(before) == 4_010 - 2 * acknowledged
    index.check()
    catalog.persist(NAME)
    index.check()
    _, again = reopened(store, options)
    again.check()
    assert again.state.held == index.state.held
    assert len(drained(again)) == 4_020 - 1 - 2 * acknowledged
