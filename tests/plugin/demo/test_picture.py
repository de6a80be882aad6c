"""The demo's picture: both files are written, and the SVG follows the reader's colour scheme."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.demo_results import demo_result, index_history
from tidegate.plugin.demo.picture import write_pictures
from tidegate.plugin.errors import UserError


def svg_text(path: Path) -> str:
    return " ".join(ElementTree.parse(path).getroot().itertext())  # noqa: S314 written a line above


def test_both_files_are_written_and_the_kills_are_named(tmp_path: Path) -> None:
    png, svg = write_pictures(demo_result(tmp_path / "ledger"), index_history(), tmp_path / "new")
    assert png.read_bytes().startswith(b"\x89PNG")
    text = svg_text(svg)
    assert "Tidegate: 0 early, 0 lost, kill -9 of the broker, kill -9 of the daemon" in text
    assert "back after 9.0 s" in text
    assert "order time-outs" in text
    assert "on disk" in text


def test_the_svg_has_dark_paper_for_a_dark_reader_and_says_the_same_each_time(tmp_path: Path) -> None:
    result = demo_result(tmp_path / "ledger")
    _, one = write_pictures(result, index_history(), tmp_path / "one")
    _, other = write_pictures(result, index_history(), tmp_path / "other")
    assert '[style*="fill: #ffffff"] { fill: #0d1117 !important; }' in one.read_text()
    assert one.read_bytes() == other.read_bytes()


def test_early_messages_have_a_region_of_their_own(tmp_path: Path) -> None:
    def hurry(comes_s: dict[int, float]) -> None:
        for number in comes_s:
            comes_s[number] -= 0.9

    _, svg = write_pictures(demo_result(tmp_path / "ledger", hurry, tracker="in-memory"), [], tmp_path)
    assert "early" in svg_text(svg).split()
    assert "Pulsar's in-memory tracker" in svg_text(svg)


def test_nothing_was_delivered(tmp_path: Path) -> None:
    png, _ = write_pictures(demo_result(tmp_path / "ledger", dict.clear), index_history(), tmp_path)
    assert png.is_file()


def test_a_directory_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write the plot"):
        write_pictures(demo_result(tmp_path / "ledger"), [], tmp_path / "file" / "below")
