"""The demo's picture: both files are written, and the SVG follows the reader's colour scheme."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.outcomes import Row, broker_outage, daemon_outage, outcome_of
from tidegate.plugin.demo.plot import follow_scheme, write_plots
from tidegate.plugin.errors import UserError

OUTAGES = (broker_outage(13, 22), daemon_outage(27, 28))


def svg_text(path: Path) -> str:
    return " ".join(ElementTree.parse(path).getroot().itertext())  # noqa: S314 written a line above


def test_both_files_are_written_and_the_kills_are_named(tmp_path: Path) -> None:
    png, svg = write_plots(outcome_of(tmp_path, outages=OUTAGES), tmp_path / "new")
    assert png.read_bytes().startswith(b"\x89PNG")
    text = svg_text(svg)
    assert "Tidegate: 0 early, 0 lost, broker and daemon killed -9" in text
    assert "broker killed -9" in text
    assert "daemon killed -9" in text
    assert "on disk" in text


def test_the_svg_has_dark_paper_for_a_dark_reader_and_says_the_same_each_time(tmp_path: Path) -> None:
    outcome = outcome_of(tmp_path, outages=OUTAGES)
    _, one = write_plots(outcome, tmp_path / "one")
    _, other = write_plots(outcome, tmp_path / "other")
    assert "prefers-color-scheme: dark" in one.read_text()
    assert one.read_bytes() == other.read_bytes()


def test_every_colour_of_the_light_scheme_has_a_dark_one() -> None:
    svg = follow_scheme('<svg><defs></defs><path style="fill: #ffffff"/></svg>')
    assert '[style*="fill: #ffffff"] { fill: #0d1117 !important; }' in svg
    ElementTree.fromstring(svg)  # noqa: S314 made here


def test_early_messages_have_a_region_of_their_own(tmp_path: Path) -> None:
    def early(rows: list[Row]) -> list[Row]:
        return [(*one[:3], one[3] - 900_000, one[4]) for one in rows]

    _, svg = write_plots(outcome_of(tmp_path, change=early, tracker="in-memory"), tmp_path)
    assert "early" in svg_text(svg).split()
    assert "Pulsar's in-memory tracker" in svg_text(svg)


def test_nothing_was_delivered(tmp_path: Path) -> None:
    png, _ = write_plots(outcome_of(tmp_path, change=lambda _rows: []), tmp_path)
    assert png.is_file()


def test_a_directory_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write the plot"):
        write_plots(outcome_of(tmp_path), tmp_path / "file" / "below")
