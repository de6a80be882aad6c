"""A full disk in the audit and in tuning: one line that says what to do, and nothing half-written.

A file that must not grow beyond a limit fails as on a disk that is full.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.pipeline.rebuild.test_faults import files_of_at_most
from tests.pipeline.tune.test_model import uniform
from tidegate.pipeline.errors import OptionError, PipelineError
from tidegate.pipeline.job.failures import explained, room_for
from tidegate.pipeline.job.launch import launch
from tidegate.pipeline.job.request import Request
from tidegate.pipeline.job.view import make_view
from tidegate.pipeline.tune import record
from tidegate.pipeline.tune.trial import Setting, Trial, run_trials
from tidegate.plugin.pages.page import Page, PageError

DRIVER = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 9.0 failed 4 times"
)
OFFENDING = f"{DRIVER}\nCaused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device"
SHUFFLE = f"{DRIVER}: java.io.IOException: No space left on device"
"""As Spark has told them, of a small file system."""


def test_no_half_of_a_report_or_of_a_recording(tmp_path: Path) -> None:
    page = Page("Report")
    page.text("words " * 1_000)
    rows = np.arange(4_000).reshape(-1, 2)
    with files_of_at_most(2_048):
        with pytest.raises(PageError, match=r"cannot write the report to .*; choose another --report"):
            page.write(tmp_path / "report.html")
        with pytest.raises(OptionError, match=r"cannot write .*trace\.csv: .*; choose another --report"):
            record._write(tmp_path / "trace.csv", rows)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("most_bytes", "phase"), [(1_024, "begin"), (9_000, "play")])
def test_a_trial_of_the_index_says_where_it_found_no_room(
    tmp_path: Path, most_bytes: int, phase: str
) -> None:
    trace = uniform(400, 1_000, 3_600_000)
    trial = Trial("one", Setting(width_ms=60_000, staging_bytes=1 << 12), *trace)
    with (
        files_of_at_most(most_bytes),
        pytest.raises(PipelineError, match=rf"failed \({phase}\): .*; free some space there.*TMPDIR=DIR"),
    ):
        run_trials(tmp_path, [trial])


def test_no_job_is_started_where_spark_would_wait_for_room(tmp_path: Path) -> None:
    with (
        files_of_at_most(4_096),
        pytest.raises(PipelineError, match=r"cannot write temporary files.*TMPDIR=DIR"),
    ):
        launch(Request(command="audit", options={}), make_view())


def test_which_disk_of_spark_s_is_full() -> None:
    asked = room_for("the offending messages to /small", "--offending")
    with (
        pytest.raises(PipelineError, match=r"cannot write the offending messages to /small.*another --off"),
        asked,
    ):
        raise RuntimeError(OFFENDING)
    with pytest.raises(RuntimeError), room_for("the offending messages to /large", "--offending"):
        raise RuntimeError(SHUFFLE)
    told = explained(RuntimeError(SHUFFLE))
    assert (told.exit_code, told.expected) == (2, True)
    assert "TMPDIR=DIR or --conf spark.local.dir=DIR" in told.message
