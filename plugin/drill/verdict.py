"""The fate of every message of a round: a pure function of its ledger.

``tidegate.plugin.checks`` has the questions that fit any deliveries; this module adds a drill's knowledge:
the faults between two receipts, and the lead of the broker's clock. Words:

- *early*: received before the broker's clock had ever shown its deliver_at. *Lost*: confirmed, due in the
  round, and never received, or not again after a reset of the cursor.
- *repeated*: one position of the topic received again; *by cause*, see ``Cause``. *Sent twice*: one message
  at two positions, because a fault took the confirmation and the producer sent it again; no tracker can know.
- *gap*: a time in which a message was due and none was received.
- *wait*: the reason why a message may be late, see ``Wait``.
- *first due*: from a fault to the first receipt of a message due after it. Messages already on their way to a
  consumer before or during the fault do not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from tidegate.plugin.checks import (
    NEVER,
    Lateness,
    early,
    first_receipts,
    gaps,
    lost,
    out_of_order,
    percentiles,
    stored_twice,
)
from tidegate.plugin.drill.ledger import Record, Strike
from tidegate.plugin.drill.plan import Kind, Kinds
from tidegate.plugin.drill.repeats import Cause, causes_of

Int64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# Shorter waits are lateness, not an outage.
_GAP_MIN_US = 50_000
_OVERDUE_US = 10_000_000
"""Messages due so long before the end of an aborted round may only be late."""


class Wait(StrEnum):
    """The reason why a message may be late.

    FAULT: a fault overlaps the time from due to receipt. CATCHING_UP: it came due during the delivery of
    messages that had waited for a fault. STORED_LATE: the broker confirmed it after its due time. USUAL: none
    of these.
    """

    USUAL = "usual"
    FAULT = "fault"
    CATCHING_UP = "catching_up"
    STORED_LATE = "stored_late"


_WAITS = tuple(Wait)


@dataclass(frozen=True)
class Recovery:
    """The time after one fault; counts are messages.

    ``first_due_s``: from the fault to the first receipt of a message due after it; None without one.
    ``due_afterwards``: since its begin; ``due_meanwhile``, ``received_meanwhile``: while it lasted.
    ``waited``: lateness of messages that waited for its end.
    """

    strike: Strike
    first_due_s: float | None
    first_due_after_usable_s: float | None
    due_meanwhile: int
    due_afterwards: int
    received_meanwhile: int
    waited: Lateness


@dataclass(frozen=True)
class LatenessMs:
    """Percentiles of lateness, in milliseconds."""

    p50: float
    p99: float
    p99_9: float
    max: float


@dataclass(frozen=True)
class Verdict:
    """The verdict on one round.

    A time's name ends with its unit; None for an event that did not happen.

    ``waits`` and ``kinds`` split lateness; ``steady`` is that of the usual ones without bursts. ``aborted``:
    it ended too soon; ``lost`` counts the messages overdue by then. ``too_early``: early ones that the drill
    does not permit.
    """

    passed: bool
    reasons: list[str]
    sent: int
    unconfirmed: int
    received: int
    lost: int
    early: int
    too_early: int
    earliest_ms: float
    repeated: int
    repeated_by_cause: dict[str, int]
    oldest_ack_repeated_ms: float
    sent_twice: int
    out_of_order: int
    lateness_ms: LatenessMs | None
    gap_s: float
    gaps: list[tuple[float, float]]
    first_due_s: float | None
    first_due_after_usable_s: float | None
    down_s: float | None
    entries_read: int | None
    read_again: int | None
    not_due: int
    not_due_held: int | None
    strikes: list[Strike]
    recoveries: list[Recovery]
    waits: dict[Wait, Lateness]
    steady: Lateness
    kinds: dict[Kind, Lateness]
    planned: dict[Kind, int]
    aborted: bool
    start_us: int
    # For the plots, one element for each received delayed message: seconds since the start, and ms.
    due_s: npt.NDArray[np.float64]
    late_ms: npt.NDArray[np.float64]
    kind: Kinds


def judge(record: Record) -> Verdict:
    """Compare the receipts with the plan. O(n log n)."""
    plan, receipts = record.plan, record.receipts
    number = receipts["number"].astype(np.int64)
    received_us = np.ascontiguousarray(receipts["received_us"])
    first_us = first_receipts(len(plan), number, received_us)
    due_us = _due_us(record)
    confirmed = record.confirmed_us != NEVER
    ahead = early(due_us[number], received_us)
    got = first_us != NEVER
    timed = got & plan.delayed
    aborted = bool(record.failures) or not record.finished
    missing = lost(confirmed & plan.expected, first_us) | _not_again(record, number, received_us)
    if aborted:
        expected_us = np.where(plan.delayed, due_us, record.round.start_us + plan.send_ms * 1000)
        missing &= expected_us < _last_us(record) - _OVERDUE_US
    causes, oldest_us = causes_of(record)
    late_us = first_us[timed] - due_us[timed]
    kind = plan.kind[timed]
    waits, strike_of = waits_of(due_us[timed], record.confirmed_us[timed], first_us[timed], record.strikes)
    silences = gaps(first_us[timed], first_us[timed], due_us[timed], _GAP_MIN_US)
    far = int(np.count_nonzero(confirmed & ~plan.expected))
    counts = {cause.value: int(np.count_nonzero(causes == index)) for index, cause in enumerate(Cause)}
    early_us = due_us[number][ahead] - received_us[ahead]
    permitted = (early_us <= record.round.early_ms * 1000) & (received_us[ahead] >= _first_fault_us(record))
    recoveries = [
        _recovery(strike, record, first_us, due_us, Lateness.of(late_us[strike_of == place]))
        for place, strike in enumerate(record.strikes)
    ]
    usual = waits == _WAITS.index(Wait.USUAL)
    verdict = Verdict(
        passed=False,
        reasons=[],
        sent=int(np.count_nonzero(confirmed & plan.expected)),
        unconfirmed=int(np.count_nonzero(~confirmed)),
        received=int(np.count_nonzero(got)),
        lost=int(np.count_nonzero(missing)),
        early=int(np.count_nonzero(ahead)),
        too_early=int(np.count_nonzero(~permitted)),
        earliest_ms=float(early_us.max(initial=0)) / 1000,
        repeated=len(causes),
        repeated_by_cause=counts,
        oldest_ack_repeated_ms=oldest_us / 1000,
        sent_twice=stored_twice(receipts["number"], (receipts["ledger_id"], receipts["entry_id"])),
        out_of_order=_out_of_order(record, first_us, due_us, timed),
        lateness_ms=_lateness(late_us),
        gap_s=float(silences.lengths.max(initial=0)) / 1e6,
        gaps=[
            ((begin - record.round.start_us) / 1e6, (end - record.round.start_us) / 1e6)
            for begin, end in zip(silences.begin.tolist(), silences.end.tolist(), strict=True)
        ],
        first_due_s=_longest(one.first_due_s for one in recoveries),
        first_due_after_usable_s=_longest(one.first_due_after_usable_s for one in recoveries),
        down_s=_down_s(record.strikes),
        entries_read=_entries_read(record),
        read_again=_read_again(record, receipts),
        not_due=far,
        not_due_held=record.far_held,
        strikes=record.strikes,
        recoveries=recoveries,
        waits={wait: Lateness.of(late_us[waits == index]) for index, wait in enumerate(_WAITS)},
        steady=Lateness.of(late_us[usual & (kind != Kind.BURST)]),
        kinds={one: Lateness.of(late_us[kind == one]) for one in Kind if (kind == one).any()},
        planned={one: plan.count(one) for one in Kind if plan.count(one)},
        aborted=aborted,
        start_us=record.round.start_us,
        due_s=(due_us[timed] - record.round.start_us) / 1e6,
        late_ms=late_us / 1000,
        kind=kind,
    )
    reasons = [*record.failures, *_reasons(verdict, record)]
    return replace(verdict, passed=not reasons, reasons=reasons)


def waits_of(
    due_us: Int64, confirmed_us: Int64, received_us: Int64, strikes: list[Strike]
) -> tuple[npt.NDArray[np.int8], Int64]:
    """Each message's possible reason for lateness (index in ``Wait``), and the fault it waited for (else
    ``NEVER``).
    """
    waits = np.full(len(due_us), _WAITS.index(Wait.USUAL), np.int8)
    strike_of = np.full(len(due_us), NEVER, np.int64)
    waits[(confirmed_us != NEVER) & (confirmed_us > due_us)] = _WAITS.index(Wait.STORED_LATE)
    for place, strike in enumerate(strikes):
        end_us = _end_us(strike)
        waited = (due_us < end_us) & (received_us >= strike.begin_us)
        caught_up_us = received_us[waited].max(initial=end_us)
        waits[(due_us >= end_us) & (due_us < caught_up_us)] = _WAITS.index(Wait.CATCHING_UP)
        waits[waited] = _WAITS.index(Wait.FAULT)
        strike_of[waited] = place
    return waits, strike_of


def _end_us(strike: Strike) -> int:
    return int(np.iinfo(np.int64).max) if strike.back_us == NEVER else strike.back_us


def _due_us(record: Record) -> Int64:
    """Each message's due time by the broker's clock; ``NEVER`` without one."""
    deliver_at_us = record.round.start_us + record.plan.due_ms * 1000
    due_us: Int64 = np.where(record.plan.delayed, reached_us(deliver_at_us, record.clock), NEVER)
    return due_us


def _last_us(record: Record) -> int:
    received_us, confirmed_us = record.receipts["received_us"], record.confirmed_us
    done_us = confirmed_us[confirmed_us != NEVER]
    return max(int(received_us.max(initial=0)), int(done_us.max(initial=0)))


def stored_late(record: Record) -> int:
    """How many of a burst's messages were stored only after they were due."""
    if not record.round.burst:
        return 0
    deliver_at_us = record.round.start_us + record.plan.due_ms * 1000
    return int(np.count_nonzero(record.confirmed_us > deliver_at_us))


