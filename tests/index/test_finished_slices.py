"""Slices of which everything was handed out: they go when it is acknowledged, and cost nothing until then."""

from __future__ import annotations

from tests.support.catalogs import NAME, START_MS, drained, opened, positions_of, spread
from tests.support.operations import operations
from tidegate.index.entries.entry import Entries
from tidegate.index.state.positions import PositionSet
from tidegate.index.store import MemoryStore
from tidegate.index.subscription.delay_index import DelayIndex

WIDTH_MS = 1_000
PER_SLICE = 4


def handed_out(slices: int) -> DelayIndex:
    """An index of so many slices, all of whose entries are in flight."""
    catalog, index = opened(MemoryStore())
    index.add(
        Entries.of(
            (START_MS + (1 + number) * WIDTH_MS, number, at)
            for number in range(slices)
            for at in range(PER_SLICE)
        )
    )
    catalog.persist(NAME)
    assert len(drained(index)) == slices * PER_SLICE
    assert index.stats().slices_on_disk == slices
    return index


def test_an_acknowledgement_costs_the_same_however_many_slices_are_in_flight() -> None:
    def work(slices: int) -> int:
        index = handed_out(slices)

        def acknowledge() -> None:
            for at in range(PER_SLICE - 1):
                for number in range(10):
                    index.acknowledge(PositionSet.of([(number, at)]))

        return operations(acknowledge)

    assert work(400) <= 1.2 * work(20)


def test_slices_are_finished_in_whatever_order_they_are_acknowledged() -> None:
    index = handed_out(50)
    for number in [*range(0, 50, 2), *range(1, 50, 2)]:
        index.acknowledge(positions_of((0, number, at) for at in range(PER_SLICE)))
        index.check()
    assert {each.state for each in index.stats().slices} == {"finished"}


def test_a_slice_of_which_one_block_is_dead_is_not_finished() -> None:
    catalog, index = opened(MemoryStore())
    for ledger_id in (5, 9):
        index.add(spread(100, WIDTH_MS, ledger_id=ledger_id))
        catalog.persist(NAME)
    assert (index.stats().slices_on_disk, index.stats().blocks) == (1, 2)
    index.mark_delete(5, 100)
    catalog.persist(NAME)
    assert {ledger_id for _, ledger_id, _ in drained(index)} == {9}
    index.check()


def test_slices_are_finished_by_a_mark_delete_position_and_no_further() -> None:
    index = handed_out(50)
    index.mark_delete(24, PER_SLICE - 1)
    index.check()
    assert [each.state == "finished" for each in index.stats().slices] == [True] * 25 + [False] * 25
    index.mark_delete(49, PER_SLICE - 2)
    assert [each.state == "finished" for each in index.stats().slices] == [True] * 49 + [False]
