"""The fate of every demo message, from what was planned, confirmed and received.

Pure functions over arrays: no clock, no broker. ``tidegate.plugin.checks`` has the questions that fit any
deliveries; this module adds those that need the planned kills. Words:

- *early*: received before its deliver_at. *Lost*: confirmed by the broker, due in the run, never received.
- *repeated*: one position of the topic received again. The audit tells if it had been acknowledged before the
  kill in between, and how long before: delivery is at least once, so an unacknowledged message must come
  again.
- *resent*: one message at two positions. The producer sent it again because a kill took the confirmation; no
  tracker can know.
- *cause*: why a message may be late: the broker or the daemon was down, a backlog from then came first, or
  the message was stored only after it was due. Lateness is judged by messages with the cause ``NORMAL``.

Times are microseconds since the epoch; -1 means never.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from tidegate.plugin.checks import NEVER, Lateness, early, first_receipts, lost, repeats, stored_twice
from tidegate.plugin.demo.workload import Int64, Kind, Workload

# The shim's promise: a kill -9 of the broker repeats no message acknowledged longer ago than this.
REPEAT_WINDOW_MS = 200

Bools = npt.NDArray[np.bool_]


class Cause(IntEnum):
    """Why a message may be late."""

    NORMAL = 0
    BROKER_DOWN = 1
    DAEMON_DOWN = 2
    CATCHING_UP = 3
    STORED_LATE = 4


@dataclass(frozen=True)
class Outage:
    """One kill -9 and its consequences.

    ``ready_us``: the process answers its health check again. ``disconnected_us``: the last moment at which it
    was seen unusable for deliveries, ``usable_us`` the first at which it was seen usable (a consumer is
    subscribed; for the daemon: the broker is connected to it).
    """

    what: str
    killed_us: int
    ready_us: int
    disconnected_us: int
    usable_us: int

    def lies_between(self, first_us: int, second_us: int) -> bool:
        """True if the kill can explain why a message received at ``first_us`` came again at ``second_us``."""
        # For a moment after the broker is gone, a consumer still delivers what its client has fetched.
        last_fetched_us = self.disconnected_us if self.what == "broker" else self.killed_us
        return first_us < last_fetched_us and self.killed_us <= second_us

    @property
    def cause(self) -> Cause:
        """The cause of lateness that the outage explains."""
        return Cause.BROKER_DOWN if self.what == "broker" else Cause.DAEMON_DOWN


@dataclass(frozen=True)
class Deliveries:
    """Every receipt, in any order: five arrays of one length."""

    number: Int64
    ledger_id: Int64
    entry_id: Int64
    received_us: Int64
    acked_us: Int64

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int, int, int]]) -> Deliveries:
        """From (number, ledger_id, entry_id, received_us, acked_us) rows."""
        columns = np.array(rows, np.int64).reshape(len(rows), 5)
        order = np.argsort(columns[:, 3], kind="stable")
        return cls(*(np.ascontiguousarray(columns[order, index]) for index in range(5)))

    def __len__(self) -> int:
        return len(self.number)


@dataclass(frozen=True)
class Repeats:
    """Positions received more than once.

    ``plain``: not delayed, and so not the tracker's responsibility: a killed broker forgets their
    acknowledgements. Of the delayed ones, ``unacknowledged``: not acknowledged before the kill.
    ``acknowledged``: acknowledged at most ``oldest_ack_ms`` before the kill; ``acknowledged_too_old`` of them
    more than ``REPEAT_WINDOW_MS`` before. ``other``: no kill lies between.
    """

    plain: int
    unacknowledged: int
    acknowledged: int
    acknowledged_too_old: int
    oldest_ack_ms: float
    other: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.plain + self.unacknowledged + self.acknowledged + self.other


@dataclass(frozen=True)
class Recovery:
    """The course of an outage, in seconds; None for an event that did not happen before the run ended."""

    what: str
    killed_at_s: float
    down_s: float
    usable_after_s: float
    first_due_after_kill_s: float | None
    first_due_after_usable_s: float | None
    due_meanwhile: int
    due_afterwards: int
    delivered_meanwhile: int


@dataclass(frozen=True)
class Audit:
    """The verdict."""

    planned: int
    sent: int
    unconfirmed: int
    delivered: int
    plain: int
    early: int
    earliest_ms: float
    lost: int
    resent: int
    repeats: Repeats
    overall: Lateness
    by_cause: dict[Cause, Lateness]
    steady: Lateness  # outside the outages and without the burst
    by_kind: dict[Kind, Lateness]
    recoveries: list[Recovery]
    # For the plot, one element for each delayed message that was delivered.
    due_us: Int64
    lateness_us: Int64
    kind: npt.NDArray[np.int8]


def audit(
    workload: Workload, start_us: int, confirmed_us: Int64, deliveries: Deliveries, outages: Sequence[Outage]
) -> Audit:
    """Compare the receipts with the plan (``confirmed_us``: one element a message)."""
    received_us = first_receipts(len(workload), deliveries.number, deliveries.received_us)
    got = received_us != NEVER
    confirmed = confirmed_us != NEVER
    delayed = workload.due_ms >= 0
    due_us = np.where(delayed, start_us + workload.due_ms * 1000, NEVER)
    expected = workload.kind != Kind.FAR

    measured = got & delayed
    lateness_us = received_us[measured] - due_us[measured]
    too_early = early(due_us, received_us)
    kinds = workload.kind[measured]
    causes = causes_of(due_us[measured], confirmed_us[measured], received_us[measured], outages)
    return Audit(
        planned=len(workload),
        sent=int(np.count_nonzero(confirmed)),
        unconfirmed=int(np.count_nonzero(~confirmed)),
        delivered=int(np.count_nonzero(got)),
        plain=int(np.count_nonzero(got & ~delayed)),
        early=int(np.count_nonzero(too_early)),
        earliest_ms=float(-lateness_us.min() / 1000) if too_early.any() else 0.0,
        lost=int(np.count_nonzero(lost(confirmed & expected, received_us))),
        resent=stored_twice(deliveries.number, (deliveries.ledger_id, deliveries.entry_id)),
        repeats=_repeats(deliveries, delayed, outages),
        overall=Lateness.of(lateness_us),
        by_cause={cause: Lateness.of(lateness_us[causes == cause]) for cause in Cause},
        steady=Lateness.of(lateness_us[(causes == Cause.NORMAL) & (kinds != Kind.BURST)]),
        by_kind={kind: Lateness.of(lateness_us[kinds == kind]) for kind in Kind if kind != Kind.PLAIN},
        recoveries=[_recovery(one, start_us, due_us, expected, deliveries) for one in outages],
        due_us=due_us[measured],
        lateness_us=lateness_us,
        kind=kinds,
    )


def causes_of(
    due_us: Int64, confirmed_us: Int64, received_us: Int64, outages: Sequence[Outage]
) -> npt.NDArray[np.int8]:
    """The cause of each message.

    An outage is the cause if it overlaps the time from deliver_at to the receipt. Catching up is the cause if
    the message came due while an outage's backlog was still being delivered.
    """
    causes = np.full(len(due_us), Cause.NORMAL, np.int8)
    causes[(confirmed_us != NEVER) & (confirmed_us > due_us)] = Cause.STORED_LATE
    for outage in outages:
        waited = (due_us < outage.usable_us) & (received_us >= outage.killed_us)
        caught_up_us = received_us[waited].max(initial=outage.usable_us)
        causes[(due_us >= outage.usable_us) & (due_us < caught_up_us)] = Cause.CATCHING_UP
        causes[waited] = outage.cause
    return causes


def _repeats(deliveries: Deliveries, delayed: Bools, outages: Sequence[Outage]) -> Repeats:
    acknowledged_ms: list[float] = []
    plain = unacknowledged = other = 0
    again = repeats((deliveries.ledger_id, deliveries.entry_id), deliveries.received_us)
    for before, after in zip(*again, strict=True):
        first_us, second_us = int(deliveries.received_us[before]), int(deliveries.received_us[after])
        kills_us = [one.killed_us for one in outages if one.lies_between(first_us, second_us)]
        acked_us = int(deliveries.acked_us[before])
        # Of two kills, only the first after the acknowledgement can have forgotten it.
        forgetful_us = next((kill_us for kill_us in kills_us if NEVER < acked_us < kill_us), None)
        if not kills_us:
            other += 1
        elif not delayed[deliveries.number[before]]:
            plain += 1
        elif forgetful_us is None:
            unacknowledged += 1
        else:
            acknowledged_ms.append((forgetful_us - acked_us) / 1000)
    return Repeats(
        plain=plain,
        unacknowledged=unacknowledged,
        acknowledged=len(acknowledged_ms),
        acknowledged_too_old=sum(age_ms > REPEAT_WINDOW_MS for age_ms in acknowledged_ms),
        oldest_ack_ms=max(acknowledged_ms, default=0.0),
        other=other,
    )


def _recovery(
    outage: Outage, start_us: int, due_us: Int64, expected: Bools, deliveries: Deliveries
) -> Recovery:
    # A message received before a consumer has resubscribed had been fetched before the kill.
    fresh = (deliveries.received_us >= outage.disconnected_us) & (due_us[deliveries.number] >= 0)
    first_us = int(deliveries.received_us[fresh].min()) if fresh.any() else None
    meanwhile = expected & (due_us >= outage.killed_us) & (due_us < outage.usable_us)
    delivered = (deliveries.received_us >= outage.killed_us) & (deliveries.received_us < outage.usable_us)
    return Recovery(
        what=outage.what,
        killed_at_s=(outage.killed_us - start_us) / 1e6,
        down_s=(outage.ready_us - outage.killed_us) / 1e6,
        usable_after_s=(outage.usable_us - outage.killed_us) / 1e6,
        first_due_after_kill_s=None if first_us is None else (first_us - outage.killed_us) / 1e6,
        first_due_after_usable_s=None if first_us is None else max(first_us - outage.usable_us, 0) / 1e6,
        due_meanwhile=int(np.count_nonzero(meanwhile)),
        due_afterwards=int(np.count_nonzero(expected & (due_us >= outage.killed_us))),
        delivered_meanwhile=int(np.count_nonzero(delivered)),
    )
