"""The docs as a site: it builds, without a broken link, and its reference names all that the code has."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from tidegate.plugin import command_line
from tidegate.plugin.daemon.settings import Settings

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "NO_MKDOCS_2_WARNING": "1", "TERM": "dumb"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


def _text(page: Path) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", page.read_text(encoding="utf-8")))


def test_each_page_of_the_docs_is_on_it(site: Path) -> None:
    docs = ROOT / "docs"
    for page in docs.rglob("*.md"):
        place = page.relative_to(docs).with_suffix(".html")
        built = site / (place.with_name("index.html") if page.name == "README.md" else place)
        assert built.exists(), place


def test_the_reference_has_each_command_with_its_example(site: Path) -> None:
    text = _text(site / "reference/commands.html")
    for name in command_line._COMMANDS:
        assert f"Usage: tidegate {name}" in text
    assert text.count("Example") >= len(command_line._COMMANDS)


def test_the_reference_has_each_setting_and_its_meaning(site: Path) -> None:
    page = (site / "reference/settings.html").read_text(encoding="utf-8")
    for each in fields(Settings):
        row = re.search(
            rf"<td><code>{each.name}</code></td>\s*(?:<td>.*?</td>\s*){{2}}<td>(.+?)</td>", page, re.DOTALL
        )
        assert row is not None, f"{each.name} has no row in docs/operations.md"


def test_the_reference_has_the_metrics_with_their_types(site: Path) -> None:
    text = " ".join(_text(site / "reference/metrics.html").split())
    assert "tidegate_lateness_seconds histogram From deliver_at" in text
    assert "tidegate_subscription_entries_held gauge Held positions" in text


def test_links_out_of_the_docs_lead_to_files_of_the_site(site: Path) -> None:
    page = (site / "benchmarks.html").read_text(encoding="utf-8")
    links = re.findall(r'href="((?:index\.html|files/)[^"#]*)', page)
    assert links
    for link in links:
        assert (site / link).exists(), link
    assert 'href="index.html#figures"' in page
