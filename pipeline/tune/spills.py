"""The times at which an index would spill, from arrivals and their delays.

Pure. Time is cut into steps; an entry's delay is known to a step, up to the age at which the index spills
anyway. Entries due before that never reach a slice: they leave from staging.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.index import ENTRY_BYTES, IndexOptions

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]

GROUP_COMMIT_MS = 5
"""The daemon waits 2 ms for more, and syncing takes as long and longer."""

STEPS_MAX = 4_000
_STEPS_IN_AGE = 30
_PLACES = 1 << 10
_PLACE_SHIFT = np.uint64(54)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


class Spills(NamedTuple):
    """The spills of an index.

    at_ms: the time of each spill, ascending. staged_max: the peak of entries in staging. records_max: the
    peak of records in the journal, if acknowledgements match arrivals.
    """

    at_ms: Float64
    staged_max: int
    records_max: int

    def number_of(self, arrival_ms: Int64, deliver_at_ms: Int64) -> Int64:
        """The spill that takes each of these entries; the number of spills if none does.

        Entries that arrive in one millisecond have an arbitrary order: a bulk at one instant fills as many
        spills as needed.
        """
        place = (deliver_at_ms.astype(np.uint64) * _SPREAD >> _PLACE_SHIFT).astype(np.float64) / _PLACES
        return np.searchsorted(self.at_ms, arrival_ms + place, side="right").astype(np.int64)


def choose_step_ms(first_ms: int, last_ms: int, options: IndexOptions) -> int:
    """The step for a trace of this length: a fraction of the age, less for short traces."""
    return max(1, min(options.persist_age_ms // _STEPS_IN_AGE, (last_ms - first_ms) // STEPS_MAX + 1))


def classes(step_ms: int, options: IndexOptions) -> int:
    """The number of distinct delays; the last stands for all longer ones."""
    return options.persist_age_ms // step_ms + 2


def find_spills(first_ms: int, step_ms: int, arrivals: Int64, options: IndexOptions) -> Spills:
    """The spills of a trace.

    arrivals: of the shape (steps, delays), the number of entries that arrive in each step and are due so many
    steps later. O(steps x delays).
    """
    budget = max(options.staging_budget_bytes // ENTRY_BYTES, 1)
    steps, delays = arrivals.shape
    at_ms: list[float] = []
    # Entries in staging by the step in which they are due; the last place has all later ones.
    due = np.zeros(delays, np.float64)
    oldest: int | None = None
    staged_max = 0.0
    for number in range(steps):
        due[:-2] = due[1:-1]
        due[-2] = 0
        new = arrivals[number]
        count = float(new.sum())
        if count and oldest is None:
            oldest = number
        rest, done = new.astype(np.float64), 0.0
        while True:
            room = budget - due.sum()
            if rest.sum() <= room:
                due += rest
                staged_max = max(staged_max, float(due.sum()))
                break
            share = max(room, 0.0) / float(rest.sum())
            done += share * (1 - done)
            staged_max = max(staged_max, float(budget))
            at_ms.append(first_ms + (number + done) * step_ms)
            due[:] = 0
            rest *= 1 - share
            oldest = number
        if oldest is not None and (number + 1 - oldest) * step_ms >= options.persist_age_ms:
            at_ms.append(first_ms + (number + 1) * step_ms)
            due[:] = 0
            oldest = None
    gaps_ms = np.diff(np.array([first_ms, *at_ms, first_ms + steps * step_ms], np.float64))
    span_ms = min(float(gaps_ms.max()), options.persist_age_ms)
    return Spills(np.array(at_ms, np.float64), int(staged_max), records_in(int(staged_max), span_ms))


def records_in(entries: int, span_ms: float) -> int:
    """The approximate number of journal records for so many entries that arrive evenly within a time.

    The arrivals within one group commit are one record, and the acknowledgements meanwhile another.
    """
    commits = max(span_ms / GROUP_COMMIT_MS, 1)
    return 2 * math.ceil(commits * -math.expm1(-entries / commits))


def arrivals_of(
    arrival_ms: Int64, deliver_at_ms: Int64, first_ms: int, step_ms: int, options: IndexOptions
) -> Int64:
    """The matrix for `find_spills` from the entries themselves."""
    delays = classes(step_ms, options)
    number = (arrival_ms - first_ms) // step_ms
    delay = np.clip(deliver_at_ms // step_ms - arrival_ms // step_ms, 0, delays - 1)
    steps = int(number.max(initial=-1)) + 1
    flat = np.bincount(number * delays + delay, minlength=steps * delays)
    return flat.reshape(steps, delays).astype(np.int64)
