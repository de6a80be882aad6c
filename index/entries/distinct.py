"""Distinct values of a column.

Without `np.unique`: its first call imports `numpy.ma`, which blocks a fresh daemon for a tenth of a second.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidegate.index.entries.entry import FEW, BoolArray, Entries, Int64Array


def ledgers_of(entries: Entries) -> set[int]:
    """The ids of the ledgers that the entries are in."""
    return distinct(entries.ledger_id)


def distinct(column: Int64Array) -> set[int]:
    """The values of an int64 column of any length. O(n log n)."""
    if len(column) <= FEW:
        return set(column.tolist())
    ascending = np.sort(column)
    return set(ascending[_changes(ascending)].tolist())


def first_of_each(column: npt.NDArray[np.uint64]) -> BoolArray:
    """For each value of a column, True if it is the first of its kind; a bool array of the same length."""
    order = np.argsort(column, kind="stable")
    first = np.zeros(len(column), dtype=np.bool_)
    first[order[_changes(column[order])]] = True
    return first


def _changes(ascending: npt.NDArray[np.int64] | npt.NDArray[np.uint64]) -> BoolArray:
    begins = np.ones(len(ascending), dtype=np.bool_)
    np.not_equal(ascending[1:], ascending[:-1], out=begins[1:])
    return begins
