"""How compactions are paced: their share, their turns, and that their debt stays bounded and is paid off."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.catalogs import INCARNATION, NAME, START_MS, spread
from tidegate.index.blocks.pacing import CompactionPace, Interleaved, Pause
from tidegate.index.catalog.catalog import Catalog
from tidegate.index.clock import ManualClock
from tidegate.index.entries.entry import Entries
from tidegate.index.errors import StorageError
from tidegate.index.options import IndexOptions
from tidegate.index.state.positions import PositionSet
from tidegate.index.store import Batch, MemoryStore
from tidegate.index.subscription.delay_index import DelayIndex

SOFT, MAX = 4, 12
OPTIONS = IndexOptions(
    slice_width_ms=1_000,
    carry_ms=0,
    block_entries=5_000,
    merge_runs=SOFT,
    runs_max=MAX,
    write_piece_bytes=50_000,
    staging_budget_bytes=24 * 100_000,
)
SLICES = 20


class CostlyStore(MemoryStore):
    """A store in memory for which the time passes: so many nanoseconds a byte."""

    def __init__(self, clock: ManualClock, ns_per_byte: float) -> None:
        super().__init__()
        self.clock = clock
        self.ns_per_byte = ns_per_byte

    def write(self, batch: Batch, *, sync: bool) -> None:
        super().write(batch, sync=sync)
        self.clock.work(int(batch.size_bytes * self.ns_per_byte))


def runs_max(index: DelayIndex) -> int:
    return max((len(each.run_entries) for each in index.timeline.slices), default=0)


@given(runs=st.lists(st.integers(0, 100), min_size=2, max_size=2, unique=True).map(sorted))
def test_the_share_grows_with_the_runs_and_leaves_something_to_spills(runs: list[int]) -> None:
    pace = CompactionPace(SOFT, MAX)
    few, many = (pace.share(each) for each in runs)
    assert 0.0 <= few <= many < 1.0
    assert pace.share(SOFT) == 0.0
    assert pace.share((SOFT + MAX) // 2) == 0.5


def test_a_turn_is_in_return_for_a_spill_and_not_saved_up_for_ever() -> None:
    pace = CompactionPace(SOFT, MAX)
    assert pace.allowance_ns == 0
    pace.spilled(100_000_000, SOFT)
    assert pace.allowance_ns == 0
    pace.spilled(100_000_000, (SOFT + MAX) // 2)
    assert pace.allowance_ns == 100_000_000
    pace.compacted(99_000_000)
    assert pace.allowance_ns == 0, "not worth a turn"
    pace.compacted(99_000_000)
    pace.spilled(1_000_000, (SOFT + MAX) // 2)
    assert pace.allowance_ns == 0
    for _ in range(1_000):
        pace.spilled(100_000_000, MAX)
    assert pace.allowance_ns == 1_000_000_000


def test_a_compaction_in_the_pauses_of_a_spill_gets_its_share_and_cannot_end_it() -> None:
    clock = ManualClock(START_MS)
    worked = []

    def merge(pause: Pause) -> None:
        while not pause():
            clock.advance(1)
            worked.append(1)
        if len(worked) > 150:
            raise OSError("no space left")

    beside = Interleaved(clock, CompactionPace(SOFT, MAX), (SOFT + MAX) // 2, merge)
    for _ in range(100):
        clock.advance(1)  # the spill
        beside.between()
    assert len(worked) == pytest.approx(100, abs=5)
    assert beside.took_ns == len(worked) * 1_000_000
    for _ in range(100):
        clock.advance(1)
        beside.between()
    assert isinstance(beside.error, OSError)
    done = len(worked)
    beside.between()
    assert len(worked) == done, "not asked again"


@pytest.mark.parametrize("slices", [1, SLICES])
@pytest.mark.parametrize("merge_runs", [2, SOFT])
def test_debt_stays_bounded_under_a_load_that_never_pauses_and_is_paid_off_when_idle(
    slices: int, merge_runs: int
) -> None:
    """A persist after another for as long as it takes, all slices filling alike."""
    options = dataclasses.replace(OPTIONS, merge_runs=merge_runs)
    clock = ManualClock(START_MS)
    catalog = Catalog.open(CostlyStore(clock, 50.0), clock, options)
    index = catalog.subscription(NAME, INCARNATION)
    highest, number = 0, 0
    for _ in range(40):
        while catalog.background.unspilled_entries * 24 <= options.staging_budget_bytes:
            catalog.commit()
            batch = [
                (START_MS + 10**7 + (at * 7919) % (1_000 * slices), 1, at)
                for at in range(number, number + 20_000)
            ]
            index.add(Entries.of(batch))
            number += 20_000
        catalog.commit()
        before = catalog.stats().persists
        while catalog.stats().persists == before:
            catalog.maintain(clock.now_ms())
        highest = max(highest, runs_max(index))
    assert highest <= MAX + 2
    assert catalog.stats().compactions > 0
    for _ in range(10):
        catalog.maintain(clock.now_ms())
    assert runs_max(index) < merge_runs
    assert index.stats().slices_crowded == catalog.stats().slices_crowded == 0
    assert len(index.state.held) == number
    index.acknowledge(PositionSet())
    index.timeline.check(index._blocks.look, complete=True)


def test_what_a_failed_persist_puts_back_counts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or more would be read all the while that the disk is full."""
    store = MemoryStore()
    catalog = Catalog.open(store, ManualClock(START_MS), OPTIONS)
    index = catalog.subscription(NAME, INCARNATION)
    index.add(spread(1_000, 3_600_000))
    catalog.commit()
    with monkeypatch.context() as patched:

        def full(*_: object, **__: object) -> None:
            raise StorageError("no space left")

        patched.setattr(store, "write", full)
        with pytest.raises(StorageError):
            catalog.persist(NAME)
    assert catalog.background.unspilled_entries == 1_000
    catalog.persist(NAME)
    assert catalog.background.unspilled_entries == index.upkeep.staged_entries
