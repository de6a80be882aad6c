"""The pages: links inside of the repository lead somewhere, prose is wrapped, the runbook quotes truly."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tidegate.index.format.envelope import FORMAT_VERSION

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
_LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")  # without a target: on the page itself
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_ITALIC = re.compile(r"(?<![*\w])\*([^*\s][^*]*)\*(?![*\w])")
_JAVA_TEXT = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_JAVA_JOINED = re.compile(r'"\s*\+\s*"')
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
    """Anchors of a page: of its headings, where GitHub and the site spell them alike, and the named ones."""
    text = page.read_text(encoding="utf-8")
    heads = [line.lstrip("# ") for line in text.splitlines() if line.startswith("#")]
    named = re.findall(r'<a id="([^"]+)">', text)
    slugs = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
    return {slug for slug in slugs if "--" not in slug}.union(named)  # the site joins hyphens


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
def test_tables_stand_by_themselves(page: Path) -> None:
    """A table that was wrapped with the prose around it shows as text."""
    broken = [
        number
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1)
        if re.search(r"\|\s*:?-{3,}:?\s*\|", line) and not re.fullmatch(r"\s*\|(?:\s*:?-+:?\s*\|)+\s*", line)
    ]
    assert not broken, f"tables within prose: lines {broken}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    dead = []
    for target, anchor in _LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        there = page.parent / target if target else page
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in _anchors(there)):
            dead.append(f"{target}#{anchor}")
    assert not dead, f"links to nothing: {dead}"


def _quoted(text: str) -> list[str]:
    """Text in italics, on one line each."""
    return [" ".join(one.split()) for one in _ITALIC.findall(_CODE.sub("", text))]


def _python_texts(source: str) -> Iterator[str]:
    """The strings of a module, but for docstrings; ``…`` stands for what an f-string puts in."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(one.value) if isinstance(one, ast.Constant) else "…" for one in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


@cache
def _said() -> tuple[str, ...]:
    """Every text that daemon, index, commands and shim may say."""
    said: list[str] = []
    for folder in ("index", "plugin"):
        for path in (ROOT / folder).rglob("*.py"):
            said += _python_texts(path.read_text(encoding="utf-8"))
    for path in (ROOT / "plugin/shim/src/main").rglob("*.java"):
        said += _JAVA_TEXT.findall(_JAVA_JOINED.sub("", path.read_text(encoding="utf-8")))
    return tuple(said)


def _unsaid(lines: list[str]) -> list[str]:
    """Those that no source says. ``…`` stands for anything within one text."""
    patterns = {one: re.compile(".*?".join(map(re.escape, re.split(r"\s*…\s*", one)))) for one in lines}
    return [one for one, pattern in patterns.items() if not any(map(pattern.search, _said()))]


@pytest.mark.parametrize(("name", "least"), [("runbook", 25), ("tutorial", 8)])
def test_a_page_quotes_what_is_said(name: str, least: int) -> None:
    lines = _quoted((ROOT / f"docs/{name}.md").read_text(encoding="utf-8"))
    assert len(lines) >= least
    assert not _unsaid(lines), f"in docs/{name}.md, and in no source"


def test_a_quotation_that_no_source_has_is_found() -> None:
    page = (
        "*Reading pauses: …*, `*.log`, **bold** and\n*another daemon\nanswers on …*, but *Reading stops: …*"
    )
    assert _quoted(page) == ["Reading pauses: …", "another daemon answers on …", "Reading stops: …"]
    assert _unsaid(_quoted(page)) == ["Reading stops: …"]
