"""A round's picture: the lateness of each message over time, with the faults and the gaps.

Invariant: every delayed message that was received is in the picture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tidegate.plugin.checks import NEVER
from tidegate.plugin.drill.verdict import Verdict
from tidegate.plugin.pages.plots import BAND, COLOURS, INK, QUIET, lateness_axis, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DOT, _GAP, _EARLY, *_ = COLOURS
_FAULT = "#d1453b"


def round_svg(verdict: Verdict, salt: str) -> str:
    """The picture, for a page. ``salt`` makes its ids differ from those of other pictures on it."""
    return svg(lambda axes: _draw(axes, verdict), size=(9, 3.4), salt=salt)


def _draw(axes: Axes, verdict: Verdict) -> None:
    start_us = verdict.start_us
    due_s, late_ms = verdict.due_s, verdict.late_ms
    end_s = max(float(due_s.max(initial=1.0)), *(until_s for _, until_s in verdict.gaps), 1.0)
    for strike in verdict.strikes:
        begin_s = (strike.begin_us - start_us) / 1e6
        back_s = end_s if strike.back_us == NEVER else (strike.back_us - start_us) / 1e6
        axes.axvspan(begin_s, back_s, color=BAND, linewidth=0, zorder=0)
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
    lateness_axis(axes, lowest_ms, max(float(late_ms.max(initial=0.0)), 100.0) * 6)
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
        axes.annotate(told, (at_s, 0.94), xycoords=corner, va="top", fontsize=8, color=INK)
    axes.set_xlabel("due at, seconds since the start", color=QUIET)
