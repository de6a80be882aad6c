"""Plots of results without a peer: the used share of each target, and bounds beside measurements."""

from __future__ import annotations

from collections.abc import Iterable

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.harness.results import Metric, Result
from bench.harness.stats import Spread, worst
from bench.plots import svg

MET, MISSED, PARTS = "#0b7285", "#c92a2a", ("#0b7285", "#3bc9db", "#5f3dc4", "#f59f00", "#e8590c")
PART_OF_MEMORY = "peak memory, part "
PART_OF_BOUND = "… "
PANELS_MAX = 24  # of single metrics; a result with more is drawn as one panel of its targets


def has_bounds(result: Result) -> bool:
    """True if a result has the bounds of its measurements."""
    return bool(bounds(result))


def has_many_targets(result: Result) -> bool:
    """True if a result without peers has too many metrics for a panel each."""
    return result.peers == [result.ours] and len(result.metrics) > PANELS_MAX and bool(shares(result))


def share(metric: Metric, ours: str) -> float | None:
    """The worst round's share of the target: up to 1 it is met; None without a target above 0."""
    samples = metric.samples.get(ours)
    if not metric.target or not samples:
        return None
    value = worst(Spread.of(samples), metric.better)
    if metric.better == "lower":
        return value / metric.target
    return metric.target / value if value else None


def shares(result: Result) -> list[tuple[str, float]]:
    """(name, share) of every metric with a target above 0, in the order of the tables."""
    found = ((f"{m.scenario}: {m.title}", share(m, result.ours)) for m in result.metrics if m.headline)
    return [(name, used) for name, used in found if used is not None]


def targets_figure(result: Result) -> Figure:
    """One bar a target; beside it memory over the run, if it was recorded in parts."""
    used, marks = shares(result), memory_marks(result)
    figure = Figure(figsize=(11, 0.2 * len(used) + 1.2), layout="constrained")
    figure.suptitle(f"{result.bench}: {result.machine.cpu}, {result.machine.cores} cores", fontsize=9)
    if len(marks) > 1:
        bars, line = figure.subplots(1, 2, width_ratios=(3, 1))
        line.plot(range(1, len(marks) + 1), marks, marker="o", color=MET)
        line.set_ylim(bottom=0)
        line.set_title("peak memory (MiB) in each tenth of the entries", fontsize=8)
        _plain(line)
    else:
        bars = figure.subplots()
    bars.barh(
        [name for name, _ in used],
        [share_used for _, share_used in used],
        color=[MET if share_used <= 1 else MISSED for _, share_used in used],
    )
    bars.axvline(1, color="black", linestyle="--", linewidth=1)
    bars.set_xscale("log")
    svg.logarithmic(bars.xaxis)
    bars.invert_yaxis()
    bars.set_title("share of the target that is used (left of 1: met)", fontsize=8)
    _plain(bars)
    return figure


def memory_marks(result: Result) -> list[float]:
    """Peak memory of each part of the filling, in order."""
    return [
        Spread.of(metric.samples[result.ours]).median
        for metric in result.metrics
        if metric.title.startswith(PART_OF_MEMORY) and metric.samples.get(result.ours)
    ]


def bounds(result: Result) -> dict[str, tuple[float, dict[str, float]]]:
    """(measured, the parts of the bound by name) of every scenario that has parts."""
    found: dict[str, tuple[float, dict[str, float]]] = {}
    for metric in result.metrics:
        if metric.title == "measured":
            parts = {m.title.removeprefix(PART_OF_BOUND): m for m in _parts(result, metric.scenario)}
            if parts:
                found[metric.scenario] = (
                    _median(metric, result.ours),
                    {name: _median(part, result.ours) for name, part in parts.items()},
                )
    return found


def _parts(result: Result, scenario: str) -> Iterable[Metric]:
    return (m for m in result.metrics if m.scenario == scenario and m.title.startswith(PART_OF_BOUND))


def _median(metric: Metric, peer: str) -> float:
    return Spread.of(metric.samples[peer]).median


def bounds_figure(result: Result) -> Figure:
    """One panel a path: the measurement, and below it the parts of its bound, one after another."""
    found = bounds(result)
    figure = Figure(figsize=(8.4, 1.5 * len(found) + 0.4), layout="constrained")
    figure.suptitle(f"{result.bench}, ns an entry: {result.machine.cpu}", fontsize=9)
    panels = figure.subplots(len(found), 1, squeeze=False).flatten()
    for axes, (scenario, (measured_ns, parts)) in zip(panels, found.items(), strict=True):
        axes.barh(["measured"], [measured_ns], color="#868e96")
        left = 0.0
        for number, (name, part_ns) in enumerate(parts.items()):
            axes.barh(["bound"], [part_ns], left=left, color=PARTS[number % len(PARTS)], label=name)
            left += part_ns
        axes.invert_yaxis()
        axes.set_title(scenario, fontsize=8)
        axes.legend(fontsize=6, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
        _plain(axes)
    return figure


def _plain(axes: Axes) -> None:
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
