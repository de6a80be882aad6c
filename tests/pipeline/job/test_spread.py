"""Pieces of work on Spark's workers: each done once, told as they are done, nothing left under way."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.support.pipeline.commands import Notes
from tests.support.waiting import wait_until
from tidegate.pipeline.job.progress import _event
from tidegate.pipeline.job.request import StageEvent
from tidegate.pipeline.job.spread import grouped, spread
from tidegate.pipeline.rebuild.stages import Part

PATIENCE_S = 120.0


def until_there(path: Path) -> Callable[[int], Part]:
    """Work of which the last piece waits for a file. Made in here: it travels to the workers as it is."""

    def work(number: int) -> Part:
        end_s = time.monotonic() + PATIENCE_S
        while number == 99 and not path.exists() and time.monotonic() < end_s:
            time.sleep(0.01)
        return Part(0, str(number), 1, 10, (int(path.exists()),))

    return work


@given(pieces=st.integers(0, 300), together=st.integers(1, 9), cores=st.integers(1, 40))
def test_tasks_have_every_piece_in_its_place_and_are_small_at_the_end(
    pieces: int, together: int, cores: int
) -> None:
    tasks = grouped(range(pieces), together, cores)
    assert [one for task in tasks for one in task] == list(range(pieces))
    sizes = [len(task) for task in tasks]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1:] in ([], [1])
    assert max(sizes, default=1) <= together
    if pieces >= 2 * cores * together:
        assert sizes[0] == together


@pytest.mark.parametrize("together", [1, 4])
def test_each_piece_is_told_once_and_before_the_last_one_is_done(
    spark: SparkSession, tmp_path: Path, together: int
) -> None:
    context, there = Notes(spark), tmp_path / "there"
    rounds: list[list[Part]] = []
    for done in spread(context, "waiting", range(100), until_there(there), together):
        rounds.append(done)
        there.touch()
    assert sorted(int(one.name) for done in rounds for one in done) == list(range(100))
    assert rounds[0][0].quantiles == (0,), "nothing was told before all was done"
    assert [(one.done, one.tasks, one.entries) for one in context.stages] == [(100, 100, 1_000)]


def test_nothing_is_under_way_when_a_piece_or_the_caller_fails(spark: SparkSession, tmp_path: Path) -> None:
    def failing(number: int) -> Part:
        if number == 7:
            raise ValueError("seven")
        return Part(0, str(number), 1, 1, ())

    def idle() -> bool:
        return not spark.sparkContext.statusTracker().getActiveJobsIds()

    with pytest.raises(Exception, match="seven"):
        list(spread(Notes(spark), "failing", range(100), failing))
    wait_until(idle, "the job is over")
    waiting = spread(Notes(spark), "left", range(100), until_there(tmp_path / "never"))
    assert next(waiting)
    waiting.close()
    wait_until(idle, "the job is over")


def test_progress_never_counts_a_piece_twice(spark: SparkSession, tmp_path: Path) -> None:
    """A task that Spark tries again is one task."""
    marks = tmp_path / "marks"
    marks.mkdir()

    def twice(number: int) -> Part:
        if number % 10 == 0 and not (marks / str(number)).exists():
            (marks / str(number)).touch()
            raise ValueError("once more")
        return Part(0, str(number), 1, 1, ())

    context = Notes(spark)
    found = [one for done in spread(context, "twice", range(40), twice, 3) for one in done]
    assert sorted(int(one.name) for one in found) == list(range(40))
    assert context.stages[-1] == StageEvent(
        stage=context.stages[-1].stage, name="twice", done=40, tasks=40, entries=40
    )


def test_a_stage_is_told_of_in_one_line(spark: SparkSession) -> None:
    """Spark describes what a streaming query does by itself in several."""
    context = spark.sparkContext
    context.setJobGroup("told", "tidegate-audit\nid = 4dc2\nbatch = 0")
    try:
        spark.range(10).count()
    finally:
        context.setJobGroup("", "")
    (job, *_) = context.statusTracker().getJobIdsForGroup("told")
    found = context.statusTracker().getJobInfo(job)
    assert found is not None
    store = context._jsc.sc().statusStore()
    assert "tidegate-audit" in {_event(store.lastStageAttempt(one)).name for one in found.stageIds}
