"""Running `tidegate` as a user does, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

TIMEOUT_S = 240.0
TIDEGATE = [sys.executable, "-m", "tidegate.plugin.cli"]
SMALL_SPARK = [
    "--master",
    "local[2]",
    "--conf",
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "--conf",
    "spark.sql.shuffle.partitions=2",
]
"""Where a command's job runs in tests."""


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
