"""Flame graphs as an SVG: a box a frame, as wide as its processor time, callers below.

Written directly: a plotting library's boxes take ten times the bytes. A box's title, which browsers show, has
its whole name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from bench.harness.results import Flame, Frame

WIDTH, ROW, GAP = 900, 15, 26
CHARACTER = 5.6
"""Points of the font's width, about."""
_COLOURS = ("#ffd8a8", "#ffc078", "#ffe066", "#fab005")
_STYLE = (
    "text{font:9px system-ui,'DejaVu Sans',sans-serif}rect{stroke:#fff;stroke-width:.5}.h{font-size:11px}"
)


def write(flames: Sequence[Flame], path: Path) -> None:
    """Draw the graphs one below the other, on one scale."""
    most = max(sum(root.value for root in flame.roots) for flame in flames)
    body: list[str] = []
    y = 0
    for flame in flames:
        depth = max(_depth(root) for root in flame.roots)
        whole = sum(root.value for root in flame.roots)
        title = f"{flame.scenario}, {flame.peer}: {whole:.1f} {flame.unit}"
        body.append(f'<text class="h" x="2" y="{y + 16}">{escape(title)}</text>')
        y += GAP + depth * ROW
        x = 0.0
        for root in flame.roots:
            body += _boxes(root, x, y - ROW, WIDTH / most)
            x += root.value * WIDTH / most
        y += GAP - ROW
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}">'
    text = "\n".join([head, f"<style>{_STYLE}</style>", *body, "</svg>"])
    path.write_text(text + "\n", encoding="utf-8")


def _depth(frame: Frame) -> int:
    return 1 + max((_depth(child) for child in frame.children), default=0)


def _boxes(frame: Frame, x: float, y: int, scale: float) -> Iterator[str]:
    width = frame.value * scale
    name = escape(frame.name)
    colour = _COLOURS[sum(map(ord, frame.name)) % len(_COLOURS)]
    yield (
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW}" fill="{colour}">'
        f"<title>{name}: {frame.value:g}</title></rect>"
    )
    room = int(width / CHARACTER)
    if room > 3:
        shown = frame.name if len(frame.name) <= room else frame.name[: room - 1] + "…"
        yield f'<text x="{x + 2:.1f}" y="{y + ROW - 4}">{escape(shown)}</text>'
    for child in frame.children:
        yield from _boxes(child, x, y - ROW, scale)
        x += child.value * scale
