"""Hooks of MkDocs: the README, the changelog, the reference and files that pages link to join the site.

Called by MkDocs, as `mkdocs.yml` says. Reads the repository, writes nothing.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))
import reference  # noqa: E402  a neighbour, not a package

_PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""Pages outside docs/, and their places on the site."""
_LINK = re.compile(r"(\]\()(?!https?:|#)([^)#\s]+)((?:#[^)\s]*)?\))")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages outside docs/, the reference, and the files that pages link to."""
    texts = {place: (ROOT / name).read_text(encoding="utf-8") for name, place in _PAGES.items()}
    texts |= {f"reference/{name}.md": text for name, text in reference.pages().items()}
    for place, text in texts.items():
        files.append(File.generated(config, place, content=text))
    linked = set()
    for page in files.documentation_pages():
        for match in _LINK.finditer(page.content_string):
            name = _target(page.src_uri, match[2])
            if name is not None and name not in _PAGES and not name.startswith("docs/"):
                linked.add(name)
    for name in sorted(linked):
        path = ROOT / name
        if path.is_file():
            files.append(File.generated(config, _place(name), content=path.read_bytes()))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Links to what stands outside docs/ lead to its place on the site."""
    here = page.file.src_uri

    def moved(match: re.Match[str]) -> str:
        name = _target(here, match[2])
        if name is None:
            return match[0]
        place = name.removeprefix("docs/") if name.startswith("docs/") else _place(name)
        return match[1] + posixpath.relpath(place, posixpath.dirname(here) or ".") + match[3]

    return _LINK.sub(moved, markdown)


def _target(here: str, link: str) -> str | None:
    """The path in the repository that a page links to; None for a page that only the site has."""
    if here.startswith("reference/"):
        return None
    outside = {place: name for name, place in _PAGES.items()}
    page = outside.get(here, f"docs/{here}")
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def _place(name: str) -> str:
    """A file's place on the site. Source code and Markdown become text that a browser shows."""
    if name in _PAGES:
        return _PAGES[name]
    return f"files/{name}" + ("" if name.endswith((".svg", ".png")) else ".txt")
