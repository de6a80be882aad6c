"""Running `tidegate` as a user does, in a process of its own; and what a job is given without one."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from tests.support.class_archives import spark_java
from tidegate.pipeline.job.request import StageEvent

TIMEOUT_S = 480.0
TIDEGATE = [sys.executable, "-m", "tidegate.plugin.cli"]
SMALL_SPARK = [
    "--master",
    "local[2]",
    "--conf",
    f"spark.driver.extraJavaOptions={spark_java()}",
    "--conf",
    "spark.sql.shuffle.partitions=2",
]
"""Where a command's job runs in tests."""


@dataclass
class Notes:
    """A job's tools, without a process around it.

    spark_is_up: the job leaves what it can to Spark's workers. wants_spark: it has to.
    """

    spark: SparkSession
    spark_is_up: bool = True
    spark_is_here: bool = True
    wants_spark: bool = True
    started: bool = False
    told: list[str] = field(default_factory=list)
    stages: list[StageEvent] = field(default_factory=list)

    def start_spark(self) -> None:
        """It is there already, or is never to be."""
        self.started = True

    def note(self, text: str) -> None:
        """Keep it."""
        self.told.append(text)

    @contextlib.contextmanager
    def shown(self, look: Callable[[], StageEvent]) -> Iterator[None]:
        """Keep how far it is at its end."""
        yield
        self.stages.append(look())


def environment(**changes: str | None) -> dict[str, str]:
    """This process's without what other tests have set; None takes a variable away."""
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("TIDEGATE_", "PYSPARK_"))
    }
    for name, value in changes.items():
        clean.pop(name, None)
        if value is not None:
            clean[name] = value
    return clean


def tidegate(
    *arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*TIDEGATE, *map(str, arguments)],
        cwd=cwd,
        env=dict(env or environment()),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def assert_one_line(done: subprocess.CompletedProcess[str], words: str, exit_code: int = 2) -> None:
    """It failed with one line that says what to do."""
    assert done.returncode == exit_code, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("tidegate: ")
    assert words in line
