"""The ends of a trace, checked. Pure."""

from __future__ import annotations

from typing import NamedTuple

from tidegate.index import IndexOptions
from tidegate.pipeline.errors import TraceError
from tidegate.pipeline.times import check_unit
from tidegate.pipeline.tune.calibrate import SAMPLE_MAX

_SPAN_MAX_DAYS = 366
"""Longer ones are a mistake, and would take memory for each of their steps."""
_DAY_MS = 86_400_000
_SAMPLE_AGES = 24


class Ends(NamedTuple):
    """Rows of a trace, those that lack a time, the first and last time of each kind, and delayed rows."""

    rows: int
    lacking: int
    first_ms: int | None
    last_ms: int | None
    first_due_ms: int | None
    last_due_ms: int | None
    delayed: int


class Span(NamedTuple):
    """The number of a trace's entries, and the first and last arrival."""

    entries: int
    first_ms: int
    last_ms: int

    def sample(self, index: IndexOptions) -> tuple[int, int]:
        """(begin, length) in ms of a span in the middle, so that the real index meets it unthinned."""
        whole_ms = self.last_ms - self.first_ms + 1
        length_ms = min(whole_ms, _SAMPLE_AGES * index.persist_age_ms)
        length_ms = max(min(length_ms, int(whole_ms * SAMPLE_MAX / max(self.entries, 1))), 1)
        return self.first_ms + (whole_ms - length_ms) // 2, length_ms


def checked(ends: Ends, where: str) -> Span:
    """The span of a trace that can be tuned to. Raises ``TraceError``."""
    if not ends.rows:
        raise TraceError(f"there are no delayed messages in {where}")
    if ends.lacking:
        raise TraceError(f"{ends.lacking:,} rows of {where} lack a time, or have one that is no number")
    check_unit(f"arrival_ms in {where}", ends.first_ms, ends.last_ms)
    check_unit(f"deliver_at_ms in {where}", ends.first_due_ms, ends.last_due_ms)
    if not ends.delayed:
        raise TraceError(f"nothing in {where} is delayed: no deliver_at_ms is later than its arrival_ms")
    first_ms, last_ms = ends.first_ms or 0, ends.last_ms or 0
    days = (last_ms - first_ms) / _DAY_MS
    if days > _SPAN_MAX_DAYS:
        raise TraceError(
            f"{where} is {days:,.0f} days long, from {first_ms} to {last_ms} ms: "
            f"give {_SPAN_MAX_DAYS} at most"
        )
    return Span(ends.rows, first_ms, last_ms)
