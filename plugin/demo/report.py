"""The demo's result in words, from the one verdict of its drill."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.plugin.checks import Lateness
from tidegate.plugin.drill.repeats import Cause
from tidegate.plugin.drill.report import reasons_of, seconds
from tidegate.plugin.drill.session import Result
from tidegate.plugin.drill.verdict import Recovery, Verdict, Wait
from tidegate.plugin.drill.view import colour
from tidegate.plugin.shared.durations import in_words

_STEADY = "· and not of the burst"
_REPEATS = {
    Cause.PLAIN: "without a delay, whose acknowledgements Pulsar itself forgets",
    Cause.IN_FLIGHT: "not acknowledged when the kill came",
    Cause.UNPERSISTED: "acknowledged within the second before the kill",
    Cause.HOLE: "acknowledged longer before it",
    Cause.TRACKER: "without a kill",
}


def told_of(verdict: Verdict) -> str:
    """The faults in a few words."""
    return ", ".join(strike.what for strike in verdict.strikes) or "no fault"


def as_text(result: Result, plots: Sequence[Path], total_s: float) -> RenderableType:
    """The report for a console."""
    (verdict,) = result.verdicts
    parts: list[RenderableType] = [Text(), _verdict(result, verdict), _counts(verdict), _lateness(verdict)]
    if verdict.recoveries:
        parts.append(_faults(verdict))
    parts += [Text(f"plot: {path}") for path in plots]
    parts.append(Text(f"{total_s:.0f} s in all", "dim"))
    return Group(*parts)


def _verdict(result: Result, verdict: Verdict) -> Text:
    if result.passed:
        return Text(f"PASSED  no message early, none lost, through {told_of(verdict)}", "bold green")
    return Text("FAILED  " + "; ".join(reasons_of(result)), "bold red")


def _counts(verdict: Verdict) -> Table:
    kinds = ", ".join(f"{count:,} {kind.title}" for kind, count in verdict.planned.items())
    table = _table("", "", "")
    table.columns[0].style = "bold"
    table.columns[1].justify = "right"
    table.show_header = False
    table.add_row("sent", f"{verdict.sent + verdict.not_due:,}", kinds)
    held = "" if verdict.not_due_held is None else f"{verdict.not_due_held:,} are held for tomorrow"
    table.add_row("received", f"{verdict.received:,}", held)
    table.add_row("early", _judged(verdict.early), "received before their deliver_at")
    table.add_row("lost", _judged(verdict.lost), "due and never received")
    again = [
        f"{verdict.repeated_by_cause[cause]:,} {words}"
        for cause, words in _REPEATS.items()
        if verdict.repeated_by_cause[cause]
    ]
    table.add_row("repeated", f"{verdict.repeated:,}", ", ".join(again) or "received again")
    if verdict.sent_twice:
        table.add_row(
            "sent twice", f"{verdict.sent_twice:,}", "by the producer: the kill took the confirmation"
        )
    return table


def _lateness(verdict: Verdict) -> Table:
    table = _table("how late", "messages", "p50", "p99", "max", numbers_from=1)
    rows: list[tuple[str, Lateness]] = [
        ("due outside the outages", verdict.waits[Wait.USUAL]),
        (_STEADY, verdict.steady),
        *((f"waited through {one.strike.what}", one.waited) for one in verdict.recoveries),
        ("due while these were caught up with", verdict.waits[Wait.CATCHING_UP]),
        ("stored only after they were due", verdict.waits[Wait.STORED_LATE]),
    ]
    for name, lateness in rows:
        if lateness.count:
            values = (lateness.p50_ms, lateness.p99_ms, lateness.max_ms)
            table.add_row(
                Text(name, "bold" if name == _STEADY else ""),
                f"{lateness.count:,}",
                *(Text(in_words(value), colour(value)) for value in values),
            )
    return table


def _faults(verdict: Verdict) -> Table:
    table = _table(
        "fault", "at", "usable after", "first due message after it", "after it was usable", "due meanwhile",
        numbers_from=1,
    )  # fmt: skip
    for one in verdict.recoveries:
        strike = one.strike
        usable = (strike.back_us - strike.begin_us) / 1e6 if strike.back_us >= strike.begin_us else None
        table.add_row(
            strike.what,
            f"{(strike.begin_us - verdict.start_us) / 1e6:.1f} s",
            seconds(usable),
            _seconds(one, one.first_due_s),
            _seconds(one, one.first_due_after_usable_s),
            f"{one.due_meanwhile:,}",
        )
    table.caption = "usable: everything runs, and the clients are connected"
    table.caption_justify = "left"
    return table


def _table(*columns: str, numbers_from: int = 99) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number >= numbers_from else "left")
    return table


def _judged(count: int) -> Text:
    return Text(f"{count:,}", "bold red" if count else "bold green")


def _seconds(recovery: Recovery, value: float | None) -> str:
    if value is None:
        return "never" if recovery.due_afterwards else "nothing was due"
    return seconds(value)
