"""Jobs on a real standalone cluster: shipped packages, spark-submit, a worker killed in the middle."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from tests.pipeline.audit.test_job import receipts, sent_rows, write
from tests.pipeline.tune.test_model import HOUR_MS, uniform
from tests.support.pipeline.commands import TIMEOUT_S, assert_one_line, environment, tidegate
from tests.support.pipeline.spark_cluster import StandaloneSpark
from tidegate.index import WIDTHS_MS
from tidegate.pipeline.audit.options import AuditOptions, Record
from tidegate.pipeline.job.failures import explained
from tidegate.pipeline.job.launch import launch
from tidegate.pipeline.job.package import UNPACKED_AS
from tidegate.pipeline.job.request import Request, SparkSettings, StageEvent
from tidegate.pipeline.job.session import configuration
from tidegate.pipeline.tune.options import TuneOptions


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive that ships to workers, made once."""
    folder = tmp_path_factory.mktemp("package")
    done = tidegate("spark-package", "--out", folder, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert Path(told["script"]) == folder / "tidegate_submit.py"
    return Path(told["archive"])


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has no packages at all, as on a cluster's machines."""
    folder = tmp_path_factory.mktemp("bare") / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    return folder / "bin" / "python"


def test_the_package_is_whole(package: Path) -> None:
    with tarfile.open(package) as tar:
        members = {one.name: one for one in tar.getmembers()}
    for needed in (
        "tidegate/pipeline/audit/judge.py",
        "tidegate/index/format/block.py",
        "tidegate/plugin/errors.py",
        "numpy/__init__.py",
        "pyarrow/__init__.py",
        "pandas/__init__.py",
        "crc32c/__init__.py",
    ):
        assert needed in members
    assert not any(name.startswith(("pyspark/", "py4j/")) for name in members)
    assert not any("__pycache__" in name or name.endswith((".java", ".pth")) for name in members)
    assert not any(name.startswith("tidegate/plugin/shim") for name in members)
    # The same installation gives the same bytes: nothing of this moment or this user is in it.
    assert {(one.mtime, one.uid, one.mode) for one in members.values()} == {(0, 0, 0o644)}
    assert list(members) == sorted(members)


def records(folder: Path) -> tuple[str, str]:
    sent = sent_rows(2_000)
    return write(sent, folder / "sent.parquet"), write(receipts(sent)[3:], folder / "received.parquet")


def test_a_package_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = tidegate("spark-package", "--out", "file/dist", cwd=tmp_path)
    assert_one_line(done, "cannot write file/dist/tidegate-spark.tar.gz: Not a directory")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_a_dry_run_packs_nothing(tmp_path: Path) -> None:
    done = tidegate("spark-package", "--dry-run", "--out", "dist", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("to dist, for ") and "pyarrow" in done.stdout
    assert not list(tmp_path.iterdir())


def test_what_ships_the_package_to_workers(package: Path) -> None:
    told = configuration("audit", SparkSettings(master="spark://somewhere:7077", package=str(package)))
    assert told["spark.archives"] == f"{package}#{UNPACKED_AS}"
    assert told["spark.executorEnv.PYTHONPATH"] == UNPACKED_AS


def test_a_worker_without_the_package_is_told_of() -> None:
    error = Exception("… ModuleNotFoundError: No module named 'tidegate' …")
    assert "ship them with tidegate spark-package and --package" in explained(error).message


def test_by_spark_submit_to_a_worker_that_has_nothing(
    package: Path, bare_python: Path, tmp_path: Path
) -> None:
    sent, received = records(tmp_path)
    # One worker: each unpacks the archive anew.
    with StandaloneSpark(tmp_path / "spark", workers=1) as standalone:
        done = subprocess.run(
            [
                str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
                "--master", standalone.master, *standalone.conf(),
                "--archives", f"{package}#{UNPACKED_AS}",
                "--conf", f"spark.executorEnv.PYTHONPATH={UNPACKED_AS}",
                "--conf", f"spark.pyspark.python={bare_python}",
                "--conf", f"spark.pyspark.driver.python={sys.executable}",
                str(package.parent / "tidegate_submit.py"),
                "audit", "--sent", sent, "--received", received, "--json",
            ],
            cwd=tmp_path, env=environment(SPARK_LOCAL_IP="127.0.0.1"), capture_output=True, text=True,
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    assert done.returncode == 1, done.stderr[-3000:]
    assert json.loads(done.stdout)["lost"] == 3


class KillingView:
    """Kills a worker as soon as a stage of the given name has begun."""

    def __init__(self, spark: StandaloneSpark, stage: str) -> None:
        self._spark, self._stage = spark, stage
        self.killed = False

    def stage(self, event: StageEvent) -> None:
        if not self.killed and event.name.startswith(self._stage):
            self.killed = True
            self._spark.kill_worker(0)

    def note(self, text: str) -> None:
        """Nobody reads it."""


def settings_of(standalone: StandaloneSpark) -> SparkSettings:
    pairs = (word for word in standalone.conf() if word != "--conf")
    return SparkSettings(master=standalone.master, conf=dict(pair.split("=", 1) for pair in pairs))


def test_an_audit_whose_worker_is_killed(tmp_path: Path) -> None:
    sent = sent_rows(50_000)
    options = AuditOptions(
        sent=Record.of(write(sent, tmp_path / "sent.parquet"), None),
        received=Record.of(write(receipts(sent)[3:], tmp_path / "received.parquet"), None),
        offending=str(tmp_path / "offending"),
    )
    with StandaloneSpark(tmp_path / "spark") as spark:
        view = KillingView(spark, "judging messages")
        request = Request(command="audit", options=options.model_dump(mode="json"), spark=settings_of(spark))
        result, exit_code = launch(request, view)
    assert view.killed
    assert exit_code == 1
    assert (result["sent"], result["received"], result["lost"], result["repeated"]) == (50_000, 49_997, 3, 0)


def test_a_tuning_whose_worker_is_killed(tmp_path: Path) -> None:
    """Every width is predicted all the same."""
    trace = tmp_path / "trace.parquet"
    played = uniform(20_000, 2 * HOUR_MS, 24 * HOUR_MS)
    pq.write_table(pa.table(played._asdict()), trace)
    # A spill every 5,000 entries: slices have a history to follow.
    options = TuneOptions(trace=str(trace), staging_bytes=5_000 * 24)
    with StandaloneSpark(tmp_path / "spark") as spark:
        view = KillingView(spark, "following slices")
        request = Request(command="tune", options=options.model_dump(mode="json"), spark=settings_of(spark))
        result, exit_code = launch(request, view)
    assert view.killed
    assert exit_code == 0
    assert result["entries"] == 20_000
    assert [one["width_ms"] for one in result["candidates"]] == list(WIDTHS_MS)
