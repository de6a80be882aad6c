"""The Spark session of a job.

Invariants: on this machine everything listens on loopback and there is no web page; times are UTC; the
workers' Python is the job's, or the shipped package's.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate.pipeline.errors import OptionError, PipelineError
from tidegate.pipeline.job.package import UNPACKED_AS
from tidegate.pipeline.job.parts import check_spark, installed
from tidegate.pipeline.job.request import SparkSettings

_GIB = 1 << 30
_LOCAL_MEMORY_MAX_GIB = 8
_TRIES = 4
_PYTHON_DOES_THE_WORK = frozenset({"rebuild", "verify"})
_QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def start(command: str, settings: SparkSettings) -> SparkSession:
    """A session for one command. Raises ``PipelineError`` if Spark cannot start."""
    check_spark(installed())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if settings.is_local:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.appName(f"tidegate {command}")
    # spark-submit has already chosen a master.
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        builder = builder.master(tolerant(settings.master))
    for name, value in configuration(command, settings).items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except (PySparkException, Py4JJavaError) as error:
        raise PipelineError(f"Spark did not start: {_reason(error)}") from error
    check_spark(spark.version, advice="correct SPARK_HOME, or take a newer cluster")
    spark.sparkContext.setLogLevel("WARN")
    for path in settings.files:
        spark.sparkContext.addFile(path)
    return spark


def configuration(command: str, settings: SparkSettings) -> dict[str, str]:
    """Spark's settings: ours, overridden by the user's."""
    found = {
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.adaptive.enabled": "true",
    }
    if settings.is_local:
        java_options = [f"-Djava.io.tmpdir={tempfile.gettempdir()}"]
        if command in _PYTHON_DOES_THE_WORK:
            # The JVM only distributes tasks: thorough compiling would double its processor time.
            java_options += _QUICK_START
        found |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": f"{_local_memory_gib()}g",
            "spark.driver.extraJavaOptions": " ".join(java_options),
            "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
        }
    if settings.package is not None:
        if not Path(settings.package).is_file():
            raise OptionError(f"there is no package {settings.package}: make it with tidegate spark-package")
        found |= {
            "spark.archives": f"{Path(settings.package).resolve()}#{UNPACKED_AS}",
            "spark.executorEnv.PYTHONPATH": UNPACKED_AS,
        }
    return found | settings.conf


def tolerant(master: str) -> str:
    """``local[N]`` with retries of a task, as on a cluster: by default the first failure ends the job."""
    found = re.fullmatch(r"local(?:\[(\*|\d+)\])?", master)
    return master if found is None else f"local[{found[1] or 1},{_TRIES}]"


def _local_memory_gib() -> int:
    """A third of the machine: Python's workers need memory too."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(_LOCAL_MEMORY_MAX_GIB, total // _GIB // 3))


def _reason(error: Exception) -> str:
    """Java's message, or else the first line."""
    lines = [" ".join(line.split()) for line in str(error).split("\n")]
    told = next((line for line in lines if line.startswith(": ")), lines[0])
    return told.removeprefix(": ")[:300]
