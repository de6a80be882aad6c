"""Choosing a slice width: what is chosen from which evidence, and that it does not flap."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.catalogs import START_MS
from tidegate.index.blocks.width import (
    BLOCK_COST_ENTRIES,
    ENTRIES_MIN,
    SWITCH_RATIO,
    WIDTHS_MS,
    WidthDecision,
    WidthEvidence,
    WidthLook,
    WidthMemory,
    by_second,
    choose,
    may_scatter,
    slice_entries_max,
)
from tidegate.index.entries.entry import Int64Array
from tidegate.index.format.keys import SliceId
from tidegate.index.options import IndexOptions

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
OPTIONS = IndexOptions()
SPILL = slice_entries_max(OPTIONS)
CHOSEN = WidthMemory(chosen=True)
Draw = Callable[[np.random.Generator, int], Int64Array]


def over(span_ms: int) -> Draw:
    return lambda rng, entries: rng.integers(1, span_ms, entries)


def drawn(draw: Draw, entries: int) -> Int64Array:
    return np.sort(START_MS + draw(np.random.default_rng(1), entries))


def slices(due_ms: Int64Array, width_ms: int, weight: int = 1) -> list[tuple[SliceId, int]]:
    """The stored form of these entries in slices of that width, each standing for `weight`."""
    numbers, counts = np.unique(due_ms // width_ms, return_counts=True)
    return [
        (SliceId(width_ms, number), weight * count)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)
    ]


def evidence(
    draw: Draw,
    entries: int,
    width_ms: int = HOUR_MS,
    backlog: int = 0,
    since_ms: int | None = None,
) -> WidthEvidence:
    """A spill of `entries`, with `backlog` of the same kind stored already."""
    stored: list[tuple[SliceId, int]] = []
    if backlog:
        seen = min(backlog, 200_000)
        stored = slices(drawn(draw, seen), width_ms, backlog // seen)
    return WidthEvidence(width_ms, START_MS, *by_second([drawn(draw, entries)]), stored, since_ms)


def chosen(found: WidthEvidence, memory: WidthMemory = WidthMemory()) -> int:  # noqa: B008 immutable
    return choose(found, memory, OPTIONS).width_ms


def looked(decision: WidthDecision) -> WidthLook:
    assert decision.look is not None
    return decision.look


def test_widths_ascend_from_a_second_to_a_month_and_each_divides_the_next() -> None:
    assert (WIDTHS_MS[0], WIDTHS_MS[-1]) == (SECOND_MS, 30 * DAY_MS)
    for narrower, wider in itertools.pairwise(WIDTHS_MS):
        assert wider > narrower and wider % narrower == 0


@pytest.mark.parametrize("backlog", [0, 10_000_000, 100_000_000])
def test_the_width_to_begin_with_suits_a_week_of_delays(backlog: int) -> None:
    assert chosen(evidence(over(7 * DAY_MS), SPILL, backlog=backlog)) == HOUR_MS


def test_few_entries_make_wide_slices_and_many_make_narrow_ones() -> None:
    few = chosen(evidence(over(7 * DAY_MS), 900, backlog=100_000, since_ms=300_000))
    many = chosen(evidence(over(7 * DAY_MS), SPILL, backlog=2_000_000_000))
    assert few >= DAY_MS
    assert many < HOUR_MS


def test_wider_when_blocks_are_tiny() -> None:
    narrow = evidence(over(7 * DAY_MS), 100_000, width_ms=SECOND_MS)
    decision = choose(narrow, WidthMemory(), OPTIONS)
    assert decision.width_ms >= HOUR_MS
    assert looked(decision).block_entries > BLOCK_COST_ENTRIES // 2


def test_narrower_when_a_slice_has_more_than_the_budget() -> None:
    wide = evidence(over(7 * DAY_MS), SPILL, width_ms=30 * DAY_MS, backlog=50_000_000)
    decision = choose(wide, WidthMemory(), OPTIONS)
    assert decision.width_ms <= 2 * HOUR_MS
    assert looked(decision).fullest_entries <= SPILL


def test_a_smaller_budget_makes_narrower_slices() -> None:
    found = evidence(over(DAY_MS), 40_000, width_ms=DAY_MS, backlog=5_000_000)
    small = choose(found, WidthMemory(), IndexOptions(staging_budget_bytes=0))
    large = choose(found, WidthMemory(), IndexOptions(staging_budget_bytes=1 << 30))
    assert small.width_ms < large.width_ms


def test_a_flow_of_short_delays_makes_slices_that_end_soon() -> None:
    """1,000 a second, each due after half an hour: an hour's slice would hold more than two budgets."""

    def fixed(rng: np.random.Generator, entries: int) -> Int64Array:
        return 30 * MINUTE_MS - rng.integers(0, 5 * MINUTE_MS, entries)

    decision = choose(
        evidence(fixed, 300_000, backlog=1_500_000, since_ms=5 * MINUTE_MS), WidthMemory(), OPTIONS
    )
    assert decision.width_ms <= 10 * MINUTE_MS
    assert looked(decision).block_entries >= 10 * BLOCK_COST_ENTRIES


