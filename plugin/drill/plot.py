"""A round's picture: the lateness of each message over time, with the faults and the gaps.

An SVG as text, for a page that follows the reader's light or dark scheme. Invariants: every delayed message
that was received is in the picture; no display is needed, and matplotlib's global state stays as it is.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from tidegate.plugin.checks import NEVER
from tidegate.plugin.drill.verdict import Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Placeholders for the page's colours, whose rules override them.
_INK, _QUIET, _GRID = "#1f2933", "#66727f", "#e3e8ed"
_DOT, _EARLY, _FAULT, _BAND, _GAP = "#2a78c5", "#c2338f", "#d1453b", "#fbe3e0", "#d98a14"
_TICKS_MS = (1, 10, 100, 1_000, 10_000, 100_000)
_LINEAR_BELOW_MS = 1.0
_DPI = 120


def round_svg(verdict: Verdict, salt: str) -> str:
    """The picture. ``salt`` makes its ids differ from those of other pictures on the page."""
    style: Any = {"font.family": "DejaVu Sans", "font.size": 9, "svg.fonttype": "none", "svg.hashsalt": salt}
    with mpl.rc_context(style):
        figure = Figure(figsize=(9, 3.4))
        figure.patch.set_alpha(0)
        axes = figure.subplots()
        figure.subplots_adjust(left=0.085, right=0.985, top=0.95, bottom=0.14)
        _dress(axes)
        _draw(axes, verdict)
        text = io.StringIO()
        figure.savefig(text, format="svg", dpi=_DPI, metadata={"Date": None})
    svg = text.getvalue()
    fonts = "font-family: system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif"
    return svg[svg.index("<svg") :].replace("font-family: 'DejaVu Sans'", fonts)


def _dress(axes: Axes) -> None:
    axes.patch.set_alpha(0)
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_QUIET, length=0, labelsize=8)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(_QUIET)


def _draw(axes: Axes, verdict: Verdict) -> None:
    start_us = verdict.start_us
    due_s, late_ms = verdict.due_s, verdict.late_ms
    end_s = float(
        max(due_s.max(initial=1.0), *((end_s for _, end_s in verdict.gaps) if verdict.gaps else (1.0,)))
    )
    axes.set_yscale("symlog", linthresh=_LINEAR_BELOW_MS, linscale=0.6)
    for strike in verdict.strikes:
        begin_s = (strike.begin_us - start_us) / 1e6
        back_s = end_s if strike.back_us == NEVER else (strike.back_us - start_us) / 1e6
        axes.axvspan(begin_s, back_s, color=_BAND, linewidth=0, zorder=0)
        axes.axvline(begin_s, color=_FAULT, linewidth=1.2, zorder=1)
        end_s = max(end_s, back_s)
    early = late_ms < 0
    for chosen, colour in ((~early, _DOT), (early, _EARLY)):
        # Thousands of dots are pixels in the SVG: as shapes they would weigh megabytes.
        axes.scatter(
            due_s[chosen],
            late_ms[chosen],
            s=6,
            color=colour,
            alpha=0.4,
            linewidths=0,
            rasterized=True,
            zorder=3,
        )
    lowest_ms = min(float(late_ms.min(initial=0.0)) * 2, 0.0)
    highest_ms = max(float(late_ms.max(initial=0.0)), 100.0) * 6
    axes.set_ylim(lowest_ms, highest_ms)
    ticks = [0, *(tick for tick in _TICKS_MS if tick < highest_ms)]
    axes.set_yticks([*(-tick for tick in reversed(ticks[1:]) if -tick > lowest_ms), *ticks])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    axes.set_xlim(0, end_s * 1.01)
    # The gaps along the upper edge: times in which a message was due and none was received.
    for begin_s, until_s in verdict.gaps:
        axes.plot([begin_s, until_s], [0.97, 0.97], transform=axes.get_xaxis_transform(), color=_GAP,
        linewidth=4,
                  solid_capstyle="butt")  # fmt: skip
    if verdict.gaps:
        lengths_s = np.array([until_s - begin_s for begin_s, until_s in verdict.gaps])
        at_s = verdict.gaps[int(lengths_s.argmax())][0]
        told = f"gap {lengths_s.max():.2f} s"
        corner = ("data", "axes fraction")
        axes.annotate(told, (at_s, 0.94), xycoords=corner, va="top", fontsize=8, color=_INK)
    axes.set_ylabel("late by", color=_QUIET)
    axes.set_xlabel("due at, seconds since the start", color=_QUIET)


def _tick(value_ms: float) -> str:
    if value_ms == 0:
        return "0"
    return f"{value_ms / 1000:g} s" if abs(value_ms) >= 1000 else f"{value_ms:g} ms"
