"""Bars of each metric, the median with the whole spread as a line; and quantile functions of lateness."""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import wrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase
from matplotlib.ticker import MaxNLocator

from bench.harness.results import Metric, Result, Series
from bench.harness.stats import Spread
from bench.plots import svg
from bench.plots.colours import colour

COLUMNS = 3
MANY_PEERS = 5
MANY_PANELS = 60
CURVES_HEIGHT = 3.4
TICKS_MAX = 4
TITLE_WIDTH = 54
"""Characters: more would run into the next panel's title."""


def shown(result: Result) -> list[Metric]:
    """The metrics with a panel: headline ones with a peer or a target, and a value other than zero.

    A bar alone, or beside a target with a verdict among many panels, says no more than the table: it is drawn
    only if there is no other.
    """
    some = [
        metric
        for metric in result.metrics
        if metric.headline and any(any(samples) for samples in metric.samples.values())
    ]
    beside = [metric for metric in some if sum(map(bool, metric.samples.values())) > 1]
    aimed = [metric for metric in some if metric.target or metric in beside]
    return (aimed if len(aimed) <= MANY_PANELS or not beside else beside) or some


def logarithmic(medians: Sequence[float]) -> bool:
    """True if a panel needs a logarithmic axis: positive values more than 20 apart."""
    positive = [value for value in medians if value > 0]
    return len(positive) == len(medians) and max(positive) / min(positive) > 20


def figure(result: Result) -> Figure:
    """A panel a metric; for a result with curves, another panel a scenario below them."""
    metrics = shown(result)
    many = len(result.peers) > MANY_PEERS
    columns = max(1, min(COLUMNS + many, len(metrics)))
    rows = max(1, math.ceil(len(metrics) / columns))
    bars_height = rows * max(2.1, 0.6 + 0.19 * len(result.peers)) + 0.4
    scenarios = list(dict.fromkeys(series.scenario for series in result.series))
    curve_rows = math.ceil(len(scenarios) / columns)
    made = Figure(figsize=(4.2 * columns, bars_height + CURVES_HEIGHT * curve_rows), layout="constrained")
    made.suptitle(f"{result.bench}: {result.machine.cpu}, {result.machine.cores} cores", fontsize=9)
    above: FigureBase = made
    if scenarios:
        heights = (bars_height, CURVES_HEIGHT * curve_rows)
        above, below = made.subfigures(2, 1, squeeze=False, height_ratios=heights).flatten()
        panels = _panels(below, curve_rows, columns, len(scenarios))
        for panel, scenario in zip(panels, scenarios, strict=True):
            _curves(panel, [series for series in result.series if series.scenario == scenario])
    for panel, metric in zip(_panels(above, rows, columns, len(metrics)), metrics, strict=True):
        _panel(panel, result, metric)
    return made


def _panels(figure: FigureBase, rows: int, columns: int, used: int) -> list[Axes]:
    panels: list[Axes] = list(figure.subplots(rows, columns, squeeze=False).flatten())
    for panel in panels[used:]:
        panel.set_axis_off()
    return panels[:used]


def _panel(axes: Axes, result: Result, metric: Metric) -> None:
    peers = [peer for peer in reversed(result.peers) if metric.samples.get(peer)]
    spreads = [Spread.of(metric.samples[peer]) for peer in peers]
    medians = [spread.median for spread in spreads]
    # Clipping a bar that ends within its axes wastes bytes, as do ticks that stand close together.
    begins_within = not logarithmic(medians)
    axes.barh(peers, medians, color=[colour(peer) for peer in peers], height=0.6, clip_on=not begins_within)
    for place, spread in enumerate(spreads):
        if spread.minimum < spread.maximum:
            axes.plot([spread.minimum, spread.maximum], [place, place], color="black", linewidth=1.2)
    if begins_within:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=TICKS_MAX))
    else:
        axes.set_xscale("log")
        svg.logarithmic(axes.xaxis)
    if metric.target:
        axes.axvline(metric.target, color="#c92a2a", linestyle="--", linewidth=1)
    title = [*wrap(metric.scenario, TITLE_WIDTH), *wrap(f"{metric.title} ({metric.unit})", TITLE_WIDTH)]
    axes.set_title("\n".join(title), fontsize=8)
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)


def _curves(axes: Axes, curves: Sequence[Series]) -> None:
    named: set[str] = set()
    for series in curves:
        steps = len(series.quantiles) - 1
        axes.plot(
            series.quantiles,
            [100 * step / steps for step in range(steps + 1)],
            label="" if series.peer in named else series.peer,  # a curve for each round, a name for each peer
            color=colour(series.peer),
        )
        named.add(series.peer)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_title(curves[0].scenario, fontsize=9)
    axes.set_xlabel(f"arrival minus deliver_at ({curves[0].unit}); left of 0 is early", fontsize=8)
    axes.set_ylabel("% of messages", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.legend(fontsize=7, frameon=False, ncols=2 if len(named) > MANY_PEERS else 1)
    axes.spines[["top", "right"]].set_visible(False)
