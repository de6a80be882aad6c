"""A round's picture: the lateness of each message over time, with the faults and the gaps.

Invariant: every delayed message that was received is in the picture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tidegate.plugin.checks import NEVER
from tidegate.plugin.drill.ledger import Strike
from tidegate.plugin.drill.plan import Kind
from tidegate.plugin.drill.verdict import Verdict
from tidegate.plugin.pages.plots import BAND, COLOURS, INK, QUIET, lateness_axis, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BLUE, _ORANGE, _EARLY, _GREEN, *_ = COLOURS
_KINDS = {Kind.DELAYED: _BLUE, Kind.RETRY: _BLUE, Kind.TIMEOUT: _GREEN, Kind.BURST: _ORANGE}
_GAP, _FAULT = _ORANGE, "#d1453b"
# Room above the dots, as a multiple: for the gaps, and for words about the faults.
_ROOM = 6.0


def round_svg(verdict: Verdict, salt: str) -> str:
    """The picture, for a page. ``salt`` makes its ids differ from those of other pictures on it."""

    def draw(axes: Axes) -> None:
        draw_lateness(axes, verdict)
        _draw_gaps(axes, verdict)

    return svg(draw, size=(9, 3.4), salt=salt)


def draw_lateness(axes: Axes, verdict: Verdict, *, room: float = _ROOM) -> None:
    """The dots, above bands for the faults; ``room`` above the latest dot, as a multiple of its lateness."""
    draw_faults(axes, verdict)
    for kind in verdict.kinds:
        colour = _KINDS.get(kind, _BLUE)
        chosen = verdict.kind == kind
        # Thousands of dots are pixels in the SVG: as shapes they would weigh megabytes.
        axes.scatter(
            verdict.due_s[chosen],
            verdict.late_ms[chosen],
            s=6,
            color=colour,
            alpha=0.4,
            linewidths=0,
            rasterized=True,
            zorder=3,
        )
        if len(verdict.kinds) > 1:
            axes.scatter([], [], s=28, color=colour, linewidths=0, label=kind.title)
    lowest_ms = 0.0
    if verdict.early:
        lowest_ms = min(float(verdict.late_ms.min(initial=0.0)), -1.0) * 2
        axes.axhspan(lowest_ms, 0, color=_EARLY, alpha=0.1, linewidth=0)
        axes.text(0.995, 0.03, "early", transform=axes.transAxes, ha="right", color=_EARLY, fontweight="bold")
    lateness_axis(axes, lowest_ms, max(float(verdict.late_ms.max(initial=0.0)), 100.0) * room)
    axes.set_xlim(0, _end_s(verdict) * 1.01)
    axes.set_xlabel("due at, seconds since the start", color=QUIET)


def draw_faults(axes: Axes, verdict: Verdict) -> None:
    """A band for each fault, until messages could come again."""
    for strike in verdict.strikes:
        axes.axvspan(begin_s(strike, verdict), back_s(strike, verdict), color=BAND, linewidth=0, zorder=0)
        axes.axvline(begin_s(strike, verdict), color=_FAULT, linewidth=1.2, zorder=1)


def begin_s(strike: Strike, verdict: Verdict) -> float:
    """Seconds from the start of the round to the fault."""
    return (strike.begin_us - verdict.start_us) / 1e6


def back_s(strike: Strike, verdict: Verdict) -> float:
    """The same until messages could come again; the end of the round if they could not."""
    return _last_s(verdict) if strike.back_us == NEVER else (strike.back_us - verdict.start_us) / 1e6


def _draw_gaps(axes: Axes, verdict: Verdict) -> None:
    """Along the upper edge: times in which a message was due and none was received."""
    for gap_s, until_s in verdict.gaps:
        axes.plot(
            [gap_s, until_s], [0.97, 0.97], transform=axes.get_xaxis_transform(), color=_GAP, linewidth=4,
            solid_capstyle="butt",
        )  # fmt: skip
    if verdict.gaps:
        lengths_s = np.array([until_s - gap_s for gap_s, until_s in verdict.gaps])
        at_s = verdict.gaps[int(lengths_s.argmax())][0]
        told = f"gap {lengths_s.max():.2f} s"
        corner = ("data", "axes fraction")
        axes.annotate(told, (at_s, 0.94), xycoords=corner, va="top", fontsize=8, color=INK)


def _last_s(verdict: Verdict) -> float:
    return max(float(verdict.due_s.max(initial=1.0)), *(until_s for _, until_s in verdict.gaps), 1.0)


def _end_s(verdict: Verdict) -> float:
    return max([_last_s(verdict), *(back_s(strike, verdict) for strike in verdict.strikes)])
