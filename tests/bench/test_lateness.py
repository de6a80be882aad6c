"""The bench of lateness: its schedule, and what counts as early, lost or duplicated."""

from __future__ import annotations

import numpy as np

from bench import lateness
from bench.harness.driver import Recorder
from tests.support.receipts import received


def test_lateness_counts_the_early_the_lost_and_the_duplicated() -> None:
    recorder = Recorder()
    warm_up = (0, 1_000, 1_300_000_000, 0)
    rest = ((1, 1_000, 1_010_000_000, 0), (2, 2_000, 1_990_000_000, 0), (2, 2_000, 2_004_000_000, 0))
    lateness.record(recorder, "20 a second", "tidegate", received(warm_up, *rest), sent=5, warm_up=1)
    figures = {metric.title: metric.samples["tidegate"] for metric in recorder.metrics}
    assert figures["arrived early"] == [1]
    assert figures["earliest"] == [10.0]
    assert figures["lost"] == [2]
    assert figures["duplicated"] == [1]
    assert figures["lateness max"] == [10.0]
    assert figures["lateness p99 of the warm-up"] == [300.0]


def test_a_lateness_schedule_is_even_and_its_delays_are_within_bounds() -> None:
    rows = lateness.schedule(1000, 5, start_ms=10_000, seed=3)
    assert rows.shape == (5_000, 3)
    assert rows[0, 1] == 10_000
    assert set(np.diff(rows[:, 1]).tolist()) == {1}
    delays = rows[:, 2] - rows[:, 1]
    assert delays.min() >= 1_000
    assert delays.max() <= 10_000
    assert np.array_equal(rows, lateness.schedule(1000, 5, start_ms=10_000, seed=3))
