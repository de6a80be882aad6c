"""The man pages: one for each command, valid for the readers that print them, with all that its help says."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.plugin import command_line

ROOT = Path(__file__).resolve().parents[2]
MAN = shutil.which("man")
MANDOC = shutil.which("mandoc")


def make(folder: Path, **environment: str) -> dict[str, str]:
    subprocess.run(
        [sys.executable, str(ROOT / "docs/site/manual.py"), str(folder)],
        env={"PATH": "/usr/bin:/bin", "SOURCE_DATE_EPOCH": "1700000000", **environment},
        check=True,
    )
    return {page.name: page.read_text(encoding="utf-8") for page in folder.iterdir()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("man")
    make(folder)
    return folder


def show(page: Path) -> str:
    """The page as a reader sees it, on one line; fails on any warning of the formatter."""
    shown = subprocess.run(
        [str(MAN), "--warnings", "--local-file", str(page)],
        env={"PATH": "/usr/bin:/bin", "MANWIDTH": "78", "LC_ALL": "C.UTF-8"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert not shown.stderr, f"{page.name}: {shown.stderr}"
    return shown.stdout


def test_each_command_has_its_page(folder: Path) -> None:
    names = {page.name for page in folder.iterdir()}
    assert {"tidegate.1", "tidegate-drill-run.1"} <= names
    assert {f"tidegate-{name}.1" for name in command_line._COMMANDS} <= names


def test_the_same_date_makes_the_same_pages(folder: Path, tmp_path: Path) -> None:
    again = make(tmp_path, TZ="Asia/Tokyo", COLUMNS="200", TERM="xterm")
    assert again == {page.name: page.read_text(encoding="utf-8") for page in folder.iterdir()}
    assert '"2023-11-14"' in again["tidegate.1"]


@pytest.mark.skipif(MAN is None, reason="no man here")
def test_a_page_says_all_that_the_help_says(folder: Path) -> None:
    text = show(folder / "tidegate-serve.1")
    help_ = subprocess.run(
        [sys.executable, "-m", "tidegate.plugin.cli", "serve", "--help"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    said = re.sub(r"[‐\s]", "", text)
    missing = {word for word in re.findall(r"[\w/.-]{4,}", help_) if word not in said}
    assert missing <= {"Usage", "Example", "Options"}
    for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "SEE ALSO"):
        assert re.search(rf"^{section}$", text, re.MULTILINE), section


@pytest.mark.skipif(MAN is None, reason="no man here")
def test_man_warns_of_nothing(folder: Path) -> None:
    for page in folder.iterdir():
        assert show(page)


@pytest.mark.skipif(MANDOC is None, reason="no mandoc here")
def test_mandoc_warns_of_nothing(folder: Path) -> None:
    pages = [str(page) for page in folder.iterdir()]
    done = subprocess.run(
        [str(MANDOC), "-Tlint", "-Wwarning", *pages], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("", 0)
