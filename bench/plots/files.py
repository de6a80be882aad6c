"""Plots of results, as SVG and PNG beside the JSON they are drawn from.

Bars of each metric (median, with the whole spread as a line), or lines where the peers are points on an axis;
and, where a result has curves, the quantile functions of lateness. Profiles, bounds and results of many
targets have plots of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from bench.harness.results import Metric, Result, Series
from bench.harness.stats import Spread
from bench.plots import profile as profile_plot
from bench.plots import single as single_plots
from bench.plots.lines import lines

COLOURS = {"tidegate": "#0b7285", "in-memory": "#868e96", "bucket": "#e8590c", "bucket, sealed": "#f59f00"}
COLOURS |= {
    "before": "#868e96",
    "redis": "#c92a2a",
    "postgresql": "#364fc7",
    "rocksdb": "#2b8a3e",
    "qmq": "#862e9c",
    "wheel-file": "#5c940d",
    "levels": "#e67700",
    "heapq": "#495057",
    "heapdict": "#adb5bd",
}
FALLBACK = ("#5f3dc4", "#2b8a3e", "#a61e4d", "#1864ab", "#495057")
COLUMNS = 3
MANY_PEERS = 5


def draw(result: Result, stem: Path) -> list[Path]:
    """Draw every plot of a result; ``stem`` is the JSON's path without its suffix. Returns the SVG files."""
    mpl.rcParams["svg.hashsalt"] = result.bench
    if profile_plot.is_profile(result):
        return [_save(profile_plot.figure(result, {peer: colour(peer) for peer in result.peers}), stem)]
    if single_plots.has_bounds(result):
        return [_save(single_plots.bounds_figure(result), stem)]
    if single_plots.has_many_targets(result):
        return [_save(single_plots.targets_figure(result), stem)]
    drawn = [_save(lines(result, shown(result), colour) if result.axis else _bars(result), stem)]
    if result.series:
        drawn.append(_save(_curves(result), stem.with_name(f"{stem.name}-quantiles")))
    return drawn


def colour(peer: str) -> str:
    """A peer's colour, the same in every plot."""
    return COLOURS.get(peer) or FALLBACK[sum(map(ord, peer)) % len(FALLBACK)]


def shown(result: Result) -> list[Metric]:
    """The metrics that make a panel: headline ones in which somebody is not zero."""
    return [
        metric
        for metric in result.metrics
        if metric.headline and any(any(samples) for samples in metric.samples.values())
    ]


def logarithmic(medians: Sequence[float]) -> bool:
    """Whether a panel needs a logarithmic axis: positive values more than 20 apart."""
    positive = [value for value in medians if value > 0]
    return len(positive) == len(medians) and max(positive) / min(positive) > 20


def _bars(result: Result) -> Figure:
    metrics = shown(result)
    many = len(result.peers) > MANY_PEERS
    columns = max(1, min(COLUMNS + many, len(metrics)))
    rows = max(1, math.ceil(len(metrics) / columns))
    height = max(2.1, 0.6 + 0.19 * len(result.peers))
    figure = Figure(figsize=(4.2 * columns, height * rows + 0.4), layout="constrained")
    figure.suptitle(f"{result.bench}: {result.machine.cpu}, {result.machine.cores} cores", fontsize=9)
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for panel, metric in zip(panels, metrics, strict=False):
        _panel(panel, result, metric)
    for panel in panels[len(metrics) :]:
        panel.set_axis_off()
    return figure


def _panel(axes: Axes, result: Result, metric: Metric) -> None:
    peers = [peer for peer in reversed(result.peers) if metric.samples.get(peer)]
    spreads = [Spread.of(metric.samples[peer]) for peer in peers]
    medians = [spread.median for spread in spreads]
    axes.barh(peers, medians, color=[colour(peer) for peer in peers], height=0.6)
    for place, spread in enumerate(spreads):
        axes.plot([spread.minimum, spread.maximum], [place, place], color="black", linewidth=1.2)
    if logarithmic(medians):
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
    if metric.target:
        axes.axvline(metric.target, color="#c92a2a", linestyle="--", linewidth=1)
    axes.set_title(f"{metric.scenario}\n{metric.title} ({metric.unit})", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)


def _curves(result: Result) -> Figure:
    scenarios = list(dict.fromkeys(series.scenario for series in result.series))
    figure = Figure(figsize=(5.2 * len(scenarios), 3.4), layout="constrained")
    for axes, scenario in zip(
        figure.subplots(1, len(scenarios), squeeze=False).flatten(), scenarios, strict=True
    ):
        curves: list[Series] = [series for series in result.series if series.scenario == scenario]
        for series in curves:
            steps = len(series.quantiles) - 1
            axes.plot(
                series.quantiles,
                [100 * step / steps for step in range(steps + 1)],
                label=series.peer,
                color=colour(series.peer),
            )
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_title(scenario, fontsize=9)
        axes.set_xlabel(f"arrival minus deliver_at ({curves[0].unit}); left of 0 is early", fontsize=8)
        axes.set_ylabel("% of messages", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.legend(fontsize=7, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _save(figure: Figure, stem: Path) -> Path:
    svg = stem.with_suffix(".svg")
    figure.savefig(svg, metadata={"Date": None})
    figure.savefig(stem.with_suffix(".png"), dpi=110)
    return svg