def reached_us(deliver_at_us: Int64, clock: list[tuple[int, int]]) -> Int64:
    """When the broker's clock first showed each moment, by this machine's clock.

    ``clock``: (from when, how far ahead, both µs), ascending; before the first it is not ahead. After a step
    back it shows moments again: the first time counts, because a message that left then was not early.
    """
    reached: Int64 = deliver_at_us.copy()
    if not clock:
        return reached
    begins = [np.iinfo(np.int64).min, *(at_us for at_us, _ in clock)]
    aheads = [0, *(ahead_us for _, ahead_us in clock)]
    ends = [*begins[1:], np.iinfo(np.int64).max]
    found = np.zeros(len(deliver_at_us), np.bool_)
    for begin_us, end_us, ahead_us in zip(begins, ends, aheads, strict=True):
        shown_us = np.maximum(deliver_at_us - ahead_us, begin_us)
        fits = ~found & (shown_us < end_us)
        reached[fits] = shown_us[fits]
        found |= fits
    return reached


def _reasons(verdict: Verdict, record: Record) -> list[str]:
    reasons = []
    if not record.finished:
        reasons.append("the drill itself ended before the round did")
    if not verdict.sent:
        reasons.append("nothing was sent")
    if verdict.unconfirmed and not verdict.aborted:
        reasons.append(f"{verdict.unconfirmed:,} messages were never confirmed by the broker")
    if late := stored_late(record):
        reasons.append(f"{late:,} messages were stored only after they were due: the burst was not done")
    if verdict.lost:
        reasons.append(f"{verdict.lost:,} messages were lost")
    elif _proves_nothing(verdict, record):
        reasons.append("nothing was due after the fault: the round proves nothing")
    if verdict.too_early:
        reasons.append(f"{verdict.too_early:,} messages came early, by {verdict.earliest_ms:,.0f} ms at most")
    if verdict.not_due_held is not None and verdict.not_due_held < verdict.not_due:
        reasons.append(f"of {verdict.not_due:,} messages not due yet only {verdict.not_due_held:,} are held")
    for cause, count in verdict.repeated_by_cause.items():
        if count and cause not in record.round.repeats_allowed:
            reasons.append(f"{count:,} messages came again that should not have ({cause.replace('_', ' ')})")
    return reasons


