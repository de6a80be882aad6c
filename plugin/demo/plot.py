"""The demo's picture: the lateness of each message over time, with both kills marked.

One figure in two files: a PNG on a light card, and an SVG whose colours follow the reader's light or dark
scheme. Invariants: the picture shows every delayed message that was delivered, and clips none; no display is
needed, and matplotlib's global state stays as it is.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from tidegate.plugin.demo.run import Outcome
from tidegate.plugin.demo.trackers import TRACKERS
from tidegate.plugin.demo.view import duration
from tidegate.plugin.demo.workload import Kind
from tidegate.plugin.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_KIND_COLOURS = {Kind.RETRY: "#2a78c5", Kind.TIMEOUT: "#1d9a82", Kind.BURST: "#d98a14"}
_EARLY_COLOUR = "#c2338f"
_MEMORY_COLOUR, _DISK_COLOUR = "#1ba3b8", "#7a67c7"
# Linear below a millisecond, the resolution of deliver_at, logarithmic above; early ones are below zero.
_LINEAR_BELOW_MS = 1.0
_TICKS_MS = (1, 10, 100, 1_000, 10_000, 100_000)
_DPI = 160


@dataclass(frozen=True)
class _Scheme:
    paper: str
    ink: str
    quiet: str
    grid: str
    broker: str
    daemon: str


_LIGHT = _Scheme("#ffffff", "#1f2933", "#66727f", "#e3e8ed", "#fbe3e0", "#fdf0d5")
_DARK = _Scheme("#0d1117", "#e6edf3", "#8d98a5", "#262d36", "#43201f", "#3d2f12")


def write_plots(outcome: Outcome, directory: Path) -> list[Path]:
    """Write ``demo.png`` and ``demo.svg`` into ``directory``; returns their paths."""
    png, svg = directory / "demo.png", directory / "demo.svg"
    style: Any = {
        "font.family": "DejaVu Sans",
        "font.size": 10,
        "svg.fonttype": "none",
        # Without a salt of its own every run would give other ids: with it the committed picture's diff stays
        # small.
        "svg.hashsalt": "tidegate",
    }
    with mpl.rc_context(style):
        figure = _figure(outcome)
        text = io.StringIO()
        figure.savefig(text, format="svg", dpi=_DPI, metadata={"Date": None})
        try:
            directory.mkdir(parents=True, exist_ok=True)
            figure.savefig(png, dpi=_DPI)
            svg.write_text(follow_scheme(text.getvalue()), encoding="utf-8")
        except OSError as error:
            raise UserError(f"cannot write the plot to {directory}: {error.strerror or error}") from error
    return [png, svg]


def follow_scheme(svg: str) -> str:
    """Give a dark reader dark paper, by rules that override the colours in the elements."""
    rules = []
    for light, dark in zip(vars(_LIGHT).values(), vars(_DARK).values(), strict=True):
        for role in ("fill", "stroke"):
            rules.append(f'[style*="{role}: {light}"] {{ {role}: {dark} !important; }}')
    style = f"<style>@media (prefers-color-scheme: dark) {{ {' '.join(rules)} }}</style>"
    fonts = "font-family: system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif"
    head, end, body = svg.replace("font-family: 'DejaVu Sans'", fonts).partition("<defs>")
    return f"{head}{style}\n{end}{body}"


def _figure(outcome: Outcome) -> Figure:
    # Without a daemon there is no index to show below.
    rows = 2 if outcome.history else 1
    figure = Figure(figsize=(10, 5.6), facecolor=_LIGHT.paper)
    grid = {"left": 0.085, "right": 0.975, "top": 0.83, "bottom": 0.085, "hspace": 0.13}
    panels = figure.subplots(
        rows, 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": (3.2, 1)[:rows], **grid}
    )[:, 0]
    for axes in panels:
        _dress(axes)
        _outages(axes, outcome)
    _draw_lateness(panels[0], outcome)
    if outcome.history:
        _draw_entries(panels[1], outcome)
    panels[-1].set_xlim(0, max(outcome.options.seconds, _last_second(outcome)))
    _name_outages(panels[0], outcome)
    panels[-1].set_xlabel("due at, seconds since the start", color=_LIGHT.quiet, fontsize=9)
    _title(figure, outcome)
    return figure


def _title(figure: Figure, outcome: Outcome) -> None:
    audit = outcome.audit
    killed = " and ".join(one.what for one in outcome.outages)
    title = f"{TRACKERS[outcome.options.tracker].title}: {audit.early:,} early, {audit.lost:,} lost"
    figure.text(
        0.02, 0.945, f"{title}, {killed} killed -9" if killed else title,
        fontsize=15, fontweight="bold", color=_LIGHT.ink,
    )  # fmt: skip
    figure.text(
        0.02, 0.9,
        f"{len(audit.due_us):,} delayed messages of a Pulsar broker, {outcome.far_held:,} more wait for "
        f"tomorrow. Outside outages and burst: p50 {duration(audit.steady.p50_ms)} late, "
        f"p99 {duration(audit.steady.p99_ms)}.",
        fontsize=9.5, color=_LIGHT.quiet,
    )  # fmt: skip


def _dress(axes: Axes) -> None:
    axes.set_facecolor(_LIGHT.paper)
    axes.grid(axis="y", color=_LIGHT.grid, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_LIGHT.quiet, length=0, labelsize=9)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(_LIGHT.quiet)


def _outages(axes: Axes, outcome: Outcome) -> None:
    for outage in outcome.outages:
        begin_s, end_s = _second(outage.killed_us, outcome), _second(outage.usable_us, outcome)
        axes.axvspan(
            begin_s,
            end_s,
            color=_LIGHT.broker if outage.what == "broker" else _LIGHT.daemon,
            linewidth=0,
            zorder=0,
        )
        axes.axvline(begin_s, color="#d1453b", linewidth=1.2, zorder=1)


def _name_outages(axes: Axes, outcome: Outcome) -> None:
    end_s = axes.get_xlim()[1]
    for outage, recovery in zip(outcome.outages, outcome.audit.recoveries, strict=True):
        text = f"{outage.what} killed -9\nback after {recovery.usable_after_s:.1f} s\n"
        if recovery.delivered_meanwhile:
            text += f"{recovery.delivered_meanwhile:,} delivered meanwhile"
        elif recovery.first_due_after_usable_s is not None:
            text += f"first message {recovery.first_due_after_usable_s:.2f} s later"
        at_s = _second(outage.killed_us, outcome)
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
            color=_LIGHT.ink,
            linespacing=1.35,
        )


def _draw_lateness(axes: Axes, outcome: Outcome) -> None:
    audit = outcome.audit
    due_s = (audit.due_us - outcome.start_us) / 1e6
    late_ms = audit.lateness_us / 1000
    axes.set_yscale("symlog", linthresh=_LINEAR_BELOW_MS, linscale=0.6)
    for kind, colour in _KIND_COLOURS.items():
        chosen = audit.kind == kind
        # Thousands of dots are pixels in the SVG too; as shapes they would weigh megabytes.
        axes.scatter(
            due_s[chosen],
            late_ms[chosen],
            s=7,
            color=colour,
            alpha=0.35,
            linewidths=0,
            rasterized=True,
            zorder=3,
        )
        axes.scatter([], [], s=28, color=colour, linewidths=0, label=kind.title)
    lowest_ms = 0.0
    if audit.early:
        lowest_ms = min(float(late_ms.min()), -1.0) * 2
        axes.axhspan(lowest_ms, 0, color=_EARLY_COLOUR, alpha=0.1, linewidth=0)
        axes.text(
            0.995, 0.03, "early", transform=axes.transAxes, ha="right", color=_EARLY_COLOUR, fontweight="bold"
        )
    highest_ms = max(float(late_ms.max(initial=0.0)), 100.0) * 30
    # Room above the dots for the outages' names.
    axes.set_ylim(lowest_ms, highest_ms)
    ticks = [0, *(tick for tick in _TICKS_MS if tick < highest_ms / 10)]
    axes.set_yticks([*(-tick for tick in reversed(ticks[1:]) if -tick > lowest_ms), *ticks])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    axes.set_ylabel("late by", color=_LIGHT.quiet)
    legend = axes.legend(
        loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, frameon=False, fontsize=9, handletextpad=0.1,
        columnspacing=1.2, borderaxespad=0.1,
    )  # fmt: skip
    for label in legend.get_texts():
        label.set_color(_LIGHT.quiet)


def _draw_entries(axes: Axes, outcome: Outcome) -> None:
    axes.set_ylabel("entries", color=_LIGHT.quiet)
    axes.set_yscale("symlog", linthresh=10)
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _amount(value)))
    at_s = [_second(state.at_us, outcome) for state in outcome.history]
    series = (
        ("on disk", [state.on_disk for state in outcome.history], _DISK_COLOUR),
        ("in memory", [state.in_memory for state in outcome.history], _MEMORY_COLOUR),
    )
    for name, values, colour in series:
        axes.plot(at_s, values, color=colour, linewidth=1.6, label=name)
    top = max(max(values) for _, values, _ in series)
    # Room above the curves for their names.
    axes.set_ylim(0, max(top, 10) * 100)
    axes.set_yticks([0, *(10**power for power in range(1, 8, 2) if 10**power < top * 3)])
    legend = axes.legend(loc="upper right", ncols=2, frameon=False, fontsize=9, borderaxespad=0.1)
    for label in legend.get_texts():
        label.set_color(_LIGHT.quiet)


def _last_second(outcome: Outcome) -> float:
    due_us = outcome.audit.due_us
    return _second(int(due_us.max()), outcome) if len(due_us) else 0.0


def _second(at_us: int, outcome: Outcome) -> float:
    return (at_us - outcome.start_us) / 1e6


def _tick(value_ms: float) -> str:
    if value_ms == 0:
        return "0"
    return f"{value_ms / 1000:g} s" if abs(value_ms) >= 1000 else f"{value_ms:g} ms"


def _amount(value: float) -> str:
    return f"{value / 1000:g} k" if value >= 1000 else f"{value:g}"
