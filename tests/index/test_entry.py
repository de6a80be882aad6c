"""Entries: their order, their records, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidegate.index.entries.entry import Entries, EntryKey
from tidegate.index.entries.sort import MERGE, SortedEntries, merge_runs, sort_entries
from tidegate.index.errors import InvalidEntriesError

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
rows = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, 9)),
        st.tuples(INT64, INT64, INT64),
        st.tuples(INT64, st.just(7), st.integers(0, 1)),
        st.tuples(st.just(5), st.just(7), INT64),
    ),
    max_size=40,
)


@given(rows=rows)
@example(rows=[(5, 7, 0), (5, 7, -(1 << 63))])
@settings(deadline=None)
def test_sorting_is_by_due_time_then_position(rows: list[EntryKey]) -> None:
    ordered = sort_entries(Entries.of(rows))
    assert list(ordered) == sorted(rows)
    assert ordered.is_sorted()
    assert list(sort_entries(Entries.of(rows), unique=True)) == sorted(set(rows))
    # Few are not sorted by keys; of a persist, all are.
    assert list(SortedEntries.of([Entries.of(rows)]).entries()) == sorted(rows)
    assert list(SortedEntries.of([Entries.of(rows)], unique=True).entries()) == sorted(set(rows))


@given(runs=st.lists(rows, max_size=5))
@settings(deadline=None)
def test_runs_merge_into_what_a_sort_gives(runs: list[list[EntryKey]]) -> None:
    joined = [row for run in runs for row in sorted(run)]
    assert list(merge_runs(Entries.of(joined))) == sorted(joined)
    assert list(merge_runs(Entries.of(joined), unique=True)) == sorted(set(joined))
    assert list(SortedEntries.of([Entries.of(joined)], kind=MERGE).entries()) == sorted(joined)


def test_unsorted_entries_are_told_apart() -> None:
    for bad in ([(2, 0, 0), (1, 0, 0)], [(1, 2, 0), (1, 1, 0)], [(1, 1, 2), (1, 1, 1)]):
        assert not Entries.of(bad).is_sorted()


def test_records_are_ledger_entry_and_due_time() -> None:
    entries = Entries.of([(1_700_000_000_000, 5, 9), (-1, 6, 0)])
    data = entries.to_records().tobytes()
    assert data[:24] == (5).to_bytes(8, "little") + (9).to_bytes(8, "little") + (1_700_000_000_000).to_bytes(
        8, "little"
    )
    assert Entries.from_records(data) == entries
    assert Entries.from_records(entries.to_records()) == entries
    assert len(Entries.from_records(b"")) == 0


def test_torn_records_are_refused() -> None:
    with pytest.raises(InvalidEntriesError):
        Entries.from_records(b"\0" * 25)
    with pytest.raises(InvalidEntriesError):
        Entries.from_records(np.zeros((2, 2), dtype=np.int64))


@pytest.mark.parametrize("row", [(0, -1, 0), (0, 0, -1), (0, 0, 1 << 32)])
def test_ids_out_of_range_are_refused(row: EntryKey) -> None:
    with pytest.raises(InvalidEntriesError):
        Entries.of([(0, 0, 0), row]).validated()


def test_columns_of_different_lengths_are_refused() -> None:
    one, two = np.zeros(1, dtype=np.int64), np.zeros(2, dtype=np.int64)
    with pytest.raises(InvalidEntriesError):
        Entries(one, one, two)


@given(rows=rows, cut=st.tuples(st.integers(0, 60), st.integers(0, 60)))
@example(rows=[(5, 0, 0), (5, (1 << 63) - 1, 1)], cut=(0, 2))
@settings(deadline=None)
def test_the_times_alone_are_those_of_the_entries(rows: list[EntryKey], cut: tuple[int, int]) -> None:
    made = SortedEntries.of([Entries.of(rows)])
    start, stop = sorted(min(at, len(made)) for at in cut)
    assert made.deliver_at_ms(start, stop).tolist() == made.entries(start, stop).deliver_at_ms.tolist()
