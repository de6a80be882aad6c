"""The pictures of results: one SVG each, small, with text as text, the same each time; and those in git."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from bench.harness import baseline
from bench.harness.results import RESULTS, Result, Series
from bench.plots import svg
from bench.plots.picture import draw, path_of
from tests.support.results import metric, result

SVG = "{http://www.w3.org/2000/svg}"
SCENARIO = "20 a second"
PICTURES_BYTES_MAX = 1_000_000
SHOWN = [path for path in sorted(RESULTS.glob("*.json")) if not baseline.is_before(path)]


def with_curves() -> Result:
    return result(
        metric(samples={"tidegate": [0.0], "in-memory": [5.0, 6.0]}, target=1.0),
        series=[
            Series(scenario=SCENARIO, peer="tidegate", unit="ms", quantiles=[1.0, 2.0, 30.0]),
            Series(scenario=SCENARIO, peer="tidegate", unit="ms", quantiles=[1.5, 2.0, 31.0]),
            Series(scenario=SCENARIO, peer="bucket", unit="ms", quantiles=[-900.0, 2.0, 900.0]),
        ],
    )


def parsed(path: Path) -> ElementTree.Element:
    return ElementTree.parse(path).getroot()  # noqa: S314 written by the test


def texts(root: ElementTree.Element) -> list[str]:
    return ["".join(each.itertext()) for each in root.iter(f"{SVG}text")]


def test_bars_and_curves_are_one_picture_with_text_as_text(tmp_path: Path) -> None:
    path = draw(with_curves(), tmp_path / "failover.json")
    assert [each.name for each in tmp_path.iterdir()] == [path.name] == ["failover.svg"]
    said = texts(parsed(path))
    assert "first due message (s)" in said
    assert SCENARIO in said
    assert said.count("bucket") == 1
    assert said.count("tidegate") == 2  # the bar's and the curve's name, however many rounds
    assert "font-family" not in path.read_text().partition("</style>")[2]


def test_a_panel_compares_something(tmp_path: Path) -> None:
    alone = metric(title="nobody beside it", samples={"tidegate": [1.0], "bucket": []})
    beside = metric(title="two", samples={"tidegate": [1.0], "bucket": [2.0]})
    said = texts(parsed(draw(result(alone, beside), tmp_path / "failover.json")))
    assert [title for title in said if "(s)" in title] == ["two (s)"]
    assert "nobody beside it (s)" in texts(parsed(draw(result(alone), tmp_path / "failover.json")))


def test_the_same_result_gives_the_same_bytes(tmp_path: Path) -> None:
    first = draw(with_curves(), tmp_path / "one.json")
    assert draw(with_curves(), tmp_path / "two.json").read_bytes() == first.read_bytes()


def line_of(points: int, path: Path) -> ElementTree.Element:
    def make() -> Figure:
        figure = Figure()
        axes = figure.subplots()
        axes.plot(np.arange(points), np.sin(np.arange(points)))
        axes.scatter(np.arange(points), np.cos(np.arange(points)), s=1)
        return figure

    svg.write(make, path, salt="points")
    return parsed(path)


def test_dense_marks_are_an_image_and_few_are_not(tmp_path: Path) -> None:
    few = line_of(svg.DENSE_POINTS, tmp_path / "few.svg")
    assert not list(few.iter(f"{SVG}image"))
    dense = line_of(50 * svg.DENSE_POINTS, tmp_path / "dense.svg")
    assert len(list(dense.iter(f"{SVG}image"))) in (1, 2)
    assert texts(dense), "the axes stay text"
    assert (tmp_path / "dense.svg").stat().st_size < 100_000


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ('<path d="M 0.123456 -7.100001 \nL 12 3.5"/>', '<path d="M0.1 -7.1L12 3.5"/>'),
        ('<path d="M 1 2 L 5 2 L 5 9 L 1 9 z M 1 9 L 1 3"/>', '<path d="M1 2H5V9H1zM1 9V3"/>'),
        ('<path d="M 1 2 Q 3 2 5 2 L 9 2"/>', '<path d="M1 2Q3 2 5 2L9 2"/>'),
        ('<text x="1.0004">0.123456</text>', '<text x="1">0.123456</text>'),
        ('<use xlink:href="#m0.1234"/>', '<use xlink:href="#m0.1234"/>'),
        ('<image transform="scale(0.1234)"/>', '<image transform="scale(0.12)"/>'),
        ('<g id="patch_1"> <!-- 10 -->\n\n</g>', ""),
        ('<g>\n<g clip-path="url(#a)">\n<g>\n<path/></g></g></g>', '<g clip-path="url(#a)">\n<path/></g>'),
        ("<text style=\"font-size: 7px; font-family: 'DejaVu Sans'\"/>", '<text style="font-size: 7px"/>'),
    ],
)
def test_what_is_left_out(written: str, kept: str) -> None:
    assert svg.compact(written) == kept + "\n"


def test_a_style_of_several_elements_is_a_rule() -> None:
    picture = "<style>{}</style>{}"
    red, blue = ' style="fill: red"', ' style="fill: blue"'
    written = picture.format("", f'<path{red}/><path{blue}/><text x="0"{red}>style="fill: red"</text>')
    shared = '<path class="s0"/><path style="fill: blue"/><text x="0" class="s0">style="fill: red"</text>'
    assert svg.compact(written) == picture.format(".s0{fill: red}", shared) + "\n"


def test_ids_are_short() -> None:
    written = (
        '<path id="md416c672aa"/><clipPath id="p71d6f25e78"/><use xlink:href="#md416c672aa"/>'
        '<path clip-path="url(#p71d6f25e78)"/><text>"md416c672aa"</text>'
    )
    short = (
        '<path id="i0"/><clipPath id="i1"/><use xlink:href="#i0"/><path clip-path="url(#i1)"/>'
        '<text>"md416c672aa"</text>'
    )
    assert svg.compact(written) == short + "\n"


def test_every_result_in_git_has_one_picture_and_all_are_small() -> None:
    pictures = list(RESULTS.glob("*.svg"))
    assert sorted(pictures) == sorted(map(path_of, SHOWN))
    assert sum(path.stat().st_size for path in pictures) < PICTURES_BYTES_MAX


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.stem)
def test_every_result_in_git_can_be_drawn(path: Path, tmp_path: Path) -> None:
    drawn = draw(baseline.load_beside(path), tmp_path / path.name)
    assert texts(parsed(drawn)) == texts(parsed(path_of(path))), "run `python -m bench plot`"
