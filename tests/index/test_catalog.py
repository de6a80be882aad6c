"""The catalog: subscriptions and their lives, due times, budgets, tokens."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.support.catalogs import (
    INCARNATION,
    NAME,
    OPTIONS,
    OTHER,
    START_MS,
    LaterExecutor,
    drained,
    opened,
    reopened,
    spread,
    stored,
)
from tests.support.stores import FailingStore
from tidegate.index.catalog.catalog import Catalog
from tidegate.index.clock import ManualClock
from tidegate.index.entries.entry import Entries
from tidegate.index.errors import ClosedError, InvalidEntriesError, StorageError
from tidegate.index.format import keys
from tidegate.index.names import SubscriptionName
from tidegate.index.options import IndexOptions
from tidegate.index.state.positions import PositionSet
from tidegate.index.store import MemoryStore


def test_a_new_life_of_a_subscription_starts_empty() -> None:
    store = MemoryStore()
    catalog, index = opened(store)
    index.add(spread(100, 1_000))
    catalog.persist(NAME)
    assert catalog.subscription(NAME, INCARNATION) is index
    fresh = catalog.subscription(NAME, b"\x04" * 16)
    assert fresh is not index and not fresh.state.held
    assert catalog.get(NAME) is fresh
    fresh.add(spread(3, 10))
    catalog.commit()
    assert not stored(store, keys.BLOCK) and not stored(store, keys.HELD)
    store.close()
    catalog = Catalog.open(store.reopen(), ManualClock(START_MS), OPTIONS)
    again = catalog.get(NAME)
    assert again is not None and again.incarnation == b"\x04" * 16 and len(again.state.held) == 3


def test_a_removed_subscription_leaves_nothing() -> None:
    store = MemoryStore()
    catalog, index = opened(store)
    index.add(spread(100, 1_000))
    catalog.persist(NAME)
    index.add(spread(100, 1_000, ledger_id=6))
    catalog.remove(NAME)
    catalog.remove(NAME)
    assert list(catalog) == []
    catalog.commit()
    assert [key for key, _ in store.scan(b"", b"\xff" * 40)] == [keys.FORMAT_KEY]
    assert catalog.stats().journal_bytes == 0


def test_what_was_not_committed_is_not_there_after_a_crash() -> None:
    store = MemoryStore()
    catalog, index = opened(store)
    token = index.add(spread(10, 100))
    assert catalog.journal.durable_token < token
    assert catalog.commit() >= token
    later = index.add(spread(10, 100, ledger_id=6))
    assert catalog.journal.durable_token < later
    _, index = reopened(store)
    assert len(index.state.held) == 10


def test_a_repeated_add_is_durable_when_the_first_is() -> None:
    catalog, index = opened(MemoryStore())
    first = index.add(spread(10, 100))
    again = index.add(spread(10, 100))
    assert again >= first > catalog.journal.durable_token
    catalog.commit()
    assert catalog.journal.durable_token >= again
    assert catalog.journal.begin_commit() is None


def test_a_commit_may_be_written_by_another_thread() -> None:
    catalog, index = opened(MemoryStore())
    first = index.add(spread(10, 100))
    commit = catalog.journal.begin_commit()
    assert commit is not None
    assert catalog.journal.begin_commit() is None, "one at a time"
    second = index.add(spread(10, 100, ledger_id=6))
    commit.run()
    assert catalog.journal.finish_commit(commit) >= first
    assert catalog.journal.durable_token < second
    assert catalog.commit() >= second


def test_commit_waits_for_the_one_on_its_way() -> None:
    catalog, index = opened(MemoryStore())
    index.add(spread(10, 100))
    commit = catalog.journal.begin_commit()
    assert commit is not None
    commit.run()
    second = index.add(spread(10, 100, ledger_id=6))
    assert catalog.commit() >= second
    assert catalog.journal.finish_commit(commit) >= second


def test_a_failed_commit_is_complete_the_next_time() -> None:
    store = FailingStore()
    catalog, index = opened(store)
    store.writes_left = 0
    first = index.add(spread(10, 100))
    commit = catalog.journal.begin_commit()
    assert commit is not None
    commit.run()
    index.acknowledge(PositionSet.of([(5, 0)]))
    with pytest.raises(StorageError):
        catalog.journal.finish_commit(commit)
    assert catalog.journal.durable_token < first
    store.writes_left = None
    catalog.commit()
    _, index = reopened(store.memory)
    assert len(index.state.held) == 9 and len(index.state.acknowledged) == 1


def test_a_parked_subscription_has_nothing_loaded_ahead() -> None:
    options = dataclasses.replace(OPTIONS, prefetch_ms=500)
    store = MemoryStore()
    catalog, index = opened(store, options)
    for second in (10, 30):
        index.add(Entries.of((START_MS + second * 1_000, second, at) for at in range(10)))
    catalog.persist(NAME)
    store.close()
    catalog = Catalog.open(store.reopen(), ManualClock(START_MS), options, parked=True)
    found = catalog.get(NAME)
    assert found is not None and found.timeline.next_due_ms() == START_MS + 10_000
    index = found

    def loaded_entries(now_ms: int) -> int:
        for _ in range(2):  # the slice, then its block
            catalog.maintain(now_ms)
        return sum(each.loaded_entries() for each in index.timeline.slices)

    assert loaded_entries(START_MS + 9_500) == 0
    catalog.ahead.unpark(index)
    assert loaded_entries(START_MS + 9_500) == 10
    assert len(index.timeline.pop_due(START_MS + 10_000, 10)) == 10
    catalog.ahead.park(index)
    left = loaded_entries(START_MS + 10_000)
    assert loaded_entries(START_MS + 29_500) == left, "parked again"
    catalog.ahead.unpark(index)
    assert loaded_entries(START_MS + 29_500) == left + 10


def test_past_the_budget_the_largest_spills() -> None:
    options = dataclasses.replace(OPTIONS, staging_budget_bytes=24 * 100)
    catalog, large = opened(MemoryStore(), options)
    small = catalog.subscription(OTHER, INCARNATION)
    catalog.commit()
    large.add(spread(70, 1_000))
    small.add(spread(30, 1_000))
    catalog.maintain(START_MS)
    assert (large.stats().staged, small.stats().staged) == (70, 30)
    small.add(spread(1, 1_000, ledger_id=6))
    catalog.maintain(START_MS)
    assert (large.stats().staged, small.stats().staged) == (0, 31)


def test_an_old_or_a_large_journal_is_persisted() -> None:
    for options, now_ms in (
        (dataclasses.replace(OPTIONS, persist_age_ms=1_000), START_MS + 1_000),
        (dataclasses.replace(OPTIONS, journal_budget_bytes=100), START_MS),
        (dataclasses.replace(OPTIONS, journal_budget_bytes=0), START_MS),
    ):
        store = MemoryStore()
        catalog, index = opened(store, options)
        index.add(spread(100, 1_000))
        catalog.commit()
        if now_ms > START_MS:
            catalog.maintain(now_ms - 100)
            assert stored(store, keys.JOURNAL)
        catalog.maintain(now_ms)
        assert not stored(store, keys.JOURNAL)
        assert index.stats().journal_bytes == catalog.stats().journal_bytes == 0
        catalog.maintain(now_ms + 1)
        assert catalog.stats().persists == 1


def test_nothing_is_persisted_of_a_subscription_that_the_store_does_not_know_yet() -> None:
    """Killed then, its blocks would be nobody's."""
    store = MemoryStore()
    catalog, _ = opened(store, dataclasses.replace(OPTIONS, staging_budget_bytes=0))
    other = catalog.subscription(OTHER, INCARNATION)
    other.add(spread(100, 1_000))
    catalog.maintain(START_MS)
    assert not stored(store, keys.BLOCK)
    catalog.commit()
    catalog.maintain(START_MS)
    assert stored(store, keys.BLOCK)


