"""Sets of positions against sets of tuples."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from tidegate.index.entries.entry import Entries
from tidegate.index.errors import CorruptRecordError
from tidegate.index.state import positions as positions_module
from tidegate.index.state.positions import Position, PositionSet

positions = st.tuples(
    st.integers(0, 5), st.one_of(st.integers(0, 60), st.integers((1 << 32) - 3, (1 << 32) - 1))
)
some = st.sets(positions, max_size=80)
lists = st.lists(positions, max_size=150)


def entries_at(which: list[Position]) -> Entries:
    return Entries.of((0, *position) for position in which)


@given(a=some, b=some)
@settings(deadline=None)
def test_set_algebra(a: set[Position], b: set[Position]) -> None:
    left, right = PositionSet.of(a), PositionSet.of(b)
    assert set(left.intersection(right)) == a & b
    assert set(left.difference(right)) == a - b
    assert left.isdisjoint(right) == a.isdisjoint(b)
    assert left.issubset(right) == a.issubset(b)
    assert (left == right) == (a == b)
    changed = left.snapshot()
    changed.update(right)
    assert set(changed) == a | b
    assert set(left) == a, "a snapshot is independent"
    assert list(left) == sorted(a)
    assert len(left) == len(a)
    assert bool(left) == bool(a)
    assert all(bitmap for _, bitmap in left.difference(right).items())


@given(a=some, b=some, which=lists)
@settings(deadline=None)
def test_vectorised_membership_and_adding(a: set[Position], b: set[Position], which: list[Position]) -> None:
    held, known = PositionSet.of(a), PositionSet.of(b)
    assert held.contains(entries_at(which)).tolist() == [position in a for position in which]
    fresh = held.add_new(entries_at(which), known)
    seen: set[Position] = set()
    for position, was_fresh in zip(which, fresh.tolist(), strict=True):
        assert was_fresh == (position not in a and position not in b and position not in seen)
        seen.add(position)
    assert set(held) == a | (set(which) - b)


either_side = st.tuples(st.integers((1 << 32) - 2, (1 << 32) + 1), st.integers(0, 60))


@given(a=st.sets(either_side, max_size=80), which=st.lists(either_side, max_size=150))
@settings(deadline=None)
def test_one_batch_has_ledgers_on_either_side_of_a_page(a: set[Position], which: list[Position]) -> None:
    entries, held = entries_at(which), PositionSet.of(a)

    assert set(PositionSet.of_entries(entries)) == set(which)
    assert held.contains(entries).tolist() == [position in a for position in which]
    assert held.add_new(entries, PositionSet()).sum() == len(set(which) - a)
    assert set(held) == a | set(which)


rows = st.tuples(st.integers(0, 2), st.integers(0, 1 << 17), st.integers(1, 700))
last_row = st.tuples(st.just((1 << 32) - 1), st.just((1 << 32) - 300), st.just(300))


@given(some_rows=st.lists(st.one_of(rows, last_row), min_size=1, max_size=5), seed=st.randoms())
@settings(deadline=None, max_examples=50)
def test_positions_that_follow_each_other(some_rows: list[tuple[int, int, int]], seed: random.Random) -> None:
    """In any order, repeated, across the end of a ledger: those are put in as ranges."""
    as_told = [(ledger_id, first + at) for ledger_id, first, count in some_rows for at in range(count)]
    shuffled = as_told.copy()
    seed.shuffle(shuffled)
    for which in (as_told, shuffled):
        held = PositionSet()
        fresh = held.add_new(entries_at(which), PositionSet())
        assert set(held) == set(which)
        assert sum(fresh.tolist()) == len(set(which))
        assert all(held.contains(entries_at(which)))


@given(which=st.lists(positions, min_size=30, max_size=80), moved=st.tuples(st.integers(0), st.integers(0)))
@settings(deadline=None)
def test_positions_in_order_and_with_one_out_of_it(which: list[Position], moved: tuple[int, int]) -> None:
    """Repeated as well: what ascends is not sorted again."""
    out, to = (at % len(which) for at in moved)
    nearly = sorted(which)
    nearly.insert(to, nearly.pop(out))
    for each in (sorted(which), nearly):
        held = PositionSet()
        fresh = held.add_new(entries_at(each), PositionSet.of(which[:5]))
        assert set(held) == set(which) - set(which[:5])
        assert [position for position, was in zip(each, fresh.tolist(), strict=True) if was] == [
            position for position in dict.fromkeys(each) if position not in which[:5]
        ]
        assert PositionSet.of_entries(entries_at(each)) == PositionSet.of(which)


@given(a=some, ledger_id=st.integers(-1, 6), entry_id=st.integers(-1, 1 << 33))
@settings(deadline=None)
def test_discarding_up_to_a_position(a: set[Position], ledger_id: int, entry_id: int) -> None:
    left = PositionSet.of(a)
    left.discard_up_to(ledger_id, entry_id)
    assert set(left) == {position for position in a if position > (ledger_id, entry_id)}


@given(a=some, b=some)
@settings(deadline=None)
def test_a_snapshot_does_not_change_with_its_origin(a: set[Position], b: set[Position]) -> None:
    origin = PositionSet.of(a)
    snapshot = origin.snapshot()
    second = snapshot.snapshot()
    origin.update(PositionSet.of(b))
    origin.difference_update(PositionSet.of(a))
    second.clear()
    assert set(snapshot) == a
    assert set(origin) == b - a


@given(a=some, b=some)
@settings(deadline=None)
def test_changed_ledgers_are_dirty(a: set[Position], b: set[Position]) -> None:
    positions_set = PositionSet(tracked=True)
    positions_set.update(PositionSet.of(a))
    positions_set.take_dirty()
    before = {ledger_id: set(bitmap) for ledger_id, bitmap in positions_set.items()}
    positions_set.difference_update(PositionSet.of(b))
    after = {ledger_id: set(bitmap) for ledger_id, bitmap in positions_set.items()}
    changed = {at for at in before.keys() | after.keys() if before.get(at) != after.get(at)}
    assert positions_set.take_dirty() >= changed
    assert not positions_set.take_dirty()


@given(a=some)
@settings(deadline=None)
def test_bytes_are_those_of_the_protocol(a: set[Position]) -> None:
    data = PositionSet.of(a).serialize()
    assert PositionSet.deserialize(data) == PositionSet.of(a)
    assert int.from_bytes(data[:4], "little") == len({ledger_id for ledger_id, _ in a})
    for cut in range(len(data)):
        with pytest.raises(CorruptRecordError):
            PositionSet.deserialize(data[:cut])
    with pytest.raises(CorruptRecordError):
        PositionSet.deserialize(data + b"\0")


def test_empty_and_unordered_bitmaps_are_refused() -> None:
    empty = BitMap().serialize()
    with pytest.raises(CorruptRecordError):
        PositionSet.deserialize(
            b"\1\0\0\0" + (3).to_bytes(8, "little") + len(empty).to_bytes(4, "little") + empty
        )
    one = BitMap([1]).serialize()
    twice = (3).to_bytes(8, "little") + len(one).to_bytes(4, "little") + one
    with pytest.raises(CorruptRecordError):
        PositionSet.deserialize(b"\2\0\0\0" + twice + twice)


@pytest.mark.parametrize(
    "ledger_id", [0, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 33) + 5, (1 << 62) - 1]
)
def test_any_ledger_and_entry_id_fits(ledger_id: int) -> None:
    entry_ids = [0, 70_000, 5_000_000, (1 << 32) - 1]
    whole = PositionSet.of((ledger_id, at) for at in entry_ids)
    assert PositionSet.deserialize(whole.serialize()) == whole
    assert list(whole) == [(ledger_id, at) for at in entry_ids]
    assert whole.ledgers() == [ledger_id]
    assert whole.within(ledger_id, ledger_id) == whole
    assert not whole.within(ledger_id + 1, ledger_id + 9)
    left = whole.snapshot()
    left.discard_up_to(ledger_id, 70_000)
    assert list(left) == [(ledger_id, at) for at in entry_ids[2:]]


LEDGERS = 3_000
"""Of one entry each: to put a few hundred positions in or out must not look at all of them."""


def wide(*, tracked: bool = False) -> tuple[PositionSet, set[Position]]:
    known = {(ledger_id, 7) for ledger_id in range(LEDGERS)}
    made = PositionSet(tracked=tracked)
    made.add(entries_at(sorted(known)))
    if tracked:
        made.take_dirty()
    return made, known


@pytest.mark.parametrize(
    "batch",
    [
        {(5, at) for at in range(700)},
        {(at, 7) for at in range(0, LEDGERS, 5)},
        {(at, 7 + at % 2) for at in range(0, LEDGERS, 5)},
        {(at, 7) for at in range(LEDGERS)},
    ],
    ids=["a run in one ledger", "here and there", "half of them new", "all"],
)
def test_a_batch_into_and_out_of_many_ledgers(batch: set[Position]) -> None:
    for change in range(3):
        mine, known = wide(tracked=True)
        if change == 0:
            mine.update(PositionSet.of(batch))
            known |= batch
        elif change == 1:
            mine.difference_update(PositionSet.of(batch))
            known -= batch
        else:
            fresh = mine.add_new(entries_at(sorted(batch)), PositionSet())
            assert fresh.tolist() == [position not in known for position in sorted(batch)]
            known |= batch
        assert set(mine) == known
        assert mine.take_dirty() >= {at for at, _ in known ^ wide()[1]}


def test_a_ledger_after_another_is_put_out() -> None:
    mine, known = wide()
    for ledger_id in range(0, LEDGERS, 100):
        batch = {(at, 7) for at in range(ledger_id, ledger_id + 700)}
        mine.difference_update(PositionSet.of(batch))
        known -= batch
        assert set(mine) == known


@given(a=some, ledgers=st.sets(st.integers(0, 7)))
@settings(deadline=None)
def test_the_positions_of_some_ledgers(a: set[Position], ledgers: set[int]) -> None:
    mine, others = PositionSet.of(a), PositionSet.of((at + 100, 0) for at in range(500))
    mine.update(others)
    found = mine.of_ledgers(ledgers)
    assert {position for position in found if position[0] in ledgers} == {
        position for position in a if position[0] in ledgers
    }
    assert all(position in mine for position in found)


def test_few_ledgers_of_many_are_copied_and_most_of_them_are_a_snapshot() -> None:
    mine, _ = wide()
    assert mine.of_ledgers({3, 5, LEDGERS + 1}) == PositionSet.of([(3, 7), (5, 7)])
    assert mine.of_ledgers(set(range(LEDGERS))) == mine


def test_a_set_filled_after_a_clear_is_not_copied_for_a_snapshot_of_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A copy takes as long as the bitmap is large."""
    copied: list[BitMap64] = []
    mine, known = wide()
    before = mine.snapshot()
    mine.clear()
    mine.add(entries_at(sorted(known)))

    def noted(bitmap: BitMap64) -> BitMap64:
        copied.append(bitmap)
        return bitmap.copy()

    monkeypatch.setattr(positions_module, "_copied", noted)
    mine.add(entries_at([(5, 8)]))
    assert not copied
    assert set(before) == known
