"""The bench `takeover` checks messages that wait while a topic moves."""

from __future__ import annotations

import numpy as np

from bench.takeover import backlog
from bench.takeover.judge import Arrival

MS = 1_000_000
NOW_MS, DUE_MS = 1_000_000, 1_240_000
MOVED_NS = 1_200_000 * MS


def arrival(number: int, at_ms: int) -> Arrival:
    return Arrival(number, (1, number), 0, at_ms * MS, at_ms * MS)


def test_the_sample_lies_all_over_the_topic() -> None:
    numbers = backlog.sampled(100_000)
    assert (len(numbers), numbers[0], numbers[-1]) == (backlog.SAMPLE, 0, 99_999)
    assert np.diff(numbers).max() <= 51
    assert len(backlog.sampled(10_000_000)) == backlog.SAMPLE
    assert len(backlog.sampled(5_000)) == 500
    assert backlog.sampled(3).tolist() == [0]


def test_the_sample_is_due_after_the_moves_and_all_others_tomorrow() -> None:
    made = backlog.make(20_000, NOW_MS, DUE_MS, seed=1)
    number, send_at_ms, deliver_at_ms = made.schedule.T
    assert number.tolist() == list(range(20_000))
    assert not send_at_ms.any()
    is_soon = deliver_at_ms < NOW_MS + backlog.FAR_MS[0]
    assert dict(zip(number[is_soon].tolist(), deliver_at_ms[is_soon].tolist(), strict=True)) == made.due
    assert min(made.due.values()) >= DUE_MS
    assert max(made.due.values()) < DUE_MS + backlog.SPREAD_MS


def test_a_tracker_that_reads_all_again_gets_more_time() -> None:
    ours = backlog.planned_s(1_000_000, 1, 200.0, 0, None)
    reads = backlog.planned_s(1_000_000, 1, 200.0, 5, 180.0)
    reread_s = 1_000_000 / backlog.READ_PER_S
    assert reads == ours + 5 * reread_s + 180.0 + reread_s
    assert (
        backlog.planned_s(15_000, 1, 200.0, 0, 180.0) - backlog.planned_s(15_000, 1, 200.0, 0, None) == 10.0
    )


def test_each_of_the_sample_comes_once_in_time() -> None:
    due = {0: DUE_MS, 50: DUE_MS + 10, 99: DUE_MS + 20}
    arrivals = [arrival(0, DUE_MS), arrival(50, DUE_MS + 10), arrival(99, DUE_MS + 400), arrival(7, NOW_MS)]
    assert backlog.judge_sample(due, arrivals, moved_ns=MOVED_NS) == backlog.Sample((), 0, 0, 0)


def test_what_is_lost_early_or_comes_twice_is_told() -> None:
    due = {0: DUE_MS, 50: DUE_MS + 10, 99: DUE_MS + 20}
    arrivals = [arrival(0, DUE_MS - 1), arrival(50, DUE_MS + 10), arrival(50, DUE_MS + 900)]
    found = backlog.judge_sample(due, arrivals, moved_ns=MOVED_NS)
    assert found == backlog.Sample(lost=(99,), early=1, twice=1, before=0)


def test_what_came_before_the_last_move_has_not_seen_it() -> None:
    moved_ns = (DUE_MS + 15) * MS
    due = {0: DUE_MS, 99: DUE_MS + 20}
    arrivals = [arrival(0, DUE_MS + 1), arrival(99, DUE_MS + 20)]
    assert backlog.judge_sample(due, arrivals, moved_ns=moved_ns).before == 1


def test_what_a_reset_of_the_cursor_asks_for_is_not_twice() -> None:
    due = {0: DUE_MS}
    arrivals = [arrival(0, DUE_MS + 1), arrival(0, DUE_MS + 500), arrival(0, DUE_MS + 900)]
    resets_ns = [(DUE_MS + 100) * MS, (DUE_MS + 600) * MS]
    assert backlog.judge_sample(due, arrivals, moved_ns=0, taken_back_at_ns=resets_ns).twice == 0
    assert backlog.judge_sample(due, arrivals, moved_ns=0, taken_back_at_ns=resets_ns[:1]).twice == 1
