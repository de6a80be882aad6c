"""A Spark that is too old: one line says so, wherever it comes from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pipeline.commands import assert_one_line, environment, tidegate
from tidegate.pipeline.errors import MissingPartError
from tidegate.pipeline.job.parts import check_spark, installed

TOO_OLD = "Spark 4.0.2 is too old, 4.1 or newer is needed: "


@pytest.mark.parametrize("version", ["4.1.0", "4.10.0", "4.2.0.dev1", "5.0.0", "of our own", installed()])
def test_new_enough(version: str) -> None:
    check_spark(version)


@pytest.mark.parametrize("version", ["4.0.2", "3.5.9", "4.0.0.dev3"])
def test_too_old(version: str) -> None:
    with pytest.raises(MissingPartError, match=f"^Spark {version} is too old, 4.1 or newer is "):
        check_spark(version)


def test_a_command_says_so_before_it_starts_anything(tmp_path: Path) -> None:
    """As pip has written it down."""
    told = tmp_path / "pyspark-4.0.2.dist-info" / "METADATA"
    told.parent.mkdir()
    told.write_text("Metadata-Version: 2.1\nName: pyspark\nVersion: 4.0.2\n")
    (tmp_path / "r.csv").write_text("message_id\n1:2\n")
    done = tidegate(
        "audit", "--sent", "r.csv", "--received", "r.csv",
        cwd=tmp_path, env=environment(PYTHONPATH=str(tmp_path)),
    )  # fmt: skip
    assert_one_line(done, TOO_OLD + "run pip install 'WHEEL[spark]'")


@pytest.mark.parametrize("module", ["source.backlog", "source.options"])
def test_a_notebook_and_a_worker_are_told_what_to_install(tmp_path: Path, module: str) -> None:
    """They import the data source, of which an older PySpark lacks parts."""
    package = tmp_path / "pyspark"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = '4.0.2'\n")
    done = subprocess.run(
        [sys.executable, "-c", f"import tidegate.pipeline.{module}"],
        env=environment(PYTHONPATH=str(tmp_path)), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"tidegate.pipeline.errors.MissingPartError: {TOO_OLD}install that here and on the cluster"
    )
