"""The tuning bench: one small width measured for real, and what its results become in tables and plots."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.harness import report, results
from bench.harness.driver import Recorder
from bench.plots.picture import draw
from bench.tuning import bench as tuning
from bench.tuning.worker import Setting
from tests.support.results import metric, result

HOUR_MS = 3_600_000


@pytest.mark.parametrize("width_ms", [HOUR_MS, None])
def test_a_width_is_measured_and_nothing_is_lost(width_ms: int | None) -> None:
    recorder = Recorder()
    setting = Setting(
        entries=5_000, batch=500, span_ms=48 * HOUR_MS, staging_bytes=24 * 1_000, width_ms=width_ms
    )
    filled = tuning.measure(setting, "one", recorder)
    figures = {each.title: each.samples["one"][0] for each in recorder.metrics}
    assert figures["lost or handed out early"] == 0
    assert filled["held"] == 5_000
    assert figures["blocks"] == filled["blocks"] >= 1
    assert figures["packed blocks"] > 0
    assert 0 < figures["kill -9, opened"] <= figures["kill -9, opened, first due entry popped"]
    assert (filled["width_ms"] == HOUR_MS) == (width_ms is not None)


def test_widths_have_no_ratios_and_are_drawn_as_lines(tmp_path: Path) -> None:
    samples = {"1 h": [2.0, 3.0], "1 d": [1.0], "auto": [1.5], "7 d": [80.0]}
    made = result(
        metric(samples=samples),
        peers=[*samples],
        axis="slice width (h)",
        positions={"1 h": 1.0, "1 d": 24.0, "auto": 6.0, "7 d": 168.0},
    )
    assert report.header(made) == ["", "1 h", "1 d", "auto", "7 d", "target"]
    assert report.row(made, made.metrics[0])[1:] == ["2 / 2.5 / 3", "1", "1.5", "80", ""]
    drawn = draw(made, tmp_path / "widths.json")
    text = drawn.read_text("utf-8")
    assert all(f">{said}</text>" in text for said in ("slice width (h)", "auto", "fixed"))


def test_the_page_has_room_for_the_tables() -> None:
    text = (results.RESULTS / "README.md").read_text("utf-8")
    assert report.BEGIN in text and report.END in text
