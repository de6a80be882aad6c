"""The first receipt of each message, and the messages received early, never, or more than once.

A message is a number, counted from 0; a receipt is one delivery to one consumer.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.integer[Any]]
Int64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.intp]

NEVER = -1


class RepeatCause(IntEnum):
    """The cause of a repeated receipt, as far as the broker's redelivery count shows it.

    REDELIVERED: counted as a redelivery; a consumer rejected it, kept it too long or disconnected. FORGOTTEN:
    counted as a first delivery; the acknowledgement was lost, or the cursor was reset. UNKNOWN: no count was
    recorded.
    """

    REDELIVERED = 0
    FORGOTTEN = 1
    UNKNOWN = 2


def first_receipts(messages: int, message: Ints, received: Int64) -> Int64:
    """The time of the first receipt of each of ``messages`` messages, ``NEVER`` without one. O(n log n)."""
    first = np.full(messages, NEVER, np.int64)
    latest_first = np.argsort(received, kind="stable")[::-1]
    # Writing from the latest to the earliest leaves the earliest.
    first[message[latest_first]] = received[latest_first]
    return first


def early(due: Int64, received: Int64) -> Bools:
    """A mask of the messages received before they were due. Without a delay (due ``NEVER``) none is early."""
    result: Bools = (due != NEVER) & (received != NEVER) & (received < due)
    return result


def lost(expected: Bools, received: Int64) -> Bools:
    """A mask of the expected messages that were never received."""
    result: Bools = expected & (received == NEVER)
    return result


def repeats(identity: Sequence[Ints], received: Int64) -> tuple[Indices, Indices]:
    """(before, after): each repeated receipt, and before it the previous one of the same identity.

    ``identity``: columns that together identify the message of a receipt. O(n log n).
    """
    order = np.lexsort((received, *reversed(identity)))
    same = np.ones(max(len(order) - 1, 0), np.bool_)
    for column in identity:
        same &= column[order][1:] == column[order][:-1]
    again = np.flatnonzero(same)
    return order[again], order[again + 1]


def stored_twice(message: Ints, place: Sequence[Ints]) -> int:
    """The number of messages received from a second place of their topic, because the producer resent them.

    ``place``: columns that together locate the message of a receipt. O(n log n).
    """
    columns = [column.astype(np.int64) for column in (message, *place)]
    return len(np.unique(np.stack(columns, axis=1), axis=0)) - len(np.unique(message))


def repeat_causes(redelivery_count: Int64) -> npt.NDArray[np.int8]:
    """The cause of each repeated receipt, by its redelivery count (``NEVER``: not recorded)."""
    causes = np.full(len(redelivery_count), RepeatCause.UNKNOWN, np.int8)
    causes[redelivery_count == 0] = RepeatCause.FORGOTTEN
    causes[redelivery_count > 0] = RepeatCause.REDELIVERED
    return causes
