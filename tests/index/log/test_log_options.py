"""How often index logs are written to."""

from __future__ import annotations

import pytest

from tidegate.index.log import LogOptions


@pytest.mark.parametrize(
    ("written_logs", "pause_ms"), [(0, 20), (1, 20), (10, 20), (15, 30), (20, 40), (21, 40), (5_000, 40)]
)
def test_many_logs_are_written_to_half_as_often(written_logs: int, pause_ms: float) -> None:
    assert LogOptions(interval_ms=20, crowd_logs=10).pause_ms(written_logs) == pause_ms
