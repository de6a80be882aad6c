"""Entries to read: ledgers, acknowledgements, bounds, groups of similar size."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.pipeline.errors import WireError
from tidegate.pipeline.topic.ranges import (
    SKIPPED_MIN,
    Acknowledged,
    Bounds,
    EntryRange,
    Ledger,
    Position,
    Stretch,
    ranges,
    split,
)

TOPIC = "persistent://public/default/orders"


def found(
    ledgers: Sequence[Ledger], acknowledged: Acknowledged | None = None, bounds: Bounds | None = None
) -> list[tuple[int, int, int]]:
    return [
        (one.ledger.ledger_id, one.first, one.last)
        for one in ranges(TOPIC, -1, ledgers, acknowledged, bounds or Bounds())
    ]


def positions(wanted: list[EntryRange]) -> list[Position]:
    return [
        Position(one.ledger.ledger_id, entry_id)
        for one in wanted
        for entry_id in range(one.first, one.last + 1)
        if not any(gone.first <= entry_id <= gone.last for gone in one.acknowledged)
    ]


class TestAcknowledged:
    def test_as_the_broker_writes_it(self) -> None:
        known = Acknowledged.parse("5:0", "[(5:1..5:2],(5:5..5:6],(5:9..7:3]]")
        assert known.within(5, 9) == [Stretch(0, 0), Stretch(2, 2), Stretch(6, 6)]
        assert known.within(5, 20) == [Stretch(0, 0), Stretch(2, 2), Stretch(6, 6), Stretch(10, 20)]
        assert known.within(6, 99) == [Stretch(0, 99)]
        assert known.within(7, 9) == [Stretch(0, 3)]
        assert known.within(8, 9) == []

    def test_nothing_yet(self) -> None:
        assert Acknowledged.parse("5:-1", "[]").within(5, 9) == []

    def test_earlier_ledgers_are_acknowledged_whole(self) -> None:
        assert Acknowledged.parse("7:2", "[]").within(5, 9) == [Stretch(0, 9)]

    def test_mark_delete_at_the_end_of_a_ledger(self) -> None:
        assert Acknowledged.parse("5:9", "[]").within(5, 9) == [Stretch(0, 9)]

    def test_ranges_below_mark_delete_say_nothing_new(self) -> None:
        known = Acknowledged.parse("5:8", "[(5:1..5:2],(5:6..5:9]]")
        assert known.within(5, 20) == [Stretch(0, 9)]

    @pytest.mark.parametrize(
        ("mark_delete", "stretches"),
        [
            ("5", "[]"),
            ("5:x", "[]"),
            ("5:0", "[(5:1..5:2)]"),
            ("5:0", "[(5:1..]"),
            ("5:0", "[(5:7..5:9],(5:2..5:4]]"),
            ("5:0", "[(5:7..5:7]]"),
        ],
    )
    def test_what_is_not_as_the_broker_writes_it(self, mark_delete: str, stretches: str) -> None:
        with pytest.raises(WireError):
            Acknowledged.parse(mark_delete, stretches)


class TestRanges:
    ledgers = (Ledger(3, 10), Ledger(4, 0), Ledger(5, 7))

    def test_everything(self) -> None:
        assert found(self.ledgers) == [(3, 0, 9), (5, 0, 6)]

    def test_both_bounds_are_inclusive(self) -> None:
        bounds = Bounds(Position(3, 4), Position(5, 2))
        assert found(self.ledgers, bounds=bounds) == [(3, 4, 9), (5, 0, 2)]

    def test_a_bound_in_a_ledger_that_is_gone(self) -> None:
        assert found(self.ledgers, bounds=Bounds(Position(1, 900), Position(4, 900))) == [(3, 0, 9)]

    def test_a_bound_beyond_the_end_of_its_ledger(self) -> None:
        assert found(self.ledgers, bounds=Bounds(Position(3, 10), Position(9, 9))) == [(5, 0, 6)]

    def test_acknowledged_ends_are_cut_off(self) -> None:
        known = Acknowledged.parse("3:1", "[(3:8..3:9]]")
        assert found(self.ledgers, known) == [(3, 2, 8), (5, 0, 6)]

    def test_short_holes_are_read_over_and_long_ones_are_not(self) -> None:
        size = 3 * SKIPPED_MIN
        known = Acknowledged(
            Position(3, -1),
            [(Position(3, 9), Position(3, 19)), (Position(3, 99), Position(3, 99 + SKIPPED_MIN))],
        )
        (first, second) = list(ranges(TOPIC, -1, [Ledger(3, size)], known, Bounds()))
        assert (first.first, first.last, first.acknowledged) == (0, 99, (Stretch(10, 19),))
        assert (second.first, second.last, second.acknowledged) == (100 + SKIPPED_MIN, size - 1, ())
        assert first.live + second.live == size - 10 - SKIPPED_MIN


class TestSplit:
    def test_large_ledgers_are_cut_and_small_ones_go_together(self) -> None:
        groups = split(ranges(TOPIC, -1, [Ledger(1, 25), Ledger(2, 3), Ledger(3, 3)], None, Bounds()), 10)
        assert [sum(one.entries for one in group) for group in groups] == [10, 10, 11]

    def test_no_crumbs(self) -> None:
        groups = split(ranges(TOPIC, -1, [Ledger(1, 21)], None, Bounds()), 10)
        assert [group[0].entries for group in groups] == [10, 11]

    def test_nothing(self) -> None:
        assert split([], 10) == []


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=5),
    st.sets(st.integers(0, 250)),
    st.integers(1, 50),
    st.data(),
)
def test_every_live_position_is_read_once(
    sizes: list[int], acknowledged: set[int], group: int, data: st.DataObject
) -> None:
    ledgers = [Ledger(10 + number, size) for number, size in enumerate(sizes)]
    everything = [Position(one.ledger_id, entry_id) for one in ledgers for entry_id in range(one.entries)]
    gone = {everything[number] for number in acknowledged if number < len(everything)}
    first = data.draw(st.sampled_from(everything)) if everything else Position(0, 0)
    last = data.draw(st.sampled_from(everything)) if everything else Position(0, 0)
    # Each acknowledged entry as a range of its own, as the broker may have them too.
    known = Acknowledged(Position(-1, -1), [(Position(a, b - 1), Position(a, b)) for a, b in sorted(gone)])
    groups = split(ranges(TOPIC, -1, ledgers, known, Bounds(first, last)), group)
    assert positions([one for group_ in groups for one in group_]) == [
        each for each in everything if first <= each <= last and each not in gone
    ]
