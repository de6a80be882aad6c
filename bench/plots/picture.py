"""The picture of a result, beside its JSON: one SVG.

Bars of each metric, lines where peers are points on an axis, or a picture of its own for profiles, bounds,
results of many targets, and flame graphs.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from bench.harness.results import Result
from bench.plots import bars, flame, profile, single, svg
from bench.plots.colours import colour
from bench.plots.lines import lines


def path_of(result_file: Path) -> Path:
    """The path of a result's picture."""
    return result_file.with_suffix(".svg")


def draw(result: Result, result_file: Path) -> Path:
    """Draw a result; returns the picture's path."""
    path = path_of(result_file)
    if result.flames:
        flame.write(result.flames, path)
        return path
    svg.write(partial(_figure, result), path, salt=result.bench)
    return path


def _figure(result: Result) -> Figure:
    if profile.is_profile(result):
        return profile.figure(result, {peer: colour(peer) for peer in result.peers})
    if single.has_bounds(result):
        return single.bounds_figure(result)
    if single.has_many_targets(result):
        return single.targets_figure(result)
    if result.axis:
        return lines(result, bars.shown(result), colour)
    return bars.figure(result)
