"""Plots as SVG texts, in a page or on their own, which follow the reader's light or dark scheme.

Invariant: no display is needed, and matplotlib's global state stays as it is.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from tidegate.plugin.shared.durations import in_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAPER, INK, QUIET, LINE, BAND = "#ffffff", "#1f2933", "#66727f", "#e3e8ed", "#fbe3e0"
"""Colours that differ in the dark scheme."""
COLOURS = ("#2a78c5", "#d98a14", "#c2338f", "#1d9a82", "#7a67c7")
_BY_SCHEME = {
    PAPER: ("--paper", "#0d1117"),
    INK: ("--ink", "#e6edf3"),
    QUIET: ("--quiet", "#8d98a5"),
    LINE: ("--line", "#262d36"),
    BAND: ("--band", "#43201f"),
}
"""Each colour's variable in a `Page`, and its value in the dark."""
_FONTS = "font-family: system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif"
_STYLE: Any = {"font.family": "DejaVu Sans", "font.size": 9, "svg.fonttype": "none"}
_DPI = 130
_S, _MIN, _H, _D = 1_000, 60_000, 3_600_000, 86_400_000
_FAR_APART_MS = (
    1, 10, 100, _S, 10 * _S, _MIN, 10 * _MIN, _H, 10 * _H, *(days * _D for days in (1, 10, 100, 1_000)),
)  # fmt: skip
_ROUND_MS = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(count * unit for unit in (_S, _MIN) for count in (1, 2, 5, 10, 20, 30)),
    *(count * _H for count in (1, 2, 3, 6, 12)),
    *(count * _D for count in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)),
)
_TICKS_MS = (1, 10, 100, 1_000, 10_000, 100_000)
# Linear below a millisecond, the resolution of deliver_at, logarithmic above; early ones are below zero.
_LINEAR_BELOW_MS = 1.0


def svg(
    draw: Callable[[Axes], None], *, size: tuple[float, float] = (9.5, 3.2), salt: str = "tidegate"
) -> str:
    """The drawing of ``draw`` as an SVG element for a `Page`, where ``salt`` makes its ids its own."""
    with style():
        figure = Figure(figsize=size)
        figure.patch.set_alpha(0)
        axes = figure.subplots()
        axes.patch.set_alpha(0)
        dress(axes)
        draw(axes)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(frameon=False, labelcolor=INK, fontsize=8, loc="upper right")
        figure.tight_layout()
        text = saved(figure, salt)
    element = text[text.index("<svg") :]
    for colour, (variable, _) in _BY_SCHEME.items():
        element = re.sub(rf"\b(fill|stroke): {colour}\b", rf"\1: var({variable})", element)
    return element


def standalone(figure: Figure) -> str:
    """A figure as an SVG file, dark for a dark reader by rules that override the colours of its elements."""
    rules = " ".join(
        f'[style*="{role}: {light}"] {{ {role}: {dark} !important; }}'
        for light, (_, dark) in _BY_SCHEME.items()
        for role in ("fill", "stroke")
    )
    rule = f"<style>@media (prefers-color-scheme: dark) {{ {rules} }}</style>"
    head, end, body = saved(figure).partition("<defs>")
    return f"{head}{rule}\n{end}{body}"


@contextlib.contextmanager
def style() -> Iterator[None]:
    """The style of all plots: a figure is made and saved within it."""
    with mpl.rc_context(_STYLE):
        yield


def saved(figure: Figure, salt: str = "tidegate") -> str:
    """The figure as the text of an SVG file, the same for the same figure and ``salt``."""
    text = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": salt}):
        figure.savefig(text, format="svg", dpi=_DPI, metadata={"Date": None})
    return text.getvalue().replace("font-family: 'DejaVu Sans'", _FONTS)


def dress(axes: Axes) -> None:
    """Quiet lines and labels."""
    axes.grid(True, color=LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_color(LINE)
    axes.tick_params(colors=QUIET, which="both")
    axes.xaxis.label.set_color(QUIET)
    axes.yaxis.label.set_color(QUIET)


def milliseconds_axis(axis: Any) -> None:
    """Label a logarithmic axis of milliseconds in common units, at round ones: 10 s, 1 min, not 1.67 min."""
    times = round_times(*sorted(axis.get_view_interval()))
    # Times of 24 to 50 ms: at most one round one.
    axis.set_major_locator(FixedLocator(times) if len(times) > 1 else MaxNLocator(5, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: in_words(value)))
    axis.set_minor_locator(NullLocator())


def round_times(low_ms: float, high_ms: float) -> list[int]:
    """Round times in ms between two, few where these are far apart; below zero as above."""
    floor_ms = 10 if low_ms <= 0 else 1  # the axis is linear near zero, and has no room there
    for wanted in (_FAR_APART_MS, _ROUND_MS):
        above = [one for one in wanted if floor_ms <= one <= high_ms]
        below = [-one for one in reversed(wanted) if floor_ms <= one <= -low_ms]
        found = [one for one in [*below, 0, *above] if low_ms <= one <= high_ms]
        if len(found) > 2:
            break
    return found


def lateness_axis(axes: Axes, lowest_ms: float, highest_ms: float) -> None:
    """Make the y axis one of lateness, logarithmic on both sides of zero."""
    axes.set_yscale("symlog", linthresh=_LINEAR_BELOW_MS, linscale=0.6)
    axes.set_ylim(lowest_ms, highest_ms)
    ticks = [0, *(tick for tick in _TICKS_MS if tick < highest_ms)]
    axes.set_yticks([*(-tick for tick in reversed(ticks[1:]) if -tick > lowest_ms), *ticks])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    axes.set_ylabel("late by", color=QUIET)


def _tick(value_ms: float) -> str:
    if not value_ms:
        return "0"
    return f"{value_ms / 1000:g} s" if abs(value_ms) >= 1000 else f"{value_ms:g} ms"