@pytest.mark.parametrize("late", ["acknowledge", "clear", "persist fails"])
@pytest.mark.parametrize("again", [False, True])
def test_a_removed_subscription_does_not_hold_up_the_others(late: str, again: bool) -> None:
    """A frame on its way when the subscription was removed still reaches its index."""
    store, executor = FailingStore(), LaterExecutor()
    options = dataclasses.replace(OPTIONS, staging_budget_bytes=24 * 100)
    catalog = Catalog.open(store, ManualClock(START_MS), options, executor)
    index, other = (catalog.subscription(name, INCARNATION) for name in (NAME, OTHER))
    for each in (index, other):
        each.add(spread(100, 1_000))
        catalog.persist(each.name)
    index.add(spread(101, 1_000, ledger_id=6))
    catalog.commit()
    catalog.maintain(START_MS)
    assert catalog.background.running is not None, "of the subscription that is removed now"
    catalog.remove(NAME)
    fresh = catalog.subscription(NAME, INCARNATION) if again else None
    if late == "acknowledge":
        index.acknowledge(index.state.held.snapshot())
    else:
        index.clear()
    if late == "persist fails":
        store.writes_left = 0
    executor.run_all()
    store.writes_left = None
    other.clear()
    catalog.commit()
    for _ in range(4):
        catalog.maintain(START_MS)
        executor.run_all()
    assert catalog.background.running is None
    assert other.stats().slices_on_disk == other.stats().journal_bytes == 0, "persisted"
    assert catalog.background.failure is None
    catalog.commit()
    assert not stored(store, keys.BLOCK)
    if fresh is not None:
        assert catalog.get(NAME) is fresh and not fresh.state.held


