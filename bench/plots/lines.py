"""A line for each metric of a result whose peers are points on an axis: the cost of each place on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.harness.results import Metric, Result
from bench.harness.stats import Spread
from bench.plots import svg

COLUMNS = 3
LINE = "tidegate"
APART = 20


def lines(result: Result, metrics: Sequence[Metric], colour: Callable[[str], str]) -> Figure:
    """A panel a metric: the median over the axis, with the spread as a band.

    A peer whose name begins with no digit has chosen its place itself: a star beside the line.
    """
    columns = max(1, min(COLUMNS, len(metrics)))
    rows = max(1, math.ceil(len(metrics) / columns))
    figure = Figure(figsize=(4.2 * columns, 2.6 * rows + 0.4), layout="constrained")
    figure.suptitle(f"{result.bench}: {result.machine.cpu}, {result.machine.cores} cores", fontsize=9)
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    on_line, off_line = _sorted(result)
    for panel, metric in zip(panels, metrics, strict=False):
        _line(panel, result, metric, [peer for peer in on_line if metric.samples.get(peer)], colour(LINE))
        for peer in off_line:
            if metric.samples.get(peer):
                _dot(panel, result, metric, peer, colour(peer))
        _decorate(panel, result, metric)
    for panel in panels[len(metrics) :]:
        panel.set_axis_off()
    return figure


def _sorted(result: Result) -> tuple[list[str], list[str]]:
    """(peers on the line in the order of the axis, the others, which choose their place themselves)."""
    peers = [peer for peer in result.peers if peer in result.positions]
    chosen = [peer for peer in peers if not peer[:1].isdigit()]
    on_line = sorted((peer for peer in peers if peer not in chosen), key=lambda peer: result.positions[peer])
    return on_line, chosen


def _line(axes: Axes, result: Result, metric: Metric, peers: Sequence[str], line_colour: str) -> None:
    places = [result.positions[peer] for peer in peers]
    spreads = [Spread.of(metric.samples[peer]) for peer in peers]
    axes.plot(
        places,
        [spread.median for spread in spreads],
        marker="o",
        markersize=3,
        color=line_colour,
        label="fixed",
    )
    axes.fill_between(
        places,
        [spread.minimum for spread in spreads],
        [spread.maximum for spread in spreads],
        color=line_colour,
        alpha=0.2,
        linewidth=0,
    )


def _dot(axes: Axes, result: Result, metric: Metric, peer: str, dot_colour: str) -> None:
    median = Spread.of(metric.samples[peer]).median
    axes.plot(
        [result.positions[peer]], [median], marker="*", markersize=9, color=dot_colour, label=peer, ls=""
    )


def _decorate(axes: Axes, result: Result, metric: Metric) -> None:
    axes.set_xscale("log")
    svg.logarithmic(axes.xaxis)
    values = [Spread.of(samples).median for samples in metric.samples.values() if samples]
    if min(values) > 0 and max(values) > APART * min(values):
        axes.set_yscale("log")
        svg.logarithmic(axes.yaxis)
    else:
        axes.set_ylim(bottom=0)
    axes.set_title(f"{metric.title} ({metric.unit})", fontsize=8)
    axes.set_xlabel(result.axis, fontsize=7)
    axes.tick_params(labelsize=7)
    axes.legend(fontsize=7, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
