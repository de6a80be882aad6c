"""The demo's picture: the lateness of each message over time, both kills named, the index below.

One figure in two files: a PNG on a light card, and an SVG that follows the reader's light or dark scheme.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from tidegate.plugin.demo.report import told_of
from tidegate.plugin.drill.plot import begin_s, draw_faults, draw_lateness
from tidegate.plugin.drill.session import Result
from tidegate.plugin.drill.stands.trackers import TITLES
from tidegate.plugin.drill.verdict import Verdict
from tidegate.plugin.drill.watch import IndexState
from tidegate.plugin.errors import UserError
from tidegate.plugin.pages.plots import INK, PAPER, QUIET, dress, standalone, style
from tidegate.plugin.shared.durations import in_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MEMORY, _DISK = "#1ba3b8", "#7a67c7"
# Room above the dots for the kills' names, as a multiple of the lateness.
_ROOM = 30.0
_DPI = 160


def write_pictures(result: Result, history: Sequence[IndexState], directory: Path) -> list[Path]:
    """Write ``demo.png`` and ``demo.svg`` into ``directory``; returns their paths. Raises ``UserError``."""
    png, svg = directory / "demo.png", directory / "demo.svg"
    image = io.BytesIO()
    with style():
        figure = _figure(result, history)
        text = standalone(figure)
        figure.savefig(image, dpi=_DPI)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        png.write_bytes(image.getvalue())
        svg.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write the plot to {directory}: {error.strerror or error}") from error
    return [png, svg]


def _figure(result: Result, history: Sequence[IndexState]) -> Figure:
    (verdict,) = result.verdicts
    # Without a daemon there is no index to show below.
    rows = 2 if history else 1
    figure = Figure(figsize=(10, 5.6), facecolor=PAPER)
    grid = {"left": 0.085, "right": 0.975, "top": 0.83, "bottom": 0.085, "hspace": 0.13}
    panels = figure.subplots(
        rows, 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": (3.2, 1)[:rows], **grid}
    )[:, 0]
    for axes in panels:
        axes.set_facecolor(PAPER)
        dress(axes)
        axes.grid(False, axis="x")
    draw_lateness(panels[0], verdict, room=_ROOM)
    _legend(panels[0], "lower right", 3, bbox_to_anchor=(1.0, 1.0), handletextpad=0.1, columnspacing=1.2)
    _name_faults(panels[0], verdict)
    if history:
        panels[0].set_xlabel("")
        draw_faults(panels[1], verdict)
        _draw_entries(panels[1], history, verdict.start_us)
        panels[1].set_xlabel("due at, seconds since the start", color=QUIET)
    title = f"{TITLES[result.tracker]}: {verdict.early:,} early, {verdict.lost:,} lost, {told_of(verdict)}"
    figure.text(0.02, 0.945, title, fontsize=15, fontweight="bold", color=INK)
    figure.text(
        0.02, 0.9,
        f"{len(verdict.due_s):,} delayed messages of a Pulsar broker, {verdict.not_due_held or 0:,} more "
        f"wait for tomorrow. Outside outages and burst: p50 {in_words(verdict.steady.p50_ms)} late, "
        f"p99 {in_words(verdict.steady.p99_ms)}.",
        fontsize=9.5, color=QUIET,
    )  # fmt: skip
    return figure


def _name_faults(axes: Axes, verdict: Verdict) -> None:
    end_s = axes.get_xlim()[1]
    for one in verdict.recoveries:
        strike = one.strike
        text = f"{strike.what}\n"
        if strike.back_us >= strike.begin_us:
            text += f"back after {(strike.back_us - strike.begin_us) / 1e6:.1f} s\n"
        if one.received_meanwhile:
            text += f"{one.received_meanwhile:,} received meanwhile"
        elif one.first_due_after_usable_s is not None:
            text += f"first message {one.first_due_after_usable_s:.2f} s later"
        at_s = begin_s(strike, verdict)
        to_the_left = at_s > end_s * 0.86
        axes.annotate(
            text,
            (at_s, 1),
            (-6 if to_the_left else 6, -5),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="right" if to_the_left else "left",
            va="top",
            fontsize=9,
            color=INK,
            linespacing=1.35,
        )


def _draw_entries(axes: Axes, history: Sequence[IndexState], start_us: int) -> None:
    axes.set_ylabel("entries", color=QUIET)
    axes.set_yscale("symlog", linthresh=10)
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _amount(value)))
    at_s = [(state.at_us - start_us) / 1e6 for state in history]
    on_disk, in_memory = [one.on_disk for one in history], [one.in_memory for one in history]
    axes.plot(at_s, on_disk, color=_DISK, linewidth=1.6, label="on disk")
    axes.plot(at_s, in_memory, color=_MEMORY, linewidth=1.6, label="in memory")
    top = max(*on_disk, *in_memory)
    # Room above the curves for their names.
    axes.set_ylim(0, max(top, 10) * 100)
    axes.set_yticks([0, *(10**power for power in range(1, 8, 2) if 10**power < top * 3)])
    _legend(axes, "upper right", 2)


def _legend(axes: Axes, place: Any, columns: int, **how: Any) -> None:
    if not axes.get_legend_handles_labels()[1]:
        return
    axes.legend(
        loc=place, ncols=columns, frameon=False, fontsize=9, borderaxespad=0.1, labelcolor=QUIET, **how
    )


def _amount(value: float) -> str:
    return f"{value / 1000:g} k" if value >= 1000 else f"{value:g}"