def test_what_a_removed_subscription_is_told_does_not_count_as_journal() -> None:
    catalog, index = opened(MemoryStore())
    index.add(spread(100, 1_000))
    catalog.commit()
    catalog.remove(NAME)
    index.acknowledge(PositionSet.of((5, at) for at in range(50)))
    index.add(spread(100, 1_000, ledger_id=6))
    assert catalog.stats().journal_bytes == 0


def test_the_next_persist_begins_when_one_is_finished() -> None:
    executor = LaterExecutor()
    options = dataclasses.replace(OPTIONS, staging_budget_bytes=0)
    catalog = Catalog.open(MemoryStore(), ManualClock(START_MS), options, executor)
    indexes = [catalog.subscription(name, INCARNATION) for name in (NAME, OTHER)]
    for index in indexes:
        index.add(spread(100, 1_000))
    catalog.commit()
    assert catalog.background.running is None
    catalog.maintain(START_MS)
    first = catalog.background.running
    assert first is not None and not first.done()
    catalog.maintain(START_MS)
    assert catalog.background.running is first
    executor.run_all()
    assert first.done()
    catalog.maintain(START_MS)
    second = catalog.background.running
    assert second is not None and second is not first and not second.done()
    assert catalog.stats().persists == 1
    executor.run_all()
    catalog.maintain(START_MS)
    assert catalog.background.running is None
    assert catalog.stats().persists == 2 and catalog.stats().staged == 0


def test_blocks_are_loaded_ahead_of_their_time() -> None:
    options = dataclasses.replace(OPTIONS, prefetch_ms=500)
    catalog, index = opened(MemoryStore(), options)
    index.add(Entries.of((START_MS + 10_000, 5, at) for at in range(10)))
    catalog.persist(NAME)
    catalog.maintain(START_MS + 9_499)
    assert index.stats().slices_in_memory == 0
    for _ in range(2):
        catalog.maintain(START_MS + 9_500)
    assert sum(each.loaded_entries() for each in index.timeline.slices) == 10
    assert len(index.timeline.pop_due(START_MS + 9_999, 100)) == 0
    assert len(index.timeline.pop_due(START_MS + 10_000, 100)) == 10


def test_each_subscription_has_its_blocks_loaded_ahead_whichever_is_due_first() -> None:
    options = dataclasses.replace(OPTIONS, prefetch_ms=5_000)
    catalog, first = opened(MemoryStore(), options)
    others = [
        catalog.subscription(SubscriptionName("orders", str(number)), INCARNATION) for number in range(20)
    ]
    for number, index in enumerate([first, *others]):
        index.add(Entries.of((START_MS + 10_000 + 100 * number, 5, at) for at in range(10)))
        catalog.persist(index.name)
    catalog.maintain(START_MS)
    assert not any(index.stats().slices_in_memory for index in catalog)
    for _ in range(2):  # the slice, then its block
        catalog.maintain(START_MS + 9_000)
    for index in catalog:
        assert sum(each.loaded_entries() for each in index.timeline.slices) == 10, index.name


def test_what_is_due_at_one_instant_is_not_loaded_ahead_all_at_once() -> None:
    options = dataclasses.replace(OPTIONS, prefetch_ms=500, block_entries=10)
    catalog, index = opened(MemoryStore(), options)
    index.add(Entries.of((START_MS + 10_000, 5, at) for at in range(2_000)))
    catalog.persist(NAME)
    most = 0

    def load_ahead(now_ms: int) -> None:
        nonlocal most
        for _ in range(250):
            catalog.maintain(now_ms)
        blocks = [block for each in index.timeline.slices for block in each.blocks.values()]
        most = max(most, sum(len(block.run.entries) for block in blocks if block.run is not None))

    load_ahead(START_MS + 9_999)
    handed_out = 0
    while due := len(entries := index.timeline.pop_due(START_MS + 10_000, 7)):
        index.acknowledge(PositionSet.of_entries(entries))
        handed_out += due
        if handed_out % 70 == 0:
            load_ahead(START_MS + 10_000)
    assert handed_out == 2_000
    assert 10 <= most <= (options.merge_runs + 1) * 10


