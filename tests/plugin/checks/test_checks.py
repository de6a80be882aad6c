"""Each check against faults of known number, and against a plain reading of its definition."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.plugin.checks import (
    NEVER,
    Lateness,
    RepeatCause,
    early,
    first_receipts,
    gaps,
    lost,
    out_of_order,
    percentiles,
    repeat_causes,
    repeats,
    stored_twice,
)
from tidegate.plugin.checks.deliveries import Int64


def ints(*values: int) -> Int64:
    return np.array(values, np.int64)


def test_first_receipts() -> None:
    found = first_receipts(4, ints(2, 0, 2, 3), ints(50, 10, 40, 7))
    assert found.tolist() == [10, NEVER, 40, 7]


def test_early_to_the_unit() -> None:
    due, received = ints(100, 100, 100, NEVER, 100), ints(99, 100, 101, 5, NEVER)
    assert early(due, received).tolist() == [True, False, False, False, False]


def test_lost() -> None:
    assert lost(np.array([True, True, False]), ints(NEVER, 5, NEVER)).tolist() == [True, False, False]


def test_repeats_are_told_with_the_receipt_before() -> None:
    ledger, entry, received = ints(1, 2, 1, 1, 2), ints(7, 7, 7, 7, 8), ints(30, 1, 10, 20, 2)
    before, after = repeats((ledger, entry), received)
    assert list(zip(before.tolist(), after.tolist(), strict=True)) == [(2, 3), (3, 0)]


def test_causes_of_repeats() -> None:
    assert repeat_causes(ints(0, 1, 5, NEVER)).tolist() == [
        RepeatCause.FORGOTTEN,
        RepeatCause.REDELIVERED,
        RepeatCause.REDELIVERED,
        RepeatCause.UNKNOWN,
    ]


class TestOrder:
    def late(self, *rows: tuple[int, int, int, int]) -> list[bool]:
        """(key, due, sent, received) rows."""
        columns = np.array(rows, np.int64).reshape(-1, 4).T
        return [bool(one) for one in out_of_order(*columns)]

    def test_nothing(self) -> None:
        assert self.late() == []

    def test_in_order(self) -> None:
        assert self.late((1, 10, 0, 11), (1, 20, 1, 21), (2, 5, 2, 30)) == [False, False, False]

    def test_two_changed_places(self) -> None:
        assert self.late((1, 10, 0, 22), (1, 20, 1, 21)) == [True, False]

    def test_a_straggler_counts_once(self) -> None:
        assert self.late((1, 10, 0, 99), (1, 20, 1, 21), (1, 30, 2, 31), (1, 40, 3, 41)) == [
            True,
            False,
            False,
            False,
        ]

    def test_the_same_instant_is_no_order(self) -> None:
        assert self.late((1, 20, 0, 30), (1, 10, 1, 30)) == [False, False]

    def test_due_at_the_same_time_the_one_sent_first_comes_first(self) -> None:
        assert self.late((1, 10, 5, 11), (1, 10, 4, 12)) == [False, True]

    def test_what_was_due_before_it_was_sent_is_ready_when_sent(self) -> None:
        assert self.late((1, 10, 500, 502), (1, 400, 0, 401)) == [False, False]
        assert self.late((1, 10, 500, 502), (1, 501, 0, 503)) == [False, False]

    def test_keys_do_not_mix(self) -> None:
        assert self.late((1, 10, 0, 40), (2, 20, 0, 30), (1, 30, 0, 41)) == [False, False, False]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), *[st.integers(0, 6)] * 3), max_size=12))
def test_out_of_order_is_what_it_says(rows: list[tuple[int, int, int, int]]) -> None:
    def rank(row: tuple[int, int, int, int]) -> tuple[int, int]:
        return max(row[1], row[2]), row[2]

    expected = [
        any(one[0] == row[0] and one[3] < row[3] and rank(one) > rank(row) for one in rows) for row in rows
    ]
    assert TestOrder().late(*rows) == expected


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(1, 4)), min_size=1, max_size=20))
def test_percentiles_are_numpys(told: list[tuple[int, int]]) -> None:
    values, counts = (np.array(column, np.int64) for column in zip(*told, strict=True))
    wanted = (0, 12.5, 50, 99, 100)
    every = np.repeat(values, counts)
    assert percentiles(values, counts, wanted) == pytest.approx(np.percentile(every, wanted))
    assert percentiles(every, None, wanted) == pytest.approx(np.percentile(every, wanted))
    assert Lateness.of(values, counts, per_ms=1) == Lateness.of(every, per_ms=1)
    assert Lateness.of(values, counts).count == sum(counts)


def test_lateness_of_nothing() -> None:
    assert Lateness.of(ints()) == Lateness(0, 0.0, 0.0, 0.0)


class TestGaps:
    def found(self, due: list[int], received: list[int], at_least: int = 10) -> list[tuple[int, int]]:
        times = ints(*received)
        found = gaps(times, times, ints(*due), at_least)
        return list(zip(found.begin.tolist(), found.end.tolist(), strict=True))

    def test_none(self) -> None:
        assert self.found([], []) == []
        assert self.found([10, 20, 30], [11, 21, 31]) == []

    def test_nothing_is_due_for_a_while(self) -> None:
        assert self.found([10, 500], [11, 501]) == []

    def test_due_and_not_received(self) -> None:
        assert self.found([10, 20, 25], [11, 50, 51]) == [(20, 50)]

    def test_waiting_behind_another(self) -> None:
        """It begins with the last receipt, though something was due before that."""
        assert self.found([10, 11, 12], [15, 16, 40]) == [(16, 40)]

    def test_the_first_one(self) -> None:
        assert self.found([10], [60]) == [(10, 60)]

    def test_groups(self) -> None:
        found = gaps(ints(100, 2000), ints(900, 2100), ints(50, 1500), 400)
        assert (found.begin.tolist(), found.end.tolist()) == ([1500], [2000])
        assert found.lengths.tolist() == [500]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=10), st.integers(1, 15))
def test_gaps_are_what_they_say(told: list[tuple[int, int]], at_least: int) -> None:
    rows = [(due, due + late) for due, late in told]
    expected = Counter[tuple[int, int]]()
    receipts = sorted({received for _, received in rows})
    for before, after in zip([-1, *receipts], receipts, strict=False):
        begin = max(before, min(due for due, received in rows if received >= after))
        if after - begin >= at_least:
            expected[begin, after] += 1
    assert TestGaps().found([due for due, _ in rows], [r for _, r in rows], at_least) == sorted(expected)


def test_a_message_that_was_received_from_two_places_was_stored_twice() -> None:
    message = np.array([4, 4, 4, 7, 7, 9], np.uint32)
    ledger_id = np.array([1, 1, 1, 1, 2, 1], np.int64)
    entry_id = np.array([0, 0, 5, 3, 3, 8], np.int64)
    assert stored_twice(message, (ledger_id, entry_id)) == 2, "4 and 7; a repeat of one place is none"
    assert stored_twice(message[:0], (ledger_id[:0], entry_id[:0])) == 0
