"""The report as one HTML page without scripts or external links, and the JSON beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tidegate.plugin.drill.plot import round_svg
from tidegate.plugin.drill.report import as_json, milliseconds, reasons_of, seconds
from tidegate.plugin.drill.session import Result
from tidegate.plugin.drill.stands.trackers import TITLES
from tidegate.plugin.drill.verdict import Verdict
from tidegate.plugin.pages.page import Html, Page, joined, link, marked, write_whole
from tidegate.plugin.shared.counts import counted

# Beyond this number only the worst rounds have a picture: a hundred would go unseen.
_PICTURES_MAX = 5
_COLUMNS = (
    "drill", "", "sent", "lost", "early", "again", "out of order", "gap", "first due", "p50", "p99", "p99.9",
    "max", "read again",
)  # fmt: skip
_WRONG = frozenset({_COLUMNS.index("lost"), _COLUMNS.index("early")})


def write_report(results: Sequence[Result], directory: Path, made: str = "") -> Path:
    """Write ``index.html`` and ``report.json`` into ``directory``; returns the page's path.

    made: version, place and options of the run, as a line.
    """
    index = directory / "index.html"
    write_whole(directory / "report.json", json.dumps([as_json(one) for one in results], indent=2) + "\n")
    page_of(results, made).write(index)
    return index


def page_of(results: Sequence[Result], made: str = "") -> Page:
    """The whole page; ``made`` as in ``write_report``."""
    failed = sum(not one.passed for one in results)
    rounds = sum(len(one.verdicts) for one in results)
    verdict = f"{failed} of {len(results)} failed" if failed else "all passed"
    page = Page("Tidegate drills", marked(verdict, "bad" if failed else "good"))
    page.text(". ".join(one for one in (_dates(results), made) if one), "quiet")
    page.text(
        f"{counted(len(results), 'drill')}, {counted(rounds, 'round')}. "
        "Counts are of all rounds, times of the worst. A gap is a time in which something was due and "
        "nothing came. Out of order is what came after a message of its key that was due later; Pulsar "
        "promises nobody the order of due times.",
        "quiet",
    )
    page.table(_COLUMNS, [_row(one, number) for number, one in enumerate(results)], _WRONG)
    for number, one in enumerate(results):
        _section(page, one, number)
    return page


def _row(result: Result, number: int) -> list[object]:
    shown = as_json(result)
    late = shown["lateness_ms"] or {}
    again = shown["read_again"]
    return [
        joined(link(result.drill, _anchor(number)), _tracker(result)),
        _mark(result),
        *(shown[name] for name in ("sent", "lost", "early", "repeated", "out_of_order")),
        seconds(shown["gap_s"]),
        seconds(shown["first_due_s"]),
        *(milliseconds(late.get(name)) for name in ("p50", "p99", "p99_9", "max")),
        "–" if again is None else again,
    ]


def _section(page: Page, result: Result, number: int) -> None:
    page.heading(joined(marked(result.drill, ""), _tracker(result), _mark(result)), _anchor(number))
    page.text(result.does, "quiet")
    for reason in reasons_of(result):
        page.text(reason, "bad")
    repeated = as_json(result)["repeated_by_cause"]
    if any(repeated.values()):
        told = ", ".join(f"{count:,} {cause.replace('_', ' ')}" for cause, count in repeated.items() if count)
        page.text(f"Came again: {told}.")
    for place in _pictured(result.verdicts):
        _figure(page, result.verdicts[place], place + 1, f"{number}-{place}")


def _pictured(verdicts: Sequence[Verdict]) -> list[int]:
    """The indices of the verdicts with a picture, ascending: failed rounds, then the longest gaps."""
    worst = sorted(range(len(verdicts)), key=lambda at: (verdicts[at].passed, -verdicts[at].gap_s))
    return sorted(worst[:_PICTURES_MAX])


def _figure(page: Page, verdict: Verdict, number: int, salt: str) -> None:
    told = f"Round {number}: each dot is a message; the band is the fault until all was usable again"
    if verdict.gaps:
        told += "; the bar at the top marks gaps"
    evidence = "; ".join(f"{one.what}: {one.evidence or 'not seen done'}" for one in verdict.strikes[:3])
    page.plot(round_svg(verdict, salt), f"{told}. {evidence}")


def _dates(results: Sequence[Result]) -> str:
    """The begin of the first and the last round, in UTC; empty without a round."""
    starts_us = [verdict.start_us for one in results for verdict in one.verdicts]
    if not starts_us:
        return ""
    first, last = (
        datetime.fromtimestamp(one / 1e6, UTC).strftime("%Y-%m-%d %H:%M")
        for one in (min(starts_us), max(starts_us))
    )
    return f"{first} UTC" if first == last else f"{first} to {last} UTC"


def _anchor(number: int) -> str:
    return f"r{number}"


def _tracker(result: Result) -> Html:
    return marked(TITLES.get(result.tracker, result.tracker), "quiet")


def _mark(result: Result) -> Html:
    return marked("pass", "good") if result.passed else marked("fail", "bad")