def _proves_nothing(verdict: Verdict, record: Record) -> bool:
    """True if the fault came after all receipts.

    A burst's round lasts beyond the instant at which all is due; an aborted round has its own words.
    """
    over = bool(record.strikes) and verdict.first_due_s is None
    return over and not record.round.burst and not verdict.aborted


def _not_again(record: Record, number: Int64, received_us: Int64) -> Bools:
    """A mask of due messages, confirmed before the cursor's reset, that did not come after it."""
    missing = np.zeros(len(record.plan), np.bool_)
    for strike in record.strikes:
        if not strike.rewinds or strike.back_us == NEVER:
            continue
        came = np.zeros(len(record.plan), np.bool_)
        # Receipts since the fault began, but before a broker accepted the reset, must come again, too.
        came[number[received_us >= strike.rewind_us]] = True
        stored = (record.confirmed_us != NEVER) & (record.confirmed_us < strike.rewind_us)
        missing |= stored & record.plan.expected & ~came
    return missing


def _out_of_order(record: Record, first_us: Int64, due_us: Int64, timed: Bools) -> int:
    sent = np.arange(len(record.plan), dtype=np.int64)
    # In one millisecond of the plan, the message sent first comes first.
    late = out_of_order(record.plan.keys[timed], due_us[timed], sent[timed], first_us[timed])
    return int(np.count_nonzero(late))


