"""The record of a run: what the live view reads while it is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.outcomes import LEDGER_ID, workload_of
from tidegate.plugin.checks import NEVER
from tidegate.plugin.demo.recorder import Recorder, now_us
from tidegate.plugin.demo.workload import Kind


def deliver(recorder: Recorder, number: int, received_us: int) -> None:
    recorder.delivered(number, LEDGER_ID, number, received_us, received_us)


def test_counts_while_it_runs(tmp_path: Path) -> None:
    workload = workload_of(
        [(Kind.RETRY, 0, 0.5), (Kind.RETRY, 0, 0.5), (Kind.PLAIN, 0, None), (Kind.RETRY, 0, 99)]
    )
    recorder = Recorder(workload)
    start_us = now_us() - 1_000_000
    recorder.begin(start_us)
    for number in (0, 1, 2, 2):
        recorder.confirmed(number)
    deliver(recorder, 0, start_us + 510_000)
    deliver(recorder, 1, start_us + 490_000)
    deliver(recorder, 0, start_us + 600_000)
    deliver(recorder, 2, start_us + 1_000)
    live = recorder.live()
    assert (live.sent, live.due, live.delivered, live.plain) == (3, 2, 3, 1)
    assert (live.early, live.repeated, live.recent) == (1, 1, 2)
    assert live.max_ms == pytest.approx(10)
    assert live.worst_ms == [pytest.approx(-10), pytest.approx(10)]
    assert recorder.outstanding(np.arange(4)).tolist() == [3]
    assert (recorder.confirmations() == NEVER).tolist() == [False, False, False, True]

    recorder.save(tmp_path / "record.npz")
    with np.load(tmp_path / "record.npz") as saved:
        assert saved["number"].tolist() == [2, 1, 0, 0]


def test_nothing_has_happened() -> None:
    live = Recorder(workload_of([(Kind.FAR, -1, 86_400)])).live()
    assert (live.sent, live.due, live.delivered, live.recent, live.worst_ms) == (0, 0, 0, 0, [])
