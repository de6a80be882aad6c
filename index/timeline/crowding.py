"""The need of a slice for compaction, and the runs to merge in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Crowding(NamedTuple):
    """A slice's need for compaction; the lowest value is the most urgent."""

    minus_runs: int
    start_ms: int

    @property
    def runs(self) -> int:
        """Number of the slice's runs."""
        return -self.minus_runs


def choose_runs(sizes: Mapping[int, int], runs_max: int) -> frozenset[int]:
    """Choose the runs of a slice to merge: none below `runs_max`, else two or more of similar small size.

    sizes: entries of each run. Merging similar sizes keeps the work logarithmic: a large run is not rewritten
    for each small one.
    """
    if len(sizes) < runs_max:
        return frozenset()
    ascending = sorted(sizes, key=lambda run_id: (sizes[run_id], run_id))
    total = 0
    for count, run_id in enumerate(ascending):
        if count >= 2 and sizes[run_id] > 2 * total:
            return frozenset(ascending[:count])
        total += sizes[run_id]
    return frozenset(ascending)
