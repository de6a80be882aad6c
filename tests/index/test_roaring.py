"""Changes of bitmaps, beside a plain set of Python's."""

from __future__ import annotations

import pytest
from pyroaring import BitMap64

from tidegate.index.state.roaring import Containers, of_highs, runs, take_out

LEDGER = 1 << 32


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], []),
        ([7], [(7, 7)]),
        ([0, 1, 2, 7, 9, 10], [(0, 2), (7, 7), (9, 10)]),
        ([LEDGER - 1, LEDGER, 2 * LEDGER - 1], [(LEDGER - 1, LEDGER), (2 * LEDGER - 1, 2 * LEDGER - 1)]),
    ],
)
def test_runs_are_first_and_last_of_consecutive_values(
    values: list[int], expected: list[tuple[int, int]]
) -> None:
    assert runs(BitMap64(values), 3) == expected


def test_more_runs_than_wanted_are_none() -> None:
    assert runs(BitMap64([1, 3, 5]), 3) is not None
    assert runs(BitMap64([1, 3, 5, 7]), 3) is None


def test_many_values_in_runs_are_taken_out_of_many_ledgers() -> None:
    """So few of so many containers that whole bitmaps are not compared."""
    mine = BitMap64([ledger * LEDGER + entry for ledger in range(4_000) for entry in (0, 1, 500)])
    mine.update(range(1_000))
    theirs = BitMap64([*range(100, 400), *range(450, 900)])
    expected = set(mine) - set(theirs)

    take_out(mine, theirs, Containers())

    assert set(mine) == expected


def test_the_values_of_some_ledgers() -> None:
    values = [0, 5, LEDGER - 1, LEDGER, LEDGER + 9, 3 * LEDGER, 4 * LEDGER - 1]

    assert list(of_highs(BitMap64(values), [0, 3])) == [0, 5, LEDGER - 1, 3 * LEDGER, 4 * LEDGER - 1]


def test_containers_are_counted_now_and_then() -> None:
    """Not each time, which examines all of them; and a bitmap that has shrunk is not long taken for large."""
    there, bitmap = Containers(), BitMap64(ledger * LEDGER for ledger in range(4_000))
    assert there.about(bitmap) == 4_000
    bitmap.remove_range(1, 4_000 * LEDGER)

    told = [there.about(bitmap) for _ in range(200)]

    assert told[0] == 4_000
    assert told[-1] == 1
