"""The demo's result: a table for people, JSON for programs, both from one ``Outcome``.

The JSON has a schema number; within one number fields are only added. Its fields are in ``docs/demo.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.plugin.checks import Lateness
from tidegate.plugin.demo.audit import REPEAT_WINDOW_MS, Cause, Recovery
from tidegate.plugin.demo.run import Outcome
from tidegate.plugin.demo.view import BAD_MS, GOOD_MS, duration
from tidegate.plugin.demo.workload import Kind

SCHEMA = 1
_STEADY = "· and not of the burst"

_CAUSES = {
    Cause.NORMAL: "outside_outages",
    Cause.BROKER_DOWN: "broker_down",
    Cause.DAEMON_DOWN: "daemon_down",
    Cause.CATCHING_UP: "catching_up",
    Cause.STORED_LATE: "stored_late",
}
_KINDS = {
    Kind.PLAIN: "plain",
    Kind.RETRY: "retries",
    Kind.TIMEOUT: "order_timeouts",
    Kind.BURST: "burst",
    Kind.FAR: "due_tomorrow",
}


def as_json(outcome: Outcome, plots: Sequence[Path] = ()) -> dict[str, Any]:
    """The report as a JSON object."""
    audit, options = outcome.audit, outcome.options
    repeats = audit.repeats
    return {
        "schema": SCHEMA,
        "tracker": options.tracker,
        "passed": outcome.passed,
        "run": {
            "messages": options.messages,
            "seconds": options.seconds,
            "far": options.far,
            "setup_seconds": round(outcome.setup_s, 3),
            "total_seconds": round(outcome.total_s, 3),
        },
        "planned": {name: outcome.workload.count(kind) for kind, name in _KINDS.items()},
        "sent": audit.sent,
        "unconfirmed": audit.unconfirmed,
        "delivered": audit.delivered,
        "early": {"count": audit.early, "earliest_ms": round(audit.earliest_ms, 3)},
        "lost": audit.lost,
        "duplicated": {
            "count": repeats.total,
            "plain_messages": repeats.plain,
            "not_acknowledged_before_kill": repeats.unacknowledged,
            "acknowledged_before_kill": repeats.acknowledged,
            "acknowledged_longer_than_200_ms_before_kill": repeats.acknowledged_too_old,
            "oldest_acknowledgement_before_kill_ms": round(repeats.oldest_ack_ms, 3),
            "without_a_kill": repeats.other,
            "sent_twice_by_the_producer": audit.resent,
        },
        "lateness_ms": {
            "overall": _lateness(audit.overall),
            "outside_outages_without_burst": _lateness(audit.steady),
            **{name: _lateness(audit.by_cause[cause]) for cause, name in _CAUSES.items()},
        },
        "lateness_by_kind_ms": {
            name: _lateness(audit.by_kind[kind]) for kind, name in _KINDS.items() if kind in audit.by_kind
        },
        "kills": [_recovery(one) for one in audit.recoveries],
        "due_tomorrow": {"sent": outcome.far_sent, "held": outcome.far_held},
        "plots": [str(path) for path in plots],
    }


def as_text(outcome: Outcome, plots: Sequence[Path] = ()) -> RenderableType:
    """The report for a console."""
    parts: list[RenderableType] = [Text(), _verdict(outcome), _counts(outcome), _lateness_table(outcome)]
    if outcome.audit.recoveries:
        parts.append(_kills(outcome))
    parts += [Text(f"plot: {path}") for path in plots]
    parts.append(
        Text(f"{outcome.total_s:.0f} s in all, {outcome.setup_s:.0f} s of it until the first message", "dim")
    )
    return Group(*parts)


def _verdict(outcome: Outcome) -> Text:
    audit = outcome.audit
    if outcome.passed:
        killed = " and ".join(f"kill -9 of the {one.what}" for one in audit.recoveries)
        return Text(f"PASSED  no message early, none lost, through {killed}", "bold green")
    wrong = [
        text
        for count, text in (
            (audit.early, f"{audit.early:,} early (by up to {duration(audit.earliest_ms)})"),
            (audit.lost, f"{audit.lost:,} lost"),
            (audit.unconfirmed, f"{audit.unconfirmed:,} never confirmed by the broker"),
            (
                outcome.far_sent - outcome.far_held,
                f"{outcome.far_held:,} of {outcome.far_sent:,} due tomorrow still held",
            ),
        )
        if count > 0
    ]
    return Text("FAILED  " + ", ".join(wrong), "bold red")


def _counts(outcome: Outcome) -> Table:
    audit, workload = outcome.audit, outcome.workload
    repeats = audit.repeats
    kinds = ", ".join(
        f"{workload.count(kind):,} {kind.title}" for kind in reversed(Kind) if workload.count(kind)
    )
    table = _table("", "", "")
    table.columns[0].style = "bold"
    table.columns[1].justify = "right"
    table.show_header = False
    table.add_row("sent", f"{audit.sent:,}", kinds)
    table.add_row("delivered", f"{audit.delivered:,}", f"{outcome.far_held:,} are held for tomorrow")
    table.add_row("early", _judged(audit.early), "received before their deliver_at")
    table.add_row("lost", _judged(audit.lost), "due and never received")
    table.add_row("duplicated", f"{repeats.total:,}", _repeats_in_words(outcome))
    if audit.resent:
        table.add_row("sent twice", f"{audit.resent:,}", "by the producer: the kill took the confirmation")
    return table


def _repeats_in_words(outcome: Outcome) -> str:
    repeats = outcome.audit.repeats
    if not repeats.total:
        return "delivered again"
    words = []
    if repeats.plain:
        words.append(f"{repeats.plain:,} plain ones, whose acknowledgements Pulsar itself forgets")
    if repeats.unacknowledged:
        words.append(f"{repeats.unacknowledged:,} were not acknowledged when the kill came")
    if repeats.acknowledged:
        words.append(
            f"{repeats.acknowledged:,} acknowledged at most {duration(repeats.oldest_ack_ms)} before the kill"
        )
    if repeats.acknowledged_too_old:
        words.append(f"{repeats.acknowledged_too_old:,} of these more than {REPEAT_WINDOW_MS} ms before")
    if repeats.other:
        words.append(f"{repeats.other:,} without a kill")
    return ", ".join(words)


def _lateness_table(outcome: Outcome) -> Table:
    audit = outcome.audit
    table = _table("how late", "messages", "p50", "p99", "max", numbers_from=1)
    rows = [
        ("all that were due", audit.overall),
        ("due outside the outages", audit.by_cause[Cause.NORMAL]),
        (_STEADY, audit.steady),
        ("waited while the broker was down", audit.by_cause[Cause.BROKER_DOWN]),
        ("waited while the daemon was down", audit.by_cause[Cause.DAEMON_DOWN]),
        ("due while these were caught up with", audit.by_cause[Cause.CATCHING_UP]),
        ("stored only after they were due", audit.by_cause[Cause.STORED_LATE]),
    ]
    for name, lateness in rows:
        if lateness.count:
            values = (lateness.p50_ms, lateness.p99_ms, lateness.max_ms)
            style = "bold" if name == _STEADY else ""
            table.add_row(
                Text(name, style),
                f"{lateness.count:,}",
                *(Text(duration(value), _colour(value)) for value in values),
            )
    return table


def _kills(outcome: Outcome) -> Table:
    table = _table(
        "kill -9", "at", "healthy after", "first due message after the kill",
        "after recovery", "due meanwhile",
        numbers_from=1,
    )  # fmt: skip
    for one in outcome.audit.recoveries:
        table.add_row(
            one.what,
            f"{one.killed_at_s:.1f} s",
            f"{one.down_s:.1f} s",
            _seconds(one, one.first_due_after_kill_s),
            _seconds(one, one.first_due_after_usable_s),
            f"{one.due_meanwhile:,}",
        )
    table.caption = (
        "recovery: a consumer is subscribed again; for the daemon: the broker is connected to it again"
    )
    table.caption_justify = "left"
    return table


def _table(*columns: str, numbers_from: int = 99) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number >= numbers_from else "left")
    return table


def _judged(count: int) -> Text:
    return Text(f"{count:,}", "bold red" if count else "bold green")


def _colour(value_ms: float) -> str:
    if value_ms < 0:
        return "bold magenta"
    return "green" if value_ms < GOOD_MS else "yellow" if value_ms < BAD_MS else "red"


def _seconds(recovery: Recovery, value: float | None) -> str:
    if value is None:
        return "never" if recovery.due_afterwards else "nothing was due"
    return f"{value:.2f} s"


def _lateness(lateness: Lateness) -> dict[str, float]:
    return {
        "count": lateness.count,
        "p50": round(lateness.p50_ms, 3),
        "p99": round(lateness.p99_ms, 3),
        "max": round(lateness.max_ms, 3),
    }


def _recovery(one: Recovery) -> dict[str, Any]:
    return {
        "what": one.what,
        "at_seconds": round(one.killed_at_s, 3),
        "healthy_after_seconds": round(one.down_s, 3),
        "recovered_after_seconds": round(one.usable_after_s, 3),
        "first_due_after_kill_seconds": _rounded(one.first_due_after_kill_s),
        "first_due_after_recovery_seconds": _rounded(one.first_due_after_usable_s),
        "due_meanwhile": one.due_meanwhile,
        "delivered_meanwhile": one.delivered_meanwhile,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
