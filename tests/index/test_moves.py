"""Moved positions: due at the time told last, at no other one, until they are acknowledged."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.catalogs import (
    INCARNATION,
    NAME,
    OPTIONS,
    START_MS,
    LaterExecutor,
    damage,
    drained,
    opened,
    reopened,
    spread,
    stored,
)
from tidegate.index.catalog.catalog import Catalog
from tidegate.index.clock import ManualClock
from tidegate.index.entries.entry import Entries
from tidegate.index.format import keys
from tidegate.index.state.moved import Moved
from tidegate.index.state.positions import PositionSet
from tidegate.index.store import MemoryStore
from tidegate.index.subscription.delay_index import DelayIndex

OWN_MS = START_MS + 5_000
POSITION = (5, 7)
ONLY = PositionSet.of([POSITION])


def at(due_ms: int) -> Entries:
    return Entries.of([(due_ms, *POSITION)])


def later(entries: Entries, by_ms: int) -> Entries:
    return Entries(entries.deliver_at_ms + by_ms, entries.ledger_id, entries.entry_id)


def popped(index: DelayIndex, now_ms: int) -> list[tuple[int, int, int]]:
    return list(index.timeline.pop_due(now_ms, 100))


@pytest.fixture(params=["staged", "in a slice", "being popped", "restarted"])
def index(request: pytest.FixtureRequest) -> DelayIndex:
    """One entry of our own among others that are due a minute later."""
    store = MemoryStore()
    catalog, index = opened(store)
    index.add(Entries.concat((at(OWN_MS), later(spread(50, 1_000, ledger_id=9), 60_000))))
    if request.param == "staged":
        return index
    catalog.persist(NAME)
    if request.param == "restarted":
        return reopened(store)[1]
    if request.param == "being popped":
        index.add(Entries.of([(START_MS, 5, 1)]))
        assert popped(index, START_MS) == [(START_MS, 5, 1)]
        index.timeline.load_next(OWN_MS)
    return index


@pytest.mark.parametrize("due_ms", [0, START_MS, OWN_MS - 1, OWN_MS, OWN_MS + 1, START_MS + 90_000])
def test_a_moved_entry_is_due_at_its_new_time_only(index: DelayIndex, due_ms: int) -> None:
    index.move(at(due_ms))
    index.check()
    assert popped(index, due_ms - 1) == [] or due_ms > START_MS + 60_000
    assert [one for one in popped(index, due_ms) if one[1:] == POSITION] == [(due_ms, *POSITION)]
    assert POSITION not in [one[1:] for one in popped(index, 1 << 60)]
    index.rewind(PositionSet())
    assert [one for one in popped(index, 1 << 60) if one[1:] == POSITION] == [(due_ms, *POSITION)]
    index.check()


def test_the_last_of_several_moves_counts_also_back_to_the_first_time(index: DelayIndex) -> None:
    for due_ms in (OWN_MS + 100, OWN_MS - 100, OWN_MS):
        index.move(at(due_ms))
    index.move(Entries.concat((at(OWN_MS + 1), at(OWN_MS))))
    assert popped(index, OWN_MS - 1) == []
    assert popped(index, OWN_MS + 1_000) == [(OWN_MS, *POSITION)]


def test_what_is_in_flight_is_handed_out_again_at_its_new_time(index: DelayIndex) -> None:
    assert popped(index, OWN_MS) == [(OWN_MS, *POSITION)]
    index.move(at(OWN_MS + 10))
    assert popped(index, OWN_MS + 9) == []
    assert popped(index, OWN_MS + 10) == [(OWN_MS + 10, *POSITION)]
    index.move(at(OWN_MS + 10))
    assert popped(index, OWN_MS + 10) == [(OWN_MS + 10, *POSITION)]


def test_a_move_beats_what_is_added_after_it() -> None:
    store = MemoryStore()
    _, index = opened(store)
    index.move(at(OWN_MS + 10))
    assert index.state.held == ONLY
    index.add(at(OWN_MS))
    assert popped(index, OWN_MS + 9) == []
    assert popped(index, OWN_MS + 10) == [(OWN_MS + 10, *POSITION)]


def test_a_move_outlives_a_loss_of_the_position_and_not_its_acknowledgement(index: DelayIndex) -> None:
    index.move(at(OWN_MS - 100))
    index.disown(ONLY)
    index.add(at(OWN_MS))
    assert popped(index, OWN_MS - 1) == [(OWN_MS - 100, *POSITION)]
    index.acknowledge(ONLY)
    index.unacknowledge(ONLY)
    index.add(at(OWN_MS))
    assert popped(index, OWN_MS - 1) == [], "after a reset the message's own time holds"
    assert popped(index, OWN_MS) == [(OWN_MS, *POSITION)]
    index.check()


@pytest.mark.parametrize("acknowledged", [False, True])
def test_what_is_done_is_not_moved(index: DelayIndex, acknowledged: bool) -> None:
    token = index.acknowledge(ONLY) if acknowledged else index.mark_delete(*POSITION)
    assert index.move(at(OWN_MS + 10)) == token
    assert not index.state.moved
    assert not index.state.held_among(ONLY)


def test_a_damaged_value_of_moved_positions_loses_only_what_no_slice_has() -> None:
    """The broker tells its moves again; until then nothing is skipped that nobody has."""
    store = MemoryStore()
    catalog, index = opened(store)
    index.add(at(OWN_MS))
    index.move(Entries.concat((at(OWN_MS + 10), Entries.of([(OWN_MS + 10, 5, 8)]))))
    catalog.persist(NAME)
    store.close()
    store = store.reopen()
    ((key, _),) = stored(store, keys.MOVED)
    damage(store, key)
    catalog, index = reopened(store)
    catalog.persist(NAME)
    assert index.state.held == ONLY
    assert index.take_unheld() == PositionSet.of([(5, 8)])
    assert not stored(store, keys.MOVED)
    index.move(at(OWN_MS + 10))
    assert popped(index, OWN_MS + 9) == []
    index.check()


def test_a_lost_position_that_moves_during_the_persist_that_finds_it_stays_held() -> None:
    """The broker has told its time, and would not read it again: nobody else would hand it out."""
    executor = LaterExecutor()
    catalog = Catalog.open(MemoryStore(), ManualClock(START_MS), OPTIONS, executor)
    index = catalog.subscription(NAME, INCARNATION)
    gone = Entries.of([(OWN_MS, *POSITION), (OWN_MS, 5, 8)])
    # Changes are made by half: these are held, and nobody has their entries.
    index.state.hold(gone)
    index.doubt()
    catalog.commit()
    catalog.maintain(START_MS)
    assert executor.waiting, "the persist has taken what is held, and what is moved"
    index.move(at(OWN_MS + 10))
    for _ in range(4):
        executor.run_all()
        catalog.commit()
        catalog.maintain(START_MS)
    assert index.take_unheld() == PositionSet.of([(5, 8)])
    assert index.state.held == ONLY
    assert popped(index, OWN_MS + 9) == []
    assert popped(index, OWN_MS + 10) == [(OWN_MS + 10, *POSITION)]
    index.check()


def test_moves_that_are_done_with_leave_nothing_behind() -> None:
    store = MemoryStore()
    catalog, index = opened(store)
    entries = later(spread(20_000, 1_000), 60_000)
    index.add(entries)
    for by_ms in range(3):
        index.move(later(entries, by_ms))
    catalog.persist(NAME)
    assert index.timeline.memory_bytes() < 3 * 24 * 20_000
    index.acknowledge(PositionSet.of_entries(entries))
    catalog.persist(NAME)
    assert index.timeline.memory_bytes() < 24 * 5_000
    assert not stored(store, keys.MOVED)
    assert index.state.empty is False
    index.mark_delete(5, 20_000)
    assert index.state.empty


def test_moves_go_through_persists_and_restarts() -> None:
    store = MemoryStore()
    catalog, index = opened(store)
    index.add(later(spread(500, 1_000), 5_000))
    catalog.persist(NAME)
    first = later(spread(100, 1), 4_100)
    index.move(first)
    catalog.persist(NAME)
    index.move(at(OWN_MS - 1_000))
    catalog.commit()
    _, index = reopened(store, OPTIONS)
    index.check()
    assert popped(index, OWN_MS - 901) == [(OWN_MS - 1_000, *POSITION)]
    assert len(index.timeline.pop_due(OWN_MS - 1, 1_000)) == 99
    assert len(drained(index)) == 400


positions = st.tuples(st.integers(0, 3), st.integers(0, 3_000))


@given(steps=st.lists(st.tuples(st.sampled_from("pppdu"), st.lists(positions, max_size=40)), max_size=12))
def test_moved_against_a_dictionary(steps: list[tuple[str, list[tuple[int, int]]]]) -> None:
    moved, model = Moved(), dict[tuple[int, int], int]()
    for number, (step, some) in enumerate(steps):
        if step == "p":
            # Whole ledgers now and then, so that recent changes are merged.
            many = ((0, entry) for entry in range(700 * len(some) // 20))
            rows = dict.fromkeys([*some, *many], number)
            moved.put(Entries.of((at_ms, *one) for one, at_ms in rows.items()))
            model |= rows
        elif step == "d":
            moved.discard(PositionSet.of(some))
            model = {one: at_ms for one, at_ms in model.items() if one not in some}
        elif some:
            moved.discard_up_to(*some[0])
            model = {one: at_ms for one, at_ms in model.items() if one > some[0]}
        assert bool(moved) == bool(model)
        assert sorted(moved.snapshot().entries()) == sorted((at_ms, *one) for one, at_ms in model.items())
        asked = Entries.of((-1, *one) for one in [*some, *list(model)[:100]])
        is_moved, times_ms = moved.times_of(asked)
        assert is_moved.tolist() == [one[1:] in model for one in asked]
        assert times_ms.tolist() == [model.get(one[1:], -1) for one in asked]
        assert np.array_equal(moved.holds(moved.retimed(asked)), is_moved)
