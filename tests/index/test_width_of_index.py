"""The slice width of an index: set or chosen while it runs, kept through restarts; old slices keep theirs."""

from __future__ import annotations

import logging

import pytest

from tests.support.catalogs import (
    INCARNATION,
    NAME,
    OPTIONS,
    START_MS,
    LaterExecutor,
    drained,
    reopened,
    spread,
)
from tidegate.index.catalog.catalog import Catalog
from tidegate.index.clock import ManualClock
from tidegate.index.entries.entry import Entries
from tidegate.index.errors import StorageError
from tidegate.index.options import IndexOptions
from tidegate.index.store import MemoryStore
from tidegate.index.subscription.delay_index import DelayIndex

AUTOMATIC = IndexOptions(slice_width_ms=1_000, slice_width_auto=True, carry_ms=0)
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * DAY_MS


def automatic(
    store: MemoryStore, executor: LaterExecutor | None = None, options: IndexOptions = AUTOMATIC
) -> tuple[Catalog, DelayIndex]:
    catalog = Catalog.open(store, ManualClock(START_MS), options, executor)
    index = catalog.subscription(NAME, INCARNATION)
    catalog.commit()
    return catalog, index


def widths(index: DelayIndex) -> list[int]:
    return sorted({one.width_ms for one in index.stats().slices})


def test_slices_of_many_widths_are_popped_in_order_and_keep_their_widths() -> None:
    store = MemoryStore()
    catalog, index = automatic(store, options=OPTIONS)
    added = []
    for number, width_ms in enumerate((1_000, 70, 100_000, 333)):
        index.set_slice_width(width_ms)
        added.append(spread(300, 20_000, ledger_id=number, seed=number))
        index.add(added[-1])
        catalog.persist(NAME)
    assert widths(index) == [70, 333, 1_000, 100_000]
    index.check()
    _, index = reopened(store)
    assert widths(index) == [70, 333, 1_000, 100_000]
    assert index.stats().slice_width_ms == 333
    assert drained(index, limit=37) == sorted(Entries.concat(added))


def test_an_automatic_width_is_chosen_by_the_first_persist_and_written_with_it() -> None:
    store = MemoryStore()
    catalog, index = automatic(store)
    index.add(spread(20_000, WEEK_MS))
    assert index.stats().slice_width_reason == "no spill has been looked at since the start"
    catalog.persist(NAME)
    chosen_ms = index.stats().slice_width_ms
    assert chosen_ms > 60_000
    assert widths(index) == [chosen_ms]
    assert "entries into a slice" in index.stats().slice_width_reason
    _, index = reopened(store, AUTOMATIC)
    assert (index.stats().slice_width_ms, index.stats().slice_width_auto) == (chosen_ms, True)
    assert len(drained(index)) == 20_000


def test_far_messages_after_a_burst_of_short_delays_are_not_scattered_over_thousands_of_slices() -> None:
    options = IndexOptions(slice_width_auto=True, carry_ms=0, staging_budget_bytes=1 << 20)
    store = MemoryStore()
    catalog, index = automatic(store, options=options)
    for ledger_id in range(3):
        index.add(spread(200_000, 20_000, ledger_id=ledger_id, seed=ledger_id))
        catalog.persist(NAME)
    assert index.stats().slice_width_ms <= 10_000
    before = index.stats().slices_on_disk
    far = spread(20_000, 3 * HOUR_MS, ledger_id=9)
    index.add(far)
    catalog.persist(NAME)
    assert index.stats().slices_on_disk - before < 100
    assert index.stats().slice_width_ms > 60_000


def test_a_fixed_width_is_not_touched() -> None:
    catalog, index = automatic(MemoryStore())
    index.set_slice_width(1_000)
    index.add(spread(2_000, WEEK_MS))
    catalog.persist(NAME)
    assert (index.stats().slice_width_ms, index.stats().slice_width_auto) == (1_000, False)
    assert index.stats().slice_width_reason == "fixed"
    assert widths(index) == [1_000]


def test_after_a_restart_one_odd_spill_does_not_change_the_width() -> None:
    store = MemoryStore()
    catalog, index = automatic(store)
    index.add(spread(300_000, WEEK_MS))
    catalog.persist(NAME)
    chosen_ms = index.stats().slice_width_ms
    catalog, index = reopened(store, AUTOMATIC)
    index.add(spread(200, WEEK_MS, ledger_id=6))
    catalog.persist(NAME)
    assert index.stats().slice_width_ms == chosen_ms
    index.add(spread(200, WEEK_MS, ledger_id=7))
    catalog.persist(NAME)
    assert index.stats().slice_width_ms > chosen_ms


@pytest.mark.parametrize("committed", [True, False])
def test_a_width_counts_after_kill_9_if_it_was_committed(committed: bool) -> None:
    store = MemoryStore()
    catalog, index = automatic(store)
    token = index.set_slice_width(600_000)
    if committed:
        assert catalog.commit() >= token
    _, index = reopened(store, AUTOMATIC)
    stats = index.stats()
    assert (stats.slice_width_ms, stats.slice_width_auto) == (
        (600_000, False) if committed else (1_000, True)
    )


def test_setting_the_same_again_writes_nothing() -> None:
    catalog, index = automatic(MemoryStore())
    before = index.own_journal.last_sequence
    assert index.set_slice_width(1_000, auto=True) == catalog.journal.durable_token
    assert index.own_journal.last_sequence == before
    index.set_slice_width(1_000)
    assert index.own_journal.last_sequence == before + 1


@pytest.mark.parametrize(("width_ms", "auto"), [(5_000, False), (5_000, True), (1_000, False)])
def test_what_is_set_during_a_persist_wins(width_ms: int, auto: bool) -> None:
    store, executor = MemoryStore(), LaterExecutor()
    catalog, index = automatic(store, executor)
    index.add(spread(20_000, WEEK_MS))
    catalog.commit()
    job = index.upkeep.begin_persist(START_MS)
    index.set_slice_width(width_ms, auto=auto)
    job.run()
    index.upkeep.finish_persist()
    catalog.commit()
    for found in (index, reopened(store, AUTOMATIC)[1]):
        stats = found.stats()
        assert (stats.slice_width_ms, stats.slice_width_auto) == (width_ms, auto)
        assert len(found.state.held) == 20_000


def test_a_persist_that_fails_changes_no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    catalog, index = automatic(store)
    index.add(spread(20_000, WEEK_MS))
    catalog.commit()
    with monkeypatch.context() as patched:

        def full(*_: object, **__: object) -> None:
            raise StorageError("no space left")

        patched.setattr(store, "write", full)
        with pytest.raises(StorageError):
            catalog.persist(NAME)
    assert index.stats().slice_width_ms == 1_000
    catalog.persist(NAME)
    assert index.stats().slice_width_ms > 60_000


def test_a_change_is_logged_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    catalog, index = automatic(MemoryStore())
    index.add(spread(20_000, WEEK_MS))
    with caplog.at_level(logging.INFO, logger="tidegate.index.blocks.slice_width"):
        catalog.persist(NAME)
    (said,) = [record.getMessage() for record in caplog.records if "slice width" in record.getMessage()]
    assert "was 1000 ms: a spill puts about" in said
