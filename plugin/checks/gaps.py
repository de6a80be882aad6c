"""Gaps: times in which something was due and nothing was received."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.plugin.checks.deliveries import Int64


class Gaps(NamedTuple):
    """When each gap began and ended, ascending."""

    begin: Int64
    end: Int64

    @property
    def lengths(self) -> Int64:
        """How long they are."""
        return self.end - self.begin


def gaps(first: Int64, last: Int64, earliest_due: Int64, at_least: int) -> Gaps:
    """The gaps of at least that length, in the unit of the times, between groups of receipts.

    One element a group: when its first and its last receipt came, and when the earliest of its messages was
    due (with ``first`` = ``last`` a group is one receipt). A gap begins when something is due that has not
    been received yet, or with the last receipt before, and ends with the next receipt. Gaps inside a group
    are not seen, so groups are shorter than ``at_least``. O(n log n).
    """
    order = np.argsort(first, kind="stable")
    first, last, due = first[order], last[order], earliest_due[order]
    if not len(first):
        return Gaps(first, last)
    # Whatever is received later and is due already waits.
    waiting_since = np.minimum.accumulate(due[::-1])[::-1]
    begin = np.maximum(waiting_since, np.concatenate(([waiting_since[0]], np.maximum.accumulate(last)[:-1])))
    long = first - begin >= at_least
    return Gaps(begin[long], first[long])
