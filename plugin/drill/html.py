"""The report as one HTML page without scripts or external links, and the JSON beside it.

Invariants: every foreign text is escaped; the page stands alone, so that it can be mailed; no file is left
half written (each is replaced whole).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from html import escape
from pathlib import Path

from tidegate.plugin.drill.plot import round_svg
from tidegate.plugin.drill.report import as_json, milliseconds, reasons_of, seconds
from tidegate.plugin.drill.session import Result
from tidegate.plugin.drill.stands.trackers import TITLES
from tidegate.plugin.drill.verdict import Verdict
from tidegate.plugin.errors import UserError

# Beyond this number only the worst rounds have a picture: nobody would look at a hundred.
_PICTURES_MAX = 5
_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1f2933; --quiet: #66727f; --grid: #e3e8ed;
  --good: #197a4b; --bad: #c0362c; --band: #fbe3e0; }
@media (prefers-color-scheme: dark) { :root { --paper: #0d1117; --ink: #e6edf3; --quiet: #8d98a5;
  --grid: #262d36; --good: #4cc38a; --bad: #ff7b72; --band: #43201f; } }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", sans-serif;
  max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .3rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .2rem; }
p { margin: .3rem 0; } .quiet { color: var(--quiet); }
.pass { color: var(--good); } .fail { color: var(--bad); } .scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
th { color: var(--quiet); font-weight: normal; }
th, td { text-align: right; padding: .25rem .6rem; white-space: nowrap; }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left; padding-left: 0; }
tr { border-bottom: 1px solid var(--grid); } a { color: inherit; }
figure { margin: .6rem 0 0; } figcaption { color: var(--quiet); font-size: .85rem; }
figure svg { width: 100%; height: auto; display: block; }
svg [style*="fill: #1f2933"] { fill: var(--ink) !important; }
svg [style*="fill: #66727f"] { fill: var(--quiet) !important; }
svg [style*="stroke: #66727f"] { stroke: var(--quiet) !important; }
svg [style*="stroke: #e3e8ed"] { stroke: var(--grid) !important; }
svg [style*="fill: #fbe3e0"] { fill: var(--band) !important; }
"""
_COLUMNS = (
    "sent", "lost", "early", "again", "out of order", "gap", "first due", "p50", "p99", "p99.9", "max",
    "read again",
)  # fmt: skip


def write_report(results: Sequence[Result], directory: Path) -> Path:
    """Write ``index.html`` and ``report.json`` into ``directory``; returns the page's path."""
    index = directory / "index.html"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _replace(directory / "report.json", json.dumps([as_json(one) for one in results], indent=2) + "\n")
        _replace(index, page(results))
    except OSError as error:
        raise UserError(f"cannot write the report to {directory}: {error.strerror or error}") from error
    return index


def page(results: Sequence[Result]) -> str:
    """The whole page."""
    failed = sum(not one.passed for one in results)
    rounds = sum(len(one.verdicts) for one in results)
    verdict = "all passed" if not failed else f"{failed} of {len(results)} failed"
    body = [
        f"<h1>Tidegate drills: <span class='{'fail' if failed else 'pass'}'>{verdict}</span></h1>",
        f"<p class='quiet'>{len(results)} drills, {rounds} rounds. Counts are of all rounds, "
        "times of the worst. "
        "A gap is a time in which something was due and nothing came. Out of order is what came after a "
        "message of its key that was due later; Pulsar promises nobody the order of due times.</p>",
        "<div class='scroll'><table>",
        "<tr><th>drill</th><th></th>" + "".join(f"<th>{name}</th>" for name in _COLUMNS) + "</tr>",
        *(_row(one, number) for number, one in enumerate(results)),
        "</table></div>",
        *(_section(one, number) for number, one in enumerate(results)),
    ]
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>Tidegate drills</title>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<style>{_STYLE}</style></head><body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def _row(result: Result, number: int) -> str:
    shown = as_json(result)
    late = shown["lateness_ms"] or {}
    again = shown["read_again"]
    cells = [
        f"{shown['sent']:,}",
        *(f"<b class='fail'>{shown[name]:,}</b>" if shown[name] else "0" for name in ("lost", "early")),
        f"{shown['repeated']:,}",
        f"{shown['out_of_order']:,}",
        seconds(shown["gap_s"]),
        seconds(shown["first_due_s"]),
        *(milliseconds(late.get(name)) for name in ("p50", "p99", "p99_9", "max")),
        "–" if again is None else f"{again:,}",
    ]
    name = f"<a href='#r{number}'>{escape(result.drill)}</a>"
    return f"<tr><td>{name} {_tracker(result)}</td><td>{_mark(result)}</td>" + "".join(
        f"<td>{cell}</td>" for cell in cells
    ) + "</tr>"  # fmt: skip


def _section(result: Result, number: int) -> str:
    parts = [
        f"<h2 id='r{number}'>{escape(result.drill)} {_tracker(result)} {_mark(result)}</h2>",
        f"<p class='quiet'>{escape(result.does)}</p>",
        *(f"<p class='fail'>{escape(reason)}</p>" for reason in reasons_of(result)),
    ]
    repeated = {
        cause: sum(one.repeated_by_cause[cause] for one in result.verdicts) for cause in _causes(result)
    }
    if any(repeated.values()):
        told = ", ".join(
            f"{count:,} {escape(cause.replace('_', ' '))}" for cause, count in repeated.items() if count
        )
        parts.append(f"<p>Came again: {told}.</p>")
    for place in _pictured(result.verdicts):
        parts.append(_figure(result.verdicts[place], place + 1, f"{number}-{place}"))
    return "\n".join(parts)


def _pictured(verdicts: Sequence[Verdict]) -> list[int]:
    """The indices of the verdicts with a picture, ascending: failed rounds, then the longest gaps."""
    worst = sorted(range(len(verdicts)), key=lambda at: (verdicts[at].passed, -verdicts[at].gap_s))
    return sorted(worst[:_PICTURES_MAX])


def _figure(verdict: Verdict, number: int, salt: str) -> str:
    svg = round_svg(verdict, salt)
    told = f"Round {number}: each dot is a message; the band is the fault until messages could come again"
    if verdict.gaps:
        told += "; the bar at the top marks gaps"
    evidence = "; ".join(f"{one.what}: {one.evidence or 'not seen done'}" for one in verdict.strikes[:3])
    caption = escape(f"{told}. {evidence}")
    return f"<figure role='img' aria-label='{escape(told)}'>{svg}<figcaption>{caption}</figcaption></figure>"


def _causes(result: Result) -> list[str]:
    return list(dict.fromkeys(cause for one in result.verdicts for cause in one.repeated_by_cause))


def _tracker(result: Result) -> str:
    return f"<span class='quiet'>{escape(TITLES.get(result.tracker, result.tracker))}</span>"


def _mark(result: Result) -> str:
    return "<b class='pass'>pass</b>" if result.passed else "<b class='fail'>fail</b>"


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
