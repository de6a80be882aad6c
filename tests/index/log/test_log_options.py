"""How often index logs are written to."""

from __future__ import annotations

import pytest

from tidegate.index.log import LogOptions

OPTIONS = LogOptions(interval_ms=20, crowd_logs=10)


@pytest.mark.parametrize(
    ("written_logs", "pause_ms"), [(0, 20), (1, 20), (10, 20), (15, 30), (20, 40), (21, 40), (5_000, 40)]
)
def test_many_logs_are_written_to_half_as_often(written_logs: int, pause_ms: float) -> None:
    assert OPTIONS.pause_ms(written_logs, 0) == pause_ms


@pytest.mark.parametrize(("took_ms", "pause_ms"), [(0, 20), (5, 15), (15, 5), (16, 5), (1_000, 5)])
def test_what_came_during_a_slow_write_waits_less(took_ms: float, pause_ms: float) -> None:
    assert OPTIONS.pause_ms(1, took_ms) == pause_ms
