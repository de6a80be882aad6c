"""The same operations must pop the same entries whatever the options are, restarts or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.catalogs import LaterExecutor
from tests.support.oracle import ENTRY_IDS, LEDGERS, START_MS, entries_of
from tidegate.index.blocks import persist, width
from tidegate.index.catalog import background
from tidegate.index.catalog.catalog import Catalog
from tidegate.index.clock import ManualClock
from tidegate.index.entries.entry import EntryKey
from tidegate.index.names import SubscriptionName
from tidegate.index.options import IndexOptions
from tidegate.index.rocks.rocks import RocksStore
from tidegate.index.state.positions import Position, PositionSet
from tidegate.index.store import MemoryStore, Store

NAME = SubscriptionName("persistent://public/default/orders", "late")
INCARNATION = b"\x02" * 16

positions = st.tuples(st.integers(0, LEDGERS - 1), st.integers(0, ENTRY_IDS - 1))
Step = tuple[str, object]
adds = st.tuples(st.just("add"), st.lists(positions, min_size=1, max_size=20))
one_step = st.one_of(
    adds,
    st.tuples(st.just("pop"), st.integers(1, 30)),
    st.tuples(st.just("acknowledge"), st.sets(positions, max_size=12)),
    st.tuples(st.just("unacknowledge"), st.sets(positions, max_size=6)),
    st.tuples(st.just("mark_delete"), st.tuples(st.integers(0, LEDGERS - 2), st.integers(-1, ENTRY_IDS))),
    st.tuples(st.just("generation"), st.sampled_from([0, 1, 2])),
    st.tuples(st.just("restart"), st.none()),
    st.tuples(st.just("clear"), st.none()),
    st.tuples(st.just("advance"), st.integers(1, 90)),
    st.tuples(st.just("width"), st.sampled_from([1, 5, 30, 1_000, None])),
)
steps = st.lists(one_step, max_size=60)
variants = st.builds(
    IndexOptions,
    slice_width_ms=st.sampled_from([1, 7, 100, 100_000]),
    slice_width_auto=st.booleans(),
    staging_budget_bytes=st.sampled_from([0, 480, 1 << 20]),
    carry_ms=st.sampled_from([0, 20]),
    persist_age_ms=st.sampled_from([1, 1 << 30]),
    block_entries=st.sampled_from([1, 5, 65_536]),
    chunk_entries=st.sampled_from([1, 16, 32_768]),
    merge_runs=st.sampled_from([2, 8]),
    runs_max=st.sampled_from([9, 32]),
    compaction_entries=st.sampled_from([1, 30, 1 << 22]),
    write_piece_bytes=st.sampled_from([1, 1 << 20]),
)

QUIET = IndexOptions()


@pytest.fixture(autouse=True, scope="module")
def _few_entries_are_enough() -> Iterator[None]:
    """Let an automatic width be chosen from the few entries of a script."""
    with patch.object(width, "ENTRIES_MIN", 1):
        yield


class TickingClock(ManualClock):
    """Each look at the monotonic clock takes a millisecond, so that everything takes its time."""

    def monotonic_ns(self) -> int:
        self.work(1_000_000)
        return super().monotonic_ns()


def play(
    script: list[Step],
    options: IndexOptions,
    store: Store,
    reopen: Callable[[Store], Store] | None,
    *,
    clock: ManualClock | None = None,
    executor: LaterExecutor | None = None,
) -> list[list[EntryKey]]:
    """The results of `script`'s pops; `restart` is a rewind unless `reopen` says how to restart.

    With an executor, `work` is when it runs its jobs.
    """
    clock = clock or ManualClock(START_MS)
    catalog = Catalog.open(store, clock, options, executor)
    index = catalog.subscription(NAME, INCARNATION)
    catalog.commit()
    popped = []
    for name, argument in script:
        match name, argument:
            case "add", list() as which:
                index.add(entries_of(which))
            case "pop", int() as limit:
                popped.append(list(index.timeline.pop_due(clock.now_ms(), limit)))
            case "acknowledge", set() as which:
                index.acknowledge(PositionSet.of(which))
            case "unacknowledge", set() as which:
                index.unacknowledge(PositionSet.of(which))
            case "mark_delete", (int() as ledger_id, int() as entry_id):
                index.mark_delete(ledger_id, entry_id)
            case "generation", int() as generation:
                index.begin_generation(generation)
            case "clear", _:
                index.clear()
            case "advance", int() as by_ms:
                clock.advance(by_ms)
            case "width", None:
                index.set_slice_width(index.width.width_ms, auto=True)
            case "width", int() as width_ms:
                index.set_slice_width(width_ms)
            case "work", _ if executor is not None:
                executor.run_all()
            case "restart", _ if reopen is None:
                index.rewind(PositionSet())
            case "restart", _ if reopen is not None:
                catalog.commit()
                store.close()
                store = reopen(store)
                if executor is not None:
                    executor.waiting = []
                catalog = Catalog.open(store, clock, options, executor)
                index = catalog.subscription(NAME, INCARNATION)
        catalog.maintain(clock.now_ms())
        index.check()
    store.close()
    return popped


def same_memory(store: Store) -> Store:
    assert isinstance(store, MemoryStore)
    return store.reopen()


@given(script=steps, options=variants)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_same_pops_with_any_options_and_restarts(script: list[Step], options: IndexOptions) -> None:
    expected = play(script, QUIET, MemoryStore(), None)
    assert play(script, options, MemoryStore(), same_memory) == expected


work = st.just(("work", None))
many = st.integers(0, 1 << 20).map(lambda at: ("add", [(at, entry_id) for entry_id in range(at % 12 + 1)]))
busy_steps = st.lists(
    st.integers(0, 15).flatmap(lambda dice: many if dice < 6 else work if dice < 13 else one_step),
    min_size=30,
    max_size=120,
)
busy_variants = st.builds(
    IndexOptions,
    slice_width_ms=st.sampled_from([200, 100_000]),
    staging_budget_bytes=st.just(0),
    carry_ms=st.just(0),
    block_entries=st.sampled_from([1, 5]),
    merge_runs=st.sampled_from([2, 3]),
    runs_max=st.sampled_from([4, 32]),
    compaction_entries=st.sampled_from([1, 30, 1 << 22]),
    write_piece_bytes=st.sampled_from([1, 300, 1 << 20]),
)


@given(script=busy_steps, options=busy_variants)
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
def test_same_pops_however_background_work_is_scheduled(script: list[Step], options: IndexOptions) -> None:
    """Persists and compactions run late and pause often, one in the pauses of the other."""
    expected = play(script, QUIET, MemoryStore(), None)
    with (
        patch.object(background, "_INTERLEAVED_ENTRIES_MIN", 1),
        patch.object(persist, "_UNBROKEN_ENTRIES", 1),
    ):
        clock, executor = TickingClock(START_MS), LaterExecutor()
        assert play(script, options, MemoryStore(), same_memory, clock=clock, executor=executor) == expected


@given(script=steps, options=variants)
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
def test_same_pops_in_rocksdb(script: list[Step], options: IndexOptions, tmp_path_factory) -> None:  # type: ignore[no-untyped-def]
    path: Path = tmp_path_factory.mktemp("rocks")
    expected = play(script, QUIET, MemoryStore(), None)
    assert play(script, options, RocksStore.open(path), lambda _: RocksStore.open(path)) == expected


@given(
    added=st.lists(st.lists(positions, min_size=1, max_size=30), min_size=1, max_size=12), options=variants
)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_same_pops_with_persists_in_a_thread(added: list[list[Position]], options: IndexOptions) -> None:
    """Everything is added and popped while persists run beside; nothing is missing, twice or out of order."""
    clock = ManualClock(START_MS)
    with ThreadPoolExecutor(2) as executor:
        catalog = Catalog.open(MemoryStore(), clock, options, executor)
        index = catalog.subscription(NAME, INCARNATION)
        catalog.commit()
        popped: list[EntryKey] = []
        for which in added:
            index.add(entries_of(which))
            catalog.maintain(clock.now_ms())
            clock.advance(20)
            now_ms = clock.now_ms()
            some = list(index.timeline.pop_due(now_ms, 7))
            assert some == sorted(some) and all(at <= now_ms for at, _, _ in some)
            popped += some
        clock.advance(10_000)
        rest = list(index.timeline.pop_due(clock.now_ms(), 1 << 20))
        assert rest == sorted(rest)
        popped += rest
        catalog.close()
    everything = {position for which in added for position in which}
    assert sorted(popped) == sorted(entries_of(everything))
