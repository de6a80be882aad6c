"""Writes a figure as an SVG that is small in git and the same for the same figure.

Invariants: text is text (searchable, few bytes); marks by the thousand are one image.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axis import Axis
from matplotlib.collections import Collection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

DENSE_POINTS = 1_000
"""A line or a cloud of more points than this is drawn as an image."""
_DPI = 110
_NO_METADATA: dict[str, Any] = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_FONT = "DejaVu Sans"
_FONTS = f"system-ui, '{_FONT}', sans-serif"
_FONT_STYLE = f"; font-family: '{_FONT}'"
_GROUP_ID = re.compile(r'<g id="[^"]*"')
_NO_TURN = re.compile(r' transform="rotate\(-0 [^"]*"')
_BESIDE_COMMAND = re.compile(r" ?([MLHVQCz]) ?")
_POINT = re.compile(r"([ML])(-?[\d.]+) (-?[\d.]+)")
_OTHER_COMMAND = re.compile(r"[QCHV]")
_PLACES = re.compile(r'\b(d|x|y|width|height|transform)="([^"]*)"')
_NUMBER = re.compile(r"-?\d+\.\d{2,}")
_TURNS = "transform"  # a factor in it needs more places than a place does
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_GROUP = re.compile(r"<g(?: [^<>]*)?>|</g>")
_STYLE = re.compile(r'(<[^<>]*) style="([^"]*)"')
_ID = re.compile(r' id="([a-z]+[0-9a-f]{10})"')
_ID_OR_USE = re.compile(r'( id="|#)([a-z]+[0-9a-f]{10})\b')
_STYLES_END = "</style>"


def write(make: Callable[[], Figure], path: Path, *, salt: str) -> None:
    """Write the figure of ``make`` to ``path``; its ids come from ``salt``, the same each time."""
    style: Any = {"font.family": _FONT, "svg.fonttype": "none", "svg.hashsalt": salt}
    text = io.StringIO()
    with mpl.rc_context(style):
        figure = make()
        _rasterize_dense(figure)
        figure.savefig(text, format="svg", dpi=_DPI, metadata=_NO_METADATA)
    path.write_text(compact(text.getvalue()), encoding="utf-8")


def logarithmic(axis: Axis) -> None:
    """Ticks only at the powers of ten, with plain text as labels."""
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:,.10g}" if value < 1e6 else f"{value:g}")
    )


def compact(svg: str) -> str:
    """The same picture in fewer bytes: tenths of a point, straight lines by one coordinate, shared styles."""
    svg = _PLACES.sub(_rounded, _COMMENT.sub("", svg))
    svg = svg.replace(_FONT_STYLE, "").replace("*{", f"text {{font-family: {_FONTS}}} *{{", 1)
    svg = _NO_TURN.sub("", _GROUP_ID.sub("<g", svg))
    svg = _short_ids(_share_styles(_without_plain_groups(svg)))
    return "\n".join(line.strip() for line in svg.splitlines() if line.strip()) + "\n"


def _short_ids(svg: str) -> str:
    """Shorten ids: each use repeats the id of a mark or a clip."""
    short = {name: f"i{n}" for n, name in enumerate(dict.fromkeys(_ID.findall(svg)))}
    return _ID_OR_USE.sub(lambda found: found[1] + short.get(found[2], found[2]), svg)


def _without_plain_groups(svg: str) -> str:
    """Remove groups without attributes: they do not change their content."""
    says_something: list[bool] = []

    def kept(tag: re.Match[str]) -> str:
        if tag[0] == "</g>":
            return tag[0] if says_something.pop() else ""
        if not tag[0].endswith("/>"):
            says_something.append(tag[0] != "<g>")
        return "" if tag[0] == "<g>" else tag[0]

    return _GROUP.sub(kept, svg)


def _share_styles(svg: str) -> str:
    """Turn a style shared by several elements into a rule of the style sheet, if there is one."""
    if _STYLES_END not in svg:
        return svg
    uses = Counter(style for _, style in _STYLE.findall(svg))
    names = {style: f"s{n}" for n, (style, times) in enumerate(uses.most_common()) if times > 1}
    rules = "".join(f".{name}{{{style}}}" for style, name in names.items())

    def named(tag: re.Match[str]) -> str:
        name = names.get(tag[2])
        return tag[0] if name is None else f'{tag[1]} class="{name}"'

    return _STYLE.sub(named, svg).replace(_STYLES_END, rules + _STYLES_END, 1)


def _rounded(attribute: re.Match[str]) -> str:
    places = " ".join(attribute[2].split())
    digits = 2 if attribute[1] == _TURNS else 1

    def short(number: re.Match[str]) -> str:
        return f"{float(number[0]):.{digits}f}".rstrip("0").rstrip(".")

    value = _NUMBER.sub(short, places)
    if attribute[1] == "d":
        value = _straightened(_BESIDE_COMMAND.sub(r"\1", value))
    return f'{attribute[1]}="{value}"'


def _straightened(path: str) -> str:
    """Write the one coordinate that changes, in a path of straight lines alone."""
    if _OTHER_COMMAND.search(path):
        return path
    at = ("", "")

    def shorter(point: re.Match[str]) -> str:
        nonlocal at
        before, at = at, (point[2], point[3])
        if point[1] == "L" and before[1] == at[1]:
            return f"H{at[0]}"
        if point[1] == "L" and before[0] == at[0]:
            return f"V{at[1]}"
        return point[0]

    return _POINT.sub(shorter, path)


def _rasterize_dense(figure: Figure) -> None:
    for line in figure.findobj(Line2D):
        assert isinstance(line, Line2D)
        if len(line.get_xdata(orig=False)) > DENSE_POINTS:  # type: ignore[arg-type]
            line.set_rasterized(True)
    for collection in figure.findobj(Collection):
        assert isinstance(collection, Collection)
        if len(collection.get_offsets()) > DENSE_POINTS:  # type: ignore[arg-type]
            collection.set_rasterized(True)
