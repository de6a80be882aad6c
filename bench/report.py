"""Tables of results: ratios first, then minimum, median and maximum of the rounds. Pure functions but one.

``rows`` decides what a table says; the Markdown of the docs and the terminal's table show the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from bench.errors import BenchError
from bench.results import Metric, Result
from bench.stats import Spread, format_ratio, format_value, meets, ratio, worst

BEGIN = "<!-- results: begin, written by `python -m bench report` -->"
END = "<!-- results: end -->"


def header(result: Result) -> list[str]:
    """Column titles: what, the ratios, ours, each peer, the target."""
    others = compared(result)
    return ["", *(f"vs {peer}" for peer in others), *result.peers, "target"]


def compared(result: Result) -> list[str]:
    """The peers that ours is compared with; none where all of them are ours."""
    return [peer for peer in result.peers if peer != result.ours] if result.ours in result.peers else []


def row(result: Result, metric: Metric) -> list[str]:
    """One metric's cells, in the order of ``header``."""
    spreads = {peer: Spread.of(samples) for peer, samples in metric.samples.items() if samples}
    ours = spreads.get(result.ours)
    ratios = [
        format_ratio(ratio(ours.median, spreads[peer].median, metric.better))
        if ours is not None and peer in spreads
        else "–"
        for peer in compared(result)
    ]
    cells = [_spread(spreads.get(peer)) for peer in result.peers]
    return [f"{metric.title} ({metric.unit})", *ratios, *cells, _verdict(metric, ours)]


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return "–"
    low, middle, high = (format_value(value) for value in (spread.minimum, spread.median, spread.maximum))
    return middle if low == middle == high else f"{low} / {middle} / {high}"


def _verdict(metric: Metric, ours: Spread | None) -> str:
    if metric.target is None:
        return ""
    sign = "" if metric.target == 0 else "≤ " if metric.better == "lower" else "≥ "
    bound = f"{sign}{format_value(metric.target)}"
    if ours is None:
        return bound
    if meets(worst(ours, metric.better), metric.target, metric.better):
        return f"{bound} met"
    return (
        f"{bound} median met" if meets(ours.median, metric.target, metric.better) else f"{bound} **missed**"
    )


def scenarios(result: Result, *, headline_only: bool) -> list[tuple[str, list[Metric]]]:
    """The metrics grouped by scenario, in the order in which they were first recorded."""
    groups: dict[str, list[Metric]] = {}
    for metric in result.metrics:
        if metric.headline or not headline_only:
            groups.setdefault(metric.scenario, []).append(metric)
    return list(groups.items())


def describe(result: Result) -> str:
    """One line: command, when, where, versions, revision."""
    place = result.machine
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    quick = ", quick" if result.quick else ""
    return (
        f"`{result.command}`, {result.runs} rounds{quick}, {result.started_at[:16]}Z, "
        f"{result.duration_s:,.0f} s; {place.cpu}, {place.cores} cores, {place.memory_gib:g} GiB, "
        f"{place.system}, load {place.load_1min_at_start:g} at the start; {versions}; "
        f"revision {result.revision}"
    )


def markdown(result: Result, plots: Sequence[str] = ()) -> str:
    """A section of the docs for one result; ``plots`` are paths relative to the page."""
    lines = [f"### {result.bench}", "", f"{result.summary[0].upper()}{result.summary[1:]}.", ""]
    for scenario, metrics in scenarios(result, headline_only=True):
        titles = [scenario, *header(result)[1:]]
        lines += [f"| {' | '.join(titles)} |", f"|---{'|--:' * (len(titles) - 2)}|---|"]
        lines += [f"| {' | '.join(row(result, metric))} |" for metric in metrics]
        lines.append("")
    lines += [f"- {note}" for note in result.notes]
    lines += [""] if result.notes else []
    lines += [f"![{result.bench}]({plot})\n" for plot in plots]
    lines += [describe(result), ""]
    return "\n".join(lines)


def tables(result: Result) -> list[Table]:
    """Tables for a terminal, one a scenario, with every metric."""
    made = []
    for scenario, metrics in scenarios(result, headline_only=False):
        table = Table(title=f"{result.bench}: {scenario}", title_justify="left")
        for number, title in enumerate(header(result)):
            table.add_column(title, justify="left" if number == 0 else "right", overflow="fold")
        for metric in metrics:
            table.add_row(*(cell.replace("**", "") for cell in row(result, metric)))
        made.append(table)
    return made


def replace_between(page: str, begin: str, end: str, text: str) -> str:
    """The page with what stands between the two markers replaced; raises BenchError if they are not there."""
    head, found_begin, rest = page.partition(begin)
    _, found_end, tail = rest.partition(end)
    if not found_begin or not found_end:
        raise BenchError(f"the page lacks the markers {begin!r} … {end!r}")
    return f"{head}{begin}\n\n{text.strip()}\n\n{end}{tail}"


def write_page(page: Path, results: Sequence[Result], plots: dict[str, list[str]]) -> None:
    """Write the results' sections between the markers of the page."""
    sections = [markdown(result, plots.get(result.bench, ())) for result in results]
    text = replace_between(page.read_text(encoding="utf-8"), BEGIN, END, "\n".join(sections))
    page.write_text(text, encoding="utf-8")
