"""A small trace in this process, changed as a what-if requires: Spark's start would take longer.

Invariant: an unchanged trace gives the figures of `job` with Spark.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.pipeline.job.local_file import read_local
from tidegate.pipeline.tune.calibrate import SAMPLE_MAX, Trace
from tidegate.pipeline.tune.options import Delays, TuneOptions
from tidegate.pipeline.tune.span import Ends
from tidegate.pipeline.tune.traces import ARRIVAL, DUE, column_of, form_of

ENTRIES_MAX = 200_000
"""More are followed faster by Spark: Python follows each slice of each width by itself."""
_SEED = 7


class LocalTrace:
    """The rows of a trace; a time may be missing."""

    def __init__(self, arrival_ms: pa.ChunkedArray, deliver_at_ms: pa.ChunkedArray) -> None:
        self._arrival_ms, self._deliver_at_ms = arrival_ms, deliver_at_ms

    def ends(self) -> Ends:
        """For ``checked``."""
        arrival, due = self._arrival_ms, self._deliver_at_ms
        missing = pc.sum(pc.or_(pc.is_null(arrival), pc.is_null(due))).as_py() or 0
        delayed = pc.sum(pc.greater(due, arrival)).as_py() or 0
        return Ends(len(arrival), missing, *_least_and_most(arrival), *_least_and_most(due), delayed)

    def trace(self) -> Trace:
        """The entries by arrival. No time is missing."""
        arrival, due = (column.to_numpy() for column in (self._arrival_ms, self._deliver_at_ms))
        return sorted_by_arrival(Trace(arrival, due))


def read_trace(wanted: TuneOptions) -> LocalTrace | None:
    """The trace, if it is small and on this machine; None if Spark has to read it. Raises ``TraceError``."""
    if wanted.trace is None:
        return None
    found = read_local(wanted.trace, form_of(wanted.trace), numbers=(*ARRIVAL, *DUE))
    if found is None or found.table.num_rows * max(wanted.scale, 1) > ENTRIES_MAX:
        return None
    arrival, due = (column_of(found.names, names, wanted.trace) for names in (ARRIVAL, DUE))
    return LocalTrace(found.table[arrival], found.table[due])


def _least_and_most(column: pa.ChunkedArray) -> tuple[int | None, int | None]:
    ends = pc.min_max(column).as_py()
    return ends["min"], ends["max"]


def sorted_by_arrival(trace: Trace) -> Trace:
    """The entries by arrival."""
    order = np.argsort(trace.arrival_ms, kind="stable")
    return Trace(trace.arrival_ms[order], trace.deliver_at_ms[order])


def changed(trace: Trace, scale: float, delays: Sequence[Delays], span_ms: int) -> Trace:
    """As ``traces.changed``; the same each time."""
    random = np.random.default_rng(_SEED)
    if scale != 1:
        trace = _scaled(trace, scale, span_ms, random)
    if delays:
        which, place = random.random(len(trace)), random.random(len(trace))
        one = np.searchsorted(np.cumsum([each.share for each in delays[:-1]]), which, side="right")
        least = np.array([each.least_ms for each in delays], np.int64)[one]
        most = np.array([each.most_ms for each in delays], np.int64)[one]
        delay_ms = least + np.floor(place * (most - least + 1)).astype(np.int64)
        trace = Trace(trace.arrival_ms, trace.arrival_ms + delay_ms)
    return sorted_by_arrival(trace)


def _scaled(trace: Trace, scale: float, span_ms: int, random: np.random.Generator) -> Trace:
    whole = int(scale)
    copies = whole + (random.random(len(trace)) < scale - whole).astype(np.int64)
    first = np.repeat(np.cumsum(copies) - copies, copies)
    is_first = np.arange(len(first)) == first
    jitter_ms = max(min(1_000, span_ms // 100), 1)
    moved_ms = np.where(is_first, 0, np.floor(random.random(len(first)) * jitter_ms).astype(np.int64))
    return Trace(*(np.repeat(times, copies) + moved_ms for times in trace))


def part_of(trace: Trace, begin_ms: int, length_ms: int) -> Trace:
    """The entries that arrive in a span, or the first of all if none does; ``SAMPLE_MAX`` at most."""
    begin, end = np.searchsorted(trace.arrival_ms, (begin_ms, begin_ms + length_ms))
    if begin == end:
        begin, end = 0, len(trace)
    return Trace(*(times[begin : min(end, begin + SAMPLE_MAX)] for times in trace))
