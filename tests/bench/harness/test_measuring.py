"""The pure parts of the benches: schedules, receipts, what counts as early, lost, repeated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from bench import acks, add, failover, lateness
from bench.harness.driver import Recorder
from bench.harness.errors import DeadlineError
from bench.harness.waiting import settled, until
from bench.pulsar import receipts
from bench.pulsar.receipts import ReceiptWriter


def received(*rows: tuple[int, int, int, int]) -> NDArray[np.void]:
    return np.array(list(rows), receipts.RECORD)


def test_receipts_are_read_as_they_were_written_and_a_torn_record_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "received.log"
    assert receipts.count(path) == 0
    assert not len(receipts.read(path))
    with ReceiptWriter(path) as writer:
        writer.append(1, 1_000, 1_005_000_000, 1_006_000_000)
        writer.append(2, 2_000, 1_999_500_000, 0)
    with path.open("ab") as file:
        file.write(b"torn")
    assert receipts.count(path) == 2
    records = receipts.read(path)
    assert records["sequence"].tolist() == [1, 2]
    assert receipts.lateness_ms(records).tolist() == [5.0, -0.5]


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


def test_a_repeat_is_what_was_acknowledged_before_the_kill_and_came_again() -> None:
    killed_at_ns = 1_000_000_000
    before = received(
        (0, 0, 1, 100_000_000),  # acknowledged, comes again
        (1, 0, 1, 950_000_000),  # acknowledged, comes again
        (2, 0, 1, 990_000_000),  # acknowledged, stays away
        (3, 0, 1, 0),  # never acknowledged, comes again
        (4, 0, 1, 1_000_000_001),  # acknowledged after the kill, comes again
    )
    after = received((0, 0, 2, 0), (1, 0, 2, 0), (3, 0, 2, 0), (4, 0, 2, 0), (5, 0, 2, 0))
    assert acks.repeats(before, after, killed_at_ns).tolist() == [900.0, 50.0]
    assert acks.lost(6, before, after) == 0
    assert acks.lost(8, before, after) == 2


def test_messages_to_acknowledge_fall_due_at_the_rate_in_random_order() -> None:
    rows = acks.kill_schedule(10_000, start_ms=5_000, seed=1)
    assert np.bincount(rows[:, 2] - 5_000).tolist() == [5] * 2_000
    assert (np.diff(rows[:, 2]) < 0).sum() > 4_000


def test_every_other_message_of_the_graceful_restart_is_far() -> None:
    rows = acks.alternate_schedule(6, soon_ms=10, far_ms=99)
    assert rows[:, 2].tolist() == [10, 99, 10, 99, 10, 99]


def test_the_due_messages_of_a_failover_follow_the_far_ones() -> None:
    rows = failover.due_schedule(first_sequence=500, deliver_at_ms=77)
    assert rows[:, 0].tolist() == list(range(500, 500 + failover.DUE))
    assert set(rows[:, 2].tolist()) == {77}


def test_the_harness_lines_become_one_sample_a_round() -> None:
    recorder = Recorder()
    line = "round tidegate uniform 0 41.50 39.00 40.10 55.00 2.250 0.2"
    add.record(recorder, [line.split(), line.replace("41.50", "43.00").split()])
    mean = recorder.metrics[0]
    assert (mean.scenario, mean.unit, mean.target) == ("due evenly over 24 h", "ns", 40.0)
    assert mean.samples == {"tidegate": [41.5, 43.0]}


def test_waiting_returns_the_first_true_answer_and_names_what_did_not_come() -> None:
    answers = iter([0, 0, 7])
    assert until("seven", lambda: next(answers), timeout_s=60, interval_s=0) == 7
    with pytest.raises(DeadlineError, match="the tide"):
        until("the tide", lambda: False, timeout_s=0, interval_s=0)


def test_a_number_is_settled_when_it_stays_the_same() -> None:
    answers = iter([1, 2, 3])
    assert settled("it", lambda: next(answers, 3), timeout_s=60, quiet_s=0.3) == 3
