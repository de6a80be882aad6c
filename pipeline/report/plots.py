"""Plots as SVG texts for a page, which follow its light or dark scheme.

Invariant: no display is needed, and matplotlib's global state stays as it is.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, QUIET, LINE = "#1f2933", "#66727f", "#e3e8ed"
COLOURS = ("#2a78c5", "#d98a14", "#c2338f", "#1d9a82", "#7a67c7")
_BY_SCHEME = {INK: "--ink", QUIET: "--quiet", LINE: "--line"}
_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "tidegate",
}


def svg(draw: Callable[[Axes], None], *, size: tuple[float, float] = (9.5, 3.2)) -> str:
    """The drawing of ``draw``, as an SVG element."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=size)
        figure.patch.set_alpha(0)
        axes = figure.subplots()
        _dress(axes)
        draw(axes)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(frameon=False, labelcolor=INK, fontsize=8, loc="upper right")
        figure.tight_layout()
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    element = text.getvalue()[text.getvalue().index("<svg") :]
    for colour, variable in _BY_SCHEME.items():
        element = re.sub(rf"\b(fill|stroke): {colour}\b", rf"\1: var({variable})", element)
    return element.replace("font-family: 'DejaVu Sans'", "font-family: system-ui, sans-serif")


def milliseconds_axis(axis: Any) -> None:
    """Label an axis of milliseconds in common units."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: in_words(value)))
    axis.set_minor_locator(NullLocator())


def in_words(value_ms: float) -> str:
    """Milliseconds in a fitting unit: 12 ms, 3.5 s, 2 h."""
    size = abs(value_ms)
    for limit, unit, name in ((1e3, 1, "ms"), (6e4, 1e3, "s"), (3.6e6, 6e4, "min"), (8.64e7, 3.6e6, "h")):
        if size < limit:
            return f"{value_ms / unit:.3g} {name}"
    return f"{value_ms / 8.64e7:.3g} d"


def _dress(axes: Axes) -> None:
    axes.patch.set_alpha(0)
    axes.grid(True, color=LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_color(LINE)
    axes.tick_params(colors=QUIET, which="both")
    axes.xaxis.label.set_color(QUIET)
    axes.yaxis.label.set_color(QUIET)
