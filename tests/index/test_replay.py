"""Replaying a journal: few changes for many records, and the state that the records had made."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.catalogs import OPTIONS, drained, opened, reopened, spread, stored
from tidegate.index.entries.entry import Entries
from tidegate.index.format import keys
from tidegate.index.state.positions import PositionSet
from tidegate.index.store import MemoryStore
from tidegate.index.subscription.changes import Changes
from tidegate.index.subscription.delay_index import DelayIndex

ROUNDS = 200
_positions = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 5)), min_size=1, max_size=4)
_change = st.one_of(
    st.tuples(st.just("add"), _positions),
    st.tuples(st.just("acknowledge"), _positions),
    st.tuples(st.just("mark_delete"), st.tuples(st.integers(0, 3), st.integers(-1, 5))),
    st.tuples(st.just("unacknowledge"), _positions),
    st.tuples(st.just("generation"), st.integers(0, 2)),
    st.tuples(st.just("clear"), st.none()),
)


def due_ms(ledger_id: int, entry_id: int) -> int:
    return 1_000 * ledger_id + entry_id


def make(index: DelayIndex, change: tuple[str, object]) -> None:
    match change:
        case "add", list() as positions:
            index.add(Entries.of((due_ms(*at), *at) for at in positions))
        case "acknowledge", list() as positions:
            index.acknowledge(PositionSet.of(positions))
        case "unacknowledge", list() as positions:
            index.unacknowledge(PositionSet.of(positions))
        case "mark_delete", (int() as ledger_id, int() as entry_id):
            index.mark_delete(ledger_id, entry_id)
        case "generation", int() as generation:
            index.begin_generation(generation)
        case _:
            index.clear()


@given(st.lists(_change, max_size=30), st.integers(0, 30))
@settings(max_examples=150, deadline=None)
def test_what_is_replayed_at_once_is_what_was_made_one_by_one(
    changes: list[tuple[str, object]], persisted: int
) -> None:
    store = MemoryStore()
    catalog, index = opened(store)
    for number, change in enumerate(changes):
        make(index, change)
        catalog.commit()
        if number == persisted:
            catalog.persist(index.name)
    _, again = reopened(store)
    again.check()
    assert again.state.held == index.state.held
    assert again.state.acknowledged == index.state.acknowledged
    assert again.state.mark == index.state.mark
    assert again.state.generation == index.state.generation
    index.rewind(PositionSet())
    assert drained(again) == drained(index)


def counted(monkeypatch: pytest.MonkeyPatch, *names: str) -> list[str]:
    made: list[str] = []

    def noting(name: str) -> Callable[..., object]:
        original = getattr(Changes, name)

        def note(*arguments: object) -> object:
            made.append(name)
            return original(*arguments)

        return note

    for name in names:
        monkeypatch.setattr(Changes, name, noting(name))
    return made


def test_thousands_of_records_are_few_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    catalog, index = opened(store)
    for number in range(ROUNDS):
        index.add(spread(5, 1_000, ledger_id=number + 1))
        catalog.commit()
        index.acknowledge(PositionSet.of([(number + 1, 0)]))
        catalog.commit()
        index.mark_delete(number, 2)
        catalog.commit()
    assert len(stored(store, keys.JOURNAL)) >= 3 * ROUNDS - 1
    made = counted(monkeypatch, "stage_new", "acknowledge", "mark_delete")
    _, again = reopened(store)
    assert made == ["stage_new", "acknowledge", "mark_delete"]
    assert again.state.held == index.state.held


def test_a_journal_of_many_records_is_persisted() -> None:
    """However small they are: opening reads each of them."""
    store = MemoryStore()
    catalog, index = opened(store, dataclasses.replace(OPTIONS, journal_records=100))
    most = 0
    for number in range(10 * ROUNDS):
        index.acknowledge(PositionSet.of([(number + 1, 0)]))
        catalog.commit()
        catalog.maintain(0)
        most = max(most, len(stored(store, keys.JOURNAL)))
    assert 100 < most <= 100 + 16 + 1
    assert catalog.stats().persists <= 10 * ROUNDS // 100


def test_records_of_a_removed_subscription_do_not_count() -> None:
    store = MemoryStore()
    catalog, index = opened(store, dataclasses.replace(OPTIONS, journal_records=0))
    for number in range(10):
        index.mark_delete(number, 0)
        catalog.commit()
    catalog.remove(index.name)
    index.mark_delete(20, 0)
    catalog.commit()
    assert catalog.journal.records == 0