def _lateness(late_us: Int64) -> LatenessMs | None:
    if not len(late_us):
        return None
    return LatenessMs(
        *(round(one, 3) for one in (percentiles(late_us, None, (50, 99, 99.9, 100)) / 1000).tolist())
    )


def _recovery(strike: Strike, record: Record, first_us: Int64, due_us: Int64, waited: Lateness) -> Recovery:
    done_us, end_us = max(strike.done_us, strike.begin_us), _end_us(strike)
    after_us = first_us[(due_us >= done_us) & (first_us != NEVER)]
    # Before the fault only if early.
    first_due_us = max(int(after_us.min()) - done_us, 0) if len(after_us) else None
    usable_us = None
    if len(after_us) and strike.back_us != NEVER:
        usable_us = max(int(after_us.min()) - strike.back_us, 0)
    expected = record.plan.expected & (due_us >= strike.begin_us)
    received_us = record.receipts["received_us"]
    return Recovery(
        strike=strike,
        first_due_s=None if first_due_us is None else first_due_us / 1e6,
        first_due_after_usable_s=None if usable_us is None else usable_us / 1e6,
        due_meanwhile=int(np.count_nonzero(expected & (due_us < end_us))),
        due_afterwards=int(np.count_nonzero(expected)),
        received_meanwhile=int(np.count_nonzero((received_us >= strike.begin_us) & (received_us < end_us))),
        waited=waited,
    )


def _longest(times_s: Iterable[float | None]) -> float | None:
    return max((one for one in times_s if one is not None), default=None)


def _down_s(strikes: list[Strike]) -> float | None:
    down_us = [strike.back_us - strike.begin_us for strike in strikes if strike.back_us != NEVER]
    return max(down_us) / 1e6 if down_us else None


def _entries_read(record: Record) -> int | None:
    """Entries read from storage by all brokers since the first fault (without one: in the round).

    A falling count has started anew.
    """
    if not record.reads:
        return None
    since_us = _first_fault_us(record)
    total = 0
    latest: dict[str, int] = {}
    for at_us, counts in record.reads:
        for run, count in counts.items():
            before = latest.get(run, 0)
            if at_us > since_us:
                total += count - before if count >= before else count
            latest[run] = count
    return total


def _read_again(record: Record, receipts: npt.NDArray[np.void]) -> int | None:
    """The entries of ``_entries_read`` beyond one for each entry stored since, and one for each delivered."""
    read = _entries_read(record)
    if read is None:
        return None
    since_us = _first_fault_us(record)
    stored = int(np.count_nonzero(record.confirmed_us >= since_us))
    delivered = receipts[receipts["received_us"] >= since_us]
    places = np.stack([delivered["ledger_id"], delivered["entry_id"]], axis=1)
    return max(0, read - stored - len(np.unique(places, axis=0)))


def _first_fault_us(record: Record) -> int:
    return record.strikes[0].begin_us if record.strikes else record.round.start_us
