"""The report of a tuning: the recommendation, the widths side by side, and the model's errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidegate.plugin.pages.page import Page
from tidegate.plugin.pages.plots import COLOURS, milliseconds_axis, svg
from tidegate.plugin.shared.durations import in_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MIB = 1 << 20
_COLUMNS: tuple[tuple[str, Callable[[dict[str, Any]], object]], ...] = (
    ("width", lambda one: one["width"]),
    ("memory", lambda one: f"{one['memory_bytes'] / _MIB:,.1f} MiB"),
    ("in slices", lambda one: f"{one['bytes'] / _MIB:,.1f} MiB"),
    ("blocks", lambda one: one["blocks"]),
    ("spills", lambda one: one["spills"]),
    ("entries a block", lambda one: round(one["block_entries"])),
    ("fullest slice", lambda one: one["fullest_entries"]),
    ("at a boundary", lambda one: in_words(one["boundary_ms"])),
    ("recovery", lambda one: in_words(one["recovery_ms"])),
    ("cost", lambda one: float(one["cost"])),
)


def make_report(result: dict[str, Any]) -> Page:
    """The page, from the result as JSON."""
    page = Page("Tidegate: slice width")
    best = result["recommended"]
    page.text(f"Recommended: {best['width']}: {best['reason']}.", "good")
    page.text(
        f"{result['entries']:,} delayed messages that arrived over {in_words(result['span_ms'])}.", "quiet"
    )
    page.heading("Slice widths, predicted")
    page.table(
        [name for name, _ in _COLUMNS], [[show(one) for _, show in _COLUMNS] for one in result["candidates"]]
    )
    page.text(
        "cost: of blocks and of slices, as a share of the work that the entries make anyway; at a boundary: "
        "to open what a slice begins with, if nothing was read ahead; recovery: from a start after a kill -9 "
        "to the first due message, Python's own start left out.",
        "quiet",
    )
    page.plot(_plot(result, "cost", "cost", log=True))
    page.plot(_plot(result, "memory_bytes", "memory, MiB", unit=_MIB))
    page.plot(_plot(result, "blocks", "blocks", log=True))
    page.plot(_plot(result, "recovery_ms", "recovery, ms", log=True))
    page.heading("How well the model predicts: the real index on this machine")
    page.text(
        f"Played to the real index: {result['calibration']['sample_entries']:,} entries of the trace.",
        "quiet",
    )
    page.table(("width", "figure", "measured", "predicted", "error"), list(_errors(result)))
    return page


def _errors(result: dict[str, Any]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for one in result["calibration"]["runs"]:
        for name, error in one["error_percent"].items():
            measured, predicted = one["measured"][name], one["predicted"][name]
            rows.append(
                (one["predicted"]["width"], name.replace("_", " "), measured, predicted, f"{error:+.0f} %")
            )
    return rows


def _plot(result: dict[str, Any], name: str, words: str, *, unit: float = 1, log: bool = False) -> str:
    candidates, best = result["candidates"], result["recommended"]["width_ms"]

    def draw(axes: Axes) -> None:
        axes.plot(
            [one["width_ms"] for one in candidates],
            [one[name] / unit for one in candidates],
            color=COLOURS[0],
            marker="o",
            markersize=4,
        )
        axes.axvline(best, color=COLOURS[3], linewidth=1, linestyle="--", label="recommended")
        axes.set_xscale("log")
        if log:
            axes.set_yscale("log")
        milliseconds_axis(axes.xaxis)
        axes.set_xlabel("slice width")
        axes.set_ylabel(words)

    return svg(draw, size=(9.5, 2.6))