def test_the_fullest_slice_counts_what_is_still_to_come() -> None:
    """Nothing is stored yet, but at this rate a day's slice will have 86 M entries."""
    found = evidence(over(MINUTE_MS), 60_000, width_ms=DAY_MS, backlog=60_000, since_ms=MINUTE_MS)
    assert chosen(found) < HOUR_MS


def test_delays_that_have_become_short_are_not_taken_for_a_flood() -> None:
    """A week's backlog says nothing of how many entries come now."""
    week = slices(drawn(over(7 * DAY_MS), 200_000), HOUR_MS, 50)
    due_ms = drawn(over(MINUTE_MS), 30_000)
    slow = choose(
        WidthEvidence(HOUR_MS, START_MS, *by_second([due_ms]), week, 300_000), WidthMemory(), OPTIONS
    )
    assert looked(slow).fullest_entries < 2 * SPILL
    assert slow.width_ms >= 30 * SECOND_MS


def test_a_burst_at_one_instant_asks_for_nothing() -> None:
    """However narrow the slices are, it is in one."""
    burst = evidence(lambda _, entries: np.full(entries, 3 * HOUR_MS), SPILL, backlog=8_600_000)
    decision = choose(burst, CHOSEN, OPTIONS)
    assert decision.width_ms == HOUR_MS


def test_a_heavy_tail_does_not_scatter_blocks_over_a_year() -> None:
    def heavy(rng: np.random.Generator, entries: int) -> Int64Array:
        return np.exp(rng.uniform(np.log(SECOND_MS), np.log(365 * DAY_MS), entries)).astype(np.int64)

    decision = choose(evidence(heavy, SPILL), WidthMemory(), OPTIONS)
    assert looked(decision).block_entries >= 2 * BLOCK_COST_ENTRIES


def test_what_is_overdue_or_little_says_nothing() -> None:
    past = by_second([drawn(over(DAY_MS), 10_000) - 2 * DAY_MS])
    overdue = WidthEvidence(7, START_MS, *past, [], None)
    little = evidence(over(7 * DAY_MS), ENTRIES_MIN - 1, width_ms=7)
    for found in (overdue, little):
        decision = choose(found, WidthMemory(), OPTIONS)
        assert (decision.width_ms, decision.look) == (7, None)


def test_a_small_spill_after_large_ones_says_nothing() -> None:
    """A persist that has come early, for a merge, finds few entries: blocks are not tiny because of that."""
    memory = WidthMemory()
    for _ in range(3):
        memory = choose(evidence(over(7 * DAY_MS), SPILL), memory, OPTIONS).memory
    early = evidence(over(7 * DAY_MS), 5_000)
    assert choose(early, memory, OPTIONS).look is None
    # When small ones go on, they are what is usual.
    for _ in range(2_000):
        decision = choose(early, memory, OPTIONS)
        memory = decision.memory
        if decision.width_ms != HOUR_MS:
            return
    raise AssertionError("small spills never count")


def test_a_width_that_was_chosen_is_left_only_when_two_looks_agree() -> None:
    wide = evidence(over(7 * DAY_MS), SPILL, width_ms=30 * DAY_MS, backlog=50_000_000)
    content = evidence(over(7 * DAY_MS), SPILL)
    once = choose(wide, CHOSEN, OPTIONS)
    assert once.width_ms == 30 * DAY_MS
    assert looked(once).best_width_ms < DAY_MS
    twice = choose(wide, once.memory, OPTIONS)
    assert twice.width_ms < DAY_MS
    between = choose(content, once.memory, OPTIONS)
    assert choose(wide, between.memory, OPTIONS).width_ms == 30 * DAY_MS


def test_a_spill_that_would_be_scattered_over_thousands_of_slices_widens_at_once() -> None:
    """A burst of short delays has made the width seconds, and far messages come."""
    far = evidence(over(3 * HOUR_MS), 20_000, width_ms=SECOND_MS)
    after_burst = WidthMemory(usual_entries=1_000_000, chosen=True, skip=2)
    for memory in (CHOSEN, after_burst):
        decision = choose(far, memory, OPTIONS)
        assert decision.width_ms >= 10 * MINUTE_MS
        assert decision.memory.skipped() is None, "the next spill is looked at again"


