"""Flame graphs: boxes in proportion, callers below, names that are data, the same bytes each time."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from bench.harness.results import Flame, Frame, Result
from bench.plots import flame
from bench.plots.picture import draw
from tests.support.results import metric, result

SVG = "{http://www.w3.org/2000/svg}"
NAMES = "broker", "<b>&io", "read"


def graph(peer: str = "tidegate", scale: float = 1.0) -> Flame:
    inner = Frame(name=NAMES[2], value=2.0 * scale)
    pool = Frame(name=NAMES[1], value=6.0 * scale, children=[inner])
    return Flame(
        scenario="burst",
        peer=peer,
        unit="µs a message",
        roots=[
            Frame(name=NAMES[0], value=8.0 * scale, children=[pool]),
            Frame(name="daemon", value=2.0 * scale),
        ],
    )


def drawn(*flames: Flame, path: Path) -> ElementTree.Element:
    made: Result = result(metric(samples={"tidegate": [1.0]}), flames=list(flames))
    return ElementTree.parse(draw(made, path)).getroot()  # noqa: S314 written by the test


def boxes(root: ElementTree.Element) -> dict[str, tuple[float, float, float]]:
    found = {}
    for box in root.iter(f"{SVG}rect"):
        title = box.find(f"{SVG}title")
        assert title is not None
        assert title.text is not None
        found[title.text] = (float(box.attrib["x"]), float(box.attrib["y"]), float(box.attrib["width"]))
    return found


def test_boxes_are_as_wide_as_their_time_and_callers_lie_below(tmp_path: Path) -> None:
    found = boxes(drawn(graph(), path=tmp_path / "cost.json"))
    broker, pool, inner, daemon = (found[name] for name in ("broker: 8", "<b>&io: 6", "read: 2", "daemon: 2"))
    assert broker[2] == 4 * daemon[2] == 4 * inner[2]
    assert broker[0] + broker[2] == daemon[0]
    assert broker[1] == daemon[1] > pool[1] > inner[1]
    assert sum(width for _, _, width in (broker, daemon)) == flame.WIDTH


def test_all_graphs_have_one_scale(tmp_path: Path) -> None:
    root = drawn(graph(), graph("in-memory", 0.5), path=tmp_path / "cost.json")
    widths = {name: width for name, (_, _, width) in boxes(root).items()}
    assert widths["broker: 8"] == 2 * widths["broker: 4"]
    titles = [text.text for text in root.iter(f"{SVG}text") if text.attrib.get("class") == "h"]
    assert titles == ["burst, tidegate: 10.0 µs a message", "burst, in-memory: 5.0 µs a message"]


def test_the_same_graphs_give_the_same_bytes(tmp_path: Path) -> None:
    drawn(graph(), path=tmp_path / "one.json")
    drawn(graph(), path=tmp_path / "two.json")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
