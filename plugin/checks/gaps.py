"""Gaps: times in which a message was due and none was received."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.plugin.checks.deliveries import Int64


class Gaps(NamedTuple):
    """Start and end of each gap, ascending."""

    begin: Int64
    end: Int64

    @property
    def lengths(self) -> Int64:
        """The length of each gap."""
        return self.end - self.begin


def gaps(first: Int64, last: Int64, earliest_due: Int64, at_least: int) -> Gaps:
    """The gaps of at least ``at_least``, in the unit of the times, between groups of receipts.

    The arrays have one element a group: the times of its first and last receipt, and its messages' earliest
    due time (``first`` = ``last``: one receipt). A gap begins when an unreceived message becomes due, or at
    the receipt before if that is later, and ends with the next receipt. Groups must be shorter than
    ``at_least``: gaps inside stay unseen. O(n log n).
    """
    order = np.argsort(first, kind="stable")
    first, last, due = first[order], last[order], earliest_due[order]
    if not len(first):
        return Gaps(first, last)
    # A message that is received later and already due is waiting.
    waiting_since = np.minimum.accumulate(due[::-1])[::-1]
    begin = np.maximum(waiting_since, np.concatenate(([waiting_since[0]], np.maximum.accumulate(last)[:-1])))
    long = first - begin >= at_least
    return Gaps(begin[long], first[long])
