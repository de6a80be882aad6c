"""Distinct values: as NumPy finds them, without what its own function imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidegate.index.entries.distinct import distinct, first_of_each

CHILD = Path(__file__).parent / "children" / "first_calls.py"

COLUMNS = st.one_of(st.lists(st.integers(0, 9)), st.lists(st.integers(0, 2**63 - 1), max_size=200))


@given(COLUMNS)
def test_each_value_is_there_once(values: list[int]) -> None:
    """Whatever the length and the order."""
    column = np.array(values, dtype=np.int64)

    assert distinct(column) == set(values)


@given(COLUMNS)
def test_the_first_of_each_value_is_marked(values: list[int]) -> None:
    """As `np.unique` has it."""
    column = np.array(values, dtype=np.uint64)
    expected = np.zeros(len(column), dtype=np.bool_)
    expected[np.unique(column, return_index=True)[1]] = True

    assert first_of_each(column).tolist() == expected.tolist()


def test_the_first_calls_of_an_index_import_nothing_of_numpy(tmp_path: Path) -> None:
    """A daemon imports before it listens; later, each import is a pause for every subscription."""
    done = subprocess.run(
        [sys.executable, str(CHILD), str(tmp_path / "index")], check=True, capture_output=True, text=True
    )

    assert done.stdout.split() == []
