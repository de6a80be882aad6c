"""The pages: every link inside of the repository leads somewhere, and prose is wrapped."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidegate.index.format.envelope import FORMAT_VERSION

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#([^)\s]+))?\)")
_COLUMNS_MAX = 120


def _prose(page: Path) -> list[tuple[int, str]]:
    """The lines with their numbers, without tables, blocks of code and what a bench has made."""
    lines = []
    fenced = made = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif "figures: begin" in line or "figures: end" in line:
            made = "begin" in line
        elif not fenced and not made and not line.lstrip().startswith(("|", "![")):
            lines.append((number, line))
    return lines


def _anchors(page: Path) -> set[str]:
    """What the headings of a page are called in a link to them."""
    heads = [
        line.lstrip("# ") for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("#")
    ]
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_the_versions_are_those_of_the_code() -> None:
    said = (ROOT / "docs/format.md").read_text(encoding="utf-8")
    assert f"The version of the whole directory is **{FORMAT_VERSION}**" in said


def test_every_decision_is_listed() -> None:
    listed = (ROOT / "docs/decisions/README.md").read_text(encoding="utf-8")
    pages = {page.name for page in (ROOT / "docs/decisions").glob("*.md")} - {"README.md"}
    assert pages == {name for name in pages if f"]({name})" in listed}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_prose_is_wrapped(page: Path) -> None:
    # A word that is longer than the line, such as a class's full name, is not broken.
    long = [number for number, line in _prose(page) if len(line) > _COLUMNS_MAX and " " in line.strip()[:-1]]
    assert not long, f"lines over {_COLUMNS_MAX} characters: {long}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    dead = []
    for target, anchor in _LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        there = page.parent / target
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in _anchors(there)):
            dead.append(f"{target}#{anchor}")
    assert not dead, f"links to nothing: {dead}"
