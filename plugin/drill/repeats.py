"""The repeats of a round, each with the fault that excuses it, if any: a pure function of its ledger."""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import numpy.typing as npt

from tidegate.plugin.checks import NEVER, repeats
from tidegate.plugin.drill.ledger import Forgets, Record

# The client gathers acknowledgements for so long before it sends them.
_CLIENT_HOLDS_US = 100_000
# Pulsar writes a cursor once a second at most.
_CURSOR_WRITTEN_US = 1_000_000


class Cause(StrEnum):
    """The cause of a repeat.

    Each cause is exact about its excuse; TRACKER is the rest: no fault in between explains it. IN_FLIGHT:
    over a fault that disconnects consumers: unacknowledged, or acknowledged only in the client's last 100 ms
    before the fault or while it lasted. UNPERSISTED: over a fault that destroys unstored data: acknowledged
    within the second before. HOLE: over a fault (these, or an orderly one) after which the cursor is read
    from its record: acknowledged earlier. REWOUND: the cursor was reset on purpose. PLAIN: over such a fault,
    a message without a delay, whose acknowledgement no tracker knows.
    """

    IN_FLIGHT = "in_flight"
    UNPERSISTED = "unpersisted_acknowledgement"
    HOLE = "ack_hole"
    REWOUND = "rewound"
    TRACKER = "tracker"
    PLAIN = "plain_message"


def causes_of(record: Record) -> tuple[npt.NDArray[np.int8], int]:
    """Each repeat's cause (index in ``Cause``), and the age of the oldest forgotten acknowledgement."""
    receipts = record.receipts
    received_us, acked_us = receipts["received_us"], receipts["acked_us"]
    before, after = repeats((receipts["ledger_id"], receipts["entry_id"]), received_us)
    index = {cause: number for number, cause in enumerate(Cause)}
    causes = np.full(len(before), index[Cause.TRACKER], np.int8)
    # No tracker knows of such an acknowledgement.
    plain = ~record.plan.delayed[receipts["number"][before].astype(np.int64)]
    settled = np.zeros(len(before), np.bool_)
    oldest_us = 0
    first_us, second_us, acknowledged_us = received_us[before], received_us[after], acked_us[before]
    for strike in record.strikes:
        last_us = np.iinfo(np.int64).max if strike.back_us == NEVER else strike.back_us
        between = (first_us < last_us) & (second_us >= strike.begin_us) & ~settled
        if strike.rewinds:
            # An attempt answered with an error may have set it back, too.
            causes[between] = index[Cause.REWOUND]
            settled |= between
            continue
        age_us = strike.begin_us - acknowledged_us
        if strike.forgets is Forgets.NOTHING:
            continue
        causes[between & plain] = index[Cause.PLAIN]
        settled |= between & plain
        between &= ~plain
        under_way = between & ((acknowledged_us == NEVER) | (age_us <= _CLIENT_HOLDS_US))
        causes[under_way] = index[Cause.IN_FLIGHT]
        # It may come after a later fault only: a client drops a repeat of a message just acknowledged.
        settled |= under_way & (acknowledged_us != NEVER)
        # Only the first fault after the acknowledgement can have lost it.
        if strike.forgets is Forgets.UNDER_WAY:
            continue
        forgotten = between & ~under_way
        unstored = forgotten & (age_us <= _CURSOR_WRITTEN_US) & (strike.forgets is Forgets.UNSTORED)
        causes[forgotten] = index[Cause.HOLE]
        causes[unstored] = index[Cause.UNPERSISTED]
        oldest_us = max(oldest_us, int(age_us[forgotten].max(initial=0)))
        settled |= forgotten
    return causes, oldest_us
