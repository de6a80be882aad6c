"""Finished runs made by hand: what the audit, the report and the plot are tested with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from tidegate.plugin.checks import NEVER
from tidegate.plugin.demo.audit import Deliveries, Outage, audit
from tidegate.plugin.demo.recorder import Recorder
from tidegate.plugin.demo.run import Options, Outcome
from tidegate.plugin.demo.watch import IndexState
from tidegate.plugin.demo.workload import Int64, Kind, Workload, plan

START_US = 1_700_000_000_000_000
LEDGER_ID = 7

Row = tuple[int, int, int, int, int]


def at_us(second: float) -> int:
    """Microseconds since the epoch of a second of the run."""
    return START_US + round(second * 1e6)


def broker_outage(begin_s: float = 10.0, end_s: float = 20.0) -> Outage:
    """A broker that was down in between."""
    return Outage("broker", at_us(begin_s), at_us(end_s - 1), at_us(end_s - 0.1), at_us(end_s))


def daemon_outage(begin_s: float = 30.0, end_s: float = 31.0) -> Outage:
    """A daemon that was down in between."""
    return Outage("daemon", at_us(begin_s), at_us(end_s - 0.5), at_us(end_s - 0.1), at_us(end_s))


def workload_of(rows: Sequence[tuple[Kind, float, float | None]]) -> Workload:
    """A plan from (kind, sent at, due at or None) in seconds."""
    return Workload(
        np.array([kind for kind, _, _ in rows], np.int8),
        np.array([round(sent * 1000) for _, sent, _ in rows], np.int64),
        np.array([-1 if due is None else round(due * 1000) for _, _, due in rows], np.int64),
    )


def row(number: int, received_s: float, acked_s: float | None = None, entry_id: int | None = None) -> Row:
    """A delivery of message ``number``, stored as the entry of the same number unless told otherwise."""
    acked_us = NEVER if acked_s is None else at_us(acked_s)
    return (number, LEDGER_ID, number if entry_id is None else entry_id, at_us(received_s), acked_us)


def on_time(workload: Workload, late_ms: float = 2.0) -> list[Row]:
    """Every message but tomorrow's, received ``late_ms`` after it was due and acknowledged at once."""
    rows = []
    for number in np.flatnonzero(workload.kind != Kind.FAR):
        due_ms = workload.due_ms[number] if workload.due_ms[number] >= 0 else workload.send_ms[number]
        second = (float(due_ms) + late_ms) / 1000
        rows.append(row(int(number), second, second))
    return rows


def confirmed_at_once(workload: Workload) -> Int64:
    """Every message confirmed a millisecond after it was sent."""
    confirmed: Int64 = START_US + (workload.send_ms + 1) * 1000
    return confirmed


def outcome_of(
    out_dir: Path,
    *,
    outages: Sequence[Outage] = (),
    change: Callable[[list[Row]], list[Row]] = lambda rows: rows,
    tracker: str = "tidegate",
    messages: int = 400,
    far: int = 50,
    far_held: int | None = None,
) -> Outcome:
    """A run of 40 s in which everything came on time, but for what ``change`` does to the deliveries."""
    workload = plan(messages, 40.0, far)
    deliveries = Deliveries.of(change(on_time(workload)))
    options = Options(messages, 40.0, far, tracker, Path("pulsar"), None, out_dir)
    return Outcome(
        options=options,
        workload=workload,
        start_us=START_US,
        audit=audit(workload, START_US, confirmed_at_once(workload), deliveries, outages),
        outages=list(outages),
        far_sent=far,
        far_held=far if far_held is None else far_held,
        history=[
            IndexState(at_us(second), far, far // 10, far - far // 10, 0, 3, 4096, 8192, 1)
            for second in range(40)
        ],
        recorder=Recorder(workload),
        setup_s=12.0,
        total_s=55.0,
    )
