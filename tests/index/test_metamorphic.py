"""The same operations must pop the same entries whatever the options are, restarts or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.oracle import ENTRY_IDS, LEDGERS, START_MS, entries_of
from tidegate.index import width
from tidegate.index.catalog import Catalog
from tidegate.index.clock import ManualClock
from tidegate.index.entry import EntryKey
from tidegate.index.names import SubscriptionName
from tidegate.index.options import IndexOptions
from tidegate.index.positions import Position, PositionSet
from tidegate.index.rocks import RocksStore
from tidegate.index.store import MemoryStore, Store

NAME = SubscriptionName("persistent://public/default/orders", "late")
INCARNATION = b"\x02" * 16

positions = st.tuples(st.integers(0, LEDGERS - 1), st.integers(0, ENTRY_IDS - 1))
Step = tuple[str, object]
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(positions, min_size=1, max_size=20)),
        st.tuples(st.just("pop"), st.integers(1, 30)),
        st.tuples(st.just("acknowledge"), st.sets(positions, max_size=12)),
        st.tuples(st.just("unacknowledge"), st.sets(positions, max_size=6)),
        st.tuples(st.just("mark_delete"), st.tuples(st.integers(0, LEDGERS - 2), st.integers(-1, ENTRY_IDS))),
        st.tuples(st.just("generation"), st.sampled_from([0, 1, 2])),
        st.tuples(st.just("restart"), st.none()),
        st.tuples(st.just("clear"), st.none()),
        st.tuples(st.just("advance"), st.integers(1, 90)),
        st.tuples(st.just("width"), st.sampled_from([1, 5, 30, 1_000, None])),
    ),
    max_size=60,
)
variants = st.builds(
    IndexOptions,
    slice_width_ms=st.sampled_from([1, 7, 100, 100_000]),
    slice_width_auto=st.booleans(),
    staging_budget_bytes=st.sampled_from([0, 480, 1 << 20]),
    carry_ms=st.sampled_from([0, 20]),
    persist_age_ms=st.sampled_from([1, 1 << 30]),
    block_entries=st.sampled_from([1, 5, 65_536]),
    seal_entries=st.sampled_from([1, 16, 32_768]),
    merge_runs=st.sampled_from([2, 8]),
    write_piece_bytes=st.sampled_from([1, 1 << 20]),
)

QUIET = IndexOptions()


@pytest.fixture(autouse=True, scope="module")
def _few_entries_are_enough() -> Iterator[None]:
    """Let an automatic width be chosen from the few entries of a script."""
    with patch.object(width, "ENTRIES_MIN", 1):
        yield


def play(
    script: list[Step], options: IndexOptions, store: Store, reopen: Callable[[Store], Store] | None
) -> list[list[EntryKey]]:
    """What the pops of `script` gave; `restart` is a rewind unless `reopen` says how to restart."""
    clock = ManualClock(START_MS)
    catalog = Catalog.open(store, clock, options)
    index = catalog.subscription(NAME, INCARNATION)
    catalog.commit()
    popped = []
    for name, argument in script:
        match name, argument:
            case "add", list() as which:
                index.add(entries_of(which))
            case "pop", int() as limit:
                popped.append(list(index.pop_due(clock.now_ms(), limit)))
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
                index.set_slice_width(index.slice_width_ms, auto=True)
            case "width", int() as width_ms:
                index.set_slice_width(width_ms)
            case "restart", _ if reopen is None:
                index.rewind(PositionSet())
            case "restart", _ if reopen is not None:
                catalog.commit()
                store.close()
                store = reopen(store)
                catalog = Catalog.open(store, clock, options)
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
    with ThreadPoolExecutor(1) as executor:
        catalog = Catalog.open(MemoryStore(), clock, options, executor)
        index = catalog.subscription(NAME, INCARNATION)
        catalog.commit()
        popped: list[EntryKey] = []
        for which in added:
            index.add(entries_of(which))
            catalog.maintain(clock.now_ms())
            clock.advance(20)
            now_ms = clock.now_ms()
            some = list(index.pop_due(now_ms, 7))
            assert some == sorted(some) and all(at <= now_ms for at, _, _ in some)
            popped += some
        clock.advance(10_000)
        rest = list(index.pop_due(clock.now_ms(), 1 << 20))
        assert rest == sorted(rest)
        popped += rest
        catalog.close()
    everything = {position for which in added for position in which}
    assert sorted(popped) == sorted(entries_of(everything))