def test_stats_add_up() -> None:
    catalog, index = opened(MemoryStore())
    other = catalog.subscription(OTHER, INCARNATION)
    index.add(spread(100, 5_000))
    other.add(spread(50, 5_000))
    index.acknowledge(PositionSet.of([(5, 0), (5, 1)]))
    catalog.persist(NAME)
    index.timeline.pop_due(START_MS + 10_000, 10)
    stats, one = catalog.stats(), index.stats()
    assert (stats.subscriptions, stats.held, stats.acknowledged, stats.in_flight) == (2, 148, 2, 10)
    assert (one.held, one.in_flight, one.staged, one.slices_on_disk) == (98, 10, 0, 5)
    assert other.stats().staged == stats.staged == 50
    assert stats.disk_bytes > 0 and one.disk_bytes > 0 and one.memory_bytes > 0
    assert stats.blocks == one.blocks and stats.persist_failures == 0 and stats.last_failure is None
    assert sum(each.entries for each in one.slices) == 98


def test_a_subscription_with_nothing_left_to_hand_out_is_next_due_never() -> None:
    """The heap keeps a lower bound until that time, for acknowledged entries too."""
    _, index = opened(MemoryStore())
    index.add(spread(3, 5_000))
    index.acknowledge(PositionSet.of([(5, 0), (5, 1)]))
    assert index.stats().next_due_ms is not None
    index.acknowledge(PositionSet.of([(5, 2)]))
    assert index.timeline.next_due_ms() is not None
    assert index.stats().next_due_ms is None


def test_a_closed_catalog_says_so() -> None:
    store = MemoryStore()
    catalog, index = opened(store)
    index.add(spread(10, 100))
    catalog.close()
    catalog.close()
    for use in (
        catalog.commit,
        catalog.journal.begin_commit,
        lambda: catalog.maintain(START_MS),
        lambda: catalog.subscription(NAME, b""),
    ):
        with pytest.raises(ClosedError):
            use()
    _, index = opened(store.reopen())
    assert len(drained(index)) == 10


def test_what_cannot_be_added_changes_nothing() -> None:
    _, index = opened(MemoryStore())
    with pytest.raises(InvalidEntriesError):
        index.add(Entries.of([(START_MS, 1, 1), (START_MS, 1, -1)]))
    assert not index.state.held
    with pytest.raises(ValueError, match="1 ms or wider"):
        index.set_slice_width(0)


def test_extreme_due_times_keep_their_order() -> None:
    store = MemoryStore()
    rows = [(-(1 << 63), 1, 1), (-1, 1, 2), (0, 1, 3), (START_MS, 1, 4), ((1 << 63) - 1, 1, 5)]
    catalog, index = opened(store, dataclasses.replace(OPTIONS, staging_budget_bytes=0))
    index.add(Entries.of(reversed(rows)))
    catalog.persist(NAME)
    index.check()
    assert drained(index, START_MS) == rows[:4]
    assert index.timeline.next_due_ms() == (1 << 63) - 1
    assert drained(index, (1 << 63) - 1) == rows[4:]


@pytest.mark.parametrize(
    "wrong", [{"block_entries": 65_537}, {"block_entries": 0}, {"merge_runs": 1}, {"slice_width_ms": 0}]
)
def test_options_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        IndexOptions(**wrong)


def test_ten_thousand_subscriptions_come_back() -> None:
    store = MemoryStore()
    catalog = Catalog.open(store, ManualClock(START_MS), OPTIONS)
    for at in range(10_000):
        index = catalog.subscription(NAME._replace(subscription=str(at)), INCARNATION)
        index.add(Entries.of([(START_MS + at, 1, at)]))
    catalog.commit()
    store.close()
    catalog = Catalog.open(store.reopen(), ManualClock(START_MS), OPTIONS)
    assert len(catalog) == 10_000
    assert min(catalog, key=lambda index: index.timeline.next_due_ms() or 0).name.subscription == "0"
