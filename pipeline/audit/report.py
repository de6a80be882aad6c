"""The audit's report: an HTML page with the verdict, the figures by subscription, plots and examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tidegate.pipeline.audit.judge import Verdict
from tidegate.pipeline.audit.summary import Figures, Summary
from tidegate.pipeline.audit.tables import LateTable
from tidegate.plugin.checks import Gaps
from tidegate.plugin.pages.page import Page
from tidegate.plugin.pages.plots import COLOURS, milliseconds_axis, svg
from tidegate.plugin.shared.durations import in_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Value = TypeVar("Value")

_SHOWN_SUBSCRIPTIONS = 20
_SHOWN_SLICES = 200
_GAPS_SHOWN = 20
_LINEAR_BELOW_MS = 10
_UNITS = (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000))
"""Of the axis of time."""
EXAMPLES = 100
EXAMPLE_COLUMNS = (
    "wrong",
    "message_id",
    "subscription",
    "key",
    "sent_at_ms",
    "deliver_at_ms",
    "received_at_ms",
)


class Findings(NamedTuple):
    """The content of a report. ``examples``: rows of ``EXAMPLE_COLUMNS``."""

    summary: Summary
    sent: str
    received: str
    by_minute: dict[str, LateTable]
    by_slice: dict[str, LateTable]
    examples: Sequence[Sequence[object]]
    offending: str | None


def make_report(found: Findings) -> Page:
    """The page."""
    page = Page("Tidegate audit")
    summary = found.summary
    page.text(f"sent: {found.sent}; received: {found.received}", "quiet")
    if summary.passed:
        page.text("Passed: nothing was lost and nothing was early.", "good")
    else:
        page.text("Failed: messages were lost or early.", "bad")
    page.table(
        (
            "subscription", "received", "delivered", "lost", "early", "repeated", "unknown", "out of order",
            "pending", "late p50", "late p99", "latest",
        ),
        [_row(name, one) for name, one in _shown(summary.by_subscription)],
        frozenset({3, 4}),
    )  # fmt: skip
    page.text(
        f"{summary.sent:,} messages were sent; {summary.sent_twice:,} were recorded as sent twice.", "quiet"
    )
    for name, table in _shown(found.by_minute):
        if len(table.start_ms):
            page.heading(f"How late, by the minute in which messages were due: {name}")
            page.plot(_lateness_plot(table, summary.by_subscription[name].gaps))
    _repeats(page, summary)
    _gaps(page, summary)
    for name, table in _shown(found.by_slice):
        page.heading(f"By slice: {name}")
        rows = zip(table.start_ms.tolist()[:_SHOWN_SLICES], table.lateness, strict=False)
        page.table(
            ("slice begins", "messages", "p50", "p99", "latest"),
            [
                (moment(start), one.count, in_words(one.p50_ms), in_words(one.p99_ms), in_words(one.max_ms))
                for start, one in rows
            ],
        )
        if len(table.start_ms) > _SHOWN_SLICES:
            page.text(f"… and {len(table.start_ms) - _SHOWN_SLICES:,} slices more", "quiet")
    if found.examples:
        page.heading("Offending messages")
        where = f"all of them: {found.offending}" if found.offending else "no more are kept"
        page.text(f"The first {len(found.examples):,}; {where}", "quiet")
        page.table(
            [name.removesuffix("_ms") for name in EXAMPLE_COLUMNS],
            [
                [
                    moment(value) if isinstance(value, int) and name.endswith("_at_ms") else value
                    for name, value in zip(EXAMPLE_COLUMNS, row, strict=True)
                ]
                for row in found.examples
            ],
        )
    return page


def moment(time_ms: int | None) -> str:
    """A time for people, in UTC."""
    if time_ms is None:
        return ""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")[:-6]
    except (OverflowError, ValueError, OSError):
        return str(time_ms)


def _row(name: str, one: Figures) -> tuple[object, ...]:
    late, verdicts = one.late(), one.verdicts
    return (
        name or "(none)",
        one.receipts,
        verdicts[Verdict.DELIVERED],
        verdicts[Verdict.LOST] - verdicts[Verdict.FOUND],
        one.early,
        verdicts[Verdict.REPEATED],
        verdicts[Verdict.UNKNOWN],
        verdicts[Verdict.OUT_OF_ORDER],
        verdicts[Verdict.PENDING],
        *(
            (in_words(value) for value in (late.p50_ms, late.p99_ms, late.max_ms))
            if late.count
            else ("", "", "")
        ),
    )


def _repeats(page: Page, summary: Summary) -> None:
    whole = summary.together()
    if not whole.verdicts[Verdict.REPEATED]:
        return
    page.heading("Repeated, by cause")
    words = {
        "REDELIVERED": "the broker counted a redelivery: refused, kept too long, or the consumer went away",
        "FORGOTTEN": "the broker took it for a new one: its acknowledgement was lost, or the cursor set back",
        "UNKNOWN": "no redelivery count was recorded",
    }
    page.table(("cause", "receipts"), [(words[cause.name], number) for cause, number in whole.causes.items()])


def _gaps(page: Page, summary: Summary) -> None:
    rows = [
        (name or "(none)", int(begin), int(end))
        for name, one in summary.by_subscription.items()
        for begin, end in zip(one.gaps.begin, one.gaps.end, strict=True)
    ]
    if not rows:
        return
    page.heading("Gaps: something was due and nothing came")
    longest = sorted(rows, key=lambda row: row[1] - row[2])[:_GAPS_SHOWN]
    page.table(
        ("subscription", "from", "to", "length"),
        [(name, moment(begin), moment(end), in_words(end - begin)) for name, begin, end in longest],
    )
    if len(rows) > _GAPS_SHOWN:
        page.text(f"the longest of {len(rows):,}", "quiet")


def _lateness_plot(table: LateTable, silent: Gaps) -> str:
    first_ms = int(table.start_ms[0])
    unit, unit_ms = _unit(int(table.start_ms[-1]) - first_ms)
    since = (table.start_ms - first_ms) / unit_ms

    def draw(axes: Axes) -> None:
        for begin, end in zip(silent.begin, silent.end, strict=True):
            axes.axvspan(
                (begin - first_ms) / unit_ms, (end - first_ms) / unit_ms, color="#d98a14", alpha=0.2, lw=0
            )
        for name, colour, values in (
            ("latest", COLOURS[2], [one.max_ms for one in table.lateness]),
            ("p99", COLOURS[1], [one.p99_ms for one in table.lateness]),
            ("p50", COLOURS[0], [one.p50_ms for one in table.lateness]),
        ):
            axes.plot(
                since, values, color=colour, label=name, linewidth=1.2, marker="." if len(since) < 60 else ""
            )
        axes.set_yscale("symlog", linthresh=_LINEAR_BELOW_MS)
        milliseconds_axis(axes.yaxis)
        axes.set_xlabel(f"{unit} since {moment(first_ms)[:16]} UTC")
        axes.set_ylabel("late")

    return svg(draw)


def _unit(span_ms: int) -> tuple[str, int]:
    """The unit of an axis of such a length, and its ms."""
    return next(((name, ms) for name, ms in _UNITS if span_ms >= 3 * ms), _UNITS[-1])


def _shown(tables: Mapping[str, Value]) -> list[tuple[str, Value]]:
    return sorted(tables.items(), key=lambda one: one[0])[:_SHOWN_SUBSCRIPTIONS]