def test_a_scattered_spill_widens_whatever_is_usual_but_not_alone_if_its_slices_are_few() -> None:
    few = evidence(over(12 * HOUR_MS), 200, width_ms=10 * MINUTE_MS)
    memory = WidthMemory(usual_entries=1_000_000, chosen=True)
    once = choose(few, memory, OPTIONS)
    assert (once.width_ms, once.memory.direction) == (10 * MINUTE_MS, 1)
    assert choose(few, once.memory, OPTIONS).width_ms >= 6 * HOUR_MS


def test_narrower_is_never_urgent() -> None:
    wide = evidence(over(7 * DAY_MS), SPILL, width_ms=30 * DAY_MS, backlog=1_000_000_000)
    decision = choose(wide, CHOSEN, OPTIONS)
    assert looked(decision).best_width_ms <= HOUR_MS
    assert decision.width_ms == 30 * DAY_MS


def test_what_may_be_scattered_is_told_by_its_span() -> None:
    assert may_scatter(SECOND_MS, HOUR_MS, 20_000)
    assert not may_scatter(MINUTE_MS, HOUR_MS, 20_000)
    assert not may_scatter(SECOND_MS, MINUTE_MS, 600)
    assert not may_scatter(SECOND_MS, -HOUR_MS, 0)


@given(
    entries=st.integers(ENTRIES_MIN, 20_000),
    span_ms=st.integers(1, 400 * DAY_MS),
    width_ms=st.one_of(st.sampled_from(WIDTHS_MS), st.integers(1, 40 * DAY_MS)),
    backlog=st.integers(0, 200_000),
    since_ms=st.one_of(st.none(), st.integers(0, DAY_MS)),
    budget=st.sampled_from([0, 1 << 20, 1 << 25, 1 << 30]),
)
@settings(deadline=None)
def test_a_choice_is_kept_when_nothing_changes(
    entries: int, span_ms: int, width_ms: int, backlog: int, since_ms: int | None, budget: int
) -> None:
    """The same flow again and again: one change at most, and to a width that costs less than half."""
    options = IndexOptions(staging_budget_bytes=budget)
    found = evidence(over(span_ms + 1), entries, width_ms, backlog, since_ms)
    memory, widths = WidthMemory(), [width_ms]
    for _ in range(6):
        now = WidthEvidence(widths[-1], found.now_ms, found.seconds, found.counts, found.slices, since_ms)
        decision = choose(now, memory, options)
        memory = decision.memory
        widths.append(decision.width_ms)
    changes = [after for before, after in itertools.pairwise(widths) if before != after]
    assert len(changes) <= 1
    assert all(after in WIDTHS_MS for after in changes)
    assert widths[1:] == widths[1:2] * 6
    assert SWITCH_RATIO > 1


def test_three_spills_after_a_content_look_are_not_looked_at() -> None:
    content = choose(evidence(over(7 * DAY_MS), SPILL), WidthMemory(), OPTIONS).memory
    rests = 0
    memory: WidthMemory | None = content
    while memory is not None and (memory := memory.skipped()) is not None:
        rests += 1
    assert rests == 3
    wide = evidence(over(7 * DAY_MS), SPILL, width_ms=30 * DAY_MS, backlog=50_000_000)
    assert choose(wide, CHOSEN, OPTIONS).memory.skipped() is None, "a wish is followed up at once"
    assert WidthMemory().skipped() is None


def test_the_same_evidence_gives_the_same_decision() -> None:
    found = evidence(over(DAY_MS), 10_000, backlog=100_000, since_ms=1_000)
    assert choose(found, WidthMemory(), OPTIONS) == choose(found, WidthMemory(), OPTIONS)


@given(
    times=st.lists(st.integers(-(1 << 40), 1 << 42), max_size=200),
    cuts=st.lists(st.integers(0, 200), max_size=4),
)
def test_seconds_are_counted_in_whatever_pieces_they_come(times: list[int], cuts: list[int]) -> None:
    due_ms = np.sort(np.array(times, dtype=np.int64))
    edges = [0, *sorted(min(cut, len(due_ms)) for cut in cuts), len(due_ms)]
    pieces = [due_ms[start:stop] for start, stop in itertools.pairwise(edges) if stop > start]
    seconds, counts = by_second(pieces)
    expected, expected_counts = np.unique(due_ms // 1_000, return_counts=True)
    assert seconds.tolist() == expected.tolist()
    assert counts.tolist() == expected_counts.tolist()
