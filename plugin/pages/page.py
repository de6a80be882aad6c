"""An HTML page of headings, tables and plots.

Invariants: all text is escaped here, whatever its source; the page loads nothing, runs no script, and follows
the reader's light or dark scheme; no file is left half written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from tidegate.plugin.errors import UserError
from tidegate.plugin.shared.shown import one_line

_STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1f2933; --quiet: #66727f; --line: #e3e8ed;
  --good: #17795e; --bad: #b3261e; --band: #fbe3e0; }
@media (prefers-color-scheme: dark) { :root { --paper: #0d1117; --ink: #e6edf3; --quiet: #8d98a5;
  --line: #262d36; --good: #4fc3a1; --bad: #ff8a80; --band: #43201f; } }
body { background: var(--paper); color: var(--ink); font: 15px/1.45 system-ui, 'Segoe UI', sans-serif;
  max-width: 78rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; } p { margin: .3rem 0; }
a { color: inherit; } figure { margin: .6rem 0 0; } figcaption { color: var(--quiet); font-size: .85rem; }
.quiet { color: var(--quiet); } .good { color: var(--good); } .bad { color: var(--bad); font-weight: 600; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th { color: var(--quiet); font-weight: normal; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem .3rem 0; text-align: right;
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; white-space: normal; }
svg { max-width: 100%; height: auto; display: block; }
"""
_BAD_CELL = '<td class="bad">'


class PageError(UserError):
    """A report cannot be written; the message says where and why."""

    exit_code = 2


class Html(str):
    """Text that is escaped already."""

    __slots__ = ()


def marked(text: str, kind: str) -> Html:
    """The text as ``kind``: quiet, good or bad."""
    return Html(f'<span class="{escape(kind)}">{escape(one_line(text))}</span>')


def link(text: str, anchor: str) -> Html:
    """The text as a link to a heading of the same page."""
    return Html(f'<a href="#{escape(anchor)}">{escape(one_line(text))}</a>')


def joined(*parts: Html) -> Html:
    """The parts, a space between them."""
    return Html(" ".join(parts))


class Page:
    """Parts of a page, in order. ``verdict`` follows the title in the page's first line."""

    def __init__(self, title: str, verdict: Html | None = None) -> None:
        self._title = title
        first = escape(title) if verdict is None else f"{escape(title)}: {verdict}"
        self._parts: list[str] = [f"<h1>{first}</h1>"]

    def heading(self, text: str, anchor: str | None = None) -> None:
        """A heading; links of the page lead to its ``anchor``."""
        named = "" if anchor is None else f' id="{escape(anchor)}"'
        self._parts.append(f"<h2{named}>{_escaped(text)}</h2>")

    def text(self, text: str, kind: str = "") -> None:
        """A paragraph; ``kind`` is quiet, good or bad."""
        self._parts.append(f'<p class="{escape(kind)}">{_escaped(text)}</p>')

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[object]], bad: frozenset[int] = frozenset()
    ) -> None:
        """A table; numbers are grouped, and non-zero ones in the columns ``bad`` stand out."""
        head = "".join(f"<th>{escape(column)}</th>" for column in columns)
        lines = []
        for row in rows:
            cells = (
                f"{_BAD_CELL if at in bad and value else '<td>'}{_cell(value)}</td>"
                for at, value in enumerate(row)
            )
            lines.append(f"<tr>{''.join(cells)}</tr>")
        self._parts.append(f'<div class="wide"><table><tr>{head}</tr>{"".join(lines)}</table></div>')

    def plot(self, svg: str, caption: str = "") -> None:
        """A plot from `plots`, with a line below it."""
        told = f"<figcaption>{_escaped(caption)}</figcaption>" if caption else ""
        self._parts.append(f"<figure>{svg}{told}</figure>")

    def html(self) -> str:
        """The whole page."""
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
            "style-src 'unsafe-inline'; img-src data:\">"
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(self._title)}</title><style>{_STYLE}</style></head>\n<body>\n"
            + "\n".join(self._parts)
            + "\n</body></html>\n"
        )

    def write(self, path: Path) -> None:
        """Write it, whole or not at all. Raises ``PageError``."""
        write_whole(path, self.html())


def write_whole(path: Path, text: str) -> None:
    """Write a file of a report, whole or not at all. Raises ``PageError``."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        # If the folder is a file there is nothing to remove either.
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise PageError(
            f"cannot write the report to {path}: {error.strerror or error}; choose another --report"
        ) from error


def shown(value: object) -> str:
    """A value in the form of a cell."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    text = str(value)
    return "".join(one if one.isprintable() else "�" for one in text[:200])


def _cell(value: object) -> str:
    return value if isinstance(value, Html) else escape(shown(value))


def _escaped(text: str) -> str:
    return text if isinstance(text, Html) else escape(one_line(text))
