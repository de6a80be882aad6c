"""The plot of a profile: one panel a path, the functions as bars, the longest on top, before beside now."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.harness.results import EVERYTHING_ELSE, Metric, Result
from bench.harness.stats import Spread

FUNCTION_UNIT = "ns"  # of a function itself; a whole path has "ns an entry"
SHOWN_MAX = 12


def is_profile(result: Result) -> bool:
    """True if a result has times of functions."""
    return any(metric.unit == FUNCTION_UNIT for metric in functions(result))


def functions(result: Result) -> list[Metric]:
    """The headline metrics that are functions, the longest of any peer first, everything else last."""
    found = [
        m for m in result.metrics if m.unit == FUNCTION_UNIT and m.headline and result.bench == "profile"
    ]
    return sorted(found, key=lambda metric: (metric.title == EVERYTHING_ELSE, -_longest(metric)))


def _longest(metric: Metric) -> float:
    return max((Spread.of(samples).median for samples in metric.samples.values() if samples), default=0.0)


def figure(result: Result, colours: dict[str, str]) -> Figure:
    """All paths below one another; ``colours`` by peer."""
    by_path: dict[str, list[Metric]] = {}
    for metric in functions(result):
        by_path.setdefault(metric.scenario, []).append(metric)
    rows = [min(len(metrics), SHOWN_MAX) for metrics in by_path.values()]
    made = Figure(figsize=(8.4, 0.28 * sum(rows) + 0.7 * len(rows) + 0.5), layout="constrained")
    made.suptitle(f"ns an entry by function: {result.machine.cpu}", fontsize=9)
    panels = made.subplots(len(rows), 1, squeeze=False, height_ratios=rows).flatten()
    for axes, (path, metrics) in zip(panels, by_path.items(), strict=True):
        _panel(axes, path, result.peers, metrics[:SHOWN_MAX], colours)
    return made


def _panel(axes: Axes, path: str, peers: list[str], metrics: list[Metric], colours: dict[str, str]) -> None:
    height = 0.8 / len(peers)
    for number, peer in enumerate(peers):
        places = [place + (number - (len(peers) - 1) / 2) * height for place in range(len(metrics))]
        values = [Spread.of(m.samples[peer]).median if m.samples.get(peer) else 0.0 for m in metrics]
        axes.barh(places, values, height=height, color=colours[peer], label=peer)
    axes.set_yticks(range(len(metrics)), [metric.title for metric in metrics])
    axes.invert_yaxis()
    axes.set_title(path, fontsize=8)
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
    if len(peers) > 1:
        axes.legend(fontsize=7, frameon=False, loc="lower right")
