"""Tables of results: ratios, then minimum, median and maximum of the rounds. Pure functions but one.

``grid`` makes the cells of the docs' Markdown and of the terminal's table. A result with few peers has a line
a figure and a column a peer; one with many the reverse.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table

from bench.harness.errors import BenchError
from bench.harness.results import Metric, Result
from bench.harness.stats import Spread, format_ratio, format_value, meets, ratio, worst

DOCS_WIDTH = 120
BEGIN = "<!-- results: begin, written by `python -m bench report` -->"
END = "<!-- results: end -->"
PEERS_BESIDE = 5
"""Most peers that have a column each."""
FIGURES_BESIDE = 6
"""Most figures that have a column each on a terminal, where there are more peers than that."""


def header(result: Result) -> list[str]:
    """Column titles: the figure, the ratios, ours, each peer, the target."""
    others = compared(result)
    return ["", *(f"vs {peer}" for peer in others), *result.peers, "target"]


def compared(result: Result) -> list[str]:
    """The peers to compare ours with; none if all of them are ours."""
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


def is_wide(result: Result) -> bool:
    """True if a table has no room for all peers side by side."""
    return len(result.peers) > PEERS_BESIDE


def line(result: Result, peer: str, metrics: Sequence[Metric]) -> list[str]:
    """One peer's cells, a figure each: how many times better ours is · the peer's own spread."""
    cells = [peer]
    for metric in metrics:
        samples = metric.samples.get(peer)
        if not samples:
            cells.append("–")
            continue
        spread = Spread.of(samples)
        if peer == result.ours:
            cells.append(" · ".join(filter(None, (_spread(spread), _verdict(metric, spread)))))
            continue
        ours = metric.samples.get(result.ours)
        times = ratio(Spread.of(ours).median, spread.median, metric.better) if ours else None
        cells.append(_spread(spread) if times is None else f"{format_ratio(times)} · {_spread(spread)}")
    return cells


def grid(result: Result, scenario: str, metrics: Sequence[Metric]) -> list[list[str]]:
    """A scenario's table: the titles, then the lines, with as many cells each."""
    if is_wide(result):
        titles = [scenario, *(f"{metric.title} ({metric.unit})" for metric in metrics)]
        present = [peer for peer in result.peers if any(metric.samples.get(peer) for metric in metrics)]
        return [titles, *(line(result, peer, metrics) for peer in present)]
    return [[scenario, *header(result)[1:]], *(row(result, metric) for metric in metrics)]


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
    """One line: command, time, machine, versions, revision."""
    place = result.machine
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    quick = ", quick" if result.quick else ""
    avx512 = {True: " with AVX-512", False: " without AVX-512", None: ""}[place.avx512]
    return (
        f"`{result.command}`, {result.runs} rounds{quick}, {result.started_at[:16]}Z, "
        f"{result.duration_s:,.0f} s; {place.cpu}{avx512}, {place.cores} cores, {place.memory_gib:g} GiB, "
        f"{place.system}, load {place.load_1min_at_start:g} at the start; {versions}; "
        f"revision {result.revision}"
    )


def markdown(result: Result, picture: str | None = None, name: str | None = None) -> str:
    """A section of the docs for one result, by default under the bench's name.

    picture: a path relative to the page.
    """
    summary = _wrapped(f"{result.summary[0].upper()}{result.summary[1:]}.")
    lines = [f"### {name or result.bench}", "", summary, ""]
    for scenario, metrics in scenarios(result, headline_only=True):
        titles, *rows = grid(result, scenario, metrics)
        last = "--:" if is_wide(result) else "---"
        lines += [f"| {' | '.join(titles)} |", f"|---{'|--:' * (len(titles) - 2)}|{last}|"]
        lines += [f"| {' | '.join(cells)} |" for cells in rows]
        lines.append("")
    lines += [_wrapped(f"- {note}", indent="  ") for note in result.notes]
    lines += [""] if result.notes else []
    lines += [] if picture is None else [f"![{result.bench}]({picture})", ""]
    lines += [_wrapped(describe(result)), ""]
    return "\n".join(lines)


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, DOCS_WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def tables(result: Result) -> list[Table]:
    """Tables for a terminal with every metric: one a scenario, or several with many peers."""
    made = []
    for scenario, metrics in scenarios(result, headline_only=False):
        step = FIGURES_BESIDE if is_wide(result) else len(metrics)
        for start in range(0, len(metrics), step):
            (_, *titles), *rows = grid(result, scenario, metrics[start : start + step])
            table = Table(title=f"{result.bench}: {scenario}", title_justify="left")
            for number, title in enumerate(["", *titles]):
                table.add_column(title, justify="left" if number == 0 else "right", overflow="fold")
            for cells in rows:
                table.add_row(*(cell.replace("**", "") for cell in cells))
            made.append(table)
    return made


def replace_between(page: str, begin: str, end: str, text: str) -> str:
    """The page with the text between the two markers replaced; raises BenchError if a marker is missing."""
    head, found_begin, rest = page.partition(begin)
    _, found_end, tail = rest.partition(end)
    if not found_begin or not found_end:
        raise BenchError(f"the page lacks the markers {begin!r} … {end!r}")
    return f"{head}{begin}\n\n{text.strip()}\n\n{end}{tail}"


def write_page(page: Path, results: Mapping[str, Result], pictures: Mapping[str, str]) -> None:
    """Write the results' sections between the page's markers; both mappings are keyed by file name."""
    sections = [markdown(result, pictures.get(name), name) for name, result in results.items()]
    text = replace_between(page.read_text(encoding="utf-8"), BEGIN, END, "\n".join(sections))
    page.write_text(text, encoding="utf-8")
