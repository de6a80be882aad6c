"""When the job's process starts Spark."""

from __future__ import annotations

import pytest

from tidegate.pipeline.commands import common
from tidegate.pipeline.job.request import Request
from tidegate.pipeline.job.runner import RunningJob


@pytest.mark.parametrize(
    ("command", "master", "conf", "starts"),
    [
        ("rebuild", None, [], False),
        ("verify", None, [], False),
        ("audit", None, [], False),
        ("audit", "local[2]", [], True),
        ("rebuild", "local[2]", [], True),
        ("rebuild", None, ["spark.task.maxFailures=8"], True),
        ("verify", "spark://somewhere:7077", [], True),
    ],
)
def test_spark_is_started_at_once_for_who_asks_for_it_only(
    command: str, master: str | None, conf: list[str], starts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[RunningJob] = []

    def start_spark(job: RunningJob) -> None:
        started.append(job)

    monkeypatch.setattr(RunningJob, "start_spark", start_spark)
    settings = common.Spark(master=master, conf=conf).settings()
    with RunningJob(Request(command=command, options={}, spark=settings), lambda event: None):
        assert bool(started) == starts
